/**
 * The facts about one instance: its log in the store, and the state that follows from it. Every replica that draws from
 * the instance computes the state in the same way (shared-state.ts). All moments are by the store's clock.
 *
 * The store has a snapshot of the state in pages, and the log entries after it. Any replica may write a snapshot; this
 * also removes old log entries. Beats have added the uses of members to a hash.
 */
import { randomBytes } from 'node:crypto';
import { BoundedMap } from '../../core/bounded-map.ts';
import { NoriaError } from '../../core/faults.ts';
import { sourceOf } from '../records.ts';
import {
  decodeFacts,
  decodeRecords,
  decodeSourceState,
  type Fact,
  type LoggedFact,
  type MemberRecord,
} from '../schemas.ts';
import { SharedPoolState } from '../shared-state.ts';
import type { Reply, StoreClient } from './connection.ts';
import { type FleetInstance, Seal } from './seal.ts';
import { FleetScript, type FleetStore, fieldsOf, listOf } from './store.ts';

/** Bounds of one script, so that it blocks the store only for milliseconds and arrives within its deadline. */
export const BATCH_FACTS = 500;
const BATCH_CHARACTERS = 200_000;
/**
 * When the store gets a new snapshot, it keeps this number of the log entries before the snapshot. So a slow reader of
 * the log can continue and does not have to load the whole state.
 */
const KEPT_ENTRIES = 256;
const ENTRIES_PER_READ = 100;
/** A snapshot may be replaced while it is loaded. */
const MAX_LOADS = 5;
const MAX_LIFE_MS = 400 * 86_400_000;

/** Defines `open(base)`: begins the data of an instance again if the store has lost the data of the fleet. */
export const INSTANCE_LUA = `
local function open(base)
  local state = base .. ':state'
  if redis.call('HGET', state, 'data') ~= data then
    redis.call('DEL', state, base .. ':log', base .. ':pages', base .. ':uses', base .. ':changed',
      base .. ':demand', base .. ':asking')
    redis.call('HSET', state, 'data', data)
  end
  return state
end
`;

/** KEYS[2]: the instance. ARGV: 5 replica, 6 signature, 7 facts. */
const PUBLISH = new FleetScript(
  'publish',
  `${INSTANCE_LUA}
local number = whole(redis.call('HINCRBY', open(KEYS[2]), 'number', 1))
redis.call('XADD', KEYS[2] .. ':log', number .. '-0', 'at', whole(now), 'by', ARGV[5], 'mac', ARGV[6],
  'facts', ARGV[7])
return answer()
`,
);

/** Returns the snapshot's id, pages and last entry, the number of the last entry, and the version of the uses. */
const BEGIN = new FleetScript(
  'load',
  `${INSTANCE_LUA}
local found = redis.call('HMGET', open(KEYS[2]), 'snapshot', 'pages', 'covers', 'number', 'version')
return answer(found[1] or '', found[2] or '0', found[3] or '0', found[4] or '0', found[5] or '0')
`,
);

/** ARGV: 5 and 6 the fields of a page and its signature. */
const PAGE = new FleetScript(
  'load-page',
  `
local page = redis.call('HMGET', KEYS[2] .. ':pages', ARGV[5], ARGV[6])
return answer(page[1] or '', page[2] or '')
`,
);

/** ARGV: 5 the number of the last known entry, 6 the maximum number of entries. */
const ENTRIES = new FleetScript(
  'load-log',
  `return answer(redis.call('XRANGE', KEYS[2] .. ':log', '(' .. ARGV[5] .. '-0', '+', 'COUNT', ARGV[6]))`,
);

/** ARGV: 5 a cursor. Returns the next cursor, and fields of the uses with their values. */
const USES = new FleetScript(
  'load-uses',
  `
local part = redis.call('HSCAN', KEYS[2] .. ':uses', ARGV[5], 'COUNT', 500)
return answer(part[1], part[2])
`,
);

