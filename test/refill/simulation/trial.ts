/**
 * Days of a noria in an unreliable world: the service fails, noria is killed and started again, the wall clock is set.
 * It counts what happened and which invariants were broken. The same seed gives the same result.
 */
import type { Clock } from '../../../src/core/clock.ts';
import { EventBus } from '../../../src/core/events.ts';
import { describeError } from '../../../src/core/faults.ts';
import { type Random, seededRandom } from '../../../src/core/random.ts';
import { VirtualClock } from '../../../src/core/virtual-clock.ts';
import { Pool } from '../../../src/pool/pool.ts';
import { decodeSnapshot } from '../../../src/pool/snapshot.ts';
import type { Extractor } from '../../../src/refill/options.ts';
import { openRefiller, type Refiller } from '../../../src/refill/refiller.ts';
import { SimulatedClients } from '../../../src/refill/simulation/clients.ts';
import { randomIn } from '../../../src/refill/simulation/options.ts';
import { SIMULATION_START_AT } from '../../../src/refill/simulation/simulate.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import { createPaceMemory } from '../../../src/state/pace-file.ts';
import { InvariantChecker, type Violation } from './invariant-checker.ts';
import { Life } from './life.ts';
import { UnreliableService } from './unreliable-service.ts';
import { CALM_WORLD, type TrialOptions, type World } from './world.ts';

export interface TrialResult {
  /** Calls by the service's code, `transport` without an answer. */
  readonly calls: Readonly<Record<string, number>>;
  readonly callCount: number;
  readonly drawn: number;
  /** Client requests by how they ended; `killed` with the noria that served them. */
  readonly clients: Readonly<Record<'served' | 'noMember' | 'membersFailed' | 'killed', number>>;
  readonly longestEmptyMs: number;
  readonly violations: readonly Violation[];
  readonly violationCount: number;
}

const DAY_MS = 24 * 3_600_000;
/** How long a killed noria stays down, and how far the wall clock is set. */
const DOWN_MS = [100, 60_000] as const;
const CLOCK_STEP_MS = [-7_200_000, 7_200_000] as const;
/** Time for open requests to end after the last client arrived. */
const ENDING_MS = 3_600_000;

export async function runTrial(options: TrialOptions): Promise<TrialResult> {
  return new Trial(options).run();
}

/** One run of noria, with its clients. */
interface Run {
  readonly life: Life;
  readonly pool: Pool;
  readonly refiller: Refiller;
  readonly clients: SimulatedClients;
}

class Trial {
  readonly #options: TrialOptions;
  readonly #world: World;
  readonly #random: Random;
  readonly #clock = new VirtualClock(SIMULATION_START_AT);
  readonly #service: UnreliableService;
  readonly #checker: InvariantChecker;
  /** The disk: the pace store and the snapshot outlive every run. */
  readonly #paceStore = createPaceMemory(
    createTimekeeper(this.#clock, { id: 'trial', elapsedMs: () => this.#clock.monotonic() }),
  );
  #snapshot = { text: '{}', takenAt: 0 };
  #run: Run | undefined;
  readonly #allClients: SimulatedClients[] = [];

