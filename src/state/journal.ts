/**
 * The journal: many small records by key, kept on disk as they change.
 *
 * The file has one JSON value a line: an object is the head of a write, with its moment; `["key", value]` is a record, of which
 * the last one of a key counts; `["key"]` removes it. A write appends what has changed. A file with mostly outdated lines is
 * replaced by a new one. All work is done in slices, so that a hundred thousand records do not block the event loop.
 */
import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { describeError } from '../core/faults.ts';
import { elapsedBetween, type Moment, momentSchema } from './moment.ts';
import type { StateFileOptions } from './snapshot-file.ts';
import { readStateFile, replaceStateFile } from './state-files.ts';

/** `undefined` removes the record. */
export type JournalEntry = readonly [key: string, value: unknown];

/** The owner of the records. */
export interface JournalSource {
  readonly size: number;
  /** Every record. The records may change during the iteration. */
  all(): Iterable<JournalEntry>;
  /** At most `most` of the records that have changed, and forgets that they have. */
  takeChanges(most: number): readonly JournalEntry[];
  /** Forgets all changes so far. */
  dropChanges(): void;
}

export interface FoundRecord {
  readonly value: unknown;
  /** Ms since it was written, also if the wall clock was set since. */
  readonly ageMs: number;
}

export interface Journal {
  /** What the file contained when it was opened, not validated; empty after `attach`. */
  readonly found: ReadonlyMap<string, FoundRecord>;
  /**
   * Begins to write the records of a source. After each call of `onChange` the changes are on disk within a second, together with
   * others until then.
   */
  attach(open: (onChange: () => void) => JournalSource): void;
  /** Writes all records one last time. Safe to call twice. */
  close(): Promise<void>;
}

/** How long a write waits for more changes: half of the second that a crash may cost. */
const GATHER_MS = 500;
/** Records that are turned into text at a time: about a millisecond. */
const SLICE = 500;
/** Outdated lines that are kept, in addition to one for each record. */
const MIN_OUTDATED = 1_000;
const FORMAT = 1;

const headSchema = z.object({ format: z.literal(FORMAT), at: momentSchema });

/** Opens and reads the journal. Invalid lines are ignored, with a warning. */
export async function openJournal(options: StateFileOptions): Promise<Journal> {
  return new JournalFile(options, await readRecords(options));
}

/** Stores nothing: for `state: off`. */
export function noJournal(): Journal {
  return { found: new Map(), attach: () => {}, close: async () => {} };
}

class JournalFile implements Journal {
  found: ReadonlyMap<string, FoundRecord>;
  readonly #options: StateFileOptions;
  #source: JournalSource | undefined;
  /** Undefined until the first write and after a failed one: the next write then replaces the file. */
  #file: FileHandle | undefined;
  #lineCount = 0;
  #timer: Disposable | undefined;
  #writing: Promise<void> | undefined;
  /** There are changes since the last write began. */
  #dirty = false;
  #closed = false;

  constructor(options: StateFileOptions, found: ReadonlyMap<string, FoundRecord>) {
    this.#options = options;
    this.found = found;
  }

  attach(open: (onChange: () => void) => JournalSource): void {
    this.found = new Map();
    this.#source = open(() => this.#saveSoon());
  }

  async close(): Promise<void> {
    if (this.#closed) return this.#writing;
    this.#closed = true;
    await this.#writing;
    if (this.#source !== undefined) {
      await this.#closeFile(); // so that the file is replaced: the times of all records are then exact
      this.#dirty = true;
      await this.#write();
    }
    await this.#closeFile();
  }

  #saveSoon(): void {
    if (this.#closed || this.#source === undefined) return;
    this.#dirty = true;
    if (this.#writing !== undefined) return; // its end starts the write of these changes
    this.#timer ??= this.#options.clock.after(GATHER_MS, () => void this.#write());
  }

  /** One write at a time. Changes during a write are written after it. */
  #write(): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      if (this.#dirty) this.#saveSoon();
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    const source = this.#source;
    if (!this.#dirty || source === undefined) return;
    this.#dirty = false;
    try {
      if (this.#file === undefined || this.#lineCount > 2 * source.size + MIN_OUTDATED) {
        await this.#replace(source);
      } else await this.#append(this.#file, source);
    } catch (error) {
      // The next change tries again: a full disk must not stop the service.
      this.#options.warn(`cannot write the journal ${this.#options.path}: ${describeError(error)}`);
      await this.#closeFile();
    }
  }

  async #append(file: FileHandle, source: JournalSource): Promise<void> {
    for (let changes = source.takeChanges(SLICE); changes.length > 0; changes = source.takeChanges(SLICE)) {
      await this.#writeSlice(file, changes);
    }
    await file.datasync();
  }

  async #replace(source: JournalSource): Promise<void> {
    await this.#closeFile();
    this.#file = await replaceStateFile(this.#options.path, async (file) => {
      source.dropChanges();
      this.#lineCount = 0;
      let slice: JournalEntry[] = [];
      for (const entry of source.all()) {
        slice.push(entry);
        if (slice.length < SLICE) continue;
        await this.#writeSlice(file, slice);
        slice = [];
      }
      await this.#writeSlice(file, slice);
    });
  }

  async #writeSlice(file: FileHandle, entries: readonly JournalEntry[]): Promise<void> {
    const head = JSON.stringify({ format: FORMAT, at: this.#options.timekeeper.now() });
    const lines = entries.map(([key, value]) => JSON.stringify(value === undefined ? [key] : [key, value]));
    this.#lineCount += lines.length;
    await file.appendFile(`${[head, ...lines].join('\n')}\n`);
  }

  async #closeFile(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }
}

async function readRecords({ path, timekeeper, warn }: StateFileOptions): Promise<Map<string, FoundRecord>> {
  let text: string | undefined;
  try {
    text = await readStateFile(path);
    if (text === undefined) return new Map();
  } catch (error) {
    warn(`cannot read the journal ${path}: ${describeError(error)}`);
    return new Map();
  }
  const { found, invalidCount } = parseRecords(text, timekeeper.now());
  if (invalidCount > 0) warn(`noria ignores ${invalidCount} invalid lines of the journal ${path}`);
  return found;
}

function parseRecords(text: string, now: Moment) {
  const found = new Map<string, FoundRecord>();
  let invalidCount = 0;
  let ageMs: number | undefined;
  // A crash can cut off the last line, so what follows the last line feed does not count.
  for (const line of text.split('\n').slice(0, -1)) {
    const parsed = parseLine(line);
    if (Array.isArray(parsed)) {
      const [key, value]: unknown[] = parsed;
      if (typeof key !== 'string' || ageMs === undefined) invalidCount += 1;
      else if (parsed.length > 1) found.set(key, { value, ageMs });
      else found.delete(key);
      continue;
    }
    const head = headSchema.safeParse(parsed);
    if (head.success) ageMs = Math.max(0, elapsedBetween(head.data.at, now));
    else invalidCount += 1;
  }
  return { found, invalidCount };
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // handled: the line is invalid
  }
}
