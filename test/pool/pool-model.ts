/**
 * Runs steps on a pool and checks its invariants after each step.
 *
 * The model keeps its own list of leases and requests, and compares the pool with it.
 */
import { expect } from 'vitest';
import {
  isLease,
  type Lease,
  type LeaseRefusal,
  type LeaseReport,
  type LeaseRequest,
  type RoutingOptions,
} from '../../src/pool/lease.ts';
import type { PoolSettings } from '../../src/pool/options.ts';
import type { MemberView } from '../../src/pool/snapshot.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
import { drawn, openKit, type PoolKit } from './pool-kit.ts';

const SAFETY_MARGIN_MS = 3_000;
const BACKUP = { ...CITY, name: 'backup', priority: 2, size: 3 };

export type SourceName = 'city' | 'backup';

/**
 * `which` is an index into the open leases, requests or members. A step with an index beyond the last one does nothing.
 */
export type Step =
  | { do: 'acquire'; routing: RoutingOptions; host: number; avoid: number | undefined; waits: boolean }
  | { do: 'accept'; which: number }
  | { do: 'close'; which: number; cut: false | 'member-for-target' | 'unclear' }
  | { do: 'fail'; which: number; blame: 'member' | 'member-for-target' | 'unclear' | 'target' | 'nobody' }
  | { do: 'add'; source: SourceName; numbers: number[]; lifeMs: number | undefined; unproven: boolean }
  | { do: 'pass'; ms: number }
  | { do: 'cancel'; which: number }
  | { do: 'evict'; which: number }
  | { do: 'probe'; limit: number }
  | { do: 'ban'; which: number; host: number }
  | { do: 'rotate'; session: string }
  | { do: 'block'; source: SourceName; on: boolean }
  | { do: 'limit'; source: SourceName; on: boolean }
  | { do: 'freeze'; on: boolean }
  | { do: 'reload'; both: boolean };

interface OpenLease {
  readonly lease: Lease;
  readonly isProbe: boolean;
  /** How often the member had been quarantined before; undefined unless the lease is the member's trial after a quarantine. */
  readonly trialAfter: number | undefined;
}

interface Requested {
  readonly request: LeaseRequest;
  answers: number;
}

