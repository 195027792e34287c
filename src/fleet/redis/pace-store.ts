/**
 * Keeps the pace of a fleet's instances in the store. All moments are by the store's clock, so the clocks of the
 * replicas do not matter.
 *
 * A change is a compare-and-swap. One script reads the entry of the instance and its version. `decide` runs in this
 * process. A second script writes the new entry if the version is unchanged.
 *
 * A claim is an entry that reserves a call to the service. A replica makes a claim only after it has applied the whole
 * log. Otherwise it could draw members that another replica has just drawn.
 */

import { createHash } from 'node:crypto';
import { type Clock, pause } from '../../core/clock.ts';
import { DAY_MS, WEEK_MS } from '../../core/duration.ts';
import { NoriaError } from '../../core/faults.ts';
import { PERMIT_VALID_MS } from '../../refill/pace-rule.ts';
import { serviceDay } from '../../refill/source-statistics.ts';
import type { Moment } from '../../state/moment.ts';
import {
  type LastCall,
  type PaceDecision,
  type PaceEntry,
  type PaceStore,
  readPaceEntry,
} from '../../state/pace-file.ts';
import { INSTANCE_LUA } from './instance-log.ts';
import { type EpochState, FleetScript, type FleetStore } from './store.ts';

interface RedisPaceStoreOptions {
  readonly store: FleetStore;
  readonly clock: Clock;
  readonly stopwatch: () => () => number;
  readonly callTimeoutMs: () => number;
  /** The log that this replica follows. If absent, claims do not wait for the log. */
  readonly log?: {
    position(key: string): number;
    flushed(): Promise<void>;
    /** Resolves when this replica has applied entry `number`, or when the connection to the store is lost. */
    catchUp(key: string, number: number): Promise<void>;
  };
  readonly onClaim?: (outcome: ClaimOutcome) => void;
}

export type ClaimOutcome = 'granted' | 'behind' | 'outrun';

/** A try fails, for example, if another replica writes the entry first. */
const MAX_TRIES = 1_000;
/** By then, the instance is probably no longer configured. */
const FORGOTTEN_AFTER_MS = WEEK_MS;

const READ = new FleetScript(
  'pace-read',
  `
local entry = redis.call('HMGET', KEYS[2], 'version', 'entry')
return answer(entry[1] or '0', entry[2] or '')
`,
);

/**
 * Writes the entry KEYS[2] of the instance KEYS[3] if its version is unchanged. ARGV: 5 epoch, 6 version, 7 new pace
 * entry, 8 the number of the last log entry that this replica has applied; empty if the new pace entry is not a claim.
 */
const WRITE = new FleetScript(
  'pace-write',
  `${INSTANCE_LUA}
if epoch ~= ARGV[5] or (redis.call('HGET', KEYS[2], 'version') or '0') ~= ARGV[6] then
  return answer('outrun')
end
local number = redis.call('HGET', open(KEYS[3]), 'number') or '0'
if ARGV[8] ~= '' and tonumber(ARGV[8]) < tonumber(number) then return answer('behind', number) end
redis.call('HSET', KEYS[2], 'version', whole(ARGV[6] + 1), 'entry', ARGV[7])
redis.call('PEXPIRE', KEYS[2], ${FORGOTTEN_AFTER_MS})
return answer('written')
`,
);

export class RedisPaceStore implements PaceStore {
  readonly #options: RedisPaceStoreOptions;

  constructor(options: RedisPaceStoreOptions) {
    this.#options = options;
  }

  /**
   * An upper bound of the store's time. With a lower bound, noria could record a call with too early a time, and make
   * the next call too early.
   */
  now(): Moment {
    const { now, epochId } = this.#options.store;
    return momentAt(now, epochId);
  }

  stopwatch(): () => number {
    return this.#options.stopwatch();
  }

