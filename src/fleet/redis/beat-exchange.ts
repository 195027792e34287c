/**
 * Exchanges beats, the reports of the replicas' activity, through the store. The store adds them up, and one call sends
 * this replica's beat and reads what has changed. So the traffic does not grow with the number of replicas. A replica
 * calls the store once a second even if it has nothing to report, so that the other replicas know that it is running.
 */
import type { Clock } from '../../core/clock.ts';
import { type Demand, NO_DEMAND } from '../../pool/drawn-member.ts';
import { shiftMoments } from '../records.ts';
import type { Beat, MemberActivity, SessionActivity } from '../schemas.ts';
import { decodeReplica, type ReplicaRecord } from '../schemas.ts';
import type { ReplicaStatus } from '../shared-pool.ts';
import { faultOf, lostStore, type Reply, type StoreClient } from './connection.ts';
import { BATCH_FACTS, INSTANCE_LUA, type InstanceLog } from './instance-log.ts';
import { NEWS_KEPT_MS, type SessionStore } from './session-store.ts';
import { FleetScript, type FleetStore, listOf } from './store.ts';

/** The numbers of a demand that the store adds up. Fractions are sent as millionths. */
const NUMBERS = ['waiting', 'stranded', 'held', 'usedUpPerSecond', 'perSecond'] as const;
const NO_NUMBERS = NUMBERS.map(() => '0').join(' ');
const FRACTIONS: readonly string[] = ['usedUpPerSecond', 'perSecond'];

/** A replica that has sent no beat for this time is removed from the list of replicas. */
export const REPLICA_SILENT_MS = 5_000;

/**
 * ARGV: 5 replica, 6 its process, 7 its record (empty: unchanged), 8 its clients, 9 the version of the list of replicas
 * that it knows, 10 the last news of sessions that it has read (empty: none yet); then the number of used sessions with,
 * for each: uses, last use, TTL; then for each instance: the version of the uses that the replica knows, its demand
 * (NUMBERS), the last use, and the number of used members with, for each: id, uses, end of life (0: unchanged).
 *
 * KEYS from 2: the used sessions, then the instances.
 * @returns whether the store has no record of the replica; another process with its name; whether news of sessions are
 * lost; the version of the list, and the list if it has changed; then for each instance: the number of the last entry, the last entry in the snapshot, the
 * last use, the version of the uses, the changed uses, and the sums of the demand.
 */