export class PoolModel {
  readonly kit: PoolKit;
  readonly #limits: Partial<PoolSettings['rotation']>;
  readonly #settings: {
    readonly rotation: Partial<PoolSettings['rotation']>;
    readonly health: PoolSettings['health'];
  };
  readonly #leases = new Map<number, OpenLease>();
  readonly #requests: Requested[] = [];
  readonly #bans = new Set<string>();
  readonly #blocked = new Set<string>();
  readonly #limited = new Set<string>();
  /** For each address, the latest end of life that was added. */
  readonly #endsAt = new Map<string, number>();
  /** The error of a check of a late answer. The current step then fails with this error. */
  #failure: unknown;

  constructor(rotation: Partial<PoolSettings['rotation']>) {
    this.#limits = rotation;
    this.#settings = { rotation, health: { maxFailures: 3, quarantineMs: 5_000 } };
    this.kit = openKit({ ...this.#settings, sources: [CITY, BACKUP] });
  }

  async run(step: Step): Promise<void> {
    this.#do(step);
    await runCallbacks();
    this.#check();
  }

  /** Closes the pool, and checks that it answers every request and leaves no timer armed. */
  async end(): Promise<void> {
    this.kit.pool.close();
    await runCallbacks();
    expect(
      this.#requests.every(({ answers }) => answers === 1),
      'every request is answered once',
    ).toBe(true);
    expect(this.kit.clock.armedCount).toBe(0);
  }

  #do(step: Step): void {
    const { pool, clock } = this.kit;
    if (step.do === 'acquire') this.#acquire(step);
    else if (step.do === 'add') this.#addMembers(step);
    else if (step.do === 'accept')
      this.#report(step.which, (lease) => ({ lease, kind: 'accepted', latencyMs: 15 }));
    else if (step.do === 'close')
      this.#report(step.which, (lease) => ({
        lease,
        kind: 'closed',
        cut: step.cut,
        answered: step.cut === false,
      }));
    else if (step.do === 'fail') {
      const { which, blame } = step;
      this.#report(which, (lease) => ({ lease, kind: 'failed', blame, fault: 'member-silent' }));
    } else if (step.do === 'pass') clock.advance(step.ms);
    else if (step.do === 'cancel') pool.cancel(this.#requests[step.which]?.request.id ?? -1);
    else if (step.do === 'evict') pool.evict(this.#memberAt(step.which));
    else if (step.do === 'probe')
      for (const lease of pool.acquireForProbe(step.limit, 10_000)) this.#addLease(lease, true);
    else if (step.do === 'ban') this.#ban(this.#memberAt(step.which), hostOf(step.host));
    else if (step.do === 'rotate') pool.rotateSession(step.session);
    else if (step.do === 'block') {
      setPresence(this.#blocked, step.source, step.on && this.#isConfigured(step.source));
      pool.blockSource(step.source, step.on ? 'credentials refused' : undefined);
    } else if (step.do === 'limit') {
      setPresence(this.#limited, step.source, step.on && this.#isConfigured(step.source));
      if (step.on) pool.limitTunnels(step.source, 0.5);
      else pool.unlimitTunnels(step.source);
    } else if (step.do === 'freeze') pool.freezeEvictions(step.on);
    else {
      if (!step.both) for (const names of [this.#blocked, this.#limited]) names.delete('backup');
      const sources = step.both ? [CITY, BACKUP] : [CITY];
      pool.reconfigure(poolSettings({ ...this.#settings, sources }));
    }
  }

  #acquire({ routing, host, avoid, waits }: Extract<Step, { do: 'acquire' }>): void {
    const request: LeaseRequest = {
      id: this.#requests.length + 1,
      routing,
      targetHost: hostOf(host),
      avoid: avoid === undefined ? [] : [this.#memberAt(avoid)],
      waitMs: waits ? 20_000 : 0,
    };
    const requested: Requested = { request, answers: 0 };
    this.#requests.push(requested);
    const answer = this.kit.pool.acquire(request);
    if (answer instanceof Promise) void this.#checkLateAnswer(requested, answer);
    else this.#checkAnswer(requested, answer);
  }

  /**
   * @param isLate - whether time may have passed since the pool gave the answer: a long step serves waiting clients
   *   before it ends.
   */
  #checkAnswer(requested: Requested, answer: Lease | LeaseRefusal, isLate = false): void {
    requested.answers += 1;
    if (!isLease(answer)) return;
    const { routing, targetHost, avoid } = requested.request;
    expect(avoid).not.toContain(answer.member);
    expect(this.#bans.has(`${answer.member} ${targetHost}`), 'banned for the host').toBe(false);
    expect(this.#blocked.has(answer.source), 'of a blocked source').toBe(false);
    expect(answer.source).toBe(routing.source ?? answer.source);
    expect(answer.protocol).toBe(routing.protocol ?? answer.protocol);
    expect(answer.session).toBe(routing.session);
    this.#addLease(answer, false, isLate);
  }

  async #checkLateAnswer(requested: Requested, answer: Promise<Lease | LeaseRefusal>): Promise<void> {
    try {
      this.#checkAnswer(requested, await answer, true);
    } catch (error) {
      this.#failure ??= error;
    }
  }

  #addLease(lease: Lease, isProbe: boolean, isLate = false): void {
    expect(this.#leases.has(lease.id), 'a lease id granted twice').toBe(false);
    const minEndsAt = this.kit.clock.monotonic() + SAFETY_MARGIN_MS;
    if (!isLate) expect(this.#endsAt.get(addressOf(lease)), 'end of the member').toBeGreaterThan(minEndsAt);
    if (lease.remainingMs !== undefined) expect(lease.remainingMs).toBeGreaterThan(SAFETY_MARGIN_MS);
    const state = this.kit.pool.members().find(({ id }) => id === lease.member)?.state;
    const allowed = isProbe ? /joining|ready|quarantined/ : /ready|quarantined/;
    expect(state).toMatch(isLate ? /ready|quarantined|draining/ : allowed);
    if (state !== 'ready' && !isLate) expect(lease.doubtful).toBe(true);
    const isTrial = state !== 'ready' && state !== 'draining';
    const trialAfter = !isTrial ? undefined : this.#quarantinesOf(lease.member);
    this.#leases.set(lease.id, { lease, isProbe, trialAfter });
  }

  #report(which: number, reportOn: (lease: number) => LeaseReport): void {
    const open = [...this.#leases.values()][which];
    if (open === undefined) return;
    const report = reportOn(open.lease.id);
    if (report.kind !== 'accepted') this.#leases.delete(open.lease.id);
    this.kit.pool.report(report);
    this.kit.pool.report(report); // the pool ignores a repeated report
  }

  #addMembers({ source, numbers, lifeMs, unproven }: Extract<Step, { do: 'add' }>): void {
    const now = this.kit.clock.monotonic();
    const members = numbers.map((number) => ({
      ...drawn(this.kit, number, lifeMs),
      protocol: number % 2 === 0 ? ('http' as const) : ('socks5' as const),
      location: number % 3 === 0 ? 'East' : 'West',
      unproven,
      endsAt: lifeMs === undefined ? undefined : now + lifeMs,
    }));
    for (const member of members) {
      const address = addressOf({ ...member, source });
      const endsAt = member.endsAt ?? Number.POSITIVE_INFINITY; // a success renews the member
      this.#endsAt.set(address, Math.max(endsAt, this.#endsAt.get(address) ?? 0));
    }
    const { joined, renewed, rejected } = this.kit.pool.addMembers(source, members);
    expect(joined + renewed + rejected).toBe(members.length);
  }

  #ban(member: string, host: string): void {
    const isMember = this.kit.pool.ban({ holder: { member }, host, verdict: 'banned' });
    if (isMember) this.#bans.add(`${member} ${host}`);
  }

  #isConfigured(name: string): boolean {
    return this.kit.pool.counts().some(({ source }) => source === name);
  }

  #memberAt(which: number): string {
    return this.kit.pool.members()[which]?.id ?? 'nobody';
  }

  #quarantinesOf(member: string): number {
    return this.kit.events('member.quarantined').filter((event) => event.member === member).length;
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure;
    const { pool, clock } = this.kit;
    const members = pool.members();
    for (const member of members) this.#checkMember(member);
    this.#checkCounts(members);
    const ids = new Set(members.map(({ id }) => id));
    for (const { lease } of this.#leases.values())
      expect(ids, 'members with an open lease').toContain(lease.member);
    const leases = members.flatMap(({ id }) => pool.leases.of({ member: id }));
    expect(new Set(leases)).toEqual(new Set(this.#leases.keys()));
    const waiting = this.#requests.filter(({ answers }) => answers === 0);
    expect(pool.waitingCount).toBe(waiting.length);
    expect(this.#requests.every(({ answers }) => answers <= 1)).toBe(true);
    for (const { request } of waiting) this.#checkWait(request, members);
    expect(clock.armedCount, 'timers').toBeLessThanOrEqual(3);
  }

  #checkMember({ id, state, openTunnels, uses }: MemberView): void {
    const leases = [...this.#leases.values()].filter(({ lease }) => lease.member === id);
    const { maxTunnelsPerMember = 0, maxUsesPerMember = 0 } = this.#limits;
    expect(openTunnels, 'open leases').toBe(leases.length);
    if (state === 'draining') expect(leases.length, 'open leases of a draining member').toBeGreaterThan(0);
    if (maxUsesPerMember > 0) expect(uses).toBeLessThanOrEqual(maxUsesPerMember);
    if (maxTunnelsPerMember > 0) {
      expect(leases.filter(({ isProbe }) => !isProbe).length).toBeLessThanOrEqual(maxTunnelsPerMember);
    }
    if (state !== 'joining' && state !== 'quarantined') return;
    const trials = leases.filter(({ trialAfter }) => trialAfter === this.#quarantinesOf(id));
    expect(trials.length, 'trials of one member').toBeLessThanOrEqual(1);
  }

  #checkCounts(members: readonly MemberView[]): void {
    const { pool, clock } = this.kit;
    for (const counts of pool.counts()) {
      const own = members.filter(({ source }) => source === counts.source);
      for (const state of ['joining', 'ready', 'quarantined'] as const) {
        expect(counts[state], state).toBe(own.filter((member) => member.state === state).length);
      }
      const notDraining = own.filter(({ state }) => state !== 'draining').length;
      expect(pool.stockAt(counts.source, clock.monotonic()).usable).toBeLessThanOrEqual(notDraining);
    }
  }

  /** Without limits, a client without routing options waits only while no member is ready. */
  #checkWait({ routing, avoid, targetHost }: LeaseRequest, members: readonly MemberView[]): void {
    const { maxTunnelsPerMember, maxUsesPerMember, perHostSpacingMs } = this.#limits;
    if (Object.keys(routing).length > 0 || avoid.length > 0) return;
    if (maxTunnelsPerMember !== 0 || maxUsesPerMember !== 0 || perHostSpacingMs !== 0) return;
    const free = members.filter(
      ({ id, state, source }) =>
        state === 'ready' &&
        !this.#blocked.has(source) &&
        !this.#limited.has(source) &&
        !this.#bans.has(`${id} ${targetHost}`),
    );
    expect(free, 'free members while a client waits').toEqual([]);
  }
}

function addressOf({ source, protocol, host }: Pick<Lease, 'source' | 'protocol' | 'host'>): string {
  return `${source} ${protocol} ${host}`;
}

function hostOf(number: number): string {
  return `host-${number % 3}.example`;
}

function setPresence(names: Set<string>, name: string, present: boolean): void {
  if (present) names.add(name);
  else names.delete(name);
}

/** Runs the callbacks of settled promises. */
async function runCallbacks(): Promise<void> {
  for (let turn = 0; turn < 4; turn += 1) await Promise.resolve();
}
