/**
 * The Lua scripts for the log, the sessions and the beats of a fleet.
 *
 * The state of a fleet is the result of all facts in its log. Every replica computes it in the same way
 * (shared-state.ts). The store has a snapshot of the state and the log entries after it. Any replica may write a
 * snapshot; this also removes old log entries.
 */
import { FleetScript } from './fleet-store.ts';

/** A replica that has sent no beat for this time is removed from the list of replicas. */
export const REPLICA_SILENT_MS = 5_000;
/** How long the store keeps a beat, so that slow replicas can still read it. */
const BEATS_KEPT_MS = 10_000;
/**
 * When the store gets a new snapshot, it keeps this number of the log entries before the snapshot. So a slow reader of
 * the log can continue and does not have to load the whole state.
 */
const KEPT_ENTRIES = 256;

const SESSION_LUA = `
local function append(by, facts)
  local number = redis.call('HINCRBY', KEYS[1], 'number', 1)
  redis.call('XADD', KEYS[2], whole(number) .. '-0', 'at', whole(now), 'by', by, 'facts', facts)
end
local function set(key, text, member, ms)
  redis.call('HSET', key, 'text', text, 'member', member)
  redis.call('PEXPIRE', key, ms)
end
`;

/**
 * Appends facts to the log.
 *
 * KEYS[7] and the following keys are the sessions that the facts change. ARGV: 5 replica, 6 facts; then for each of
 * these sessions: name, session as JSON (empty: the session has ended), member (empty: none), remaining ms.
 *
 * Deletes the fields of these sessions from the hash of uses: each fact either contains all uses of its session, or
 * ends the session.
 */
export const PUBLISH = new FleetScript(
  'publish',
  `${SESSION_LUA}
append(ARGV[5], ARGV[6])
for index = 7, #KEYS do
  local first = 4 * index - 21
  redis.call('DEL', KEYS[index])
  redis.call('HDEL', KEYS[6], 'uses:s:' .. ARGV[first], 'used:s:' .. ARGV[first])
  if ARGV[first + 1] ~= '' then set(KEYS[index], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]) end
end
return answer()
`,
);

/**
 * Opens a session, unless the store already has the session with a member.
 *
 * KEYS[7] is the session. ARGV: 5 replica, 6 facts, 7 name of the session, 8 session as JSON, 9 its member (empty:
 * none), 10 its remaining ms.
 * @returns the session that the store already had: its JSON, the uses that beats have added to it, and its last use.
 * All three are empty if the script has opened the session.
 */
export const BIND = new FleetScript(
  'bind',
  `${SESSION_LUA}
local found = redis.call('HMGET', KEYS[7], 'text', 'member')
local added = redis.call('HMGET', KEYS[6], 'uses:s:' .. ARGV[7], 'used:s:' .. ARGV[7])
if found[1] and found[2] ~= '' then return answer(found[1], added[1] or '', added[2] or '') end
set(KEYS[7], ARGV[8], ARGV[9], ARGV[10])
redis.call('HDEL', KEYS[6], 'uses:s:' .. ARGV[7], 'used:s:' .. ARGV[7])
append(ARGV[5], ARGV[6])
return answer('', '', '')
`,
);

/**
 * Returns, in this order: the snapshot; the number of the last entry of the log; the entries after the snapshot; the hash
 * of uses; the id of the last beat.
 */
export const LOAD = new FleetScript(
  'load',
  `
local positions = redis.call('HMGET', KEYS[1], 'snapshot', 'number')
local position = positions[1] or '0'
local beat = redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1)[1]
return answer(
  redis.call('GET', KEYS[3]) or '', positions[2] or '0',
  redis.call('XRANGE', KEYS[2], '(' .. position .. '-0', '+'),
  redis.call('HGETALL', KEYS[6]),
  beat and beat[1] or '0-0')
`,
);

/**
 * Writes a snapshot.
 *
 * ARGV: 5 epoch, 6 number of the last log entry in the snapshot, 7 state; from 8: the fields to delete from the hash of
 * uses.
 */
