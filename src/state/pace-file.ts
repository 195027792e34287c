/**
 * The pace file: for each instance of the service, the last call and the queue for the next call. All processes that
 * use the folder share the file.
 *
 * noria records a call *before* it sends the call. Reading, deciding and writing are one atomic step
 * (state-files.ts). So neither a second process nor a process that crashes again and again can call too early.
 * pace-rule.ts in refill decides when the next call may be sent.
 */

import { z } from 'zod';
import { WEEK_MS } from '../core/duration.ts';
import {
  elapsedBetween,
  hasEnded,
  type Moment,
  momentSchema,
  type ProcessIdentity,
  processSchema,
  type Timekeeper,
} from './moment.ts';
import { BROKEN, type Decision, VersionedFile } from './state-files.ts';

const atLeast = (min: number) => z.number().min(min).catch(min);

const refusalsSchema = z.object({
  inARow: atLeast(0),
  /** The factor, at least 1, by which noria lengthens the pace after the refusals. */
  widening: atLeast(1),
  lastAt: momentSchema,
});

const callSchema = z.object({
  /** The id of the turn at whose end noria recorded this call; '' if there was no turn. */
  id: z.string(),
  claimedAt: momentSchema,
  /** If the call reached the service, it arrived there within this many ms after `claimedAt`. */
  arrivedWithinMs: atLeast(0),
  /**
   * The pause after this call, in ms from its arrival at the service. It depends on the result of the call. The usual
   * pace also applies.
   */
  holdMs: atLeast(0),
  /**
   * What happened to the call. `pending`: the call is not sent yet, it has no answer yet, or its process was killed.
   * `unanswered`: the call ended without an answer.
   */
  fate: z.enum(['pending', 'answered', 'unanswered']),
});

const queuedTurnSchema = z.object({
  id: z.string(),
  intervalMs: atLeast(0),
  renewedAt: momentSchema,
  /**
   * noria removes the turn if its process does not update `renewedAt` within this many ms: the process has probably
   * ended.
   */
  validMs: atLeast(0),
  /** The process whose turn this is, if the store names processes. The turn is void as soon as the process has ended. */
  process: processSchema.optional().catch(undefined),
});

const entrySchema = z.object({
  call: callSchema.optional(),
  /**
   * The turns in the queue, oldest first. They determine the order of the next calls, but not their moments. So no
   * call comes too early even if a turn is missing here.
   */
  queue: z.array(queuedTurnSchema).catch([]),
  /** The latest refusals of calls that came too early (12002). */
  refusals: refusalsSchema.optional().catch(undefined),
});

const lenientEntry = entrySchema.optional().catch(undefined);

/** Invalid entries count as missing. */
const fileSchema = z
  .object({
    /**
     * The entry that applies to every instance without an entry in `paces`. noria writes it when it finds the file
     * unreadable, and when it has left a fleet.
     */
    floor: lenientEntry,
    /** The name of the fleet in which noria last ran, and in whose store it recorded its calls. */
    fleet: z.string().optional().catch(undefined),
    paces: z.record(z.string(), lenientEntry).catch({}),
  })
  .catch({ paces: {} });

export type Refusals = Readonly<z.infer<typeof refusalsSchema>>;
export type LastCall = Readonly<z.infer<typeof callSchema>>;
export type QueuedTurn = Readonly<z.infer<typeof queuedTurnSchema>>;
export type PaceEntry = Readonly<z.infer<typeof entrySchema>>;
type PaceEntries = Readonly<z.infer<typeof fileSchema>>;

/** Without `newEntry`, the entry does not change. */
export interface PaceDecision<T> {
  readonly newEntry?: PaceEntry | undefined;
  readonly result: T;
}

export function readPaceEntry(text: string): PaceEntry | undefined {
  return lenientEntry.parse(JSON.parse(text));
}

export interface PaceStore extends Timekeeper {
  /** This process, if the store recognises the turns of processes that have ended. */
  readonly process?: ProcessIdentity;
  /**
   * Changes the entry of `key` in one atomic step. May call `decide` several times, each time with the current moment,
   * so `decide` must have no side effects.
   *
   * @throws NoriaError state-unwritable; with a fleet, fleet-store-lost or fleet-store-unusable.
   */
  change<T>(key: string, decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>): Promise<T>;
}