  async change<T>(
    key: string,
    decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>,
  ): Promise<T> {
    const { store, clock, log, onClaim } = this.#options;
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      await log?.flushed();
      const { epoch, values } = await store.run(READ, { keys: [store.keys.pace(key)] });
      if (epoch.now < epoch.openAt) {
        await pause(clock, epoch.openAt - epoch.now);
        continue;
      }
      const [version = '0', text = ''] = values.map(String);
      const entry = this.#withFloor(text === '' ? undefined : decodeEntry(text), epoch);
      const { newEntry, result } = decide(entry, momentAt(epoch.now, epoch.id));
      if (newEntry === undefined) return result;
      const isClaim = newEntry.call?.fate === 'pending' && newEntry.call.id !== entry?.call?.id;
      const applied = isClaim && log !== undefined ? log.position(key) : '';
      const written = await store.run(WRITE, {
        keys: [store.keys.pace(key), store.keys.instance(key)],
        args: [epoch.id, version, JSON.stringify(newEntry), applied],
      });
      const [outcome, number] = written.values;
      if (isClaim) onClaim?.(outcome === 'written' ? 'granted' : outcome === 'behind' ? 'behind' : 'outrun');
      if (outcome === 'behind') await log?.catchUp(key, Number(number));
      if (outcome === 'written') return result;
    }
    const problem = `this replica could not record its call: other replicas changed the pace of the instance first, ${MAX_TRIES} times in a row`;
    throw new NoriaError('fleet-store-lost', problem);
  }

  /**
   * Applies the floor of the epoch (see store.ts). If the store knows no call to the instance since the floor,
   * noria assumes that a call began at the floor and took the maximum time.
   */
  #withFloor(entry: PaceEntry | undefined, { floorAt, id }: EpochState): PaceEntry | undefined {
    if (floorAt === 0 || (entry?.call !== undefined && entry.call.claimedAt.wallAt >= floorAt)) return entry;
    const arrivedWithinMs = PERMIT_VALID_MS + this.#options.callTimeoutMs();
    const floor: LastCall = {
      id: '',
      claimedAt: momentAt(floorAt, id),
      arrivedWithinMs,
      holdMs: Math.max(0, endOf(entry?.call) - floorAt - arrivedWithinMs),
      fate: 'unanswered',
    };
    return { ...entry, queue: entry?.queue ?? [], call: floor };
  }
}

/**
 * Returns the latest moment at which the service can have received the call, plus the pause that the service required
 * after the call, if it required one.
 */
function endOf(call: LastCall | undefined): number {
  return call === undefined ? 0 : call.claimedAt.wallAt + call.arrivedWithinMs + call.holdMs;
}

function momentAt(storeAt: number, epochId: string): Moment {
  return { wallAt: storeAt, boot: epochId, elapsedMs: storeAt };
}

/**
 * @throws NoriaError fleet-store-unusable if the entry is invalid. noria does not guess a value, because its next call
 * could then be too early.
 */
function decodeEntry(text: string): PaceEntry {
  let entry: PaceEntry | undefined;
  try {
    entry = readPaceEntry(text);
  } catch {
    // handled: the text is not JSON, so the entry is invalid
  }
  if (entry !== undefined) return entry;
  throw new NoriaError(
    'fleet-store-unusable',
    'the store has an invalid pace entry; stop all norias of the fleet, then delete its keys (docs/operations/fleet.md)',
  );
}

/** How long the store keeps the set of a day after its last change: a day, and a second day as a margin. */
const KEPT_MS = 2 * DAY_MS;
const HASH_CHARACTERS = 16;

/** Returns the size of the set KEYS[2]. ARGV[5] and the following values are the hashes. */
const COUNT = new FleetScript(
  'count',
  `
for index = 5, #ARGV do redis.call('SADD', KEYS[2], ARGV[index]) end
if #ARGV > 4 then redis.call('PEXPIRE', KEYS[2], ${KEPT_MS}) end
return answer(whole(redis.call('SCARD', KEYS[2])))
`,
);

/**
 * Counts the distinct IPs that all norias of a fleet drew from an instance on the current day of the service. The store
 * keeps a set of hashes of these IPs. A noria learns only after a short delay how many IPs the other norias drew. A daily
 * budget may therefore be slightly exceeded.
 */
export class DayCounts {
  readonly #store: FleetStore;
  readonly #counts = new Map<string, { readonly day: number; readonly count: number }>();

  constructor(store: FleetStore) {
    this.#store = store;
  }

  /** 0 before the first answer of the store. */
  used(key: string): number {
    const known = this.#counts.get(key);
    if (known === undefined) this.#counts.set(key, { day: 0, count: 0 }); // so that `refresh` asks for its count
    return known?.day === this.#today ? known.count : 0;
  }

  add(key: string, ips: readonly string[]): void {
    void this.#count(key, ips);
  }

  refresh(): void {
    for (const key of this.#counts.keys()) void this.#count(key, []);
  }

  get #today(): number {
    return serviceDay(this.#store.now);
  }

  async #count(key: string, ips: readonly string[]): Promise<void> {
    const day = this.#today;
    try {
      const { values } = await this.#store.run(COUNT, {
        keys: [this.#store.keys.day(key, day)],
        args: ips.map((ip) => createHash('sha256').update(ip).digest('base64url').slice(0, HASH_CHARACTERS)),
      });
      this.#counts.set(key, { day, count: Number(values[0]) });
    } catch {
      // ignored: without the store, noria draws nothing, so it needs no count
    }
  }
}
