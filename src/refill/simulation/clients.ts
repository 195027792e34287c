/**
 * The clients of a simulation: they come at random moments, take a member, try another one when it fails, and hold
 * their tunnel for a while. Every one of them ends with an answer, or with the life of the noria it came to.
 */
import type { Clock } from '../../core/clock.ts';
import type { EventBus } from '../../core/events.ts';
import type { Random } from '../../core/random.ts';
import { isLease, type Lease, type LeaseProvider, type LeaseRefusal } from '../../pool/lease.ts';
import type { Life } from './life.ts';
import type { SimulatedService } from './service.ts';
import type { SimulatedEnding, SimulationTally } from './tally.ts';
import { type Range, type SimulatedLoad, within } from './world.ts';

/** The noria that clients come to at the moment. */
export interface Open {
  readonly life: Life;
  readonly pool: LeaseProvider;
  readonly bus: EventBus;
}

export interface ClientsOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly load: SimulatedLoad;
  readonly waitForMemberMs: number;
  readonly service: SimulatedService;
  /** Undefined while noria is down: who comes then is refused by nobody. */
  readonly noria: () => Open | undefined;
  readonly tally: SimulationTally;
}

const MAX_ATTEMPTS = 3;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** How long a member takes to accept, from and to; and how long until a dead one is given up. */
const ACCEPT_MS: Range = [50, 400];
const GIVE_UP_MS = 1_000;

export class SimulatedClients {
  readonly #options: ClientsOptions;
  #next: Disposable | undefined;
  #requests = 0;
  #stopped = false;

  constructor(options: ClientsOptions) {
    this.#options = options;
    this.#scheduleNext();
  }

  /** No more of them come; those that are there go on. */
  stop(): void {
    this.#stopped = true;
    this.#next?.[Symbol.dispose]();
  }

  #scheduleNext(): void {
    const { clock, random, load } = this.#options;
    const gapMs = exponential(60_000 / load.requestsPerMinute, random);
    const quietMs = untilActive((clock.monotonic() + gapMs) % DAY_MS, load.activeHours);
    this.#next = clock.after(gapMs + quietMs, () => {
      if (this.#stopped) return;
      this.#scheduleNext();
      const open = this.#options.noria();
      if (open !== undefined) void this.#serve(open);
    });
  }

  async #serve(open: Open): Promise<void> {
    const { tally } = this.#options;
    tally.came();
    tally.ended(await this.#request(open));
  }

  async #request(open: Open): Promise<SimulatedEnding> {
    const { clock, tally, waitForMemberMs } = this.#options;
    const patientUntilAt = clock.monotonic() + waitForMemberMs;
    const avoid: string[] = [];
    while (avoid.length < MAX_ATTEMPTS) {
      const answer = await this.#take(open, avoid, Math.max(0, patientUntilAt - clock.monotonic()));
      if (answer === undefined) return 'killed';
      if (!isLease(answer)) return avoid.length === 0 ? 'noMember' : 'membersFailed';
      tally.usesMember(answer);
      const accepted = await this.#attempt(open, answer);
      if (accepted === undefined) return 'killed';
      if (accepted) return this.#hold(open, answer);
      avoid.push(answer.member);
    }
    return 'membersFailed';
  }

  /** Undefined: noria was killed meanwhile. So too below. */
  async #take(
    { pool, life }: Open,
    avoid: readonly string[],
    waitMs: number,
  ): Promise<Lease | LeaseRefusal | undefined> {
    const { tally } = this.#options;
    this.#requests += 1;
    tally.wanted();
    const answer = pool.acquire({
      id: this.#requests,
      routing: {},
      targetHost: 'target.test',
      avoid,
      waitMs,
    });
    if (!(answer instanceof Promise)) return answer;
    tally.startsWaiting();
    const waited = await life.orKilled(answer);
    tally.waited(waited !== undefined && isLease(waited) ? waited.waitedMs : undefined);
    return waited;
  }

  async #attempt({ pool, life, bus }: Open, lease: Lease): Promise<boolean | undefined> {
    const { random, service, clock, tally } = this.#options;
    const truth = service.member(lease.host, lease.port);
    const works = truth !== undefined && !truth.dead && truth.endsAt > clock.monotonic();
    const ms = works ? within(ACCEPT_MS, random) : GIVE_UP_MS;
    await life.pass(ms);
    if (!life.alive) return undefined;
    const attempted = { source: lease.source, member: lease.member, ms, hedge: false };
    if (works) {
      truth.used = true;
      tally.usesMember(lease);
      pool.report({ lease: lease.id, kind: 'accepted', latencyMs: ms });
      bus.emit('dial.attempted', { ...attempted, outcome: 'accepted', phase: 'done', blame: 'nobody' });
    } else {
      pool.report({ lease: lease.id, kind: 'failed', blame: 'member', fault: 'member-silent' });
      bus.emit('dial.attempted', {
        ...attempted,
        outcome: 'member-silent',
        phase: 'answer',
        blame: 'member',
      });
    }
    return works;
  }

  async #hold({ pool, life }: Open, lease: Lease): Promise<SimulatedEnding> {
    const { random, load } = this.#options;
    await life.pass(exponential(load.tunnelMs, random));
    if (!life.alive) return 'killed';
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
    return 'served';
  }
}

/** A random duration of that mean, as of events that do not know of each other. */
function exponential(meanMs: number, random: Random): number {
  return -Math.log(1 - random()) * meanMs;
}

/** Ms from a time of the day to the next moment at which clients come. */
function untilActive(timeMs: number, [fromHour, toHour]: SimulatedLoad['activeHours']): number {
  const fromMs = fromHour * HOUR_MS;
  if (timeMs < fromMs) return fromMs - timeMs;
  return timeMs < toHour * HOUR_MS ? 0 : DAY_MS - timeMs + fromMs;
}
