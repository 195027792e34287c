/**
 * Watches a trial and records every broken invariant:
 * no call breaks the pace; no expired member is used; no client waits while a draw could help it; no draw requests more than
 * the demand; the pool never exceeds its size plus one draw.
 */
import type { Clock } from '../../../src/core/clock.ts';
import type { Demand } from '../../../src/pool/drawn-member.ts';
import { isLease, type Lease, type LeaseProvider, type LeaseRefusal } from '../../../src/pool/lease.ts';
import type { Pool } from '../../../src/pool/pool.ts';
import type { DrawSourceOptions, RefillSettings } from '../../../src/refill/options.ts';
import { paceKey } from '../../../src/refill/pace.ts';
import { PACE_SLACK_MS } from '../../../src/refill/pace-rule.ts';
import { DEFAULT_LATENCY_MS } from '../../../src/refill/source-statistics.ts';
import { SUCCESS } from '../../../src/service/codes.ts';
import { OPERATIONS } from '../../../src/service/operations.ts';
import type { DrawCall } from '../../../src/service/request.ts';
import type { Life } from './life.ts';
import type { Trouble } from './world.ts';

export interface Violation {
  /** In ms of the monotonic clock since the start. */
  readonly at: number;
  readonly what: string;
}

export interface InvariantOptions {
  readonly clock: Clock;
  readonly refill: RefillSettings;
  readonly troubles: readonly Trouble[];
  /** The maximum duration of a call, including its connection and its records. */
  readonly maxCallMs: number;
  /** The maximum time for which a stopped or killed process blocks the calls of others. */
  readonly maxBlockMs: number;
  readonly isAlive: (host: string, port: number) => boolean;
}

/** The noria that is running. */
interface Running {
  readonly pool: Pool;
  readonly life: Life;
}

/** For this time after the end of a trouble, noria may still draw less often. */
const AFTERMATH_MS: Readonly<Record<Trouble['kind'], number>> = {
  outage: 75_000,
  blocked: 31 * 60_000,
  12002: 16 * 3_600_000, // the interval is narrowed by one step an hour
  12009: 30_000,
  12010: 31 * 60_000,
  12012: 3 * 60_000,
};
const CHECK_EVERY_MS = 250;
/** For how long noria may miss a possible draw while clients wait, in addition to the time until its call arrives. */
const MAX_NEGLECT_MS = 1_000;
/** The maximum number of violations to keep; further ones are only counted. */
const MAX_VIOLATIONS_KEPT = 20;

export class InvariantChecker {
  readonly #options: InvariantOptions;
  readonly #lastArrivalAt = new Map<string, number>();
  readonly #inFlight = new Set<string>();
  /** The sources that draw without clients, because their last draw failed or they have not drawn since the start. */
  readonly #drawsWithoutClients = new Set<string>();
  /** The members that were ever quarantined. They are replaced and may come back. */
  readonly #quarantined = new Set<string>();
  readonly #maxWanted = new Map<string, number>();
  #running: Running | undefined;
  #lastRequestAt = 0;
  #waiting = 0;
  #neglectedSinceAt: number | undefined;
  #continuedAt = -Infinity;
  #timer: Disposable | undefined;
  readonly violations: Violation[] = [];
  violationCount = 0;

  constructor(options: InvariantOptions) {
    this.#options = options;
  }

  started(pool: Pool, life: Life): void {
    this.#running = { pool, life };
    this.#lastRequestAt = -Infinity;
    this.#neglectedSinceAt = undefined;
    const { sources } = this.#options.refill;
    const first = Math.min(...sources.map(({ priority }) => priority));
    for (const { name, priority } of sources) if (priority === first) this.#drawsWithoutClients.add(name);
  }

  /** Call it when noria was closed or killed. */
  ended(): void {
    this.#running = undefined;
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#waiting = 0;
  }