const BEAT = new FleetScript(
  'beat',
  `${INSTANCE_LUA}
local name, process, record, clients = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local replicas, seen = prefix .. ':replicas', prefix .. ':seen'
local known = redis.call('HGET', replicas, name)
local missing, other = known and 0 or 1, ''
if known then
  local owner = string.match(known, '"process":"([^"]*)"') or ''
  if owner ~= process then missing, other = 1, owner end
end
if record ~= '' and record ~= known then
  redis.call('HSET', replicas, name, record)
  redis.call('HINCRBY', KEYS[1], 'listed', 1)
  missing = 0
end
redis.call('ZADD', seen, now, name)
redis.call('HSET', prefix .. ':clients', name, clients)
for _, silent in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now - ${REPLICA_SILENT_MS})) do
  redis.call('ZREM', seen, silent)
  redis.call('HDEL', replicas, silent)
  redis.call('HDEL', prefix .. ':clients', silent)
  redis.call('HINCRBY', KEYS[1], 'listed', 1)
end
local news, lost = prefix .. ':moved:' .. name, 0
if ARGV[10] ~= '' then
  redis.call('XTRIM', news, 'MINID', ARGV[10])
  lost = 1 - redis.call('PEXPIRE', news, ${NEWS_KEPT_MS})
end
local at = 11
local function take() at = at + 1 return ARGV[at] end
local key = 2
for _ = 1, ARGV[11] do
  local uses, used, ttl = take(), take(), take()
  local session = KEYS[key]
  if redis.call('EXISTS', session) == 1 then
    redis.call('PEXPIRE', session, math.max(1, used + ttl - now))
    redis.call('HINCRBY', session, 'uses', uses)
    local last = string.match(redis.call('HGET', session, 'used') or '0', '^%d+')
    if tonumber(used) > tonumber(last) then redis.call('HSET', session, 'used', used .. ' ' .. ttl) end
  end
  key = key + 1
end
local instances = {}
while key <= #KEYS do
  local base = KEYS[key]
  local state, demand, asking = open(base), base .. ':demand', base .. ':asking'
  local function announce(who, text)
    local before = redis.call('HGET', demand, who) or '${NO_NUMBERS}'
    if text ~= '${NO_NUMBERS}' then redis.call('ZADD', asking, now, who) end
    if text == before then return end
    local old = string.gmatch(before, '%d+')
    local index = 0
    for number in string.gmatch(text, '%d+') do
      index = index + 1
      redis.call('HINCRBY', state, 'demand' .. index, number - old())
    end
    if text == '${NO_NUMBERS}' then
      redis.call('HDEL', demand, who)
      redis.call('ZREM', asking, who)
    else
      redis.call('HSET', demand, who, text)
    end
  end
  local version, numbers, wanted = take(), take(), take()
  announce(name, numbers)
  for _, silent in ipairs(redis.call('ZRANGEBYSCORE', asking, '-inf', now - ${REPLICA_SILENT_MS})) do
    announce(silent, '${NO_NUMBERS}')
  end
  if tonumber(wanted) > tonumber(redis.call('HGET', state, 'wanted') or 0) then
    redis.call('HSET', state, 'wanted', wanted)
  end
  for _ = 1, take() do
    local id, uses, ends = take(), take(), take()
    local sum, last = string.match(redis.call('HGET', base .. ':uses', id) or '0 0', '^(%d+) (%d+)$')
    local latest = math.max(tonumber(last), tonumber(ends))
    redis.call('HSET', base .. ':uses', id, whole(sum + uses) .. ' ' .. whole(latest))
    redis.call('ZADD', base .. ':changed', redis.call('HINCRBY', state, 'version', 1), id)
  end
  local changed = redis.call('ZRANGEBYSCORE', base .. ':changed', '(' .. version, '+inf', 'WITHSCORES',
    'LIMIT', 0, ${BATCH_FACTS})
  local uses = {}
  for index = 1, #changed, 2 do
    uses[#uses + 1] = changed[index]
    uses[#uses + 1] = redis.call('HGET', base .. ':uses', changed[index]) or '0 0'
    version = changed[index + 1]
  end
  local known = redis.call('HMGET', state, 'number', 'covers', 'wanted')
  local sums = {}
  for index = 1, ${NUMBERS.length} do sums[index] = redis.call('HGET', state, 'demand' .. index) or '0' end
  instances[#instances + 1] = { known[1] or '0', known[2] or '0', known[3] or '0', version, uses,
    table.concat(sums, ' ') }
  key = key + 1
end
local listed, list = redis.call('HGET', KEYS[1], 'listed') or '0', {}
if listed ~= ARGV[9] then list = redis.call('HGETALL', replicas) end
return answer(missing, other, lost, listed, list, instances)
`,
);

export const SEEN = new FleetScript(
  'replicas',
  `
local seen = {}
local found = redis.call('ZRANGEBYSCORE', prefix .. ':seen', now - ${REPLICA_SILENT_MS}, '+inf', 'WITHSCORES')
for index = 1, #found, 2 do
  local record = redis.call('HGET', prefix .. ':replicas', found[index])
  if record then
    seen[#seen + 1] = { found[index], found[index + 1], redis.call('HGET', prefix .. ':clients', found[index]) or '0',
      record }
  end
end
return answer(seen)
`,
);

/** Removes the replica from the list, unless another process now uses its name. ARGV: 5 replica, 6 process. */
export const LEAVE = new FleetScript(
  'leave',
  `
local known = redis.call('HGET', prefix .. ':replicas', ARGV[5]) or ''
if string.match(known, '"process":"([^"]*)"') == ARGV[6] then
  redis.call('HDEL', prefix .. ':replicas', ARGV[5])
  redis.call('HDEL', prefix .. ':clients', ARGV[5])
  redis.call('ZREM', prefix .. ':seen', ARGV[5])
  redis.call('DEL', prefix .. ':moved:' .. ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'listed', 1)
end
return answer()
`,
);

interface BeatExchangeOptions {
  readonly store: FleetStore;
  readonly clock: Clock;
  readonly everyMs: number;
  readonly replica: string;
  readonly record: () => ReplicaRecord;
  readonly clients: () => number;
  readonly instances: () => readonly InstanceLog[];
  readonly sessions: () => SessionStore;
  readonly receive: (answer: BeatAnswer) => void;
  /** Called once for each other process that uses the name of this replica. */
  readonly nameTaken: () => void;
  readonly onList: (records: ReadonlyMap<string, ReplicaRecord>) => void;
}