export const SNAPSHOT = new FleetScript(
  'snapshot',
  `
local known = tonumber(redis.call('HGET', KEYS[1], 'snapshot') or 0)
if epoch ~= ARGV[5] or known >= tonumber(ARGV[6]) then return answer() end
redis.call('SET', KEYS[3], ARGV[7])
redis.call('HSET', KEYS[1], 'snapshot', ARGV[6])
redis.call('XTRIM', KEYS[2], 'MINID', whole(math.max(0, ARGV[6] - ${KEPT_ENTRIES})) .. '-0')
for index = 8, #ARGV do redis.call('HDEL', KEYS[6], ARGV[index]) end
return answer()
`,
);

/**
 * Writes a beat and reads the beats that the replica has not read yet.
 *
 * KEYS[7] and the following keys are the used sessions. ARGV: 5 replica, 6 record of the replica (see
 * `BeatExchangeOptions.record`), 7 beat (empty: none), 8 id of the last beat that the replica has read. Then for each
 * used session: name, uses, last use, TTL. Then for each used member: id, uses, end of life (empty: unchanged).
 * @returns the replica's previous record, the number of the last log entry, the number of the last log entry in the
 * latest snapshot, all replicas with their records, and the new beats.
 */
export const BEAT = new FleetScript(
  'beat',
  `
local function split(record) return string.match(record, '^(%d+) (.*)$') end
local function raise(field, at, text)
  local known = tonumber(string.match(redis.call('HGET', KEYS[6], field) or '0', '^%d+'))
  if tonumber(at) > known then redis.call('HSET', KEYS[6], field, text) end
end
local previous = redis.call('HGET', KEYS[4], ARGV[5]) or ''
redis.call('HSET', KEYS[4], ARGV[5], whole(now) .. ' ' .. ARGV[6])
if ARGV[7] ~= '' then
  redis.call('XADD', KEYS[5], 'MINID', '~', whole(now - ${BEATS_KEPT_MS}), '*', 'by', ARGV[5], 'beat', ARGV[7])
end
local first = 9
for index = 7, #KEYS do
  local name, uses, used, ttl = ARGV[first], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  first = first + 4
  if redis.call('EXISTS', KEYS[index]) == 1 then
    redis.call('PEXPIRE', KEYS[index], math.max(1, used + ttl - now))
    redis.call('HINCRBY', KEYS[6], 'uses:s:' .. name, uses)
    raise('used:s:' .. name, used, used .. ' ' .. ttl)
  end
end
for index = first, #ARGV, 3 do
  local id, uses, ends = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  if uses ~= '0' then redis.call('HINCRBY', KEYS[6], 'uses:m:' .. id, uses) end
  if ends ~= '' then raise('ends:m:' .. id, ends, ends) end
end
local replicas = {}
local records = redis.call('HGETALL', KEYS[4])
for index = 1, #records, 2 do
  local at, record = split(records[index + 1])
  if now - tonumber(at) > ${REPLICA_SILENT_MS} then
    redis.call('HDEL', KEYS[4], records[index])
  else
    replicas[#replicas + 1] = records[index]
    replicas[#replicas + 1] = at
    replicas[#replicas + 1] = record
  end
end
local positions = redis.call('HMGET', KEYS[1], 'number', 'snapshot')
return answer(previous, positions[1] or '0', positions[2] or '0', replicas,
  redis.call('XRANGE', KEYS[5], '(' .. ARGV[8], '+'))
`,
);

/** Removes the replica from the list, unless another process now uses its name. ARGV: 5 replica, 6 process. */
export const LEAVE = new FleetScript(
  'leave',
  `
local known = redis.call('HGET', KEYS[4], ARGV[5]) or ''
if string.match(known, '"process":"([^"]*)"') == ARGV[6] then redis.call('HDEL', KEYS[4], ARGV[5]) end
return answer()
`,
);
