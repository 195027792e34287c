/**
 * The clients of a simulation. Each client arrives at a random moment and acquires a member. If the member fails, the
 * client tries another member. After a successful attempt, the client keeps its tunnel open for a random time.
 */
import { type Clock, pause } from '../../core/clock.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../core/duration.ts';
import type { EventBus } from '../../core/events.ts';
import type { Random } from '../../core/random.ts';
import { isLease, type Lease, type LeaseProvider, type LeaseRefusal } from '../../pool/lease.ts';
import { SERVICE_ZONE_OFFSET_MS } from '../../service/codes.ts';
import { type Range, randomIn, type SimulatedService } from './service.ts';

export interface SimulatedLoad {
  /** The average number of client requests per minute in each of the 24 hours of the service's day. */
  readonly ratesByHour: readonly number[];
  /** The ms after the start at which requests come, instead of `ratesByHour`. They come again after each `everyMs`. */
  readonly log?: { readonly moments: readonly number[]; readonly everyMs: number } | undefined;
  /** The number of sessions at a time that share the requests, and how long each keeps its name, in ms. */
  readonly sessions?: { readonly count: number; readonly lengthMs: number };
  /** The site bans an exit for ten minutes after this number of pages in a minute. */
  readonly pagesPerExit?: number;
  /** The average duration of a tunnel in ms. */
  readonly tunnelMs: number;
}

/** The rates of a day with requests in these hours only. */
export function rateInHours(perMinute: number, [from, to]: Range = [0, 24]): number[] {
  return Array.from({ length: 24 }, (_, hour) => (from <= hour && hour < to ? perMinute : 0));
}

interface SimulatedClientsOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pool: LeaseProvider;
  readonly service: SimulatedService;
  readonly load: SimulatedLoad;
  readonly waitForMemberMs: number;
  /** Called when the site bans the member's exit. */
  readonly onBan?: (lease: Lease) => void;
}

export type SimulatedEnding = 'served' | 'noMember' | 'membersFailed';

const MAX_ATTEMPTS = 3;
const HOST = 'target.test';
const BAN_MS = 600_000;
const ACCEPT_MS: Range = [50, 400];
/** Longer than any simulation. */
const MAX_GAP_MS = 400 * DAY_MS;
const ATTEMPT_TIMEOUT_MS = 1_000;

export class SimulatedClients {
  readonly #options: SimulatedClientsOptions;
  #arrival: Disposable | undefined;
  #requests = 0;
  #waiting = 0;
  #waitingSinceAt = 0;
  readonly endings: Record<SimulatedEnding, number> = { served: 0, noMember: 0, membersFailed: 0 };
  openCount = 0;
  /** For each served request, the ms from its arrival until a member accepted it. */
  readonly delays: number[] = [];
  /** The pages of the last minute that the site has served to each exit, and until when it bans exits. */
  readonly #pages = new Map<string, number[]>();
  readonly #bannedUntil = new Map<string, number>();
  #arrivals = 0;
  /** In ms, those that ended with a member. */
  readonly waits: number[] = [];
  /** The longest uninterrupted time in ms with at least one waiting client. */
  longestEmptyMs = 0;

  constructor(options: SimulatedClientsOptions) {
    this.#options = options;
    this.#scheduleArrival();
  }

  stop(): void {
    this.#arrival?.[Symbol.dispose]();
  }

