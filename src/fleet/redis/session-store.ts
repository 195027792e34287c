/**
 * The sessions of a fleet in its store. A replica reads a session when it first uses it. From then on it holds the
 * session, and the store tells it when another replica moves or ends it. Opening and moving are a compare-and-swap: the
 * store changes a session only while it has the member that the replica knows.
 *
 * A session belongs to the replicas that draw from the same instances: its key and its signature include them.
 */
import { BoundedMap } from '../../core/bounded-map.ts';
import { shiftMoments } from '../records.ts';
import { decodeSession, type Fact, type LoggedFact, type SharedSession } from '../schemas.ts';
import type { Reply, StoreClient } from './connection.ts';
import { BATCH_FACTS } from './instance-log.ts';
import { type FleetInstance, Seal } from './seal.ts';
import { FleetScript, type FleetStore, fieldsOf, listOf } from './store.ts';

/** How long the store keeps the news of a replica that sends no beat. If it continues later, it loads its sessions again. */
export const NEWS_KEPT_MS = 60_000;
/** At this number of unread news, the store drops them, and the replica also loads its sessions again. */
const MAX_NEWS = 20_000;
const MAX_KNOWN = 100_000;

/** `tell(...)` informs the replicas that hold the session KEYS[2], except the replica ARGV[5]. */
const TELL_LUA = `
local function tell(fields, text, mac, version)
  for index = 1, #fields do
    local holder = string.match(fields[index], '^h:(.*)$')
    if holder and holder ~= ARGV[5] then
      local news = prefix .. ':moved:' .. holder
      if redis.call('XLEN', news) < ${MAX_NEWS} then
        redis.call('XADD', news, 'NOMKSTREAM', '*', 'text', text, 'mac', mac, 'version', version)
      else
        redis.call('DEL', news)
      end
    end
  end
end
`;

/**
 * Opens or moves the session KEYS[2]. ARGV: 5 replica, 6 the member that the replica knows (empty: none), 7 session as
 * JSON, 8 its signature, 9 its member (empty: none), 10 its remaining ms.
 * @returns what the store has now: the session's JSON and signature (empty: those of the replica), its version, and the
 * uses and the last use that beats have added.
 */
const BIND = new FleetScript(
  'bind',
  `${TELL_LUA}
local key = KEYS[2]
local found = redis.call('HMGET', key, 'text', 'mac', 'member', 'version', 'uses', 'used')
redis.call('HSET', key, 'h:' .. ARGV[5], '1')
if found[1] and found[3] ~= '' and found[3] ~= ARGV[6] then
  return answer(found[1], found[2], found[4], found[5] or '0', found[6] or '')
end
local version = whole(math.max(tonumber(found[4] or 0) + 1, now))
redis.call('HSET', key, 'text', ARGV[7], 'mac', ARGV[8], 'member', ARGV[9], 'version', version)
redis.call('HDEL', key, 'uses', 'used')
redis.call('PEXPIRE', key, ARGV[10])
if found[1] then tell(redis.call('HKEYS', key), ARGV[7], ARGV[8], version) end
return answer('', '', version, '0', '')
`,
);

/** Ends the session KEYS[2]. ARGV: 5 replica, 6 the name as JSON, 7 its signature. */
const END = new FleetScript(
  'end-session',
  `${TELL_LUA}
local fields = redis.call('HKEYS', KEYS[2])
local known = redis.call('HGET', KEYS[2], 'version') or '0'
redis.call('DEL', KEYS[2])
local version = whole(math.max(tonumber(known) + 1, now))
tell(fields, ARGV[6], ARGV[7], version)
return answer(version)
`,
);

/** Reads sessions, which the replica ARGV[5] holds from now on. */
const HOLD = new FleetScript(
  'load-sessions',
  `
local sessions = {}
for index = 2, #KEYS do
  local found = redis.call('HMGET', KEYS[index], 'text', 'mac', 'version', 'uses', 'used')
  if found[1] then
    redis.call('HSET', KEYS[index], 'h:' .. ARGV[5], '1')
    sessions[#sessions + 1] = { found[1], found[2], found[3], found[4] or '0', found[5] or '' }
  end
end
return answer(sessions)
`,
);

/**
 * Begins to keep news for the replica whose stream of news is KEYS[2]. While this stream exists, it has all news that the
 * replica has not read. @returns the id of the last one.
 */
const LAST_NEWS = new FleetScript(
  'load-news',
  `
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local id = last and last[1] or redis.call('XADD', KEYS[2], '*', 'begun', '1')
redis.call('PEXPIRE', KEYS[2], ${NEWS_KEPT_MS})
return answer(id)
`,
);

export class SessionStore {
  readonly news: string;
  /** The id of the last news that this replica has read. Empty before `load`. */
  lastNews = '';
  readonly #store: FleetStore;
  readonly #replica: string;
  readonly #deliver: (facts: readonly LoggedFact[]) => void;
  readonly #set: string;
  readonly #seal: Seal;
  /** The last known change of each session; older ones that arrive later have no effect. */
  readonly #known = new BoundedMap<string, { readonly version: number; readonly fact: Fact }>(MAX_KNOWN);