export interface BeatAnswer {
  readonly replicas: readonly string[];
  readonly demand: Readonly<Record<string, Demand>>;
  readonly uses: Readonly<Record<string, number>>;
  readonly ends: Readonly<Record<string, number>>;
  /** The instances whose log is longer than its last snapshot, by this number of entries. */
  readonly unsaved: readonly { readonly instance: InstanceLog; readonly entries: number }[];
}

const MIN_GAP_MS = 100;
const MILLION = 1e6;
const NEVER_WANTED: Demand = { ...NO_DEMAND, lastWantedAt: 0 };

export class BeatExchange {
  readonly #options: BeatExchangeOptions;
  #unsent: Beat | undefined;
  /** What the last beat announced; its moments are by this replica's clock, and by the store's clock. */
  #localDemand: Beat['demand'] = {};
  #demand: Beat['demand'] = {};
  #heldBack: ReadonlySet<string> = new Set();
  readonly #wanted = new Map<string, { readonly storeAt: number; readonly localAt: number }>();
  #listed: readonly ReplicaStatus[] = [];
  /** The version of the list of replicas that this replica knows, and the record that the store has of it. */
  #listVersion = '';
  #sentRecord = '';
  #refreshing: Promise<void> | undefined;
  #exchange: Promise<void> | undefined;
  #timer: Disposable | undefined;
  readonly #namesakes = new Set<string>();
  #isClosed = false;

  constructor(options: BeatExchangeOptions) {
    this.#options = options;
  }

  /** The replicas as of the last call to the store. Asks the store for their clients, for the next call of this getter. */
  get replicas(): readonly ReplicaStatus[] {
    this.#refreshing ??= this.#refresh();
    return this.#listed;
  }

  /** Adds this replica to the list, with the first write over the connection. The connection opens only if it succeeds. */
  async join(client: StoreClient): Promise<void> {
    this.#wanted.clear();
    this.#listVersion = '';
    this.#sentRecord = '';
    await this.#call([], { members: [], sessions: [] }, client);
  }

  /**
   * Call it after the state has been loaded. Drops the uses of members that the state lacks: the replica that publishes
   * these members again also reports all their uses again.
   */
  start(hasMember: (id: string) => boolean): void {
    if (this.#unsent === undefined) return;
    const members = this.#unsent.members.filter(({ member }) => hasMember(member));
    this.#unsent = { ...this.#unsent, members };
  }

  /**
   * Sends the beat soon. Without a connection, keeps the beat until the connection is back, but drops its counts of
   * session uses.
   */
  send(beat: Beat): void {
    this.#unsent = this.#unsent === undefined ? beat : merged(this.#unsent, beat);
    if (this.#options.store.connection.fault === undefined) this.#exchangeWithin(this.#gapMs);
    else this.#dropSessions();
  }

  connected(): void {
    this.#exchangeWithin(0);
  }

  lost(): void {
    this.#timer?.[Symbol.dispose]();
    this.#dropSessions();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.[Symbol.dispose]();
    await this.#exchange;
  }

  /**
   * While the store is unavailable, clients may use any number of sessions, so keeping their uses would take unlimited
   * memory.
   */
  #dropSessions(): void {
    if (this.#unsent !== undefined) this.#unsent = { ...this.#unsent, sessions: [] };
  }

  /** The minimum time between two calls to the store. Beats that the replica sends within this time are merged. */
  get #gapMs(): number {
    return Math.min(MIN_GAP_MS, this.#options.everyMs);
  }

  #exchangeWithin(ms: number): void {
    // the exchange in progress starts the timer of the next one when it ends
    if (this.#exchange !== undefined || this.#isClosed) return;
    this.#timer?.[Symbol.dispose]();
    this.#timer = this.#options.clock.after(ms, () => {
      this.#exchange = this.#runExchange();
    });
  }

