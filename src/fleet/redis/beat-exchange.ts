/**
 * Exchanges beats, the reports of the replicas' activity, through the store. One call to the store sends this replica's
 * beat and receives the new beats of the other replicas. A replica calls the store once a second even if it has nothing
 * to report, so that the other replicas know that it is running.
 */
import type { Clock } from '../../core/clock.ts';
import type { MemberActivity, SessionActivity } from '../../pool/shared-member.ts';
import type { ReplicaStatus } from '../fleet-pool.ts';
import type { Beat } from '../shared-pool.ts';
import { BEAT } from './fleet-log.ts';
import type { FleetStore } from './fleet-store.ts';
import { fieldsOf, listOf } from './log-reader.ts';
import { decodeBeat, decodeReplica } from './schemas.ts';
import { faultOf, type Reply } from './store-client.ts';

interface BeatExchangeOptions {
  readonly store: FleetStore;
  readonly clock: Clock;
  /** The maximum time between two calls to the store. */
  readonly everyMs: number;
  readonly replica: string;
  /**
   * Returns the record of this replica as a JSON text: the version of noria, the id of the process, the number of
   * clients, and the sources whose calls the service refuses.
   */
  readonly record: () => string;
  /** Converts the moments of a beat to the store's clock. */
  readonly shift: (beat: Beat) => Beat;
  readonly receive: (answer: BeatAnswer) => void;
  /** Called once for each other process that uses the name of this replica. */
  readonly nameTaken: () => void;
}

/** The result of a call to the store. Moments are by the store's clock. */
export interface BeatAnswer {
  readonly beats: readonly { readonly by: string; readonly beat: Beat }[];
  /** What the new beats report about members. Includes the beat that this replica sent. */
  readonly members: readonly MemberActivity[];
  readonly sessions: readonly SessionActivity[];
  /** The number of the last entry of the log. */
  readonly lastNumber: number;
  /** The number of the last log entry in the latest snapshot. */
  readonly snapshotNumber: number;
}

/** The minimum time between two calls to the store. Beats that the replica sends within this time are merged. */
const MIN_GAP_MS = 100;

interface ListedReplica extends Omit<ReplicaStatus, 'lastSeenSeconds'> {
  /** The monotonic moment of the replica's last beat. */
  readonly seenAt: number;
}

export class BeatExchange {
  readonly #options: BeatExchangeOptions;
  /** The beats that the next call to the store sends, merged into one. */
  #unsent: Beat | undefined;
  #lastBeatId = '0-0';
  #listed: readonly ListedReplica[] = [];
  #exchange: Promise<void> | undefined;
  #timer: Disposable | undefined;
  /** Whether this process has added its record to the store's list of replicas since the connection opened. */
  #isListed = false;
  /** Other processes that use the name of this replica. `nameTaken` has already been called for each of them. */
  readonly #namesakes = new Set<string>();
  #isClosed = false;

  constructor(options: BeatExchangeOptions) {
    this.#options = options;
  }