  constructor(options: TrialOptions) {
    const world = { ...CALM_WORLD, ...options.world };
    const clock = this.#clock;
    this.#options = options;
    this.#world = world;
    this.#random = seededRandom(options.seed);
    const { callMs = [100, 1_200], lifetimeMs } = world;
    this.#service = new UnreliableService(
      { clock, random: this.#random, callMs, ...(lifetimeMs === undefined ? {} : { lifetimeMs }) },
      world,
    );
    this.#checker = new InvariantChecker({
      clock,
      refill: options.refill,
      troubles: world.troubles,
      maxCallMs: callMs[1],
      isAlive: (host, port) => this.#service.member(host, port) !== undefined,
    });
  }

  async run(): Promise<TrialResult> {
    const { days } = this.#options;
    const { crashesPerDay, clockStepsPerDay } = this.#world;
    const [clock, random] = [this.#clock, this.#random];
    this.#start();
    const incidents = [
      atRandomTimes(clock, random, crashesPerDay, () => this.#crash()),
      atRandomTimes(clock, random, clockStepsPerDay, () => clock.stepWall(randomIn(CLOCK_STEP_MS, random))),
    ];
    await clock.runUntil(days * DAY_MS);
    for (const incident of incidents) incident[Symbol.dispose]();
    this.#run?.clients.stop();
    await clock.runUntil(days * DAY_MS + ENDING_MS);
    await this.#close();
    return this.#result();
  }

  #start(): void {
    const { refill, pool: poolSettings, load, waitForMemberMs } = this.#options;
    const life = new Life(this.#clock);
    const { clock } = life;
    const random = this.#random;
    const checker = this.#checker;
    const bus = new EventBus((name, error) =>
      checker.violated(`an observer of ${name} threw: ${describeError(error)}`),
    );
    const { pool: members, refill: restored } = JSON.parse(this.#snapshot.text);
    const pool = new Pool({ ...poolSettings, clock, random, bus, forecasts: () => refiller.forecasts() });
    const snapshot = decodeSnapshot(members);
    if (snapshot !== undefined) pool.restore(snapshot, this.#clock.monotonic() - this.#snapshot.takenAt);
    checker.started(pool, life);
    const refiller = openRefiller({
      ...refill,
      ...{ clock, random, bus, pool, restored },
      pace: life.storeOf(this.#paceStore),
      extractor: this.#extractorOf(life),
    });
    bus.on('draw.started', ({ source, asked }) => checker.drawStarted(source, asked));
    bus.on('member.quarantined', ({ member }) => checker.memberQuarantined(member));
    bus.on('draw.done', ({ source, code }) => {
      checker.drawDone(source, code);
      const text = JSON.stringify({ pool: pool.snapshot(), refill: refiller.record() });
      this.#snapshot = { text, takenAt: this.#clock.monotonic() };
    });
    const clients = new SimulatedClients({
      ...{ clock, random, bus, load, waitForMemberMs },
      pool: checker.watch(pool),
      service: this.#service,
    });
    this.#allClients.push(clients);
    this.#run = { life, pool, refiller, clients };
  }

  #extractorOf(life: Life): Extractor {
    return {
      extract: async (call, options) => {
        this.#checker.callStarted(call);
        const answer = await life.orNever(this.#service.extract(call, options));
        return { ...answer, sentAt: answer.sentAt - life.startedAt };
      },
    };
  }

  #crash(): void {
    if (this.#run === undefined) return;
    this.#checker.ended();
    this.#run.life.kill();
    this.#run = undefined;
    this.#clock.after(randomIn(DOWN_MS, this.#random), () => this.#start());
  }

  async #close(): Promise<void> {
    this.#checker.ended();
    const { refiller, pool, life, clients } = this.#run ?? {};
    await refiller?.close();
    pool?.close();
    await this.#clock.runUntil(this.#clock.monotonic());
    if (clients !== undefined && clients.openCount > 0)
      this.#checker.violated(`${clients.openCount} clients got no answer`);
    if (life !== undefined && life.armedCount > 0)
      this.#checker.violated(`${life.armedCount} timers are still armed`);
    if (this.#clock.armedCount > 0)
      this.#checker.violated(`${this.#clock.armedCount} timers of the world are still armed`);
    this.#service.sweep();
  }

  #result(): TrialResult {
    const { drawn } = this.#service;
    const { violations, violationCount } = this.#checker;
    const calls = Object.fromEntries(this.#service.calls);
    const sum = (count: (clients: SimulatedClients) => number) =>
      this.#allClients.reduce((total, clients) => total + count(clients), 0);
    return {
      calls,
      callCount: Object.values(calls).reduce((total, count) => total + count, 0),
      drawn,
      clients: {
        served: sum(({ endings }) => endings.served),
        noMember: sum(({ endings }) => endings.noMember),
        membersFailed: sum(({ endings }) => endings.membersFailed),
        killed: sum(({ openCount }) => openCount),
      },
      longestEmptyMs: Math.max(...this.#allClients.map(({ longestEmptyMs }) => longestEmptyMs)),
      violations,
      violationCount,
    };
  }
}

/** Calls `happen` at random moments, on average `timesPerDay` times a day, until it is disposed of. */
function atRandomTimes(clock: Clock, random: Random, timesPerDay: number, happen: () => void): Disposable {
  let timer: Disposable | undefined;
  const schedule = () => {
    timer = clock.after((2 * random() * DAY_MS) / timesPerDay, () => {
      schedule();
      happen();
    });
  };
  if (timesPerDay > 0) schedule();
  return { [Symbol.dispose]: () => timer?.[Symbol.dispose]() };
}
