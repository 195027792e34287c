/**
 * When each instance of the service was last called, on disk, for every process that shares the folder.
 *
 * Reading, checking and writing are one step (versioned-file.ts), done *before* the call: neither a crash loop nor a
 * second process can get in between. What the numbers mean for the next call is refill's (pace-rule.ts).
 */
import { type Moment, readMoment, type Timekeeper } from './moment.ts';
import { BROKEN, type Decision, VersionedFile } from './versioned-file.ts';

/** What is kept for one instance at one service address. */
export interface PaceEntry {
  /** The start of the last call. */
  readonly startedAt: Moment;
  /** No other call may start before so many ms have passed since then, the interval aside: a call under way, or a silence. */
  readonly holdMs: number;
  /** How often the service said that we call too often (12002), in a row and lately. */
  readonly refusals: Refusals | undefined;
}

export interface Refusals {
  readonly inARow: number;
  /** The interval is multiplied by this; at least 1. */
  readonly widening: number;
  readonly lastAt: Moment;
}

/** What a decision makes of an entry. Without `next` it stays as it is. */
export interface PaceDecision<T> {
  readonly next?: PaceEntry;
  readonly result: T;
}

export interface PaceStore {
  /** The moment now, as entries have it. */
  now(): Moment;
  /**
   * Decides on the entry of `key` as one step against everyone who shares the store. `decide` may be called more than once
   * and must have no effect of its own. `now` is read inside the step.
   *
   * @throws NoriaError state-unwritable
   */
  change<T>(key: string, decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>): Promise<T>;
}

/** Entries not called for so long say nothing any more: an instance that was taken out of the configuration. */
const FORGOTTEN_AFTER_MS = 7 * 24 * 3_600_000;

interface Paces {
  /** Stands in for every instance that has no entry, after the file was found unreadable. */
  readonly floor: PaceEntry | undefined;
  readonly entries: ReadonlyMap<string, PaceEntry>;
}

export interface PaceFileOptions {
  /** Must exist. */
  readonly folder: string;
  readonly timekeeper: Timekeeper;
  /** Told once for each time the file is found unreadable. */
  readonly warn: (message: string) => void;
}

/** The pace on disk, shared with every other process that opens the same folder. */
export function createPaceFile({ folder, timekeeper, warn }: PaceFileOptions): PaceStore {
  const file = new VersionedFile(folder, 'pace');
  return {
    now: timekeeper.now,
    async change(key, decide) {
      let broken = false;
      const result = await file.change((value) => {
        const now = timekeeper.now();
        broken = value === BROKEN;
        const paces = broken ? unknownSince(now) : readPaces(value);
        return decideOne(paces, key, now, decide, broken);
      });
      if (broken) {
        warn(`the pace in ${folder} could not be read: every instance is taken to have been called just now`);
      }
      return result;
    },
  };
}

/** The pace in memory: kept for as long as the process runs, shared with nobody. */
export function createPaceMemory(timekeeper: Timekeeper): PaceStore {
  const entries = new Map<string, PaceEntry>();
  return {
    now: timekeeper.now,
    async change(key, decide) {
      const { next, result } = decide(entries.get(key), timekeeper.now());
      if (next !== undefined) entries.set(key, next);
      return result;
    },
  };
}

function decideOne<T>(
  paces: Paces,
  key: string,
  now: Moment,
  decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>,
  broken: boolean,
): Decision<T> {
  const { next, result } = decide(paces.entries.get(key) ?? paces.floor, now);
  // What was unreadable is replaced in any case, or the wait would start anew with every look.
  if (next === undefined && !broken) return { result };
  const entries = new Map(paces.entries);
  if (next !== undefined) entries.set(key, next);
  return { next: writePaces({ ...paces, entries }, now), result };
}

function unknownSince(now: Moment): Paces {
  return { floor: { startedAt: now, holdMs: 0, refusals: undefined }, entries: new Map() };
}

function writePaces({ floor, entries }: Paces, now: Moment): object {
  const kept = [...entries].filter(([, { startedAt }]) => now.wallAt - startedAt.wallAt < FORGOTTEN_AFTER_MS);
  return { floor, paces: Object.fromEntries(kept) };
}

function readPaces(value: unknown): Paces {
  const { floor, paces } = asRecord(value);
  const entries = Object.entries(asRecord(paces)).flatMap(([key, raw]) => {
    const entry = readEntry(raw);
    return entry === undefined ? [] : [[key, entry] as const];
  });
  return { floor: readEntry(floor), entries: new Map(entries) };
}

function readEntry(value: unknown): PaceEntry | undefined {
  const { startedAt: started, holdMs, refusals } = asRecord(value);
  const startedAt = readMoment(started);
  if (startedAt === undefined) return undefined;
  return { startedAt, holdMs: atLeast(0, holdMs), refusals: readRefusals(refusals) };
}

function readRefusals(value: unknown): Refusals | undefined {
  const { inARow, widening, lastAt: last } = asRecord(value);
  const lastAt = readMoment(last);
  if (lastAt === undefined) return undefined;
  return { inARow: atLeast(0, inARow), widening: atLeast(1, widening), lastAt };
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function atLeast(least: number, value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? Math.max(least, value) : least;
}
