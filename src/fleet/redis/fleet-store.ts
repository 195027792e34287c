/** One replica's access to the store of a fleet. Runs scripts, and tracks the clock and the epoch of the store. */
import { createHash, randomUUID } from 'node:crypto';
import type { Clock } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Random } from '../../core/random.ts';
import type { Timekeeper } from '../../state/moment.ts';
import { EPOCH_LUA, type EpochState, epochArguments, epochKeys, readEpoch, STORE_FORMAT } from './epoch.ts';
import { type FleetKeys, fleetKeys } from './keys.ts';
import type { StoreAddress } from './store-address.ts';
import { type Reply, type StoreClient, StoreRefusal } from './store-client.ts';
import { StoreClock } from './store-clock.ts';
import { COMMAND_DEADLINE_MS, type LogFollower, StoreConnection } from './store-connection.ts';

export interface FleetStoreOptions {
  readonly address: StoreAddress;
  readonly name: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly timekeeper: Timekeeper;
  /** The id of the epoch that an earlier run of this replica saw last in the store. */
  readonly rememberedEpoch?: string | undefined;
  readonly follow?: LogFollower;
  readonly onConnected?: () => void;
  readonly onLost?: (error: NoriaError) => void;
  readonly onTiming?: (operation: string, ms: number) => void;
}

interface ScriptRunner {
  call(command: readonly string[]): Promise<Reply>;
}

/** A Lua script that the store runs as one atomic step. */
export class Script {
  readonly #source: string;
  readonly #sha1: string;

  /** @param parts - Lua source code; the parts are joined with line breaks. */
  constructor(...parts: readonly string[]) {
    this.#source = parts.join('\n');
    this.#sha1 = createHash('sha1').update(this.#source).digest('hex');
  }

