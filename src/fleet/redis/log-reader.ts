/** Loads the state of a fleet, and reads its log. All moments are by the store's clock. */
import type { Beat, LoggedFact, SharedState } from '../shared-pool.ts';
import { SharedPoolState } from '../shared-state.ts';
import { LOAD } from './fleet-log.ts';
import type { FleetStore } from './fleet-store.ts';
import { decodeFacts, decodeState } from './schemas.ts';
import { lostStore, type Reply, type StoreClient } from './store-client.ts';
import { COMMAND_DEADLINE_MS } from './store-connection.ts';

export interface LogEntry {
  readonly number: number;
  readonly at: number;
  readonly facts: readonly LoggedFact[];
}

interface LoadedState {
  readonly state: SharedPoolState;
  /** The number of the last log entry that the state includes. */
  readonly lastNumber: number;
  readonly lastBeatId: string;
  /** The names of the fields in the hash of uses (see `FleetKeys.uses`). */
  readonly fields: readonly string[];
}

const EMPTY_STATE: SharedState = { members: [], sessions: [], paused: [] };
const BLOCK_MS = 5_000;
const ENTRIES_PER_READ = 500;

/**
 * Loads the state over `client`, or over the connection for commands if `client` is absent.
 * @throws NoriaError fleet-store-lost, fleet-store-unusable; ZodError or SyntaxError if the snapshot is invalid
 */
export async function loadState(store: FleetStore, client?: StoreClient): Promise<LoadedState> {
  const { epoch, values } = await store.run(LOAD, {}, client);
  const [snapshot, number, entries, uses, beat] = values;
  const text = String(snapshot);
  const state = new SharedPoolState(text === '' ? EMPTY_STATE : decodeState(text));
  for (const entry of readEntries(entries)) for (const fact of entry.facts) state.apply(fact, epoch.now);
  const fields = addUses(state, textsOf(uses));
  return {
    state,
    lastNumber: Number(number),
    lastBeatId: String(beat),
    fields,
  };
}

/**
 * Calls `apply` for each log entry after the entry with the number `after`.
 * @throws NoriaError fleet-store-lost if the connection ends or the store no longer has the next log entry.
 */
export async function readLog(
  { keys }: FleetStore,
  client: StoreClient,
  { after, apply }: { readonly after: number; readonly apply: (entry: LogEntry) => void },
): Promise<never> {
  for (let last = after; ; ) {
    const command = ['XREAD', 'BLOCK', String(BLOCK_MS), 'COUNT', String(ENTRIES_PER_READ)];
    const reply = await client.call(
      [...command, 'STREAMS', keys.log, `${last}-0`],
      BLOCK_MS + COMMAND_DEADLINE_MS,
    );
    const [stream] = listOf(reply);
    for (const entry of readEntries(listOf(stream)[1])) {
      if (entry.number !== last + 1) {
        const why = `entries ${last + 1} to ${entry.number - 1} of the log are no longer in the store, so noria loads all data of the store again`;
        throw client.end(lostStore(client.address, why));
      }
      last = entry.number;
      apply(entry);
    }
  }
}

function readEntries(reply: Reply | undefined): LogEntry[] {
  return listOf(reply).map((each) => {
    const [id, fields] = listOf(each);
    const { by = '', facts = '[]', at } = fieldsOf(fields);
    return {
      number: Number.parseInt(String(id), 10),
      at: Number(at),
      facts: decodeFacts(facts).map((fact) => ({ by, fact })),
    };
  });
}

/**
 * Adds the counts of uses and the expiry times that beats have written since the snapshot.
 * @param texts - the hash of uses as the store returns it: field, value, field, value, and so on.
 * @returns the names of the fields.
 */
function addUses(state: SharedPoolState, texts: readonly string[]): string[] {
  const fields = fieldsOf(texts);
  for (const [field, value] of Object.entries(fields)) {
    const name = field.slice(USED_SESSION.length); // every field begins with a prefix of this length
    if (field.startsWith(MEMBER_USES)) state.addUse({ member: name, uses: Number(value), openLeases: 0 });
    if (field.startsWith(MEMBER_ENDS))
      state.addUse({ member: name, uses: 0, openLeases: 0, endsAt: Number(value) });
    if (!field.startsWith(USED_SESSION)) continue;
    const [usedAt = 0, ttlMs = 0] = value.split(' ').map(Number);
    const uses = Number(fields[`${SESSION_USES}${name}`] ?? 0);
    state.recordSessionUse({ session: name, uses, usedAt, ttlMs, openLeases: 0 });
  }
  return Object.keys(fields);
}

const MEMBER_USES = 'uses:m:';
const MEMBER_ENDS = 'ends:m:';
const SESSION_USES = 'uses:s:';
const USED_SESSION = 'used:s:';

/** Returns the names of the fields that a beat changes in the hash of uses. */
export function fieldsOfUses({ members, sessions }: Pick<Beat, 'members' | 'sessions'>): string[] {
  return [
    ...members.flatMap(({ member }) => [`${MEMBER_USES}${member}`, `${MEMBER_ENDS}${member}`]),
    ...sessions.flatMap(({ session }) => [`${SESSION_USES}${session}`, `${USED_SESSION}${session}`]),
  ];
}

/**
 * The returned function says whether the store can delete a field of the hash of uses after `state` is saved as a
 * snapshot. The store must keep the fields of the members in `state`, because the snapshot does not contain their uses.
 */
export function isDeletableAfter({ members }: SharedState): (field: string) => boolean {
  const living = new Set(members.map(({ member }) => member.id));
  return (field) => {
    const isMember = field.startsWith(MEMBER_USES) || field.startsWith(MEMBER_ENDS);
    return !(isMember && living.has(field.slice(MEMBER_USES.length)));
  };
}

export function listOf(reply: Reply | undefined): readonly Reply[] {
  return Array.isArray(reply) ? reply : [];
}

/** Parses a list that alternates between names and values. */
export function fieldsOf(reply: Reply | undefined): Readonly<Record<string, string>> {
  const texts = textsOf(reply);
  const pairs = texts.flatMap((name, index) => (index % 2 === 0 ? [[name, texts[index + 1] ?? '']] : []));
  return Object.fromEntries(pairs);
}

function textsOf(reply: Reply | undefined): string[] {
  return listOf(reply).map(String);
}
