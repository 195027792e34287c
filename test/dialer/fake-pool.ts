/** A pool for tests of the dialer: members in a fixed order, every lease and report on record. */
import type { Lease, LeaseProvider, LeaseRefusal, LeaseReport, LeaseRequest } from '../../src/pool/lease.ts';
import type { TestMember } from '../support/bad-members.ts';

export interface LendingMember {
  readonly id: string;
  readonly at: Pick<TestMember, 'protocol' | 'host' | 'port'>;
  readonly source?: string;
  readonly doubtful?: boolean;
  readonly remainingMs?: number;
}

/** Whoever waits less has no member. */
const SHORTEST_WAIT_MS = 50;

interface Waiting {
  readonly request: LeaseRequest;
  readonly resolve: (answer: Lease | LeaseRefusal) => void;
}

export class FakeLending implements LeaseProvider {
  /** Those that are free, tried in order; the one that was lent goes to the end. */
  members: LendingMember[];
  readonly requests: LeaseRequest[] = [];
  readonly reports: LeaseReport[] = [];
  readonly cancelled: number[] = [];
  /** Every answer comes a turn later, as from a pool in another process. */
  remote = false;
  /** Gives members out again that were tried already, as a pool does that has nobody else. */
  desperate = false;
  readonly #lent = new Map<number, string>();
  readonly #waiting: Waiting[] = [];
  #lastLease = 0;

  constructor(members: readonly LendingMember[]) {
    this.members = [...members];
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    this.requests.push(request);
    const answer = this.#answer(request);
    return this.remote ? new Promise((resolve) => setImmediate(() => resolve(answer))) : answer;
  }

  #answer(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    const lease = this.#lend(request);
    if (lease !== undefined) return lease;
    if (request.waitMs < SHORTEST_WAIT_MS) return emptyPool();
    return new Promise((resolve) => this.#waiting.push({ request, resolve }));
  }

  cancel(requestId: number): void {
    this.cancelled.push(requestId);
    const index = this.#waiting.findIndex(({ request }) => request.id === requestId);
    const [waiting] = index < 0 ? [] : this.#waiting.splice(index, 1);
    waiting?.resolve({ refused: 'client-gone', reason: 'cancelled', sources: [] });
  }

  report(report: LeaseReport): void {
    this.reports.push(report);
    if (report.kind !== 'accepted') this.#lent.delete(report.lease);
  }

  /** A member comes while somebody waits. */
  add(member: LendingMember): void {
    this.members.push(member);
    for (const waiting of [...this.#waiting]) {
      const lease = this.#lend(waiting.request);
      if (lease === undefined) continue;
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
      waiting.resolve(lease);
    }
  }

  /** Nobody will come: those that wait are told. */
  giveUp(): void {
    for (const { resolve } of this.#waiting.splice(0)) resolve(emptyPool());
  }

  /** Leases that no report has ended. */
  get openLeases(): number {
    return this.#lent.size;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** What was laid at each member's door, in order. */
  verdicts(): string[] {
    const member = (lease: number) => this.#members.get(lease) ?? '?';
    return this.reports.flatMap((report) =>
      report.kind === 'failed' ? [`${member(report.lease)} ${report.fault} ${report.blame}`] : [],
    );
  }

  readonly #members = new Map<number, string>();

  #lend(request: LeaseRequest): Lease | undefined {
    const member = this.members.find(({ id }) => this.desperate || !request.avoid.includes(id));
    if (member === undefined) return undefined;
    this.members = [...this.members.filter((other) => other !== member), member];
    const id = ++this.#lastLease;
    this.#lent.set(id, member.id);
    this.#members.set(id, member.id);
    const { session } = request.routing;
    return {
      id,
      member: member.id,
      source: member.source ?? 'city',
      ...member.at,
      waitedMs: 0,
      doubtful: member.doubtful ?? false,
      ...(session === undefined ? {} : { session }),
      ...(member.remainingMs === undefined ? {} : { remainingMs: member.remainingMs }),
    };
  }
}

function emptyPool(): LeaseRefusal {
  return { refused: 'pool-empty', reason: 'nobody there', retryAfterMs: 4_000, sources: [] };
}
