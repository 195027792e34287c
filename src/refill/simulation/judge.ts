/**
 * Who looks on at a simulation and knows the truth: every promise of noria that is broken is written down.
 *
 * The promises: no call breaks the pace; no tunnel starts through an expired member; no client is left without a member
 * while the service could give one; nothing is drawn beyond demand; the pool is never above its size and one draw.
 */
import type { Clock } from '../../core/clock.ts';
import type { Demand } from '../../pool/drawn-member.ts';
import type { Lease } from '../../pool/lease.ts';
import type { Pool } from '../../pool/pool.ts';
import { OPERATIONS } from '../../service/operations.ts';
import type { ExtractCall } from '../../service/request.ts';
import type { DrawSourceOptions, RefillSettings } from '../options.ts';
import { paceKey } from '../pace.ts';
import { PACE_SLACK_MS } from '../pace-rule.ts';
import { DEFAULT_LATENCY_MS } from '../source-records.ts';
import type { Life } from './life.ts';
import type { TrueMember } from './service.ts';
import type { SimulatedWorld, Trouble } from './world.ts';

/** A promise that was broken, in words. */
export interface Violation {
  /** Monotonic ms since the start. */
  readonly at: number;
  readonly what: string;
}

export interface JudgeOptions {
  readonly clock: Clock;
  readonly refill: RefillSettings;
  readonly world: SimulatedWorld;
  /** The truth about a member. */
  readonly truthOf: (host: string, port: number) => TrueMember | undefined;
}

/** How long after a trouble noria may still be careful. */
const AFTERMATH_MS: Readonly<Record<Trouble['kind'], number>> = {
  outage: 75_000,
  blocked: 31 * 60_000,
  12002: 16 * 3_600_000, // the interval stays wider, a step less for each quiet hour
  12009: 30_000,
  12010: 31 * 60_000,
  12012: 3 * 60_000,
};
/** After a start the call that was under way when noria was killed is waited for. */
const AFTER_START_MS = 15_000;
/** How often it is looked whether a client waits for nothing, and how long that may last: longer than writing a pace takes. */
const LOOK_EVERY_MS = 250;
const MOST_IDLE_MS = 1_000;
/** Kept in words; the others are counted. */
const MAX_WORDS = 20;

export class Judge {
  readonly #options: JudgeOptions;
  readonly #startedAt = new Map<string, number>();
  #open: { readonly pool: Pool; readonly life: Life; readonly at: number } | undefined;
  readonly #underWay = new Set<string>();
  #wantedAt = 0;
  readonly #rested = new Set<string>();
  readonly #mostWanted = new Map<string, number>();
  #waiting = 0;
  #neglectedSinceAt: number | undefined;
  #timer: Disposable | undefined;
  readonly violations: Violation[] = [];
  violationCount = 0;

  constructor(options: JudgeOptions) {
    this.#options = options;
  }

  /** A noria has started. */
  opened(pool: Pool, life: Life): void {
    this.#open = { pool, life, at: this.#now };
    this.#wantedAt = this.#now;
    this.#underWay.clear();
    this.#neglectedSinceAt = undefined;
  }

  /** It has ended, one way or the other. */
  closed(): void {
    this.#open = undefined;
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#waiting = 0;
  }

