/**
 * Simulated norias on one real store, with faults. The service records when calls arrive: the time between two arrivals must not
 * be shorter than the interval.
 */

import { randomUUID } from 'node:crypto';
import { HOUR_MS } from '../../../src/core/duration.ts';
import { seededRandom } from '../../../src/core/random.ts';
import type { StoreClient } from '../../../src/fleet/redis/connection.ts';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import type { TestStore } from '../../support/store-server.ts';
import { type Defect, INTERVAL_MS, type Moment, SimulatedNoria } from './simulated-noria.ts';
import { flushCommand, timeCommand, type VirtualStoreTime } from './virtual-store-time.ts';

/** A fault. `who` is the number of a noria. */
export type Fault =
  | { readonly kind: 'kill' | 'stop'; readonly who: number; readonly at: Moment }
  | { readonly kind: 'continue' | 'cut' | 'heal'; readonly who: number }
  | { readonly kind: 'restart' | 'empty' | 'hang' }
  /** A failover to a store that lacks the writes of the `lostMs` after this moment. */
  | { readonly kind: 'failover'; readonly lostMs: number };

export interface Schedule {
  readonly seed: number;
  readonly norias: number;
  /** The faults. Each happens `afterMs` of simulated time after the previous one. */
  readonly faults: readonly { readonly afterMs: number; readonly fault: Fault }[];
}

export interface Verdict {
  /** When calls arrived, in simulated ms. */
  readonly arrivals: readonly number[];
  /** The arrivals that were too early, each with the ms since the previous one. */
  readonly early: readonly string[];
}

/** How long a noria is stopped. Its claim on a call expires in this time. */
const STOPPED_MS = 5_000;
/** The time at the end of a run without faults. It is enough for the claim of a dead noria to expire, and for one more call. */
const REST_MS = 9_000;
const HANG_MS = 2_500;
const MOST_STEP_MS = 400;
const LIMIT_MS = 60_000;
/** After this number of turns of the event loop without work, all answers have been handled. */
const QUIET_TURNS = 3;
const TURNS_WHILE_HANGING = 30;

interface Data {
  readonly [key: string]: readonly string[];
}

export class PaceSimulation {
  readonly #server: TestStore;
  readonly #time: VirtualStoreTime;
  readonly #schedule: Schedule;
  readonly #defect: Defect;
  readonly #clock = new ManualClock();
  readonly #name = randomUUID();
  readonly #arrivals: number[] = [];
  #norias: SimulatedNoria[] = [];
  #admin: StoreClient | undefined;
  #started = 0;
  #hangsUntil = 0;
  #failovers = 0;

  constructor(server: TestStore, time: VirtualStoreTime, schedule: Schedule, defect: Defect) {
    this.#server = server;
    this.#time = time;
    this.#schedule = schedule;
    this.#defect = defect;
  }