/** ARGV: from 5, fields and values of the pages of a snapshot that is not valid yet. */
const SAVE_PAGE = new FleetScript(
  'snapshot-page',
  `${INSTANCE_LUA}
open(KEYS[2])
redis.call('HSET', KEYS[2] .. ':pages', unpack(ARGV, 5))
return answer()
`,
);

/**
 * Makes a snapshot valid. ARGV: 5 epoch, 6 id, 7 number of pages, 8 the last entry in it; from 9: members whose uses are
 * no longer needed. Keeps the previous snapshot for replicas that load it. Another replica that saves at the same time may
 * delete pages of this snapshot: then this one does not become valid.
 */
const SAVE = new FleetScript(
  'snapshot',
  `${INSTANCE_LUA}
local state = open(KEYS[2])
local known = redis.call('HMGET', state, 'covers', 'snapshot')
if epoch ~= ARGV[5] or tonumber(known[1] or 0) >= tonumber(ARGV[8]) then return answer() end
for page = 0, ARGV[7] - 1 do
  if redis.call('HEXISTS', KEYS[2] .. ':pages', ARGV[6] .. ' ' .. page) == 0 then return answer() end
end
redis.call('HSET', state, 'snapshot', ARGV[6], 'pages', ARGV[7], 'covers', ARGV[8])
redis.call('XTRIM', KEYS[2] .. ':log', 'MINID', whole(math.max(0, ARGV[8] - ${KEPT_ENTRIES})) .. '-0')
for _, field in ipairs(redis.call('HKEYS', KEYS[2] .. ':pages')) do
  local id = string.match(field, '^[^ ]*')
  if id ~= ARGV[6] and id ~= known[2] then redis.call('HDEL', KEYS[2] .. ':pages', field) end
end
for index = 9, #ARGV do
  redis.call('HDEL', KEYS[2] .. ':uses', ARGV[index])
  redis.call('ZREM', KEYS[2] .. ':changed', ARGV[index])
end
return answer()
`,
);

interface InstanceLogOptions {
  readonly store: FleetStore;
  readonly replica: string;
  readonly instance: FleetInstance;
  readonly refuses: (host: string, port: number) => string | undefined;
  readonly onUnreadable: (where: string, why: string) => void;
}

export class InstanceLog {
  readonly key: string;
  readonly base: string;
  state = new SharedPoolState();
  applied = 0;
  version = 0;
  readonly #options: InstanceLogOptions;
  readonly #seal: Seal;
  /** The epoch of the store in which the state was loaded. In another epoch, entry numbers may belong to other facts. */
  #epochId: string | undefined;
  readonly #warned = new Set<string>();
  #usedMembers = new Set<string>();
  /** Uses of members whose entry in the log has not come yet. */
  #early = new BoundedMap<string, string>(BATCH_FACTS);
  #isSaving = false;

  constructor(options: InstanceLogOptions) {
    const { store, instance } = options;
    this.#options = options;
    this.key = instance.key;
    this.base = store.keys.instance(instance.key);
    this.#seal = new Seal(store.name, [instance]);
  }

  isOf({ key, secret }: FleetInstance): boolean {
    return key === this.key && secret === this.#options.instance.secret;
  }

