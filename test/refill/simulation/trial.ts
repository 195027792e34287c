/**
 * Days of a noria in an unreliable world: the service fails, noria is killed and started again, the wall clock is set.
 * It counts what happened and which invariants were broken. The same seed gives the same result.
 */

import type { Clock } from '../../../src/core/clock.ts';
import { DAY_MS } from '../../../src/core/duration.ts';
import { EventBus } from '../../../src/core/events.ts';
import { describeError } from '../../../src/core/faults.ts';
import { type Random, randomBelow, seededRandom } from '../../../src/core/random.ts';
import { Pool } from '../../../src/pool/pool.ts';
import { decodeSnapshot } from '../../../src/pool/stored-state.ts';
import type { Extractor } from '../../../src/refill/options.ts';
import { Pace, paceKey } from '../../../src/refill/pace.ts';
import { PERMIT_VALID_MS } from '../../../src/refill/pace-rule.ts';
import { Refiller } from '../../../src/refill/refiller.ts';
import { SimulatedClients } from '../../../src/refill/simulation/clients.ts';
import { randomIn } from '../../../src/refill/simulation/service.ts';
import { SIMULATION_START_AT } from '../../../src/refill/simulation/simulate.ts';
import { VirtualClock } from '../../../src/refill/simulation/virtual-clock.ts';
import type { WriteGate } from '../../../src/service/transport.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import { createPaceMemory, type PaceStore } from '../../../src/state/pace-file.ts';
import { take } from '../take.ts';
import { InvariantChecker, type Violation } from './invariant-checker.ts';
import { Life } from './life.ts';
import { UnreliableService } from './unreliable-service.ts';
import { CALM_WORLD, type TrialOptions, type World } from './world.ts';

export interface TrialResult {
  /** The number of calls by the service's code; `transport` for calls without an answer. */
  readonly calls: Readonly<Record<string, number>>;
  readonly callCount: number;
  readonly drawn: number;
  /** The number of client requests by result; `killed` for those that ended with their noria. */
  readonly clients: Readonly<Record<'served' | 'noMember' | 'membersFailed' | 'killed', number>>;
  readonly longestEmptyMs: number;
  readonly violations: readonly Violation[];
  readonly violationCount: number;
}