  /**
   * Runs the script by its hash. Sends the source code only if the store does not have it, for example after a restart
   * or SCRIPT FLUSH.
   */
  async run(
    store: ScriptRunner,
    keys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<Reply> {
    const rest = [String(keys.length), ...keys, ...args.map(String)];
    try {
      return await store.call(['EVALSHA', this.#sha1, ...rest]);
    } catch (error) {
      if (!(error instanceof StoreRefusal) || !error.message.startsWith('NOSCRIPT')) throw error;
      return store.call(['EVAL', this.#source, ...rest]);
    }
  }
}

/**
 * A script that works on the data of the fleet. It starts with EPOCH_LUA, so its own KEYS begin at 7 and its own ARGV
 * at 5.
 */
export class FleetScript {
  /** The name of the script in the metrics. */
  readonly operation: string;
  readonly script: Script;

  constructor(operation: string, source: string) {
    this.operation = operation;
    this.script = new Script(EPOCH_LUA, source);
  }
}

interface FleetAnswer {
  readonly epoch: EpochState;
  readonly values: readonly Reply[];
}

/** The script's own keys and arguments. They follow those of EPOCH_LUA in KEYS and ARGV. */
interface ScriptInput {
  readonly keys?: readonly string[];
  readonly args?: readonly (string | number)[];
}

const HELLO = new FleetScript('hello', 'return answer()');
/**
 * On a new connection, noria first runs this number of scripts to estimate the store's time. The fastest answer gives
 * the closest bounds.
 */
const HELLOS = 3;
const UNCERTAIN_MS = 50;
export const NO_IDENTITY =
  'the store does not report run_id and master_replid in INFO, and without them noria cannot notice lost data; use Valkey or Redis';

export class FleetStore {
  readonly keys: FleetKeys;
  readonly clock: StoreClock;
  readonly connection: StoreConnection;
  readonly #options: FleetStoreOptions;
  readonly #elapsed: () => number;
  #epochId: string;
  #contactAt: number;
  #clockWasSet = false;

  constructor(options: FleetStoreOptions) {
    const { address, clock, random, timekeeper, name, follow, onLost, onConnected } = options;
    this.#options = options;
    this.#epochId = options.rememberedEpoch ?? '';
    this.#elapsed = exactStopwatch(clock, timekeeper);
    this.keys = fleetKeys(name);
    // An earlier run of this replica may have called the service a moment ago. If the store has lost the remembered
    // epoch, it has also lost the time of that call: noria then assumes that every instance was called just now.
    this.#contactAt = this.#elapsed();
    this.clock = new StoreClock(this.#elapsed);
    this.connection = new StoreConnection({
      address,
      clock,
      random,
      greet: (client) => this.#greet(client),
      follow,
      onConnected: () => onConnected?.(),
      onLost: (error) => onLost?.(error),
    });
  }

  /** The id of the remembered epoch; empty if this replica remembers none. */
  get epochId(): string {
    return this.#epochId;
  }

  /**
   * Converts a moment from this replica's clock to the store's clock. The result may be too early, but never too late.
   */
  readonly toStoreTime = (moment: number): number =>
    Math.floor((this.clock.atLeast() ?? 0) + moment - this.#options.clock.monotonic());

  /**
   * Converts a moment from the store's clock to this replica's clock. The result may be too early, but never too late.
   */
  readonly toLocalTime = (moment: number): number =>
    this.#options.clock.monotonic() + moment - (this.clock.atMost() ?? 0);

  /**
   * Runs a script over `client`, or over the connection for commands if `client` is absent.
   * @throws NoriaError fleet-store-lost, fleet-store-unusable
   */
  async run(script: FleetScript, input: ScriptInput = {}, client?: StoreClient): Promise<FleetAnswer> {
    const runner = client === undefined ? this.connection : within(client);
    const sentAt = this.#elapsed();
    const remembered = this.#epochId;
    const epoch = {
      remembered,
      rememberedForMs: sentAt - this.#contactAt,
      newEpochId: randomUUID(),
      clockWasSet: this.#clockWasSet,
    };
    const keys = [...epochKeys(this.keys), ...(input.keys ?? [])];
    const args = [...epochArguments(epoch), ...(input.args ?? [])];
    try {
      const { state, values } = readEpoch(await script.script.run(runner, keys, args));
      this.#learn(state, sentAt);
      this.#options.onTiming?.(script.operation, this.#elapsed() - sentAt);
      return { epoch: state, values };
    } catch (error) {
      throw error instanceof StoreRefusal ? refusedScript(this.#options.address.label, error) : error;
    }
  }

  close(): Promise<void> {
    return this.connection.close();
  }

  async #greet(client: StoreClient): Promise<void> {
    for (let left = HELLOS; left > 0; left -= 1) await this.run(HELLO, {}, client);
  }

  /**
   * Records the store's time and the epoch of an answer. If the epoch has changed, this replica loads the state again,
   * because the log may lack facts, and its entry numbers may now belong to other facts.
   */
  #learn({ now, id }: EpochState, sentAt: number): void {
    const isOther = this.#epochId !== '' && this.#epochId !== id;
    this.#clockWasSet = this.clock.record(now, sentAt);
    this.#epochId = id;
    this.#contactAt = Math.max(this.#contactAt, sentAt);
    if (!isOther) return;
    const why =
      'the store was restarted, emptied, restored or replaced, so noria loads all data of the store again';
    this.connection.reset(new NoriaError('fleet-store-lost', why));
  }
}

/**
 * Starts a stopwatch that also counts while the machine is suspended. The monotonic clock stops during a suspension;
 * the time since boot does not, but it is exact only to about 10 ms. So the stopwatch uses the time since boot only if
 * it exceeds the monotonic time by more than UNCERTAIN_MS.
 */
function exactStopwatch(clock: Clock, timekeeper: Timekeeper): () => number {
  const startedAt = clock.monotonic();
  const total = timekeeper.stopwatch();
  return () => {
    const [monotonicMs, totalMs] = [clock.monotonic() - startedAt, total()];
    return totalMs - monotonicMs > UNCERTAIN_MS ? totalMs : monotonicMs;
  };
}

function within(client: StoreClient) {
  return { call: (command: readonly string[]) => client.call(command, COMMAND_DEADLINE_MS) };
}

function refusedScript(label: string, refusal: StoreRefusal): NoriaError {
  const format = /^FORMAT (\d+)/.exec(refusal.message)?.[1];
  const why =
    format !== undefined
      ? `the data in the store has format ${format}, and this noria knows formats up to ${STORE_FORMAT}; update this noria`
      : refusal.message.startsWith('IDENTITY')
        ? NO_IDENTITY
        : `the store answered ${refusal.message}`;
  return new NoriaError('fleet-store-unusable', `the fleet's store at ${label} cannot be used: ${why}`, {
    cause: refusal,
  });
}