  constructor(
    store: FleetStore,
    replica: string,
    instances: readonly FleetInstance[],
    deliver: (facts: readonly LoggedFact[]) => void,
  ) {
    const sorted = [...instances].sort((one, other) => (one.key < other.key ? -1 : 1));
    this.news = store.keys.moved(replica);
    this.#store = store;
    this.#replica = replica;
    this.#deliver = deliver;
    this.#set = sorted.map(({ key }) => key).join('\n');
    this.#seal = new Seal(store.name, sorted);
  }

  keyOf(session: string): string {
    return this.#store.keys.session(this.#set, session);
  }

  async load(names: readonly string[], client: StoreClient): Promise<SharedSession[]> {
    const { values } = await this.#store.run(LAST_NEWS, { keys: [this.news] }, client);
    this.lastNews = String(values[0]);
    return this.hold(names, client);
  }

  /** Reads sessions, which this replica holds from now on. Their moments are by the store's clock. */
  async hold(names: readonly string[], client?: StoreClient): Promise<SharedSession[]> {
    const sessions: SharedSession[] = [];
    for (let first = 0; first < names.length; first += BATCH_FACTS) {
      const keys = names.slice(first, first + BATCH_FACTS).map((name) => this.keyOf(name));
      const { values } = await this.#store.run(HOLD, { keys, args: [this.#replica] }, client);
      for (const found of listOf(values[0])) {
        const { session } = this.#read(listOf(found)) ?? {};
        if (session !== undefined) sessions.push(session);
      }
    }
    return sessions;
  }

  async bind(proposed: SharedSession, from: string | undefined): Promise<SharedSession> {
    const { toStoreTime, toLocalTime, clock } = this.#store;
    const session = shiftMoments(proposed, toStoreTime);
    const text = JSON.stringify(session);
    const leftMs = Math.max(1, Math.ceil(session.usedAt + session.ttlMs - clock.atLeast()));
    const { values } = await this.#store.run(BIND, {
      keys: [this.keyOf(session.name)],
      args: [
        ...[this.#replica, from ?? '', text, this.#seal.sign('session', text)],
        ...[session.member ?? '', leftMs],
      ],
    });
    const isOwn = values[0] === '';
    const found = isOwn ? { session, version: Number(values[2]) } : this.#read(values);
    if (found === undefined || found.session.name !== session.name) return proposed;
    const local = isOwn ? proposed : shiftMoments(found.session, toLocalTime);
    const known = this.#known.get(session.name);
    if (known !== undefined && known.version > found.version) {
      // another replica has moved the session since the store answered
      return known.fact.kind === 'session.moved' ? known.fact.session : local;
    }
    const fact = { kind: 'session.moved', session: local, reason: 'bound' } as const;
    this.#known.set(session.name, { version: found.version, fact });
    return local;
  }

  async end(name: string): Promise<void> {
    const text = JSON.stringify({ ended: name });
    const { values } = await this.#store.run(END, {
      keys: [this.keyOf(name)],
      args: [this.#replica, text, this.#seal.sign('ended', text)],
    });
    this.#known.set(name, { version: Number(values[0]), fact: { kind: 'session.ended', name } });
  }

  readNews(entry: Reply): void {
    const [id, reply] = listOf(entry);
    this.lastNews = String(id);
    const { text = '', mac = '', version: number } = fieldsOf(reply);
    const version = Number(number);
    const fact = this.#seal.isValid(mac, 'ended', text) ? endedIn(text) : this.#movedIn(text, mac);
    if (fact === undefined || !Number.isFinite(version)) return;
    const name = fact.kind === 'session.ended' ? fact.name : fact.session.name;
    if ((this.#known.get(name)?.version ?? 0) >= version) return;
    this.#known.set(name, { version, fact });
    this.#deliver([{ by: '', fact }]);
  }

  #movedIn(text: string, mac: string) {
    const session = this.#seal.isValid(mac, 'session', text) ? decodeSession(text) : undefined;
    if (session === undefined) return undefined;
    return {
      kind: 'session.moved',
      session: shiftMoments(session, this.#store.toLocalTime),
      reason: 'moved',
    } as const;
  }

  #read([text, mac, version, uses, used]: readonly Reply[]) {
    if (!this.#seal.isValid(String(mac), 'session', String(text))) return undefined;
    const found = decodeSession(String(text));
    if (found === undefined) return undefined;
    const [usedAt = 0, ttlMs = found.ttlMs] = used === '' ? [] : String(used).split(' ').map(Number);
    const session = {
      ...found,
      usedAt: Math.max(found.usedAt, usedAt),
      uses: found.uses + Number(uses),
      ttlMs,
    };
    return { session, version: Number(version) };
  }
}

function endedIn(text: string) {
  const { ended }: { readonly ended: string } = JSON.parse(text); // signed by a replica
  return { kind: 'session.ended', name: ended } as const;
}
