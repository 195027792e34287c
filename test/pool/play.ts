/**
 * Plays steps on a pool and checks, after each, what must hold whatever happens: against a plain list of the leases
 * and requests, kept here.
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
import type { HealthOptions, RotationOptions } from '../../src/pool/options.ts';
import type { MemberView } from '../../src/pool/views.ts';
import { CITY, offer, openKit, type PoolKit, poolSettings } from './pool-kit.ts';

const SAFETY_MARGIN_MS = 3_000;
const BACKUP = { ...CITY, name: 'backup', priority: 2, size: 3 };

export type SourceName = 'city' | 'backup';

/** Numbers name the n-th of what there is; where there are fewer, nothing happens. */
export type Step =
  | { do: 'take'; routing: RoutingOptions; host: number; avoid: number | undefined; waits: boolean }
  | { do: 'accept'; which: number }
  | { do: 'close'; which: number; cut: boolean }
  | { do: 'fail'; which: number; blame: 'member' | 'half-member' | 'target' | 'nobody' }
  | { do: 'pour'; source: SourceName; numbers: number[]; lifeMs: number | undefined; unproven: boolean }
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

interface Held {
  readonly lease: Lease;
  readonly probe: boolean;
  /** How often its member had gone into quarantine, where it was given while that was in doubt. */
  readonly doubt: number | undefined;
}

interface Asked {
  readonly request: LeaseRequest;
  answers: number;
}

export class Play {
  readonly kit: PoolKit;
  readonly #limits: Partial<RotationOptions>;
  readonly #settings: { readonly rotation: Partial<RotationOptions>; readonly health: HealthOptions };
  readonly #held = new Map<number, Held>();
  readonly #asked: Asked[] = [];
  readonly #bans = new Set<string>();
  readonly #blocked = new Set<string>();
  readonly #limited = new Set<string>();
  /** Latest end of life that was ever poured for an address. */
  readonly #endsAt = new Map<string, number>();
  /** A check that failed for a client that had waited: fails the step. */
  #trouble: unknown;
  #requests = 0;

