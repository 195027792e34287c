/**
 * The epoch of a fleet's data: how the replicas notice that the store lost something.
 *
 * The store may have been restarted, emptied, restored from a backup, or replaced by a replica that lacks the last writes. Then a
 * call may have been made that its data does not show. Every script therefore begins with EPOCH_LUA, which compares the identity
 * of the server with the one that the data was written on. After a change it starts a new epoch with a floor: every instance
 * counts as called at that moment.
 *
 * Data without an epoch is that of a new fleet, or of a store that was emptied. Only replicas that remember an epoch can tell, so
 * the first claim waits NEW_STORE_WAIT_MS for one of them. Each script names the epoch that its replica remembers.
 */
import type { FleetKeys } from './keys.ts';
import type { Reply } from './store-client.ts';

/** The format of the data in the store. A replica that finds a higher one does not start. */
export const STORE_FORMAT = 1;
/** Longer than replicas need to return to a store (MAX_DELAY_MS of store-connection.ts), shorter than people wait. */
export const NEW_STORE_WAIT_MS = 2_500;
/**
 * A replica that remembers another epoch proves only that claims were possible until its last contact. Another one, which has
 * ended since, may have claimed a little later.
 */
const FORGOTTEN_CLAIMS_MS = 5_000;

export interface EpochState {
  /** The store's time, in epoch ms, when the script ran. */
  readonly now: number;
  readonly id: string;
  /** Every instance counts as called at this store time; 0: no floor. */
  readonly floorAt: number;
  /** No claim before this store time. */
  readonly openAt: number;
}

/** The arguments that EPOCH_LUA reads, before those of the script itself. */
export interface EpochArguments {
  /** Empty: this replica remembers none. */
  readonly remembered: string;
  /** Since the last answer of the store in that epoch. */
  readonly rememberedForMs: number;
  /** The id of the next epoch, if one has to begin. */
  readonly fresh: string;
  /** Whether the store's clock was set. */
  readonly clockWasSet: boolean;
}

/** KEYS[1] to KEYS[6] of every script. */
export function epochKeys({ epoch, log, snapshot, replicas, beats, uses }: FleetKeys): readonly string[] {
  return [epoch, log, snapshot, replicas, beats, uses];
}

export function epochArguments(state: EpochArguments): (string | number)[] {
  const { remembered, rememberedForMs, fresh, clockWasSet } = state;
  return [remembered, Math.ceil(rememberedForMs), fresh, clockWasSet ? 1 : 0];
}

/**
 * Lua at the head of every script. KEYS are those of `epochKeys`, ARGV[1] to ARGV[4] the arguments above. Defines `now` and
 * `answer(...)`, with which the script returns its values after those of the epoch. Without an epoch, what else there is was
 * written in an unknown order, so it is deleted.
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
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. ' '
  .. string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if not epoch or known[2] ~= server or ARGV[4] == '1' then
  if epoch then
    floorAt, openAt = now, 0
  else
    floorAt, openAt = 0, now + ${NEW_STORE_WAIT_MS}
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

/** Splits the answer of a script into the state of the epoch and the script's own values. */
export function readEpoch(reply: Reply): { readonly state: EpochState; readonly values: readonly Reply[] } {
  if (!Array.isArray(reply)) throw new TypeError(`a script of the fleet answered ${typeof reply}`);
  const [now, id, floorAt, openAt, ...values]: Reply[] = reply;
  const state = { now: Number(now), id: String(id), floorAt: Number(floorAt), openAt: Number(openAt) };
  return { state, values };
}
