/**
 * The pace file: when each instance of the service was last called, and which calls wait for their turn. All processes
 * that use the folder share it.
 *
 * A call is recorded *before* it is sent, and reading, deciding and writing are one atomic step (versioned-file.ts).
 * Neither a crash loop nor a second process can therefore call too early. pace-rule.ts in refill decides when the next
 * call may be sent.
 */
import { z } from 'zod';
import { type Moment, momentSchema, type Timekeeper } from './moment.ts';
import { BROKEN, type Decision, VersionedFile } from './versioned-file.ts';

const atLeast = (min: number) => z.number().min(min).catch(min);

const refusalsSchema = z.object({
  inARow: atLeast(0),
  /** A factor that widens the interval, at least 1. */
  widening: atLeast(1),
  lastAt: momentSchema,
});

const callSchema = z.object({
  /** The id of the turn that made the call. */
  id: z.string(),
  claimedAt: momentSchema,
  /** The call reached the service within this many ms after `claimedAt`, if at all. */
  arrivedWithinMs: atLeast(0),
  /**
   * After its arrival, no further call may be sent for this many ms in addition to the interval, because the service
   * asked for a break.
   */
  holdMs: atLeast(0),
  /**
   * `pending`: the call is not sent yet, or has no answer yet, or its process was killed. `unanswered`: the call ended
   * without an answer.
   */
  fate: z.enum(['pending', 'answered', 'unanswered']),
});

const queuedTurnSchema = z.object({
  id: z.string(),
  /** The interval of the waiting source. */
  intervalMs: atLeast(0),
  renewedAt: momentSchema,
  /** The turn is dropped this many ms after its renewal, because its process has probably ended. */
  validMs: atLeast(0),
});

/** The format of earlier versions: the start of the last call, and a hold, which may mean a call in flight. */
const oldEntrySchema = z.object({ startedAt: momentSchema, holdMs: atLeast(0) });

const entrySchema = z.preprocess(
  fromOldEntry,
  z.object({
    /** The last call; absent before the first one. */
    call: callSchema.optional(),
    /**
     * The turns that wait for a call, first come, first served. The queue decides only the order, so a lost turn never
     * breaks the pace.
     */
    queue: z.array(queuedTurnSchema).catch([]),
    /** Recent answers that noria calls too often (12002). */
    refusals: refusalsSchema.optional().catch(undefined),
  }),
);

const lenientEntry = entrySchema.optional().catch(undefined);

/** Invalid entries are treated as if they were never written. */
const fileSchema = z
  .object({
    /** The pace of all instances without an entry, after the file was unreadable. */
    floor: lenientEntry,
    paces: z.record(z.string(), lenientEntry).catch({}),
  })
  .catch({ paces: {} });

export type Refusals = Readonly<z.infer<typeof refusalsSchema>>;
export type LastCall = Readonly<z.infer<typeof callSchema>>;
export type QueuedTurn = Readonly<z.infer<typeof queuedTurnSchema>>;
/** The pace of one instance at one service address. */
export type PaceEntry = Readonly<z.infer<typeof entrySchema>>;
type Paces = Readonly<z.infer<typeof fileSchema>>;

/** Without `next`, the entry does not change. */
export interface PaceDecision<T> {
  readonly next?: PaceEntry;
  readonly result: T;
}

/** Decodes an entry. An invalid entry is treated as if it was never written. */
export function readPaceEntry(text: string): PaceEntry | undefined {
  return lenientEntry.parse(JSON.parse(text));
}

export interface PaceStore extends Timekeeper {
  /**
   * Decides on the entry of `key` in one atomic step. `decide` may be called several times and must have no side effects;
   * its `now` is read inside the step.
   *
   * @throws NoriaError state-unwritable; fleet-store-lost, fleet-store-unusable
   */
  change<T>(key: string, decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>): Promise<T>;
}

/** After this time without a call, the entry is removed: the instance is probably no longer configured. */
const FORGOTTEN_AFTER_MS = 7 * 24 * 3_600_000;

interface PaceFileOptions {
  /** The state folder, which must exist. */
  readonly folder: string;
  readonly timekeeper: Timekeeper;
  /** Called each time the file is found unreadable. */
  readonly warn: (message: string) => void;
}

export function createPaceFile({ folder, timekeeper, warn }: PaceFileOptions): PaceStore {
  const file = new VersionedFile(folder, 'pace');
  return {
    ...timekeeper,
    async change(key, decide) {
      let broken = false;
      const result = await file.change((value) => {
        const now = timekeeper.now();
        broken = value === BROKEN;
        const paces = broken ? pacesFrom(now) : fileSchema.parse(value);
        return decideOne(paces, key, now, decide, broken);
      });
      if (broken) {
        warn(`the pace file in ${folder} is unreadable; noria waits as if every source had just been called`);
      }
      return result;
    },
  };
}

/** Keeps the pace in memory: not shared, and lost when the process ends. */
export function createPaceMemory(timekeeper: Timekeeper): PaceStore {
  const entries = new Map<string, PaceEntry>();
  return {
    ...timekeeper,
    async change(key, decide) {
      const { next, result } = decide(entries.get(key), timekeeper.now());
      if (next !== undefined) entries.set(key, next);
      return result;
    },
  };
}

function decideOne<T>(
  { floor, paces }: Paces,
  key: string,
  now: Moment,
  decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>,
  broken: boolean,
): Decision<T> {
  const entries = new Map(Object.entries(paces));
  const { next, result } = decide(entries.get(key) ?? floor, now);
  // An unreadable file is always replaced, because otherwise the wait would start again with every read.
  if (next === undefined && !broken) return { result };
  if (next !== undefined) entries.set(key, next);
  const kept = [...entries].filter(([, entry]) => entry !== undefined && isRecent(entry, now));
  return { next: { floor, paces: Object.fromEntries(kept) }, result };
}

function isRecent({ call, queue }: PaceEntry, now: Moment): boolean {
  const moments = [
    ...queue.map(({ renewedAt }) => renewedAt),
    ...(call === undefined ? [] : [call.claimedAt]),
  ];
  return moments.some(({ wallAt }) => now.wallAt - wallAt < FORGOTTEN_AFTER_MS);
}

/** Returns an entry as if every instance had been called just now. */
function pacesFrom(now: Moment): Paces {
  return { floor: { call: unansweredCall(now, 0), queue: [] }, paces: {} };
}

function unansweredCall(claimedAt: Moment, arrivedWithinMs: number): LastCall {
  return { id: '', claimedAt, arrivedWithinMs, holdMs: 0, fate: 'unanswered' };
}

function fromOldEntry(value: unknown): unknown {
  const { data } = oldEntrySchema.safeParse(value);
  if (data === undefined || typeof value !== 'object') return value;
  return { ...value, call: unansweredCall(data.startedAt, data.holdMs) };
}
