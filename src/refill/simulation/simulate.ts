/**
 * Days of a noria in seconds: the real pool and the real sources, on a clock that jumps, against a service and clients
 * that are made up; noria is killed and started again, the wall clock is set, the service fails.
 *
 * The same seed gives the same days.
 */
import type { Clock } from '../../core/clock.ts';
import { EventBus } from '../../core/events.ts';
import { describeError } from '../../core/faults.ts';
import { type Random, seededRandom } from '../../core/random.ts';
import { VirtualClock } from '../../core/virtual-clock.ts';
import { openPool, type Pool } from '../../pool/pool.ts';
import { decodeSnapshot } from '../../pool/snapshot.ts';
import { createTimekeeper } from '../../state/moment.ts';
import { createPaceMemory } from '../../state/pace-file.ts';
import type { Extractor } from '../options.ts';
import { openRefiller, type Refiller } from '../refiller.ts';
import { type Open, SimulatedClients } from './clients.ts';
import { Judge } from './judge.ts';
import { Life } from './life.ts';
import type { SimulationReport } from './report.ts';
import { SimulatedService } from './service.ts';
import { SimulationTally } from './tally.ts';
import { CALM_WORLD, type SimulatedWorld, type SimulationOptions, within } from './world.ts';

/** Midnight of the service's day (UTC+8), so that the hours of the load are its hours. */
const START_AT = Date.UTC(2030, 0, 1) - 8 * 3_600_000;
const DAY_MS = 24 * 3_600_000;
const SWEEPS_PER_DAY = 24;
/** How long a killed noria is gone, and how far the wall clock is set. */
const DOWN_MS = [100, 60_000] as const;
const CLOCK_STEP_MS = [-7_200_000, 7_200_000] as const;
/** After the last client came: tunnels end, waiting clients get their answer. */
const ENDING_MS = 3_600_000;

/** Runs the days. @throws what is a mistake in the program, never a state of the simulated world. */
export async function simulate(options: SimulationOptions): Promise<SimulationReport> {
  const simulation = new Simulation(options);
  return simulation.run();
}

class Simulation {
  readonly #options: SimulationOptions;
  readonly #world: SimulatedWorld;
  readonly #random: Random;
  readonly #clock = new VirtualClock(START_AT);
  readonly #service: SimulatedService;
  readonly #judge: Judge;
  readonly #tally: SimulationTally;
  /** The disk: it outlives every noria. */
  readonly #pace = createPaceMemory(
    createTimekeeper(this.#clock, { id: 'simulated', elapsedMs: () => this.#clock.monotonic() }),
  );
  #snapshot = { text: '{}', takenAt: 0 };
  #noria: Noria | undefined;
  #crashes = 0;

