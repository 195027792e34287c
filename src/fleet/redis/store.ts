/**
 * One replica's access to the store of a fleet: runs scripts, and tracks the clock and the epoch of the store.
 *
 * Every script runs EPOCH_LUA first. If the store may have lost data, for example in a restart, EPOCH_LUA begins a new
 * epoch. The lost data may include the record of a call to the service, and the next call could then be too early. So a
 * new epoch has a floor: noria assumes that every instance was called at this moment.
 *
 * A store without an epoch is either new or has lost all its data. If a replica that remembers an epoch connects, the
 * store has lost data. To give such a replica time to connect, the fleet delays its first call to the service by
 * NEW_STORE_WAIT_MS.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Random } from '../../core/random.ts';
import type { Timekeeper } from '../../state/moment.ts';
import {
  type LogFollower,
  type Reply,
  type StoreAddress,
  type StoreClient,
  StoreConnection,
  StoreRefusal,
} from './connection.ts';

/** The version of the data format. A replica refuses to start if the data in the store has a higher version. */
export const STORE_FORMAT = 2;
/**
 * How long a fleet delays its first call to the service if the store has no epoch. In this time, replicas that remember an
 * epoch can reconnect; every replica reconnects sooner (see MAX_DELAY_MS in connection.ts).
 */
export const NEW_STORE_WAIT_MS = 2_500;
/**
 * If the store has lost an epoch that a replica remembers, other replicas may have called the service after the store
 * last answered this replica. So the floor of the new epoch is this number of ms after that answer, but at most the
 * current time.
 */
const FORGOTTEN_CLAIMS_MS = 5_000;
const HASH_CHARACTERS = 22;

/**
 * The names of a fleet's keys. The names of instances and sessions are hashed, because they may contain a secret. The
 * scripts add the ends of the names that begin with `instance` and `moved`.
 *
 * | key | holds |
 * |---|---|
 * | `epoch` | hash: id of the epoch, id of the data, identity of the server, format, version of the list of replicas |
 * | `replicas`, `seen` | hash: replica → record; sorted set: replica by its last beat; `clients`: hash |
 * | `i:INSTANCE:state` | hash: number of the last log entry, the snapshot, the version of the uses, the sums of the demand |
 * | `i:INSTANCE:log` | stream of facts; entry N has the id `N-0` |
 * | `i:INSTANCE:pages` | hash: the pages of the last two snapshots |
 * | `i:INSTANCE:uses`, `:changed` | hash: member → uses and assumed end; sorted set: member by the version of its uses |
 * | `i:INSTANCE:demand`, `:asking` | hash: replica → its demand; sorted set: replica by its last beat with demand |
 * | `s:SESSION` | hash: the session, its member, version, uses, and the replicas that hold it. Expires with the session |
 * | `moved:REPLICA` | stream: the sessions of this replica that others moved or ended |
 * | `pace:INSTANCE`, `day:INSTANCE:DAY` | hash: the last call and the queue; set: distinct IPs drawn in one day |
 */
export function fleetKeys(name: string) {
  const prefix = `{noria:${name}}`;
  return {
    prefix,
    epoch: `${prefix}:epoch`,
    check: `${prefix}:check`,
    instance: (key: string) => `${prefix}:i:${digest(key)}`,
    session: (set: string, session: string) => `${prefix}:s:${digest(`${set}\n${session}`)}`,
    moved: (replica: string) => `${prefix}:moved:${replica}`,
    pace: (instance: string) => `${prefix}:pace:${digest(instance)}`,
    day: (source: string, day: number) => `${prefix}:day:${digest(source)}:${day}`,
  };
}

export type FleetKeys = ReturnType<typeof fleetKeys>;

export function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, HASH_CHARACTERS);
}

export interface EpochState {
  readonly now: number;
  readonly id: string;
  /** noria assumes that every instance was called at this moment of the store's clock. 0: no floor. */
  readonly floorAt: number;
  /** No noria may call the service before this moment of the store's clock. */
  readonly openAt: number;
}

/**
 * KEYS[1] is the hash of the epoch. ARGV: 1 the epoch that the replica remembers (empty: none), 2 the ms since the store
 * last answered with it, 3 the id that a new epoch gets, 4 whether the store's clock was set since the last script.
 *
 * Defines `now`, the store's time in ms; `data`, the identity of the data; `prefix`, the beginning of all keys; and
 * `answer(...)`, which returns the epoch followed by the script's own results.
 */