  /** Call it when a source requests members. */
  drawStarted(source: string, count: number): void {
    if (this.#running !== undefined) this.#checkDemand(this.#source(source), count, this.#running);
  }

  /** Call it when a call reaches the service. This method is the judge of the pace. */
  arrived(call: DrawCall): void {
    const key = paceKey(call);
    const intervals = this.#options.refill.sources
      .filter((source) => paceKey(source.call) === key)
      .map(({ intervalMs }) => intervalMs);
    const gapMs = this.#now - (this.#lastArrivalAt.get(key) ?? -Infinity);
    if (gapMs < Math.min(...intervals)) {
      this.violated(`a call of ${key} arrived ${Math.round(gapMs)} ms after the previous one`);
    }
    this.#lastArrivalAt.set(key, this.#now);
  }

  /**
   * Call it when a call is sent. Call the result when the service has answered, whether or not the process still lives.
   */
  sent(call: DrawCall): () => void {
    const key = paceKey(call);
    if (this.#inFlight.has(key)) this.violated(`${key} was called while another call was in flight`);
    this.#inFlight.add(key);
    return () => this.#inFlight.delete(key);
  }

  /** Call it when noria continues after it was stopped. */
  continued(): void {
    this.#continuedAt = this.#now;
    this.#neglectedSinceAt = undefined;
  }

  /** Call it when the members of a draw are in the pool. */
  drawDone(source: string, code: string): void {
    if (code === SUCCESS) this.#drawsWithoutClients.delete(source);
    else this.#drawsWithoutClients.add(source);
    if (this.#running !== undefined) this.#checkPool(this.#running.pool);
  }

  memberQuarantined(member: string): void {
    this.#quarantined.add(member);
  }

  /** Wraps the pool that clients use. */
  watch(pool: LeaseProvider): LeaseProvider {
    const leases = new Map<number, Lease>();
    const acquired = (answer: Lease | LeaseRefusal) => {
      if (isLease(answer)) {
        leases.set(answer.id, answer);
        this.#checkUse(answer);
      }
      return answer;
    };
    return {
      acquire: (request) => {
        this.#lastRequestAt = this.#now;
        const answer = pool.acquire(request);
        if (!(answer instanceof Promise)) return acquired(answer);
        this.#clientWaits(1);
        return answer.then((waited) => {
          this.#clientWaits(-1);
          this.#lastRequestAt = this.#now; // this client wanted a member until now
          return acquired(waited);
        });
      },
      cancel: (id) => pool.cancel(id),
      upcoming: (query) => pool.upcoming(query),
      report: (report) => {
        const lease = leases.get(report.lease);
        if (report.kind !== 'accepted') leases.delete(report.lease);
        else if (lease !== undefined) this.#checkUse(lease);
        pool.report(report);
      },
    };
  }

  violated(what: string): void {
    this.violationCount += 1;
    if (this.violations.length < MAX_VIOLATIONS_KEPT)
      this.violations.push({ at: Math.round(this.#now), what });
  }

  get #now(): number {
    return this.#options.clock.monotonic();
  }

  #source(name: string): DrawSourceOptions {
    const source = this.#options.refill.sources.find((source) => source.name === name);
    if (source === undefined) throw new TypeError(`there is no source ${name}`);
    return source;
  }

  /** The maximum time from a call until the next call delivers. */
  #horizonMs({ intervalMs }: DrawSourceOptions): number {
    return intervalMs + PACE_SLACK_MS + 2 * Math.max(DEFAULT_LATENCY_MS, this.#options.maxCallMs);
  }

  #wanted({ usedUpPerSecond }: Demand, source: DrawSourceOptions): number {
    return source.size + Math.ceil((usedUpPerSecond * this.#horizonMs(source)) / 1_000);
  }

  #clientWaits(change: 1 | -1): void {
    this.#waiting = Math.max(0, this.#waiting + change);
    if (this.#waiting === 0) this.#neglectedSinceAt = undefined;
    else this.#timer ??= this.#checkLater();
  }

  #checkUse({ host, port }: Lease): void {
    if (this.#now === this.#continuedAt) return; // the lease was acquired before noria was stopped
    if (!this.#options.isAlive(host, port)) this.violated(`${host}:${port} was used after it expired`);
  }

  #checkDemand(source: DrawSourceOptions, count: number, { pool, life }: Running): void {
    const { idleAfterMs } = this.#options.refill;
    const { name, size } = source;
    const now = life.clock.monotonic();
    const demand = pool.demand(name);
    const { waiting } = demand;
    const missing = this.#wanted(demand, source) - this.#fewestUsable(source, pool, now);
    const urgent = waiting > 0 && pool.stockAt(name, now).usable === 0 ? Math.min(waiting, size) : 0;
    const most = Math.max(missing, urgent);
    if (count > most) this.violated(`${name} requested ${count} members, ${most} were missing`);
    const quietMs = this.#now - this.#lastRequestAt;
    const isIdle = idleAfterMs > 0 && waiting === 0 && quietMs > idleAfterMs;
    if (isIdle && !this.#drawsWithoutClients.has(name)) {
      this.violated(`${name} drew ${Math.round(quietMs / 1_000)} s after the last client request`);
    }
  }

  /** The minimum number of usable members until the next draw delivers. Quarantined members may come back before. */
  #fewestUsable(source: DrawSourceOptions, pool: Pool, now: number): number {
    let fewest = Infinity;
    let at: number | undefined = now + source.intervalMs + PACE_SLACK_MS;
    while (at !== undefined && at <= now + this.#horizonMs(source)) {
      fewest = Math.min(fewest, pool.stockAt(source.name, at).usable);
      at = pool.nextLossAt(source.name, at);
    }
    return fewest;
  }

  #checkPool(pool: Pool): void {
    const members = pool.members();
    for (const source of this.#options.refill.sources) {
      const { name, count, call } = source;
      const oneDraw = count ?? OPERATIONS[call.product].count.defaultMax;
      // This is the highest number that was ever wanted, because members that clients no longer need stay until they expire.
      const wanted = Math.max(this.#wanted(pool.demand(name), source), this.#maxWanted.get(name) ?? 0);
      this.#maxWanted.set(name, wanted);
      const held = members.filter(
        (member) => member.source === name && member.state === 'ready' && !this.#quarantined.has(member.id),
      );
      if (held.length > wanted + oneDraw)
        this.violated(`${name} holds ${held.length} members, more than ${wanted} and one draw`);
    }
    for (const { host, port, state } of members) {
      if (state === 'ready' && !this.#options.isAlive(host, port))
        this.violated(`${host}:${port} is ready and has expired`);
    }
  }

  #checkLater(): Disposable {
    return this.#options.clock.after(CHECK_EVERY_MS, () => {
      this.#timer = undefined;
      if (this.#running === undefined || this.#waiting === 0) return;
      this.#checkNeglect(this.#running);
      this.#timer = this.#checkLater();
    });
  }

  #checkNeglect(running: Running): void {
    if (!this.#couldDraw(running)) {
      this.#neglectedSinceAt = undefined;
      return;
    }
    this.#neglectedSinceAt ??= this.#now;
    if (this.#now - this.#neglectedSinceAt <= MAX_NEGLECT_MS + this.#options.maxCallMs) return;
    this.violated(`${this.#waiting} clients waited without a draw, although one was possible`);
    this.#neglectedSinceAt = undefined;
  }

  /** Whether no member is usable, no call is in flight, and a call may start that would bring members. */
  #couldDraw({ pool, life }: Running): boolean {
    const now = this.#now;
    if (this.#inFlight.size > 0 || life.isStopped) return false;
    const isTroubled = this.#options.troubles.some(
      ({ kind, fromMs, toMs }) => now >= fromMs && now < toMs + AFTERMATH_MS[kind],
    );
    if (isTroubled) return false;
    const { sources } = this.#options.refill;
    if (sources.some(({ name }) => pool.stockAt(name, life.clock.monotonic()).usable > 0)) return false;
    // A later priority may wait for an earlier one that will draw soon.
    const first = Math.min(...sources.map(({ priority }) => priority));
    return sources.some(({ priority, call }) => {
      const key = paceKey(call);
      const shared = sources.filter((other) => paceKey(other.call) === key);
      const gapMs = Math.max(...shared.map(({ intervalMs }) => intervalMs)) + PACE_SLACK_MS;
      const lastAt = Math.max(this.#lastArrivalAt.get(key) ?? -Infinity, this.#continuedAt, life.startedAt);
      return priority === first && now - lastAt > gapMs + this.#options.maxCallMs + this.#options.maxBlockMs;
    });
  }
}