  /** A source asks for so many members. */
  asked(source: string, count: number): void {
    if (this.#open !== undefined) this.#checkDemand(this.#source(source), count, this.#open);
  }

  /** A call goes out. */
  called(call: ExtractCall): void {
    const { sources } = this.#options.refill;
    const key = paceKey(call);
    const intervals = sources
      .filter((source) => paceKey(source.call) === key)
      .map(({ intervalMs }) => intervalMs);
    const gapMs = this.#now - (this.#startedAt.get(key) ?? -Infinity);
    if (gapMs < Math.min(...intervals) + PACE_SLACK_MS) {
      this.broke(`${key} was called ${Math.round(gapMs)} ms after the call before`);
    }
    if (this.#underWay.has(key)) this.broke(`${key} was called while another call was under way`);
    this.#startedAt.set(key, this.#now);
    this.#underWay.add(key);
  }

  /** The answer to a source's call is in the pool. */
  answered(source: string): void {
    this.#underWay.delete(paceKey(this.#source(source).call));
    if (this.#open !== undefined) this.#checkPool(this.#open);
  }

  /** A member rests. Whether it comes back nobody knows, so it is replaced and counts no more. */
  rests(member: string): void {
    this.#rested.add(member);
  }

  /** A client asks for a member. */
  wanted(): void {
    this.#wantedAt = this.#now;
  }

  /** One begins to wait, or one of them waits no more. */
  waiting(change: 1 | -1): void {
    this.#waiting = Math.max(0, this.#waiting + change);
    this.#neglectedSinceAt = this.#waiting > 0 ? this.#neglectedSinceAt : undefined;
    if (this.#waiting > 0) this.#timer ??= this.#lookSoon();
  }

  /** A lease is given, or a tunnel starts. */
  usesMember({ host, port }: Lease): void {
    const endsAt = this.#options.truthOf(host, port)?.endsAt ?? -Infinity;
    if (endsAt <= this.#now)
      this.broke(`${host}:${port} was used ${Math.round(this.#now - endsAt)} ms after its end`);
  }

  broke(what: string): void {
    this.violationCount += 1;
    if (this.violations.length < MAX_WORDS) this.violations.push({ at: Math.round(this.#now), what });
  }

  get #now(): number {
    return this.#options.clock.monotonic();
  }

  #source(name: string): DrawSourceOptions {
    const source = this.#options.refill.sources.find((source) => source.name === name);
    if (source === undefined) throw new TypeError(`there is no source ${name}`);
    return source;
  }

  /** From a call to the landing of the one after it, at the latest. */
  #horizonMs({ intervalMs }: DrawSourceOptions): number {
    return intervalMs + PACE_SLACK_MS + Math.max(DEFAULT_LATENCY_MS, this.#options.world.callMs[1]);
  }

  #wanted({ usedUpPerSecond }: Demand, source: DrawSourceOptions): number {
    return source.size + Math.ceil((usedUpPerSecond * this.#horizonMs(source)) / 1_000);
  }

  #checkDemand(source: DrawSourceOptions, asked: number, { pool, life }: Opened): void {
    const { refill } = this.#options;
    const { name, size } = source;
    const now = life.clock.monotonic();
    const demand = pool.demand(name);
    const { waiting } = demand;
    const missing = this.#wanted(demand, source) - this.#fewestUsable(source, pool, now);
    const urgent = waiting > 0 && pool.usableAt(name, now) === 0 ? Math.min(waiting, size) : 0;
    const most = Math.max(missing, urgent);
    if (asked > most) this.broke(`${name} asked for ${asked} and lacked ${most}`);
    const quietMs = this.#now - this.#wantedAt;
    if (refill.idleAfterMs > 0 && waiting === 0 && quietMs > refill.idleAfterMs) {
      this.broke(`${name} drew ${Math.round(quietMs / 1_000)} s after the last client`);
    }
  }

  /** Before the draw after this one lands, however long that takes; members that rest come back meanwhile. */
  #fewestUsable(source: DrawSourceOptions, pool: Pool, now: number): number {
    let fewest = Infinity;
    let at: number | undefined = now + source.intervalMs + PACE_SLACK_MS;
    while (at !== undefined && at <= now + this.#horizonMs(source)) {
      fewest = Math.min(fewest, pool.usableAt(source.name, at));
      at = pool.nextLossAt(source.name, at);
    }
    return fewest;
  }

  #checkPool({ pool }: Opened): void {
    const members = pool.members();
    for (const { name, count, call } of this.#options.refill.sources) {
      const oneDraw = count ?? OPERATIONS[call.product].count.defaultMax;
      const wanted = Math.max(
        this.#wanted(pool.demand(name), this.#source(name)),
        this.#mostWanted.get(name) ?? 0,
      );
      this.#mostWanted.set(name, wanted); // whom clients stopped using up stay for their life
      const holds = members.filter(
        ({ id, source, state }) => source === name && state === 'ready' && !this.#rested.has(id),
      );
      if (holds.length > wanted + oneDraw)
        this.broke(`${name} holds ${holds.length} members, more than ${wanted} and a draw`);
    }
    for (const { host, port, state } of members) {
      const endsAt = this.#options.truthOf(host, port)?.endsAt ?? -Infinity;
      if (state === 'ready' && endsAt <= this.#now) this.broke(`${host}:${port} is ready and has ended`);
    }
  }

  #lookSoon(): Disposable {
    return this.#options.clock.after(LOOK_EVERY_MS, () => {
      this.#timer = undefined;
      if (this.#open === undefined || this.#waiting === 0) return;
      this.#lookForNeglect(this.#open);
      this.#timer = this.#lookSoon();
    });
  }

  /** A client waits, nothing is usable, a call may go out and would bring members: then one has to be under way. */
  #lookForNeglect(open: Opened): void {
    if (!this.#mayBeServed(open)) {
      this.#neglectedSinceAt = undefined;
      return;
    }
    this.#neglectedSinceAt ??= this.#now;
    const neglectedMs = this.#now - this.#neglectedSinceAt;
    if (neglectedMs <= MOST_IDLE_MS) return;
    this.broke(`${this.#waiting} clients waited and nothing was drawn, although it could be`);
    this.#neglectedSinceAt = undefined;
  }

  #mayBeServed({ pool, life, at }: Opened): boolean {
    const now = this.#now;
    if (this.#underWay.size > 0 || now - at < AFTER_START_MS) return false;
    const isCareful = this.#options.world.troubles.some(
      ({ kind, fromMs, toMs }) => now >= fromMs && now < toMs + AFTERMATH_MS[kind],
    );
    if (isCareful) return false;
    const { sources } = this.#options.refill;
    if (sources.some(({ name }) => pool.usableAt(name, life.clock.monotonic()) > 0)) return false;
    // One of a later priority may leave it to an earlier one that will draw in a moment.
    const first = Math.min(...sources.map(({ priority }) => priority));
    const firsts = sources.filter(({ priority }) => priority === first);
    return firsts.some(({ call, intervalMs }) => {
      const startedAt = this.#startedAt.get(paceKey(call)) ?? -Infinity;
      return now - startedAt > intervalMs + PACE_SLACK_MS;
    });
  }
}

interface Opened {
  readonly pool: Pool;
  readonly life: Life;
  readonly at: number;
}