  #scheduleArrival(): void {
    const { clock, random, load } = this.#options;
    const timeOfDayMs = (clock.now() + SERVICE_ZONE_OFFSET_MS) % DAY_MS;
    const gapMs = this.#untilNextMs() ?? untilArrivalMs(timeOfDayMs, load.ratesByHour, random);
    this.#arrival = clock.after(gapMs, () => {
      this.#scheduleArrival();
      void this.#serve();
    });
  }

  #untilNextMs(): number | undefined {
    const { log } = this.#options.load;
    if (log === undefined) return undefined;
    const { moments, everyMs } = log;
    if (moments.length === 0) return MAX_GAP_MS; // the other replicas have all requests
    const round = Math.floor(this.#arrivals / moments.length) * everyMs;
    const at = round + (moments[this.#arrivals % moments.length] ?? 0);
    this.#arrivals += 1;
    return Math.max(0, at - this.#options.clock.monotonic());
  }

  async #serve(): Promise<void> {
    this.openCount += 1;
    const ending = await this.#request();
    this.openCount -= 1;
    this.endings[ending] += 1;
  }

  async #request(): Promise<SimulatedEnding> {
    const { clock, waitForMemberMs } = this.#options;
    const arrivedAt = clock.monotonic();
    const deadlineAt = arrivedAt + waitForMemberMs;
    const session = this.#sessionName();
    const avoid: string[] = [];
    while (avoid.length < MAX_ATTEMPTS) {
      const answer = await this.#acquire(avoid, session, Math.max(0, deadlineAt - clock.monotonic()));
      if (!isLease(answer)) return avoid.length === 0 ? 'noMember' : 'membersFailed';
      if (await this.#attempt(answer)) {
        if (this.#isBanned(answer)) {
          avoid.push(answer.member);
          continue;
        }
        this.delays.push(clock.monotonic() - arrivedAt);
        await this.#holdTunnel(answer);
        return 'served';
      }
      avoid.push(answer.member);
    }
    return 'membersFailed';
  }

  #sessionName(): string | undefined {
    const { clock, random, load } = this.#options;
    if (load.sessions === undefined) return undefined;
    const { count, lengthMs } = load.sessions;
    const slot = Math.floor(random() * count);
    return `${slot}-${Math.floor(clock.monotonic() / lengthMs + slot / count)}`;
  }

  /** Whether the site bans the exit of the lease. If so, reports the ban and ends the lease. */
  #isBanned(lease: Lease): boolean {
    const { clock, load, onBan, pool } = this.#options;
    if (load.pagesPerExit === undefined) return false;
    const now = clock.monotonic();
    const recent = (this.#pages.get(lease.host) ?? []).filter((at) => now - at < 60_000);
    recent.push(now);
    this.#pages.set(lease.host, recent);
    if (recent.length > load.pagesPerExit) this.#bannedUntil.set(lease.host, now + BAN_MS);
    if (now >= (this.#bannedUntil.get(lease.host) ?? 0)) return false;
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
    onBan?.(lease);
    return true;
  }

  async #acquire(
    avoid: readonly string[],
    session: string | undefined,
    waitMs: number,
  ): Promise<Lease | LeaseRefusal> {
    const { pool } = this.#options;
    this.#requests += 1;
    const routing = session === undefined ? {} : { session };
    const request = { id: this.#requests, routing, targetHost: HOST, avoid, waitMs };
    const answer = pool.acquire(request);
    if (!(answer instanceof Promise)) return answer;
    this.#startWait();
    const waited = await answer;
    this.#endWait();
    if (isLease(waited)) this.waits.push(waited.waitedMs);
    return waited;
  }

  #startWait(): void {
    this.#waiting += 1;
    if (this.#waiting === 1) this.#waitingSinceAt = this.#options.clock.monotonic();
  }

  #endWait(): void {
    this.#waiting -= 1;
    if (this.#waiting > 0) return;
    const emptyMs = this.#options.clock.monotonic() - this.#waitingSinceAt;
    this.longestEmptyMs = Math.max(this.longestEmptyMs, emptyMs);
  }

  async #attempt({ id, source, member, host, port }: Lease): Promise<boolean> {
    const { random, service, clock, pool, bus } = this.#options;
    const accepted = service.accepts(host, port);
    const ms = accepted ? randomIn(ACCEPT_MS, random) + service.delayOf(host, port) : ATTEMPT_TIMEOUT_MS;
    await pause(clock, ms);
    const attempt = { source, member, ms, hedge: false };
    if (accepted) {
      pool.report({ lease: id, kind: 'accepted', latencyMs: ms });
      bus.emit('dial.attempted', { ...attempt, outcome: 'accepted', phase: 'done', blame: 'nobody' });
    } else {
      pool.report({ lease: id, kind: 'failed', blame: 'member', fault: 'member-silent' });
      bus.emit('dial.attempted', { ...attempt, outcome: 'member-silent', phase: 'answer', blame: 'member' });
    }
    return accepted;
  }

  async #holdTunnel(lease: Lease): Promise<void> {
    const { clock, random, load, pool } = this.#options;
    await pause(clock, exponential(load.tunnelMs, random));
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
  }
}

function exponential(meanMs: number, random: Random): number {
  return -Math.log(1 - random()) * meanMs;
}

/** The time in ms from a time of day to the next arrival, if arrivals are random and their rate changes by the hour. */
function untilArrivalMs(timeOfDayMs: number, ratesByHour: readonly number[], random: Random): number {
  let left = exponential(1, random); // the number of arrivals that are expected until the next one
  let at = timeOfDayMs;
  while (at < MAX_GAP_MS) {
    const hour = Math.floor(at / HOUR_MS);
    const perMs = (ratesByHour[hour % ratesByHour.length] ?? 0) / MINUTE_MS;
    const expected = perMs * ((hour + 1) * HOUR_MS - at);
    if (left < expected) return at + left / perMs - timeOfDayMs;
    left -= expected;
    at = (hour + 1) * HOUR_MS;
  }
  return at;
}