export const EPOCH_LUA = `
local function whole(number) return string.format('%.0f', number) end
local prefix = string.sub(KEYS[1], 1, -7)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', KEYS[1], 'id', 'server', 'floorAt', 'openAt', 'format', 'data')
local epoch, floorAt, openAt = known[1], tonumber(known[3] or 0), tonumber(known[4] or 0)
local data = known[6]
if known[5] and tonumber(known[5]) > ${STORE_FORMAT} then
  return redis.error_reply('FORMAT ' .. known[5])
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if not run or not replid then return redis.error_reply('IDENTITY') end
local server = run .. ' ' .. replid
if not epoch or known[2] ~= server or ARGV[4] == '1' then
  if epoch then
    floorAt, openAt = now, 0
  else
    local ran = redis.call('INFO', 'commandstats')
    local wasFlushed = string.find(ran, 'cmdstat_flushall:') or string.find(ran, 'cmdstat_flushdb:')
    if wasFlushed then floorAt, openAt = now, 0 else floorAt, openAt = 0, now + ${NEW_STORE_WAIT_MS} end
  end
  epoch = ARGV[3]
  redis.call('HSET', KEYS[1], 'id', epoch, 'server', server,
    'floorAt', whole(floorAt), 'openAt', whole(openAt))
end
if not data then
  data = ARGV[3]
  redis.call('DEL', prefix .. ':log', prefix .. ':snapshot', prefix .. ':beats', prefix .. ':uses',
    prefix .. ':replicas', prefix .. ':seen')
  redis.call('HSET', KEYS[1], 'data', data, 'format', ${STORE_FORMAT})
end
if ARGV[1] ~= '' and ARGV[1] ~= epoch then
  floorAt = math.max(floorAt, math.min(now, now - tonumber(ARGV[2]) + ${FORGOTTEN_CLAIMS_MS}))
  redis.call('HSET', KEYS[1], 'floorAt', whole(floorAt), 'openAt', '0')
  openAt = 0
end
local function answer(...) return { whole(now), epoch, whole(floorAt), whole(openAt), ... } end
`;

export interface FleetStoreOptions {
  readonly address: StoreAddress;
  readonly name: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly timekeeper: Timekeeper;
  readonly rememberedEpoch?: string | undefined;
  /** Runs on each new connection before anything is loaded. The connection counts as open when it has succeeded. */
  readonly join?: (client: StoreClient) => Promise<void>;
  readonly follow?: LogFollower;
  readonly onConnected?: () => void;
  readonly onLost?: (error: NoriaError) => void;
  readonly onTiming?: (operation: string, ms: number) => void;
}

/**
 * A Lua script that the store runs as one atomic step. It starts with EPOCH_LUA, so its own KEYS begin at 2 and its own
 * ARGV at 5.
 */
export class FleetScript {
  readonly operation: string;
  readonly #source: string;
  readonly #sha1: string;

  constructor(operation: string, source: string) {
    this.operation = operation;
    this.#source = `${EPOCH_LUA}\n${source}`;
    this.#sha1 = createHash('sha1').update(this.#source).digest('hex');
  }