/** How long the turn of a killed process keeps its place in the queue. */
const PLACE_MS = 3_000;
/** How long a killed or stopped noria stays down, and how far the wall clock is set. */
const DOWN_MS = [100, 60_000] as const;
const CLOCK_STEP_MS = [-7_200_000, 7_200_000] as const;
/** The time after the last client's arrival in which open requests end. */
const ENDING_MS = 3_600_000;
/** The time to record the end of a call that the close has aborted. */
const CLOSING_MS = 10_000;

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
  /** The disk. The pace store and the snapshot outlive every run. */
  readonly #paceStore = createPaceMemory(createTimekeeper(this.#clock, bootOf(this.#clock)));
  #snapshot = { text: '{}', takenAt: 0 };
  #run: Run | undefined;
  readonly #allClients: SimulatedClients[] = [];

  constructor(options: TrialOptions) {
    const world = { ...CALM_WORLD, ...options.world };
    const clock = this.#clock;
    this.#options = options;
    this.#world = world;
    this.#random = seededRandom(options.seed);
    const { connectMs = [10, 100], callMs = [100, 1_200], lifetimeMs } = world;
    this.#service = new UnreliableService(
      { clock, random: this.#random, connectMs, callMs, ...(lifetimeMs === undefined ? {} : { lifetimeMs }) },
      world,
      (call) => this.#checker.arrived(call),
    );
    this.#checker = new InvariantChecker({
      clock,
      refill: options.refill,
      troubles: world.troubles,
      maxCallMs: connectMs[1] + callMs[1] + 6 * world.diskMs[1] + (world.stopShare > 0 ? DOWN_MS[1] : 0),
      maxBlockMs:
        world.crashesPerDay + world.stopShare + world.killShare > 0
          ? 2 * (PERMIT_VALID_MS + options.refill.callTimeoutMs + PLACE_MS) // two delays, one after the other
          : 0,
      isAlive: (host, port) => this.#service.member(host, port) !== undefined,
    });
  }

  /** Whether a noria that is interrupted now may come back only after the last client. */
  get #isEnding(): boolean {
    return this.#clock.monotonic() > this.#options.days * DAY_MS - DOWN_MS[1];
  }

  async run(): Promise<TrialResult> {
    const { days } = this.#options;
    const { crashesPerDay, extractsPerDay, clockStepsPerDay } = this.#world;
    const [clock, random] = [this.#clock, this.#random];
    this.#start();
    const incidents = [
      atRandomTimes(clock, random, crashesPerDay, () => this.#crash()),
      atRandomTimes(clock, random, extractsPerDay, () => void this.#extract()),
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
    const refiller = new Refiller({ clock, random, bus, pool });
    refiller.open({
      ...{ ...refill, restored },
      pace: this.#storeOf(life),
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

  #storeOf(life: Life): PaceStore {
    const { diskMs } = this.#world;
    const changed = () => this.#maybeInterrupt(life);
    return life.storeOf(this.#paceStore, () => randomIn(diskMs, this.#random), changed);
  }

  #extractorOf(life: Life): Extractor {
    return {
      connect: async (address, signal) => {
        const connection = await life.orNever(this.#service.connect(address, signal));
        return {
          close: () => connection.close(),
          extract: async (call, { gate, secrets }) => {
            let ended: (() => void) | undefined;
            const beforeWrite = () => {
              gate.beforeWrite();
              ended = this.#checker.sent(call);
              this.#maybeInterrupt(life);
            };
            const sent = { beforeWrite, answered: () => {} };
            const answering = connection.extract(call, { gate: sent, secrets }).finally(() => ended?.());
            const answer = await life.orNever(answering);
            gate.answered();
            return { ...answer, sentAt: answer.sentAt - life.startedAt };
          },
        };
      },
    };
  }

  /** Makes one call on the same instance from another process, as `noria extract` does. */
  async #extract(): Promise<void> {
    const life = new Life(this.#clock);
    const [random, { callTimeoutMs, sources }] = [this.#random, this.#options.refill];
    const source = sources[randomBelow(random, sources.length)];
    if (source === undefined) return;
    const { call, intervalMs } = source;
    const pace = new Pace(paceKey(call), { store: this.#storeOf(life), clock: life.clock, random });
    const extractor = this.#extractorOf(life);
    const never = new AbortController().signal;
    const open = async () => {
      const connection = await extractor.connect(call, never);
      const send = async (gate: WriteGate) => {
        await connection.extract({ ...call, count: 1 }, { secrets: [], gate });
        return { result: undefined, settlement: { kind: 'done' } as const };
      };
      return { send, close: () => connection.close() };
    };
    await take(pace, { rule: { intervalMs, callTimeoutMs }, open }, never).catch(() => {}); // ignored: the service may fail
  }

  /** Kills or stops the process at one of the worst moments. */
  #maybeInterrupt(life: Life): void {
    const { stopShare, killShare } = this.#world;
    if (this.#isEnding) return;
    if (this.#random() < killShare) {
      if (life === this.#run?.life) this.#crash();
      else life.kill();
    } else if (this.#random() < stopShare && !life.isStopped) {
      life.stop();
      this.#clock.after(randomIn(DOWN_MS, this.#random), () => {
        life.continue();
        this.#checker.continued();
      });
    }
  }

  #crash(): void {
    if (this.#run === undefined || this.#isEnding) return;
    this.#checker.ended();
    this.#run.life.kill();
    this.#run = undefined;
    this.#clock.after(randomIn(DOWN_MS, this.#random), () => this.#start());
  }

  async #close(): Promise<void> {
    this.#checker.ended();
    const { refiller, pool, life, clients } = this.#run ?? {};
    const closing = refiller?.close();
    await this.#clock.runUntil(this.#clock.monotonic() + CLOSING_MS);
    await closing;
    pool?.close();
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

function bootOf(clock: Clock) {
  const elapsedMs = () => clock.monotonic();
  return { id: 'trial', elapsedMs, uptimeMs: elapsedMs };
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