  /**
   * Loads the state over `client`: after a lost connection only the entries since then, if the store still has them, and
   * otherwise page by page.
   * @param onMembers - called for the members of each page.
   * @throws NoriaError fleet-store-lost, fleet-store-unusable
   */
  async load(
    client?: StoreClient,
    onMembers: (records: readonly MemberRecord[]) => void = () => {},
  ): Promise<void> {
    for (let left = MAX_LOADS; left > 0; left -= 1) if (await this.#tryLoad(client, onMembers)) return;
    throw new NoriaError('fleet-store-lost', 'the snapshot in the store was replaced while noria loaded it');
  }

  /**
   * Appends one batch after the other, to keep their order. Waits for each batch: if the store lacks the script, noria
   * sends the script and the batch again, and the next batch could otherwise arrive first.
   */
  async append(facts: readonly Fact[]): Promise<void> {
    const { store, replica } = this.#options;
    for (const batch of batchesOf(facts.map((fact) => JSON.stringify(fact)))) {
      const text = `[${batch.join()}]`;
      const args = [replica, this.#seal.sign('log', replica, text), text];
      await store.run(PUBLISH, { keys: [this.base], args });
    }
  }

  /** @returns the facts, and when they were written; undefined if an earlier entry is missing. */
  apply(entry: Reply): { readonly at: number; readonly facts: readonly LoggedFact[] } | undefined {
    const [id, fields] = listOf(entry);
    const number = Number.parseInt(String(id), 10);
    if (number !== this.applied + 1) return undefined;
    this.applied = number;
    const { by = '', facts: text = '', mac = '', at } = fieldsOf(fields);
    const facts = this.#factsIn(`entry ${number} of the log`, { by, text, mac });
    for (const each of facts) this.state.apply(each, this.#options.store.now);
    return { at: Number(at), facts };
  }

  /** Adds what beats say about members. @returns the uses in all replicas, and the assumed ends of life, by member. */
  addUses(reply: Reply | undefined) {
    const uses: Record<string, number> = {};
    const ends: Record<string, number> = {};
    const early = this.#early;
    this.#early = new BoundedMap(BATCH_FACTS);
    for (const [member, value] of [...early, ...Object.entries(fieldsOf(reply))]) {
      const [count = 0, endsAt = 0] = value.split(' ').map(Number);
      this.#usedMembers.add(member);
      const record = this.state.setUses(member, count, endsAt);
      if (record === undefined) this.#early.set(member, value);
      else uses[member] = record.uses;
      if (record?.member.endIsAssumed === true) ends[member] = record.member.endsAt;
    }
    return { uses, ends };
  }

  async save(): Promise<void> {
    if (this.#isSaving) return;
    this.#isSaving = true;
    try {
      await this.#save();
    } finally {
      this.#isSaving = false;
    }
  }

  async #tryLoad(
    client: StoreClient | undefined,
    onMembers: (records: readonly MemberRecord[]) => void,
  ): Promise<boolean> {
    const { store } = this.#options;
    const keys = [this.base];
    const { epoch, values } = await store.run(BEGIN, { keys }, client);
    const [snapshot = '', pages, covers, number, version] = values;
    if (this.#epochId === epoch.id && this.applied <= Number(number)) {
      if (await this.#readEntries(Number(number), client)) return true;
    }
    const state = new SharedPoolState();
    for (let page = 0; page < Number(pages); page += 1) {
      const place = `${String(snapshot)} ${page}`;
      const { values } = await store.run(PAGE, { keys, args: [place, `${place} mac`] }, client);
      const [text, mac] = values.map(String);
      if (text === undefined || text === '') return false;
      if (page === 0) this.#loadSources(state, { place, text, mac: mac ?? '' });
      else onMembers(this.#loadPage(state, { place, text, mac: mac ?? '' }));
    }
    this.state = state;
    this.applied = Number(covers);
    this.version = Number(version);
    this.#usedMembers = new Set();
    this.#epochId = undefined;
    if (!(await this.#readEntries(Number(number), client))) return false;
    for (let cursor = '0'; ; ) {
      const { values } = await store.run(USES, { keys, args: [cursor] }, client);
      this.addUses(values[1]);
      cursor = String(values[0]);
      if (cursor === '0') break;
    }
    this.#epochId = epoch.id;
    return true;
  }

  async #readEntries(last: number, client: StoreClient | undefined): Promise<boolean> {
    while (this.applied < last) {
      const input = { keys: [this.base], args: [this.applied, ENTRIES_PER_READ] };
      const [entries] = (await this.#options.store.run(ENTRIES, input, client)).values;
      for (const entry of listOf(entries)) if (this.apply(entry) === undefined) return false;
      if (listOf(entries).length === 0) return false;
    }
    return true;
  }

  #loadSources(state: SharedPoolState, page: SignedPage): void {
    const found = this.#isSigned(page) ? decodeSourceState(page.text) : undefined;
    if (found === undefined) this.#warn(`page ${page.place} of the snapshot`, 'it is not readable');
    const isOwn = (source: string) => source === this.key;
    const { paused = [], resumed = [], reports = [] } = found ?? {};
    state.load({
      paused: paused.filter(isOwn),
      resumed: resumed.filter(isOwn),
      reports: reports.filter(({ source }) => isOwn(source)),
    });
  }

  #loadPage(state: SharedPoolState, page: SignedPage): readonly MemberRecord[] {
    const found = this.#isSigned(page) ? decodeRecords(page.text) : undefined;
    const where = `page ${page.place} of the snapshot`;
    if (found === undefined || found.skipped > 0) this.#warn(where, 'it is not readable');
    const members = (found?.members ?? []).filter(({ member }) => this.#accepts(where, member));
    state.load({ members, bans: (found?.bans ?? []).filter(({ source }) => source === this.key) });
    return members;
  }

  #isSigned({ place, text, mac }: SignedPage): boolean {
    return this.#seal.isValid(mac, 'snapshot', place, text);
  }

  #factsIn(
    where: string,
    { by, text, mac }: { readonly by: string; readonly text: string; readonly mac: string },
  ) {
    if (!this.#seal.isValid(mac, 'log', by, text)) {
      this.#warn(where, `noria ${by.slice(0, 100)} did not sign it with the secret of this instance`);
      return [];
    }
    const found = decodeFacts(text);
    if (found === undefined || found.skipped > 0) this.#warn(where, 'it is not readable');
    return (found?.facts ?? [])
      .filter((fact) => sourceOf(fact) === this.key)
      .filter((fact) => fact.kind !== 'member.joined' || this.#accepts(where, fact.member))
      .map((fact) => ({ by, fact }));
  }

  #accepts(where: string, member: MemberRecord['member']): boolean {
    const reason = this.#options.refuses(member.host, member.port);
    if (reason !== undefined) this.#warn(where, `it has a member at a refused address (${reason})`);
    else if (member.endsAt > this.#options.store.now + MAX_LIFE_MS)
      this.#warn(where, 'it has a member without an end');
    else if (member.source === this.key) return true;
    return false;
  }

  #warn(where: string, why: string): void {
    if (this.#warned.has(where) || this.#warned.size > 1_000) return;
    this.#warned.add(where);
    this.#options.onUnreadable(where, why);
  }

  async #save(): Promise<void> {
    const { store } = this.#options;
    const covers = this.applied;
    const { members, bans, paused, resumed, reports } = this.state.read(store.now);
    const id = `${covers}.${randomBytes(6).toString('hex')}`;
    // the store counts the uses of members in a hash, so the snapshot contains none
    const pages = [
      JSON.stringify({ paused, resumed, reports }),
      ...batchesOf(
        [...members.map((record) => ({ ...record, uses: 0 })), ...bans].map((each) => JSON.stringify(each)),
      ).map((batch) => `[${batch.join()}]`),
    ];
    for (const [page, text] of pages.entries()) {
      const place = `${id} ${page}`;
      const mac = this.#seal.sign('snapshot', place, text);
      await store.run(SAVE_PAGE, { keys: [this.base], args: [place, text, `${place} mac`, mac] });
    }
    const living = new Set(members.map(({ member }) => member.id));
    const unused = [...this.#usedMembers].filter((member) => !living.has(member)).slice(0, BATCH_FACTS);
    const args = [store.epochId, id, pages.length, covers, ...unused];
    await store.run(SAVE, { keys: [this.base], args });
    for (const member of unused) this.#usedMembers.delete(member);
  }
}

interface SignedPage {
  readonly place: string;
  readonly text: string;
  readonly mac: string;
}

function batchesOf(texts: readonly string[]): string[][] {
  const batches: string[][] = [];
  let characters = 0;
  for (const text of texts) {
    const batch = batches.at(-1);
    characters += text.length;
    if (batch === undefined || batch.length >= BATCH_FACTS || characters > BATCH_CHARACTERS) {
      batches.push([text]);
      characters = text.length;
    } else batch.push(text);
  }
  return batches;
}