  /**
   * Runs the script by its hash. Sends the source code only if the store does not have it, for example after a restart
   * or SCRIPT FLUSH.
   */
  async run(call: (command: readonly string[]) => Promise<Reply>, input: readonly string[]): Promise<Reply> {
    try {
      return await call(['EVALSHA', this.#sha1, ...input]);
    } catch (error) {
      if (!(error instanceof StoreRefusal) || !error.message.startsWith('NOSCRIPT')) throw error;
      return call(['EVAL', this.#source, ...input]);
    }
  }
}

const HELLO = new FleetScript('hello', 'return answer()');
/** The fastest of this number of answers on a new connection gives the closest bounds of the store's time. */
const HELLOS = 3;
const UNCERTAIN_MS = 50;
export const NO_IDENTITY =
  'the store does not report run_id and master_replid in INFO, and without them noria cannot notice lost data; use Valkey or Redis';

export class FleetStore {
  readonly keys: FleetKeys;
  readonly name: string;
  readonly clock: StoreClock;
  readonly connection: StoreConnection;
  readonly #options: FleetStoreOptions;
  readonly #elapsed: () => number;
  #epochId: string;
  #contactAt: number;
  #clockWasSet = false;

  constructor(options: FleetStoreOptions) {
    const { address, clock, random, timekeeper, name, join, follow, onLost, onConnected } = options;
    this.#options = options;
    this.name = name;
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
      greet: async (client) => {
        for (let left = HELLOS; left > 0; left -= 1) await this.run(HELLO, {}, client);
        await join?.(client);
      },
      follow,
      onConnected: () => onConnected?.(),
      onLost: (error) => onLost?.(error),
    });
  }

  get epochId(): string {
    return this.#epochId;
  }

  get now(): number {
    return this.clock.atMost();
  }

  /** The result may be too early, but never too late. */
  readonly toStoreTime = (moment: number): number =>
    Math.floor(this.clock.atLeast() + moment - this.#options.clock.monotonic());

  /** The result may be too early, but never too late. */
  readonly toLocalTime = (moment: number): number => this.#options.clock.monotonic() + moment - this.now;

  async run(
    script: FleetScript,
    {
      keys = [],
      args = [],
    }: { readonly keys?: readonly string[]; readonly args?: readonly (string | number)[] } = {},
    client?: StoreClient,
  ): Promise<{ readonly epoch: EpochState; readonly values: readonly Reply[] }> {
    const sentAt = this.#elapsed();
    const input = [
      ...[String(keys.length + 1), this.keys.epoch, ...keys],
      ...[this.#epochId, String(Math.ceil(sentAt - this.#contactAt)), randomBytes(8).toString('hex')],
      ...[this.#clockWasSet ? '1' : '0', ...args.map(String)],
    ];
    try {
      const reply = await script.run((command) => (client ?? this.connection).call(command), input);
      const { state, values } = readEpoch(reply);
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

function readEpoch(reply: Reply): { readonly state: EpochState; readonly values: readonly Reply[] } {
  const [now, id, floorAt, openAt, ...values] = listOf(reply);
  const state = { now: Number(now), id: String(id), floorAt: Number(floorAt), openAt: Number(openAt) };
  if (!Number.isFinite(state.now + state.floorAt + state.openAt))
    throw new NoriaError('fleet-store-unusable', 'the store answered a script of noria with something else');
  return { state, values };
}

export function listOf(reply: Reply | undefined): readonly Reply[] {
  return Array.isArray(reply) ? reply : [];
}

export function fieldsOf(reply: Reply | undefined): Readonly<Record<string, string>> {
  const texts = listOf(reply).map(String);
  return Object.fromEntries(
    texts.flatMap((name, index) => (index % 2 === 0 ? [[name, texts[index + 1] ?? '']] : [])),
  );
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

interface Sample {
  readonly storeAt: number;
  readonly sentAt: number;
  readonly receivedAt: number;
}

/** Older answers are ignored, because two clocks drift apart. */
const MAX_AGE_MS = 60_000;
const KEPT_SAMPLES = 16;
/** The store reports whole milliseconds, so its real time may be up to 1 ms later. */
const CUT_MS = 1;
/**
 * A larger difference than this, in ms, between the store's time and the expected time means that someone set the
 * store's clock. Drift causes smaller differences.
 */
const STEP_MS = 100;
const DRIFT = 1e-3;

/**
 * One replica's estimate of the store's time. An answer contains the store's time at some moment between the sending of
 * the command and the arrival of the answer. So each answer gives a lower and an upper bound. The fastest recent answer
 * gives the closest bounds.
 */
export class StoreClock {
  /** Its result is the `sentAt` of a command that is sent now. */
  readonly elapsed: () => number;
  #samples: readonly Sample[] = [];
  #best: Sample | undefined;

  constructor(elapsed: () => number) {
    this.elapsed = elapsed;
  }

  /** @returns whether the store's clock was set since the last answer. If so, drops all earlier answers. */
  record(storeAt: number, sentAt: number): boolean {
    const receivedAt = this.elapsed();
    const wasSet = this.#isStep(storeAt, sentAt, receivedAt);
    const isRecent = (sample: Sample) => receivedAt - sample.receivedAt < MAX_AGE_MS;
    const kept = wasSet ? [] : this.#samples.filter(isRecent).slice(1 - KEPT_SAMPLES);
    this.#samples = [...kept, { storeAt, sentAt, receivedAt }];
    this.#best = this.#samples.reduce((best, next) => (tripMs(next) < tripMs(best) ? next : best));
    return wasSet;
  }

  /** The latest possible time of the store, in epoch ms; 0 before the first answer. */
  atMost(): number {
    const best = this.#best;
    return best === undefined ? 0 : best.storeAt + CUT_MS + (this.elapsed() - best.sentAt);
  }

  /** The earliest possible time of the store, in epoch ms; 0 before the first answer. */
  atLeast(): number {
    const best = this.#best;
    return best === undefined ? 0 : best.storeAt + (this.elapsed() - best.receivedAt);
  }

  #isStep(storeAt: number, sentAt: number, receivedAt: number): boolean {
    const best = this.#best;
    if (best === undefined) return false;
    const toleranceMs = STEP_MS + DRIFT * (receivedAt - best.receivedAt);
    const earliest = best.storeAt + (sentAt - best.receivedAt) - toleranceMs;
    const latest = best.storeAt + CUT_MS + (receivedAt - best.sentAt) + toleranceMs;
    return storeAt < earliest || storeAt > latest;
  }
}

function tripMs({ sentAt, receivedAt }: Sample): number {
  return receivedAt - sentAt;
}
