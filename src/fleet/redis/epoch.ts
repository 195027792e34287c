/**
 * The epoch of a fleet's data. Every script runs EPOCH_LUA first. If the store may have lost data, for example in a
 * restart, EPOCH_LUA begins a new epoch.
 *
 * The lost data may include the record of a call to the service, and the next call could then be too early. So a new
 * epoch has a floor: noria assumes that every instance was called at this moment.
 *
 * A store without an epoch is either new or has lost all its data. If a replica that remembers an epoch connects, the
 * store has lost data. To give such a replica time to connect, the fleet delays its first call to the service by
 * NEW_STORE_WAIT_MS.
 */
import type { FleetKeys } from './keys.ts';
import type { Reply } from './store-client.ts';

/** The version of the data format. A replica refuses to start if the data in the store has a higher version. */
export const STORE_FORMAT = 1;
/**
 * How long, in ms, a fleet delays its first call to the service if the store has no epoch. In this time, replicas that
 * remember an epoch can reconnect; every replica reconnects sooner (see MAX_DELAY_MS in store-connection.ts).
 */
export const NEW_STORE_WAIT_MS = 2_500;
/**
 * If the store has lost an epoch that a replica remembers, other replicas may have called the service after the store
 * last answered this replica. So the floor of the new epoch is this number of ms after that answer, but at most the
 * current time.
 */
const FORGOTTEN_CLAIMS_MS = 5_000;

export interface EpochState {
  /** The store's time when the script ran, in epoch ms. */
  readonly now: number;
  readonly id: string;
  /**
   * The floor of the epoch, by the store's clock: noria assumes that every instance was called at this moment. 0: no
   * floor.
   */
  readonly floorAt: number;
  /** No noria may call the service before this moment of the store's clock. */
  readonly openAt: number;
}

/** The arguments of EPOCH_LUA. The script's own arguments follow them in ARGV. */
interface EpochArguments {
  /** The epoch that the replica remembers; empty if it remembers none. */
  readonly remembered: string;
  /** The time since the store last answered with the epoch that the replica remembers. */
  readonly rememberedForMs: number;
  /** The id that a new epoch gets if the script begins one. */
  readonly newEpochId: string;
  /** Whether the store's clock was set since the last script. */
  readonly clockWasSet: boolean;
}

/** The keys that every script gets first: KEYS[1] to KEYS[6]. */
export function epochKeys({ epoch, log, snapshot, replicas, beats, uses }: FleetKeys): readonly string[] {
  return [epoch, log, snapshot, replicas, beats, uses];
}

export function epochArguments(state: EpochArguments): (string | number)[] {
  const { remembered, rememberedForMs, newEpochId, clockWasSet } = state;
  return [remembered, Math.ceil(rememberedForMs), newEpochId, clockWasSet ? 1 : 0];
}

/**
 * The Lua code at the start of every script. KEYS[1] to KEYS[6] come from `epochKeys`; ARGV[1] to ARGV[4] come from
 * `epochArguments`. Defines `now`, the store's time in ms, and `answer(...)`, which returns the epoch followed by the
 * script's own results.
 *
 * If the store has lost the epoch, it has also lost the number of the last log entry. So the code then deletes the log,
 * the snapshot, the replicas, the beats and the uses.
 */
export const EPOCH_LUA = `
local function whole(number) return string.format('%.0f', number) end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', KEYS[1], 'id', 'server', 'floorAt', 'openAt', 'format')
local epoch, floorAt, openAt = known[1], tonumber(known[3] or 0), tonumber(known[4] or 0)
if known[5] and tonumber(known[5]) > ${STORE_FORMAT} then
  return redis.error_reply('FORMAT ' .. known[5])
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local data = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if not run or not data then return redis.error_reply('IDENTITY') end
local server = run .. ' ' .. data
if not epoch or known[2] ~= server or ARGV[4] == '1' then
  if epoch then
    floorAt, openAt = now, 0
  else
    local ran = redis.call('INFO', 'commandstats')
    local wasFlushed = string.find(ran, 'cmdstat_flushall:') or string.find(ran, 'cmdstat_flushdb:')
    if wasFlushed then floorAt, openAt = now, 0 else floorAt, openAt = 0, now + ${NEW_STORE_WAIT_MS} end
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
  end
  epoch = ARGV[3]
  redis.call('HSET', KEYS[1], 'id', epoch, 'server', server, 'format', ${STORE_FORMAT},
    'floorAt', whole(floorAt), 'openAt', whole(openAt))
end
if ARGV[1] ~= '' and ARGV[1] ~= epoch then
  floorAt = math.max(floorAt, math.min(now, now - tonumber(ARGV[2]) + ${FORGOTTEN_CLAIMS_MS}))
  redis.call('HSET', KEYS[1], 'floorAt', whole(floorAt), 'openAt', '0')
  openAt = 0
end
local function answer(...) return { whole(now), epoch, whole(floorAt), whole(openAt), ... } end
`;

/** Splits the answer of a script into the state of the epoch and the script's own results. */
export function readEpoch(reply: Reply): { readonly state: EpochState; readonly values: readonly Reply[] } {
  if (!Array.isArray(reply))
    throw new TypeError(`a script of the fleet returned ${typeof reply} instead of a list`);
  const [now, id, floorAt, openAt, ...values]: Reply[] = reply;
  const state = { now: Number(now), id: String(id), floorAt: Number(floorAt), openAt: Number(openAt) };
  return { state, values };
}
