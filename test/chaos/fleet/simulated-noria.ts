/** A noria that calls its instance as often as it may. It runs the real code of the pace in simulated time. */
import { type Clock, pause } from '../../../src/core/clock.ts';
import { NoriaError } from '../../../src/core/faults.ts';
import type { Random } from '../../../src/core/random.ts';
import type { StoreAddress } from '../../../src/fleet/redis/connection.ts';
import { lostStore } from '../../../src/fleet/redis/connection.ts';
import { RedisPaceStore } from '../../../src/fleet/redis/pace-store.ts';
import { FleetStore } from '../../../src/fleet/redis/store.ts';
import { Pace, type Place } from '../../../src/refill/pace.ts';
import { PACE_UNCHANGED } from '../../../src/refill/pace-rule.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import { take } from '../../refill/take.ts';
import { StoppableClock } from './stoppable-clock.ts';

/**
 * A deliberate defect, to test that a run reports it. `use-by`: a call may start although its claim has expired. `floor`: calls
 * do not wait after a change of the store.
 */
export type Defect = 'none' | 'use-by' | 'floor';

/** `claim`: the noria has a claim, and has not called yet. `call`: its call is on the way. */
export type Moment = 'now' | 'claim' | 'call';

export interface SimulatedNoriaOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** By how many ms the noria's wall clock is wrong. */
  readonly skewMs: number;
  readonly port: number;
  /** The name of the fleet. */
  readonly name: string;
  readonly defect: Defect;
  /** Called when a call arrives at the service. */
  readonly onArrival: () => void;
}

export const INTERVAL_MS = 3_000;
export const CALL_TIMEOUT_MS = 1_500;
const KEY = 'http://service 1';
/** The maximum durations: of an answer of the store, of a connection to the service, of a call, and of its answer. */
const MOST_STORE_MS = 150;
const MOST_OPEN_MS = 300;
const MOST_TRAVEL_MS = 500;
const MOST_ANSWER_MS = 500;
const UNANSWERED = 0.15;
const RETRY_MS = 500;
/** A port without a listener. */
const DEAD_PORT = 1;

export class SimulatedNoria {
  readonly clock: StoppableClock;
  readonly #options: SimulatedNoriaOptions;
  readonly #store: FleetStore;
  readonly #ended = new AbortController();
  #isCut = false;
  /** What happens to the noria at its next claim or call. */
  readonly #fates = new Map<Moment, () => void>();

  constructor(options: SimulatedNoriaOptions) {
    this.#options = options;
    this.clock = new StoppableClock(options.clock, options.skewMs);
    this.#store = this.#openStore();
    this.#store.connection.start();
    void this.#run();
  }

  /** Calls `fate` now, or at the noria's next claim or call. */
  at(moment: Moment, fate: () => void): void {
    if (moment === 'now') fate();
    else this.#fates.set(moment, fate);
  }

  stop(): void {
    this.clock.stop();
  }

  continue(): void {
    this.clock.continue();
  }

  /** Kills the process. The messages that it has sent still arrive. */
  kill(): void {
    this.clock.kill();
    this.#ended.abort();
    void this.#store.close(); // not awaited: the close waits for work that a dead process does not do
  }

  /** Closes its connection to the store. */
  cut(): void {
    this.#isCut = true;
    this.#store.connection.reset(lostStore('the store', 'cut off'));
  }

  heal(): void {
    this.#isCut = false;
  }

  #openStore(): FleetStore {
    const { name, port, random, defect } = this.#options;
    const { clock } = this;
    const isCut = () => this.#isCut;
    const address: StoreAddress = {
      label: 'the store',
      server: {
        host: '127.0.0.1',
        get port() {
          return isCut() ? DEAD_PORT : port;
        },
        login: {},
        tls: undefined,
        database: 0,
      },
    };
    const elapsed = () => clock.monotonic();
    const timekeeper = createTimekeeper(clock, { id: 'test', elapsedMs: elapsed, uptimeMs: elapsed });
    const store = new FleetStore({ address, name, clock, random, timekeeper });
    const run = store.run.bind(store);
    store.run = async (...args) => {
      const { epoch, values } = await clock.gate(run(...args));
      await pause(clock, random() * MOST_STORE_MS);
      return defect === 'floor' ? { epoch: { ...epoch, floorAt: 0, openAt: 0 }, values } : { epoch, values };
    };
    return store;
  }

  async #run(): Promise<void> {
    const { clock } = this;
    const { random } = this.#options;
    const { signal } = this.#ended;
    const stopwatch = () => {
      const startedAt = clock.monotonic();
      return () => clock.monotonic() - startedAt;
    };
    const store = new RedisPaceStore({
      store: this.#store,
      clock,
      stopwatch,
      callTimeoutMs: () => CALL_TIMEOUT_MS,
    });
    const pace = new Pace(KEY, { store, clock, random });
    const rule = { intervalMs: INTERVAL_MS, callTimeoutMs: CALL_TIMEOUT_MS };
    while (!signal.aborted) {
      try {
        await take(pace, { rule, open: () => this.#open() }, signal);
      } catch (error) {
        if (!(error instanceof NoriaError)) throw error;
        await pause(clock, RETRY_MS, signal);
      }
    }
  }

  async #open() {
    await pause(this.clock, this.#options.random() * MOST_OPEN_MS);
    return { send: (permit: Place) => this.#send(permit), close() {} };
  }

  async #send(permit: Place) {
    const { random, clock: world, onArrival, defect } = this.#options;
    await this.#reach('claim');
    if (defect === 'use-by') permit.permit = 'used';
    else permit.beforeWrite();
    const travelMs = random() * MOST_TRAVEL_MS;
    world.after(travelMs, onArrival);
    await this.#reach('call');
    if (random() < UNANSWERED) {
      await pause(this.clock, CALL_TIMEOUT_MS);
      throw new NoriaError('service-transport', 'the call timed out');
    }
    await this.clock.gate(pause(world, travelMs + random() * MOST_ANSWER_MS));
    permit.answered();
    return { result: undefined, settlement: PACE_UNCHANGED };
  }

  async #reach(moment: Moment): Promise<void> {
    this.#fates.get(moment)?.();
    this.#fates.delete(moment);
    await this.clock.gate(Promise.resolve());
  }
}