  /**
   * Call it after the state has been loaded.
   * @param lastBeat - the id of the last beat that the state includes. Only later beats are new.
   * @param hasMember - returns whether the state has the member. The uses of all other members are dropped here: the
   * replica that publishes these members again also reports all their uses again.
   */
  start(lastBeat: string, hasMember: (id: string) => boolean): void {
    this.#lastBeatId = lastBeat;
    if (this.#unsent === undefined) return;
    const members = this.#unsent.members.filter(({ member }) => hasMember(member));
    this.#unsent = { ...this.#unsent, members };
  }

  replicas(): readonly ReplicaStatus[] {
    const now = this.#options.clock.monotonic();
    return this.#listed.map(({ seenAt, ...rest }) => ({
      ...rest,
      lastSeenSeconds: Math.max(0, Math.round((now - seenAt) / 1_000)),
    }));
  }

  /**
   * Sends the beat soon. Without a connection, keeps the beat until the connection is back, but drops its counts of
   * session uses.
   */
  send(beat: Beat): void {
    this.#unsent = this.#unsent === undefined ? beat : merged(this.#unsent, beat);
    if (this.#options.store.connection.fault === undefined) this.#exchangeWithin(MIN_GAP_MS);
    else this.#unsent = withoutSessions(this.#unsent);
  }

  connected(): void {
    this.#isListed = false;
    this.#exchangeWithin(0);
  }

  lost(): void {
    this.#timer?.[Symbol.dispose]();
    if (this.#unsent !== undefined) this.#unsent = withoutSessions(this.#unsent);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.[Symbol.dispose]();
    await this.#exchange;
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
      // handled: the failed call also fetches the beats of other replicas, so this replica connects again and loads the
      // whole state. It does not send its own beat again: a store that hung may still process it, and count its uses twice.
      store.connection.reset(faultOf(error));
    }
    this.#exchange = undefined;
    if (store.connection.fault !== undefined) return;
    this.#exchangeWithin(this.#unsent === undefined ? everyMs : Math.min(MIN_GAP_MS, everyMs));
  }

  async #send(beat: Beat | undefined): Promise<void> {
    const { store, replica, record, shift, receive } = this.#options;
    const shifted = beat && shift(beat);
    const text = shifted === undefined ? '' : JSON.stringify(shifted, withoutClient);
    const { members = [], sessions = [] } = shifted ?? {};
    const { epoch, values } = await store.run(BEAT, {
      keys: sessions.map(({ session }) => store.keys.session(session)),
      args: [
        ...[replica, record(), text, this.#lastBeatId],
        ...sessions.flatMap(({ session, uses, usedAt, ttlMs }) => [session, uses, usedAt, ttlMs]),
        ...members.flatMap(({ member, uses, endsAt }) => [member, uses, endsAt ?? '']),
      ],
    });
    const [previous, number, snapshot, listed, entries] = values;
    this.#checkName(String(previous));
    this.#listed = this.#readReplicas(epoch.now, listed);
    const beats = this.#readBeats(entries);
    receive({
      beats,
      members: [...members, ...beats.flatMap(({ beat }) => beat.members)],
      sessions: [...sessions, ...beats.flatMap(({ beat }) => beat.sessions)],
      lastNumber: Number(number),
      snapshotNumber: Number(snapshot),
    });
  }

  /**
   * Detects another process with the name of this replica.
   * @param previous - what the store had under this replica's name before the call: the time of a beat, and the text of
   * `BeatExchangeOptions.record`.
   */
  #checkName(previous: string): void {
    const { record, nameTaken } = this.#options;
    const found = decodeReplica(previous.slice(previous.indexOf(' ') + 1));
    const own = decodeReplica(record());
    const wasListed = this.#isListed;
    this.#isListed = true;
    if (!wasListed || found === undefined || found.process === own?.process) return;
    if (this.#namesakes.has(found.process)) return;
    this.#namesakes.add(found.process);
    nameTaken();
  }

  /**
   * Parses the list of replicas. It has three values for each replica: the name, the time of the last beat, and the
   * text of `BeatExchangeOptions.record`.
   */
  #readReplicas(storeNow: number, reply: Reply | undefined): ListedReplica[] {
    const now = this.#options.clock.monotonic();
    const texts = listOf(reply).map(String);
    const found: ListedReplica[] = [];
    for (let index = 0; index + 2 < texts.length; index += 3) {
      const [name = '', at, text = ''] = texts.slice(index, index + 3);
      const { version = '', clients = 0 } = decodeReplica(text) ?? {};
      found.push({ name, version, clients, seenAt: now - (storeNow - Number(at)) });
    }
    return found.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  #readBeats(reply: Reply | undefined): { readonly by: string; readonly beat: Beat }[] {
    return listOf(reply).flatMap((entry) => {
      const [id, fields] = listOf(entry);
      this.#lastBeatId = String(id);
      const { by = '', beat: text = '' } = fieldsOf(fields);
      const beat = by === this.#options.replica ? undefined : decodeBeat(text);
      return beat === undefined ? [] : [{ by, beat }];
    });
  }
}

/**
 * Omits `answeredTo`, the client that last got an answer through a member: answers on this machine prove nothing about
 * the network of another machine.
 */
function withoutClient(key: string, value: unknown): unknown {
  return key === 'answeredTo' ? undefined : value;
}

/**
 * Drops the uses of sessions. While the store is unavailable, clients may use any number of sessions, so keeping their
 * uses would take unlimited memory.
 */
function withoutSessions(beat: Beat): Beat {
  return { ...beat, sessions: [] };
}

/** Merges two beats. Uses are added up. All other numbers of the later beat replace those of the earlier one. */
function merged(before: Beat, { waiting, demand, members, sessions }: Beat): Beat {
  return {
    waiting,
    demand: { ...before.demand, ...demand },
    members: mergeUses(before.members, members, ({ member }) => member),
    sessions: mergeUses(before.sessions, sessions, ({ session }) => session),
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