  constructor(options: SimulationOptions) {
    this.#options = options;
    this.#world = { ...CALM_WORLD, ...options.world };
    this.#random = seededRandom(options.seed);
    const [clock, world] = [this.#clock, this.#world];
    this.#service = new SimulatedService({ clock, random: this.#random, world });
    const truthOf = (host: string, port: number) => this.#service.member(host, port);
    this.#judge = new Judge({ clock, refill: options.refill, world, truthOf });
    this.#tally = new SimulationTally(clock, this.#judge);
  }

  async run(): Promise<SimulationReport> {
    const { days, load, waitForMemberMs } = this.#options;
    const [clock, random, world] = [this.#clock, this.#random, this.#world];
    this.#start();
    const happenings = [
      new SimulatedClients({
        ...{ clock, random, load, waitForMemberMs },
        service: this.#service,
        noria: () => this.#noria,
        tally: this.#tally,
      }),
      atRandom(clock, random, world.crashesPerDay, () => this.#crash()),
      atRandom(clock, random, world.clockStepsPerDay, () => clock.stepWall(within(CLOCK_STEP_MS, random))),
      atRandom(
        clock,
        () => 0.5,
        SWEEPS_PER_DAY,
        () => this.#service.forgetEnded(),
      ),
    ];
    await clock.runUntil(days * DAY_MS);
    for (const happening of happenings) happening.stop();
    await clock.runUntil(days * DAY_MS + ENDING_MS);
    await this.#end();
    return this.#report();
  }

  #start(): void {
    const { refill, pool: settings } = this.#options;
    const life = new Life(this.#clock, this.#clock.monotonic());
    const { clock } = life;
    const random = this.#random;
    const bus = new EventBus((name, error) =>
      this.#judge.broke(`an observer of ${name} threw: ${describeError(error)}`),
    );
    const kept: unknown = JSON.parse(this.#snapshot.text);
    const { pool: members, refill: restored } = kept as { pool?: unknown; refill?: unknown };
    const pool = openPool({ ...settings, clock, random, bus, outlook: () => refiller.outlook() });
    const snapshot = decodeSnapshot(members);
    if (snapshot !== undefined) pool.restore(snapshot, this.#clock.monotonic() - this.#snapshot.takenAt);
    this.#judge.opened(pool, life);
    const refiller = openRefiller({
      ...refill,
      // What they speak, and who probes them, is not simulated.
      sources: refill.sources.map((source) => ({
        ...source,
        unproven: false,
        protocol: source.protocol ?? 'http',
      })),
      ...{ clock, random, bus, restored },
      pace: life.storeOf(this.#pace),
      extractor: this.#judged(this.#service.forLife(life)),
      pool,
    });
    bus.on('draw.started', ({ source, asked }) => this.#judge.asked(source, asked));
    bus.on('member.quarantined', ({ member }) => this.#judge.rests(member));
    bus.on('draw.done', ({ source }) => {
      this.#judge.answered(source);
      const text = JSON.stringify({ pool: pool.snapshot(), refill: refiller.record() });
      this.#snapshot = { text, takenAt: this.#clock.monotonic() };
    });
    this.#noria = { life, pool, bus, refiller };
  }

  #judged(extractor: Extractor): Extractor {
    return {
      extract: (call, options) => {
        this.#judge.called(call);
        return extractor.extract(call, options);
      },
    };
  }

  #crash(): void {
    if (this.#noria === undefined) return;
    this.#crashes += 1;
    this.#judge.closed();
    this.#noria.life.kill();
    this.#noria = undefined;
    this.#clock.after(within(DOWN_MS, this.#random), () => this.#start());
  }

  /** Closes what is left, and looks whether anything, or anyone, was forgotten. */
  async #end(): Promise<void> {
    this.#judge.closed();
    const { refiller, pool, life } = this.#noria ?? {};
    await refiller?.close();
    pool?.close();
    await this.#clock.runUntil(this.#clock.monotonic());
    if (this.#tally.open > 0) this.#judge.broke(`${this.#tally.open} clients got no answer`);
    if (life !== undefined && life.armedCount > 0) this.#judge.broke(`${life.armedCount} timers were left`);
    if (this.#clock.armedCount > 0) this.#judge.broke(`${this.#clock.armedCount} timers of nobody were left`);
    this.#service.forgetEnded();
  }

  #report(): SimulationReport {
    const { days, seed } = this.#options;
    const { endings, waits, longestEmptyMs } = this.#tally;
    const { given: drawn, used, wasted } = this.#service;
    const { violations, violationCount } = this.#judge;
    const calls = Object.fromEntries(this.#service.calls);
    const figures = { days, seed, calls, drawn, used, wasted, clients: endings, waits: summary(waits) };
    return { ...figures, longestEmptyMs, crashes: this.#crashes, violations, violationCount };
  }
}

interface Noria extends Open {
  readonly pool: Pool;
  readonly refiller: Refiller;
}

/** Lets something happen at random moments until it is stopped. */
function atRandom(clock: Clock, random: Random, timesPerDay: number, happen: () => void): { stop(): void } {
  if (timesPerDay === 0) return { stop() {} };
  let timer: Disposable;
  const next = () => {
    timer = clock.after((2 * random() * DAY_MS) / timesPerDay, () => {
      next();
      happen();
    });
  };
  next();
  return { stop: () => timer[Symbol.dispose]() };
}

function summary(waits: readonly number[]): SimulationReport['waits'] {
  const sorted = [...waits].sort((a, b) => a - b);
  const at = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? 0;
  return { count: sorted.length, medianMs: at(0.5), p95Ms: at(0.95), longestMs: at(1) };
}