  async #runExchange(): Promise<void> {
    const { store, everyMs } = this.#options;
    const beat = this.#unsent;
    this.#unsent = undefined;
    try {
      await this.#send(beat);
    } catch (error) {
      // handled: this replica connects again and loads the whole state. It does not send its beat again: a store that hung
      // may still process it, and count its uses twice.
      store.connection.reset(faultOf(error));
    }
    this.#exchange = undefined;
    if (store.connection.fault !== undefined) return;
    this.#exchangeWithin(this.#unsent === undefined ? everyMs : this.#gapMs);
  }

  async #send(beat: Beat | undefined): Promise<void> {
    const { store, instances, receive } = this.#options;
    const { demand, sessions = [] } = beat ?? {};
    const members = this.#known(beat?.members ?? []);
    if (demand !== undefined) {
      this.#localDemand = demand;
      this.#demand = shiftMoments(demand, store.toStoreTime);
    }
    const shifted = shiftMoments({ members, sessions }, store.toStoreTime);
    for (
      let first = 0;
      first === 0 || first < Math.max(members.length, sessions.length);
      first += BATCH_FACTS
    ) {
      const part = {
        members: shifted.members.slice(first, first + BATCH_FACTS),
        sessions: shifted.sessions.slice(first, first + BATCH_FACTS),
      };
      receive(this.#read(instances(), await this.#call(instances(), part)));
    }
  }

  /** Keeps the uses of members that this replica has published, but has not yet received from the log, for one more beat. */
  #known(members: readonly MemberActivity[]): readonly MemberActivity[] {
    const isKnown = ({ member }: MemberActivity) =>
      this.#options.instances().some(({ state }) => state.drawnBy(member) !== undefined);
    const unknown = members.filter((use) => !isKnown(use) && !this.#heldBack.has(use.member));
    this.#heldBack = new Set(unknown.map(({ member }) => member));
    if (unknown.length > 0) {
      const later: Beat = { waiting: 0, demand: this.#localDemand, members: unknown, sessions: [] };
      this.#unsent = this.#unsent === undefined ? later : merged(later, this.#unsent);
    }
    return members.filter(isKnown);
  }

  async #call(
    instances: readonly InstanceLog[],
    { members, sessions }: Pick<Beat, 'members' | 'sessions'>,
    client?: StoreClient,
  ): Promise<Reply | undefined> {
    const { store, replica, record, clients, sessions: sessionStore } = this.#options;
    const own = record();
    const text = JSON.stringify(own);
    const { values } = await store.run(
      BEAT,
      {
        keys: [
          ...sessions.map(({ session }) => sessionStore().keyOf(session)),
          ...instances.map(({ base }) => base),
        ],
        args: [
          ...[replica, own.process, text === this.#sentRecord ? '' : text, clients(), this.#listVersion],
          client === undefined ? sessionStore().lastNews : '',
          ...[sessions.length, ...sessions.flatMap(({ uses, usedAt, ttlMs }) => [uses, usedAt, ttlMs])],
          ...instances.flatMap((instance) => this.#about(instance, members)),
        ],
      },
      client,
    );
    const [missing, other, isNewsLost, version, list, about] = values;
    if (Number(isNewsLost) === 1) {
      const why =
        'it no longer has the moves of sessions that this noria missed, so noria loads its data again';
      throw lostStore('the store', why);
    }
    // without a record, for example because this replica was silent for long, the next call sends the record again
    this.#sentRecord = Number(missing) === 1 ? '' : text;
    if (other !== '' && !this.#namesakes.has(String(other))) {
      this.#namesakes.add(String(other));
      this.#options.nameTaken();
    }
    if (String(version) !== this.#listVersion) this.#readList(String(version), list);
    return about;
  }

  #about(instance: InstanceLog, members: readonly MemberActivity[]): (string | number)[] {
    const demand = this.#demand[instance.key] ?? NEVER_WANTED;
    const own = members.filter(({ member }) => instance.state.drawnBy(member) !== undefined);
    return [
      ...[instance.version, numbersOf(demand).join(' '), Math.floor(demand.lastWantedAt)],
      own.length,
      ...own.flatMap(({ member, uses, endsAt = 0 }) => [member, uses, Math.floor(endsAt)]),
    ];
  }

  #read(instances: readonly InstanceLog[], about: Reply | undefined): BeatAnswer {
    const { store } = this.#options;
    const demand: Record<string, Demand> = {};
    const uses: Record<string, number> = {};
    const ends: Record<string, number> = {};
    const unsaved: { readonly instance: InstanceLog; readonly entries: number }[] = [];
    for (const [index, instance] of instances.entries()) {
      const [number, covers, wanted, version, changed, sums] = listOf(listOf(about)[index]);
      const own = numbersOf(this.#demand[instance.key] ?? NEVER_WANTED);
      const others = String(sums)
        .split(' ')
        .map((sum, at) => Math.max(0, Number(sum) - (own[at] ?? 0)) || 0);
      const lastWantedAt = Number.isFinite(Number(wanted)) ? Math.min(Number(wanted), store.now) : 0;
      demand[instance.key] = demandIn(others, this.#wantedAt(instance.key, lastWantedAt));
      if (lastWantedAt === 0) delete demand[instance.key];
      const added = instance.addUses(changed);
      Object.assign(uses, added.uses);
      for (const [member, endsAt] of Object.entries(added.ends)) ends[member] = store.toLocalTime(endsAt);
      instance.version = Number(version);
      unsaved.push({ instance, entries: Number(number) - Number(covers) });
    }
    return { replicas: this.#listed.map(({ name }) => name), demand, uses, ends, unsaved };
  }

  /** Converts a moment only once, because two conversions differ a little, and a change of demand causes a beat. */
  #wantedAt(instance: string, storeAt: number): number {
    const known = this.#wanted.get(instance);
    if (known?.storeAt === storeAt) return known.localAt;
    const localAt = this.#options.store.toLocalTime(storeAt);
    this.#wanted.set(instance, { storeAt, localAt });
    return localAt;
  }

  #readList(version: string, reply: Reply | undefined): void {
    this.#listVersion = version;
    const texts = listOf(reply).map(String);
    const records = new Map<string, ReplicaRecord>();
    for (let index = 0; index + 1 < texts.length; index += 2) {
      const record = decodeReplica(texts[index + 1] ?? '');
      if (record !== undefined) records.set(texts[index] ?? '', record);
    }
    const known = new Map(this.#listed.map((each) => [each.name, each]));
    this.#listed = sortedByName(
      [...records].map(([name, record]) => ({
        name,
        version: record.version,
        clients: known.get(name)?.clients ?? 0,
        lastSeenSeconds: known.get(name)?.lastSeenSeconds ?? 0,
      })),
    );
    this.#options.onList(records);
  }

  async #refresh(): Promise<void> {
    try {
      this.#listed = (await readReplicas(this.#options.store)).map(
        ({ name, version, clients, lastSeenSeconds }) => ({ name, version, clients, lastSeenSeconds }),
      );
    } catch {
      // ignored: without the store, the list stays as it was
    }
    this.#refreshing = undefined;
  }
}

