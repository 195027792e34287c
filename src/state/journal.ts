/**
 * The journal: many small records, each with a key. noria writes a record to disk when it changes.
 *
 * The file has one JSON value per line. Each write begins with an object that contains the time of the write. After it,
 * `["key", value]` sets a record, and `["key"]` removes a record. For each key, the last line counts. A write appends
 * the changed records. If most lines are outdated, a write replaces the file. All work is done in slices, so that a
 * hundred thousand records do not block the event loop.
 */
import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { describeError } from '../core/faults.ts';
import { elapsedBetween, type Moment, momentSchema } from './moment.ts';
import type { StateFileOptions } from './snapshot-file.ts';
import { readStateFile, replaceStateFile } from './state-files.ts';

type JournalEntry = readonly [key: string, value: unknown];

export interface JournalRecords {
  readonly size: number;
  /** Returns all records. They may change while the caller iterates. */
  all(): Iterable<JournalEntry>;
  /** Returns at most `maxCount` of the changed records, and marks them as unchanged. */
  takeChanges(maxCount: number): readonly JournalEntry[];
  dropChanges(): void;
}

interface FoundRecord {
  readonly value: unknown;
  /** The time in ms since the record was written. It is correct even if the wall clock was set in between. */
  readonly ageMs: number;
}

/**
 * How long a write waits for more changes, in ms. It must be less than one second, because `attach` promises that each
 * change is on disk within a second.
 */
const GATHER_MS = 500;
/** How many records the journal converts to text at a time. That takes about a millisecond. */
const SLICE = 500;
/** If the file has more outdated lines than records plus this number, the next write replaces the file. */
const MIN_OUTDATED = 1_000;
const FORMAT = 1;

const headSchema = z.object({ format: z.literal(FORMAT), at: momentSchema });

export async function openJournal(options: StateFileOptions): Promise<Journal> {
  return new Journal(options, await readRecords(options));
}

export class Journal {
  /** The records that the file contained when noria opened it, not validated. Empty after `attach`. */
  found: ReadonlyMap<string, FoundRecord>;
  readonly #options: StateFileOptions;
  #source: JournalRecords | undefined;
  /**
   * The open file. Undefined before the first write and after a failed write: the next write then replaces the file.
   */
  #file: FileHandle | undefined;
  #lineCount = 0;
  #timer: Disposable | undefined;
  #writing: Promise<void> | undefined;
  #dirty = false;
  #closed = false;

  constructor(options: StateFileOptions, found: ReadonlyMap<string, FoundRecord>) {
    this.#options = options;
    this.found = found;
  }

  /**
   * From now on, the journal writes the records that `open` returns. Call `onChange` after each change of a record: the
   * change is then on disk within a second.
   */
  attach(open: (onChange: () => void) => JournalRecords): void {
    this.found = new Map();
    if (this.#options.path === undefined) return;
    this.#source = open(() => this.#saveSoon());
  }

  async close(): Promise<void> {
    if (this.#closed) return this.#writing;
    this.#closed = true;
    await this.#writing;
    await this.#closeFile(); // makes `#write` replace the whole file, so that all records get the time of this write
    this.#dirty = true;
    await this.#write();
    await this.#closeFile();
  }

  #saveSoon(): void {
    if (this.#closed || this.#source === undefined) return;
    this.#dirty = true;
    if (this.#writing !== undefined) return;
    this.#timer ??= this.#options.clock.after(GATHER_MS, () => void this.#write());
  }

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
    const { path } = this.#options;
    if (!this.#dirty || source === undefined || path === undefined) return;
    this.#dirty = false;
    try {
      if (this.#file === undefined || this.#lineCount > 2 * source.size + MIN_OUTDATED) {
        await this.#replace(path, source);
      } else await this.#append(this.#file, source);
    } catch (error) {
      // noria only warns, because a full disk must not stop the proxy. The next change causes another write.
      this.#options.warn(`cannot write the journal ${path}: ${describeError(error)}`);
      await this.#closeFile();
    }
  }

  async #append(file: FileHandle, source: JournalRecords): Promise<void> {
    for (let changes = source.takeChanges(SLICE); changes.length > 0; changes = source.takeChanges(SLICE)) {
      await this.#writeSlice(file, changes);
    }
    await file.datasync();
  }

  async #replace(path: string, source: JournalRecords): Promise<void> {
    await this.#closeFile();
    this.#file = await replaceStateFile(path, async (file) => {
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
  if (path === undefined) return new Map();
  let text: string | undefined;
  try {
    text = await readStateFile(path);
  } catch (error) {
    warn(`cannot read the journal ${path}: ${describeError(error)}`);
  }
  if (text === undefined) return new Map();
  const { found, invalidCount } = parseRecords(text, timekeeper.now());
  if (invalidCount > 0) warn(`noria ignores ${invalidCount} invalid lines of the journal ${path}`);
  return found;
}

function parseRecords(text: string, now: Moment) {
  const found = new Map<string, FoundRecord>();
  let invalidCount = 0;
  let ageMs: number | undefined;
  // The text after the last line feed is ignored, because a crash may have cut it off.
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
    return undefined; // handled: the caller counts the line as invalid
  }
}