  async play(): Promise<Verdict> {
    this.#admin = await this.#server.client();
    await this.#command(flushCommand(this.#clock.now()));
    await this.#command(['CONFIG', 'RESETSTAT']); // otherwise the FLUSHALL above would tell noria that the store has lost claims
    try {
      for (let n = 0; n < this.#schedule.norias; n += 1) this.#norias.push(this.#start());
      for (const { afterMs, fault } of this.#schedule.faults) {
        await this.#pass(afterMs);
        await this.#apply(fault);
      }
      if (this.#norias.some(({ clock }) => clock.isStopped)) await this.#pass(STOPPED_MS);
      for (const noria of this.#norias) {
        noria.continue();
        noria.heal();
      }
      await this.#pass(REST_MS);
    } finally {
      if (this.#isHanging) this.#server.signal('SIGCONT');
      for (const noria of this.#norias) noria.kill();
      this.#admin?.close();
    }
    return { arrivals: this.#arrivals, early: earlyIn(this.#arrivals) };
  }

  get #isHanging(): boolean {
    return this.#hangsUntil > 0;
  }

  #start(): SimulatedNoria {
    this.#started += 1;
    return new SimulatedNoria({
      clock: this.#clock,
      random: seededRandom(this.#schedule.seed + this.#started),
      skewMs: this.#started % 2 === 0 ? HOUR_MS : 0,
      port: this.#server.port,
      name: this.#name,
      defect: this.#defect,
      onArrival: () => this.#arrivals.push(Math.round(this.#clock.monotonic())),
    });
  }

  /** Lets simulated time pass. */
  async #pass(ms: number): Promise<void> {
    const untilMs = this.#clock.monotonic() + ms;
    for (;;) {
      await this.#settle();
      const now = this.#clock.monotonic();
      if (now >= untilMs) return;
      const nextTimerMs = Math.max(1, Math.min(...this.#clock.armedMs, MOST_STEP_MS));
      const stepMs = Math.min(nextTimerMs, untilMs - now);
      if (!this.#isHanging) await this.#command(timeCommand(this.#clock.now() + stepMs));
      this.#clock.advance(stepMs);
      if (this.#isHanging && this.#clock.monotonic() >= this.#hangsUntil) {
        this.#hangsUntil = 0;
        this.#server.signal('SIGCONT');
      }
    }
  }

  /** Waits until the store has answered every command and the norias have handled the answers. */
  async #settle(): Promise<void> {
    let quiet = 0;
    for (let turn = 0; quiet < QUIET_TURNS; turn += 1) {
      if (this.#isHanging && turn > TURNS_WHILE_HANGING) return;
      await new Promise((resolve) => setImmediate(resolve));
      quiet = this.#time.pending === 0 ? quiet + 1 : 0;
    }
  }

  async #apply(fault: Fault): Promise<void> {
    const noria = 'who' in fault ? this.#norias[fault.who % this.#norias.length] : undefined;
    switch (fault.kind) {
      case 'kill':
        return noria?.at(fault.at, () => this.#kill(noria));
      case 'stop':
        return noria?.at(fault.at, () => noria.stop());
      case 'continue':
        return noria?.continue();
      case 'cut':
        return noria?.cut();
      case 'heal':
        return noria?.heal();
      case 'hang':
        return this.#hang();
      case 'restart':
        return this.#restart();
      case 'empty':
        await this.#unhang();
        return this.#command(flushCommand(this.#clock.now()));
      case 'failover': {
        const data = await this.#remember();
        await this.#pass(fault.lostMs);
        return this.#failOver(data);
      }
    }
  }

  /** Kills a noria and starts another one in its place. */
  #kill(noria: SimulatedNoria): void {
    noria.kill();
    this.#norias = this.#norias.map((each) => (each === noria ? this.#start() : each));
  }

  async #hang(): Promise<void> {
    if (this.#isHanging) return;
    // The store answers the commands of a hang with the time at its end.
    await this.#command(timeCommand(this.#clock.now() + HANG_MS));
    this.#hangsUntil = this.#clock.monotonic() + HANG_MS;
    this.#server.signal('SIGSTOP');
  }

  async #restart(): Promise<void> {
    await this.#unhang();
    await this.#server.kill();
    await this.#server.start();
    this.#admin?.close();
    this.#admin = await this.#server.client();
    await this.#command(timeCommand(this.#clock.now()));
  }

  async #remember(): Promise<Data> {
    await this.#unhang();
    const keys = (await this.#admin?.call(['KEYS', `${this.#prefix}*`], LIMIT_MS)) as string[];
    const data: Record<string, string[]> = {};
    for (const key of keys) data[key] = (await this.#admin?.call(['HGETALL', key], LIMIT_MS)) as string[];
    return data;
  }

  /** Replaces the store by one that has only the remembered data, and another identity. */
  async #failOver(data: Data): Promise<void> {
    await this.#unhang();
    this.#failovers += 1;
    const { epoch } = fleetKeys(this.#name);
    await this.#command([
      'EVAL',
      `for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end`,
      '0',
      `${this.#prefix}*`,
    ]);
    for (const [key, fields] of Object.entries(data)) await this.#command(['HSET', key, ...fields]);
    if (epoch in data) await this.#command(['HSET', epoch, 'server', `failover ${this.#failovers}`]);
  }

  async #unhang(): Promise<void> {
    if (!this.#isHanging) return;
    await this.#pass(this.#hangsUntil - this.#clock.monotonic());
    await this.#settle();
  }

  get #prefix(): string {
    return `{noria:${this.#name}}:`;
  }

  async #command(command: readonly string[]): Promise<void> {
    await this.#admin?.call(command, LIMIT_MS);
  }
}

/** Returns the arrivals that came less than the interval after the previous one. */
function earlyIn(arrivals: readonly number[]): string[] {
  return arrivals.slice(1).flatMap((at, index) => {
    const gapMs = at - (arrivals[index] ?? 0);
    return gapMs < INTERVAL_MS ? [`at ${at} ms, ${gapMs} ms after the previous one`] : [];
  });
}