/** The time in ms without a call after which noria removes an entry: its instance is probably no longer configured. */
const FORGOTTEN_AFTER_MS = WEEK_MS;

interface PaceFileOptions {
  readonly folder: string;
  readonly timekeeper: Timekeeper;
  readonly process: ProcessIdentity;
  readonly warn: (message: string) => void;
}

export function createPaceFile({ folder, timekeeper, warn, process }: PaceFileOptions): PaceStore {
  const file = new VersionedFile(folder, 'pace');
  const isWaiting = (turn: QueuedTurn) => turn.process === undefined || !hasEnded(turn.process, process);
  return {
    ...timekeeper,
    process,
    async change(key, decide) {
      let broken: boolean | undefined;
      const result = await file.change((value) => {
        const now = timekeeper.now();
        broken = value === BROKEN;
        const paces = broken ? pacesFrom(now) : fileSchema.parse(value);
        return decideOne(paces, { key, now, broken }, (entry, now) =>
          decide(entry && { ...entry, queue: entry.queue.filter(isWaiting) }, now),
        );
      });
      if (broken) warn(unreadableText(folder));
      return result;
    },
  };
}

interface FleetChange {
  readonly fleet: string | undefined;
  readonly daemon: boolean;
}

/**
 * Records the fleet in which noria runs. If noria ran in a different fleet before, the file does not contain the calls
 * of that fleet, so every instance counts as called now.
 *
 * A command keeps the name of the fleet that a daemon has recorded, because that daemon may still run in the fleet.
 *
 * @returns `left`: the fleet that noria has left, if any; `entries`, as noria read them at the moment `at`.
 */
async function recordFleet({ folder, timekeeper, warn }: PaceFileOptions, { fleet, daemon }: FleetChange) {
  let broken: boolean | undefined;
  const result = await new VersionedFile(folder, 'pace').change((value) => {
    const at = timekeeper.now();
    broken = value === BROKEN;
    const found = broken ? pacesFrom(at) : fileSchema.parse(value);
    const left = found.fleet === fleet ? undefined : found.fleet;
    const entries = left === undefined ? found : calledAt(found, at);
    const recorded = daemon || found.fleet === undefined ? fleet : found.fleet;
    const result = { left, entries, at };
    if (left === undefined && recorded === found.fleet) return { result };
    return { newValue: { ...entries, fleet: recorded }, result };
  });
  // Without a fleet, the first change of an entry replaces the unreadable file and gives this warning.
  if (broken && fleet !== undefined) warn(unreadableText(folder));
  return result;
}

/** Returns the later of two recorded calls, with a `holdMs` that covers the pauses after both calls. */
function combineCalls(first: LastCall | undefined, second: LastCall, now: Moment): LastCall {
  if (first === undefined) return second;
  const isFirstLater = sinceLatestArrival(first, now) <= sinceLatestArrival(second, now);
  const [later, earlier] = isFirstLater ? [first, second] : [second, first];
  const remainingMs = earlier.holdMs - sinceLatestArrival(earlier, now);
  return { ...later, holdMs: Math.max(later.holdMs, remainingMs + sinceLatestArrival(later, now)) };
}

/**
 * A lower bound, in ms, of the time since the call reached the service. Negative if the call may still be on its way.
 */
export function sinceLatestArrival({ claimedAt, arrivedWithinMs }: LastCall, now: Moment): number {
  return elapsedBetween(claimedAt, now) - arrivedWithinMs;
}

export function createPaceMemory(timekeeper: Timekeeper): PaceStore {
  const entries = new Map<string, PaceEntry>();
  return {
    ...timekeeper,
    async change(key, decide) {
      const { newEntry, result } = decide(entries.get(key), timekeeper.now());
      if (newEntry !== undefined) entries.set(key, newEntry);
      return result;
    },
  };
}

function decideOne<T>(
  { floor, fleet, paces }: PaceEntries,
  { key, now, broken }: { readonly key: string; readonly now: Moment; readonly broken: boolean },
  decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>,
): Decision<T> {
  const entries = new Map(Object.entries(paces));
  const { newEntry, result } = decide(entries.get(key) ?? floor, now);
  // Replaces an unreadable file even if the entry does not change. Each time noria reads an unreadable file, it assumes
  // that it has just called. So as long as the file is unreadable, the wait for the next call does not end.
  if (newEntry === undefined && !broken) return { result };
  entries.set(key, newEntry ?? entries.get(key));
  const kept = [...entries].filter(([, entry]) => entry !== undefined && isRecent(entry, now));
  return { newValue: { floor, fleet, paces: Object.fromEntries(kept) }, result };
}