  constructor(rotation: Partial<RotationOptions>) {
    this.#limits = rotation;
    this.#settings = { rotation, health: { maxFailures: 3, quarantineMs: 5_000 } };
    this.kit = openKit({ ...this.#settings, sources: [CITY, BACKUP] });
  }

  async run(step: Step): Promise<void> {
    this.#do(step);
    await settled();
    this.#check();
  }

  /** Closes the pool; then everyone must have an answer and nothing be armed. */
  async end(): Promise<void> {
    this.kit.pool.close();
    await settled();
    expect(
      this.#asked.every(({ answers }) => answers === 1),
      'everyone is answered, once',
    ).toBe(true);
    expect(this.kit.clock.armedCount).toBe(0);
  }

  #do(step: Step): void {
    const { pool, clock } = this.kit;
    if (step.do === 'take') this.#take(step);
    else if (step.do === 'pour') this.#addMembers(step);
    else if (step.do === 'accept')
      this.#report(step.which, (lease) => ({ lease, kind: 'accepted', latencyMs: 15 }));
    else if (step.do === 'close')
      this.#report(step.which, (lease) => ({ lease, kind: 'closed', cut: step.cut }));
    else if (step.do === 'fail') {
      const { which, blame } = step;
      this.#report(which, (lease) => ({ lease, kind: 'failed', blame, fault: 'member-silent' }));
    } else if (step.do === 'pass') clock.advance(step.ms);
    else if (step.do === 'cancel') pool.cancel(this.#asked[step.which]?.request.id ?? -1);
    else if (step.do === 'evict') pool.evict(this.#memberAt(step.which));
    else if (step.do === 'probe')
      for (const lease of pool.acquireForProbe(step.limit, 10_000)) this.#hold(lease, true);
    else if (step.do === 'ban') this.#ban(this.#memberAt(step.which), hostOf(step.host));
    else if (step.do === 'rotate') pool.rotateSession(step.session);
    else if (step.do === 'block') {
      note(this.#blocked, step.source, step.on && this.#isConfigured(step.source));
      pool.blockSource(step.source, step.on ? 'credentials refused' : undefined);
    } else if (step.do === 'limit') {
      note(this.#limited, step.source, step.on && this.#isConfigured(step.source));
      if (step.on) pool.limitTunnels(step.source, 0.5);
      else pool.unlimitTunnels(step.source);
    } else if (step.do === 'freeze') pool.freezeEvictions(step.on);
    else {
      if (!step.both) for (const names of [this.#blocked, this.#limited]) names.delete('backup');
      pool.reconfigure(poolSettings({ ...this.#settings, sources: step.both ? [CITY, BACKUP] : [CITY] }));
    }
  }

  #take({ routing, host, avoid, waits }: Extract<Step, { do: 'take' }>): void {
    this.#requests += 1;
    const request: LeaseRequest = {
      id: this.#requests,
      routing,
      targetHost: hostOf(host),
      avoid: avoid === undefined ? [] : [this.#memberAt(avoid)],
      waitMs: waits ? 20_000 : 0,
    };
    const asked: Asked = { request, answers: 0 };
    this.#asked.push(asked);
    const answer = this.kit.pool.acquire(request);
    if (answer instanceof Promise) void this.#answeredLate(asked, answer);
    else this.#answered(asked, answer);
  }

  #answered(asked: Asked, answer: Lease | LeaseRefusal): void {
    asked.answers += 1;
    if (!isLease(answer)) return;
    const { routing, targetHost, avoid } = asked.request;
    expect(avoid).not.toContain(answer.member);
    expect(this.#bans.has(`${answer.member} ${targetHost}`), 'banned for the host').toBe(false);
    expect(this.#blocked.has(answer.source), 'its source is blocked').toBe(false);
    expect(answer.source).toBe(routing.source ?? answer.source);
    expect(answer.protocol).toBe(routing.protocol ?? answer.protocol);
    expect(answer.session).toBe(routing.session);
    this.#hold(answer, false);
  }

  async #answeredLate(asked: Asked, answer: Promise<Lease | LeaseRefusal>): Promise<void> {
    try {
      this.#answered(asked, await answer);
    } catch (error) {
      this.#trouble ??= error;
    }
  }

  #hold(lease: Lease, probe: boolean): void {
    expect(this.#held.has(lease.id), 'a lease given twice').toBe(false);
    const leastEndsAt = this.kit.clock.monotonic() + SAFETY_MARGIN_MS;
    expect(this.#endsAt.get(addressOf(lease)), 'expired').toBeGreaterThan(leastEndsAt);
    if (lease.remainingMs !== undefined) expect(lease.remainingMs).toBeGreaterThan(SAFETY_MARGIN_MS);
    const state = this.kit.pool.members().find(({ id }) => id === lease.member)?.state;
    expect(state).toMatch(probe ? /joining|ready|quarantined/ : /ready|quarantined/);
    if (state !== 'ready') expect(lease.doubtful).toBe(true);
    const doubt = state === 'ready' ? undefined : this.#rests(lease.member);
    this.#held.set(lease.id, { lease, probe, doubt });
  }

  #report(which: number, report: (lease: number) => LeaseReport): void {
    const held = [...this.#held.values()][which];
    if (held === undefined) return;
    const told = report(held.lease.id);
    if (told.kind !== 'accepted') this.#held.delete(held.lease.id);
    this.kit.pool.report(told);
    this.kit.pool.report(told); // told again: ignored
  }

  #addMembers({ source, numbers, lifeMs, unproven }: Extract<Step, { do: 'pour' }>): void {
    const now = this.kit.clock.monotonic();
    const offers = numbers.map((number) => ({
      ...offer(this.kit, number, lifeMs),
      protocol: number % 2 === 0 ? ('http' as const) : ('socks5' as const),
      location: number % 3 === 0 ? 'East' : 'West',
      unproven,
      endsAt: lifeMs === undefined ? undefined : now + lifeMs,
    }));
    for (const one of offers) {
      const address = addressOf({ ...one, source });
      // A life of unknown length is renewed, so it has no end that could be told here.
      const endsAt = one.endsAt ?? Number.POSITIVE_INFINITY;
      this.#endsAt.set(address, Math.max(endsAt, this.#endsAt.get(address) ?? 0));
    }
    const { joined, renewed, rejected } = this.kit.pool.addMembers(source, offers);
    expect(joined + renewed + rejected).toBe(offers.length);
  }

  #ban(member: string, host: string): void {
    const known = this.kit.pool.ban({ of: { member }, host, verdict: 'banned' });
    if (known) this.#bans.add(`${member} ${host}`);
  }

  #isConfigured(name: string): boolean {
    return this.kit.pool.counts().some(({ source }) => source === name);
  }

  #memberAt(which: number): string {
    return this.kit.pool.members()[which]?.id ?? 'nobody';
  }

  #rests(member: string): number {
    return this.kit.events('member.quarantined').filter((event) => event.member === member).length;
  }

  #check(): void {
    if (this.#trouble !== undefined) throw this.#trouble;
    const { pool, clock } = this.kit;
    const members = pool.members();
    for (const member of members) this.#checkMember(member);
    this.#checkCounts(members);
    const ids = new Set(members.map(({ id }) => id));
    for (const { lease } of this.#held.values())
      expect(ids, 'a lease without a member').toContain(lease.member);
    const leases = members.flatMap(({ id }) => pool.leasesOf({ member: id }));
    expect(new Set(leases)).toEqual(new Set(this.#held.keys()));
    const waiting = this.#asked.filter(({ answers }) => answers === 0);
    expect(pool.waitingCount).toBe(waiting.length);
    expect(this.#asked.every(({ answers }) => answers <= 1)).toBe(true);
    for (const { request } of waiting) this.#checkWait(request, members);
    expect(clock.armedCount, 'timers').toBeLessThanOrEqual(3);
  }

  #checkMember({ id, state, openTunnels, uses }: MemberView): void {
    const held = [...this.#held.values()].filter(({ lease }) => lease.member === id);
    const { maxTunnelsPerMember = 0, maxUsesPerMember = 0 } = this.#limits;
    expect(openTunnels, 'open leases').toBe(held.length);
    if (state === 'draining') expect(held.length, 'draining with nothing open').toBeGreaterThan(0);
    if (maxUsesPerMember > 0) expect(uses).toBeLessThanOrEqual(maxUsesPerMember);
    if (maxTunnelsPerMember > 0) {
      expect(held.filter(({ probe }) => !probe).length).toBeLessThanOrEqual(maxTunnelsPerMember);
    }
    if (state !== 'joining' && state !== 'quarantined') return;
    const trials = held.filter(({ doubt }) => doubt === this.#rests(id));
    expect(trials.length, 'a crowd on a member in doubt').toBeLessThanOrEqual(1);
  }

  #checkCounts(members: readonly MemberView[]): void {
    const { pool, clock } = this.kit;
    for (const counts of pool.counts()) {
      const own = members.filter(({ source }) => source === counts.source);
      for (const state of ['joining', 'ready', 'quarantined'] as const) {
        expect(counts[state], state).toBe(own.filter((member) => member.state === state).length);
      }
      const living = own.filter(({ state }) => state !== 'draining').length;
      expect(pool.usableAt(counts.source, clock.monotonic())).toBeLessThanOrEqual(living);
    }
  }

  /** Where nothing limits members, a client without a wish does not wait while one is ready. */
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
    expect(free, 'waiting beside a free member').toEqual([]);
  }
}

function addressOf({ source, protocol, host }: Pick<Lease, 'source' | 'protocol' | 'host'>): string {
  return `${source} ${protocol} ${host}`;
}

function hostOf(number: number): string {
  return `host-${number % 3}.example`;
}

function note(names: Set<string>, name: string, on: boolean): void {
  if (on) names.add(name);
  else names.delete(name);
}

/** Lets promises that are settled tell so. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 4; turn += 1) await Promise.resolve();
}
