/** A pool for tests of the dialer: leases members in a fixed order and records every request and report. */
import type { SiteBans } from '../../src/dialer/evidence.ts';
import type {
  Lease,
  LeaseProvider,
  LeaseRefusal,
  LeaseReport,
  LeaseRequest,
  UpcomingMember,
  UpcomingQuery,
} from '../../src/pool/lease.ts';
import type { TestMember } from '../support/bad-members.ts';

export interface FakePoolMember {
  readonly id: string;
  readonly at: Pick<TestMember, 'protocol' | 'host' | 'port'>;
  readonly source?: string;
  readonly doubtful?: boolean;
  readonly remainingMs?: number;
}

/** The minimum wait: a request that may wait for less is refused immediately. */
const SHORTEST_WAIT_MS = 50;

interface Waiting {
  readonly request: LeaseRequest;
  readonly resolve: (answer: Lease | LeaseRefusal) => void;
}

export class FakePool implements LeaseProvider, SiteBans {
  readonly bans: string[] = [];
  readonly sites: SiteBans['sites'] = { of: () => ({ rule: { ban: { onStatus: 'auto' } } }) };
  /** The members in the order in which they are leased. A leased member moves to the end. */
  members: FakePoolMember[];
  readonly requests: LeaseRequest[] = [];
  readonly reports: LeaseReport[] = [];
  readonly cancelled: number[] = [];
  /** Whether the pool answers one turn of the event loop later, like a pool in another process. */
  remote = false;
  /** Whether the pool also leases members that were already tried, like a pool that has no others. */
  repeatsMembers = false;
  readonly #open = new Map<number, string>();
  readonly #waiting: Waiting[] = [];
  #lastLease = 0;

  constructor(members: readonly FakePoolMember[]) {
    this.members = [...members];
  }

  banExit({ host, exit, evidence }: Parameters<SiteBans['banExit']>[0]): void {
    this.bans.push(`${host} ${exit} ${evidence}`);
  }

  unbanExit(host: string, exit: string): void {
    this.bans.push(`${host} ${exit} lifted`);
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    this.requests.push(request);
    const answer = this.#answer(request);
    return this.remote ? new Promise((resolve) => setImmediate(() => resolve(answer))) : answer;
  }

  #answer(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    const lease = this.#lease(request);
    if (lease !== undefined) return lease;
    if (request.waitMs < SHORTEST_WAIT_MS) return emptyPool();
    return new Promise((resolve) => this.#waiting.push({ request, resolve }));
  }

  cancel(requestId: number): void {
    this.cancelled.push(requestId);
    const index = this.#waiting.findIndex(({ request }) => request.id === requestId);
    const [waiting] = index < 0 ? [] : this.#waiting.splice(index, 1);
    waiting?.resolve({ code: 'client-gone', reason: 'cancelled', sources: [] });
  }

  upcoming({ count, isKnown }: UpcomingQuery): readonly UpcomingMember[] {
    return this.members
      .slice(0, count)
      .filter(({ id }) => !isKnown(id))
      .map(({ id, source = 'city', at: { protocol, host, port }, remainingMs }) => ({
        member: id,
        source,
        protocol,
        host,
        port,
        ...(remainingMs !== undefined && { remainingMs }),
      }));
  }

  report(report: LeaseReport): void {
    this.reports.push(report);
    if (report.kind !== 'accepted') this.#open.delete(report.lease);
  }

  /** Adds a member and serves waiting requests with it. */
  add(member: FakePoolMember): void {
    this.members.push(member);
    for (const waiting of [...this.#waiting]) {
      const lease = this.#lease(waiting.request);
      if (lease === undefined) continue;
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
      waiting.resolve(lease);
    }
  }

  /** Refuses the requests that wait. */
  refuseAll(): void {
    for (const { resolve } of this.#waiting.splice(0)) resolve(emptyPool());
  }

  /** The number of leases without a final report. */
  get openLeases(): number {
    return this.#open.size;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Member, fault and blame of every failed lease, in order. */
  blames(): string[] {
    const member = (lease: number) => this.#members.get(lease) ?? '?';
    return this.reports.flatMap((report) =>
      report.kind === 'failed' ? [`${member(report.lease)} ${report.fault} ${report.blame}`] : [],
    );
  }

  readonly #members = new Map<number, string>();

  #lease(request: LeaseRequest): Lease | undefined {
    const member = this.members.find(({ id }) => this.repeatsMembers || !request.avoid.includes(id));
    if (member === undefined) return undefined;
    this.members = [...this.members.filter((other) => other !== member), member];
    const id = ++this.#lastLease;
    this.#open.set(id, member.id);
    this.#members.set(id, member.id);
    const { session } = request.routing;
    return {
      id,
      member: member.id,
      source: member.source ?? 'city',
      ...member.at,
      exit: member.at.host,
      waitedMs: 0,
      doubtful: member.doubtful ?? false,
      ...(session === undefined ? {} : { session }),
      ...(member.remainingMs === undefined ? {} : { remainingMs: member.remainingMs }),
    };
  }
}

function emptyPool(): LeaseRefusal {
  return { code: 'pool-empty', reason: 'no member', retryAfterMs: 4_000, sources: [] };
}
