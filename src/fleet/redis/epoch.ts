/**
 * The epoch of a fleet's data. By the epoch, replicas detect that the store lost data, because the store was restarted, emptied,
 * restored from a backup, or replaced by a server that lacks the last writes. The lost data may include the record of a call to
 * the service.
 *
 * So every script begins with EPOCH_LUA, which compares the identity of the server with the identity that is stored with the
 * data. If the two identities differ, EPOCH_LUA begins a new epoch with a floor: the moment at which every instance counts as
 * called.
 *
 * If the data has no epoch, the fleet is new or the store was emptied. A store that has executed FLUSHALL or FLUSHDB since its
 * start counts as emptied. For any other store, only a replica that remembers an epoch knows that the store was emptied. So the
 * first claim (the record that reserves a call to the service) waits NEW_STORE_WAIT_MS for such a replica, and each script passes
 * the epoch that its replica remembers.
 */
import type { FleetKeys } from './keys.ts';
import type { Reply } from './store-client.ts';

/** Format version of the data. A replica refuses to start if the data in the store has a higher version. */
export const STORE_FORMAT = 1;
/**
 * How long, in ms, the first call to the service waits for replicas that remember an epoch. All replicas reconnect in less time
 * (see MAX_DELAY_MS in store-connection.ts).
 */
export const NEW_STORE_WAIT_MS = 2_500;
/**
 * A claim is the record that reserves a call to the service. A replica that remembers an epoch knows the last moment at which it
 * reached the store. Another replica, which no longer runs, may have made claims after that moment, but for no longer than this
 * time.
 */
const FORGOTTEN_CLAIMS_MS = 5_000;

export interface EpochState {
  /** The store's time when the script ran, in epoch ms. */
  readonly now: number;
  readonly id: string;
  /** The floor of the epoch: every instance of the service counts as called at this moment of the store's time. 0: no floor. */
  readonly floorAt: number;
  /** No noria may call the service before this moment of the store's time. */
  readonly openAt: number;
}

/** The arguments of EPOCH_LUA. In ARGV, the script's own arguments follow them. */
interface EpochArguments {
  /** The epoch that the replica remembers; empty if it remembers none. */
  readonly remembered: string;
  /** The time since the last answer of the store in the remembered epoch. */
  readonly rememberedForMs: number;
  /** The id of the new epoch, in case one begins. */
  readonly newEpochId: string;
  /** Whether the store's clock was changed since the last script. */
  readonly clockWasSet: boolean;
}

/** The first six keys of every script: KEYS[1] to KEYS[6]. */
export function epochKeys({ epoch, log, snapshot, replicas, beats, uses }: FleetKeys): readonly string[] {
  return [epoch, log, snapshot, replicas, beats, uses];
}

export function epochArguments(state: EpochArguments): (string | number)[] {
  const { remembered, rememberedForMs, newEpochId, clockWasSet } = state;
  return [remembered, Math.ceil(rememberedForMs), newEpochId, clockWasSet ? 1 : 0];
}

/**
 * The Lua code at the start of every script. KEYS are those of `epochKeys`; ARGV[1] to ARGV[4] are `EpochArguments`. Defines
 * `now`, and `answer(...)`, which puts the state of the epoch before the script's values. If the data has no epoch, the code
 * deletes all other data of the fleet, because the order in which the data were written is unknown.
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

/** Splits a script's answer into the state of the epoch and the script's values. */
export function readEpoch(reply: Reply): { readonly state: EpochState; readonly values: readonly Reply[] } {
  if (!Array.isArray(reply))
    throw new TypeError(`a script of the fleet returned ${typeof reply} instead of a list`);
  const [now, id, floorAt, openAt, ...values]: Reply[] = reply;
  const state = { now: Number(now), id: String(id), floorAt: Number(floorAt), openAt: Number(openAt) };
  return { state, values };
}