function isRecent({ call, queue }: PaceEntry, now: Moment): boolean {
  const moments = [
    ...queue.map(({ renewedAt }) => renewedAt),
    ...(call === undefined ? [] : [call.claimedAt]),
  ];
  return moments.some(({ wallAt }) => now.wallAt - wallAt < FORGOTTEN_AFTER_MS);
}

function pacesFrom(now: Moment): PaceEntries {
  return { floor: { call: unansweredCall(now), queue: [] }, paces: {} };
}

/**
 * Returns the paces with a call at `now` for every instance. If an earlier call requires a longer pause, this pause
 * still applies.
 */
function calledAt({ floor, paces }: PaceEntries, now: Moment): PaceEntries {
  const withCall = (entry: PaceEntry | undefined): PaceEntry => ({
    queue: [],
    ...entry,
    call: combineCalls(entry?.call, unansweredCall(now), now),
  });
  const called = Object.entries(paces).map(([key, entry]) => [key, withCall(entry)]);
  return { floor: withCall(floor), paces: Object.fromEntries(called) };
}

function unreadableText(folder: string): string {
  return `the pace file in ${folder} is unreadable; noria waits as if every source had just been called`;
}

function unansweredCall(claimedAt: Moment): LastCall {
  return { id: '', claimedAt, arrivedWithinMs: 0, holdMs: 0, fate: 'unanswered' };
}

/** Returns a pace store that counts both the calls in `shared`, the store of a fleet, and those in the pace file. */
export type AddOwnCalls = (shared: PaceStore) => PaceStore;

/**
 * Carries over the times of the last calls when noria joins, changes or leaves a fleet, so that its first call is not
 * too early. In a fleet, noria records its calls in the fleet's store, and only the name of the fleet in the pace file.
 * If noria later starts without this fleet, it does not know the latest calls, so every instance counts as called at
 * that start. If noria starts in a fleet, its earlier calls delay its first calls in the fleet.
 *
 * @throws NoriaError state-unwritable
 */
export async function handOverPace(options: PaceFileOptions, change: FleetChange): Promise<AddOwnCalls> {
  const { timekeeper, warn } = options;
  const { left, entries, at } = await recordFleet(options, change);
  const sinceReadMs = timekeeper.stopwatch();
  if (left !== undefined) warn(leftText(left, change.fleet));
  const { floor, paces } = entries;
  const ownPaces = new Map(Object.entries(paces));
  return (shared) => ({
    now: () => shared.now(),
    stopwatch: () => shared.stopwatch(),
    change(key, decide) {
      const { call: own, refusals } = ownPaces.get(key) ?? floor ?? {};
      if (own === undefined) return shared.change(key, decide);
      // This time is read before the change. So after a slow change, the next call is later than necessary, never too
      // early.
      const passedMs = sinceReadMs();
      return shared.change(key, (found, now) => {
        const move = (moment: Moment) => {
          const ageMs = Math.max(0, elapsedBetween(moment, at)) + passedMs;
          return { ...now, wallAt: now.wallAt - ageMs, elapsedMs: now.elapsedMs - ageMs };
        };
        // Not `pending`, because no process of the fleet will record an answer to this call.
        const moved: LastCall = { ...own, id: '', claimedAt: move(own.claimedAt), fate: 'unanswered' };
        const call = combineCalls(found?.call, moved, now);
        const isOwn = call.claimedAt === moved.claimedAt;
        const ownRefusals = isOwn && refusals && { ...refusals, lastAt: move(refusals.lastAt) };
        return decide({ queue: found?.queue ?? [], call, refusals: ownRefusals || found?.refusals }, now);
      });
    },
  });
}

function leftText(left: string, fleet: string | undefined): string {
  const where = fleet === undefined ? 'without a fleet' : `in the fleet ${fleet}`;
  return `noria has left the fleet ${left} and now runs ${where}; noria waits as if it had just called every instance; make sure that no noria of the fleet ${left} still uses these instances`;
}