export interface StoredReplica extends ReplicaStatus, Pick<ReplicaRecord, 'refusals' | 'instances'> {}

/** Returns the replicas, sorted by name. A killed replica stays in the list for a few seconds. */
export async function readReplicas(store: FleetStore): Promise<StoredReplica[]> {
  const { epoch, values } = await store.run(SEEN);
  const found = listOf(values[0]).flatMap((each): StoredReplica[] => {
    const [name = '', at, clients, text = ''] = listOf(each).map(String);
    const record = decodeReplica(text);
    if (record === undefined) return [];
    const { version, refusals, instances } = record;
    const lastSeenSeconds = Math.max(0, Math.round((epoch.now - Number(at)) / 1_000));
    return [{ name, version, clients: Number(clients), lastSeenSeconds, refusals, instances }];
  });
  return sortedByName(found);
}

function sortedByName<Each extends { readonly name: string }>(all: readonly Each[]): Each[] {
  return [...all].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function numbersOf(demand: Demand): number[] {
  return NUMBERS.map((name) => Math.round(demand[name] * (FRACTIONS.includes(name) ? MILLION : 1)));
}

function demandIn(numbers: readonly number[], lastWantedAt: number): Demand {
  const [waiting = 0, stranded = 0, held = 0, usedUp = 0, requests = 0] = numbers;
  const [usedUpPerSecond, perSecond] = [usedUp / MILLION, requests / MILLION];
  return { waiting, stranded, lastWantedAt, usedUpPerSecond, perSecond, held };
}

/** Merges two beats. Uses are added up. All other numbers of the later beat replace those of the earlier one. */
function merged(before: Beat, { waiting, demand, members, sessions }: Beat): Beat {
  return {
    waiting,
    demand: { ...before.demand, ...demand },
    members: mergeUses(before.members, members, ({ member }: MemberActivity) => member),
    sessions: mergeUses(before.sessions, sessions, ({ session }: SessionActivity) => session),
  };
}

function mergeUses<T extends { readonly uses: number }>(
  before: readonly T[],
  after: readonly T[],
  nameOf: (use: T) => string,
): T[] {
  const all = new Map(before.map((use) => [nameOf(use), use]));
  for (const use of after) {
    const earlier = all.get(nameOf(use));
    all.set(nameOf(use), earlier === undefined ? use : { ...earlier, ...use, uses: earlier.uses + use.uses });
  }
  return [...all.values()];
}
