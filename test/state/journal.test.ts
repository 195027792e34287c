import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Journal, type JournalRecords, openJournal } from '../../src/state/journal.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** Records that remember which of them have changed since they were taken. */
class Records extends Map<string, unknown> implements JournalRecords {
  readonly changed = new Set<string>();
  onChange = () => {};

  all(): Iterable<[string, unknown]> {
    return this.entries();
  }

  takeChanges(maxCount: number): [string, unknown][] {
    const keys = [...this.changed].slice(0, maxCount);
    for (const key of keys) this.changed.delete(key);
    return keys.map((key) => [key, this.get(key)]);
  }

  dropChanges(): void {
    this.changed.clear();
  }

  change(key: string, value?: unknown): void {
    if (value === undefined) this.delete(key);
    else this.set(key, value);
    this.changed.add(key);
    this.onChange();
  }
}

async function openIn(path: string, clock = new ManualClock()) {
  const warnings: string[] = [];
  const warn = (message: string) => warnings.push(message);
  const timekeeper = createTimekeeper(clock, {
    id: 'boot 1',
    elapsedMs: () => clock.monotonic(),
    uptimeMs: () => clock.monotonic(),
  });
  const journal = await openJournal({ path, clock, timekeeper, warn });
  onTestFinished(() => journal.close());
  const records = new Records();
  const attach = () =>
    journal.attach((onChange) => {
      records.onChange = onChange;
      return records;
    });
  return { attach, journal, records, clock, warnings };
}

const valuesIn = (journal: Journal) =>
  Object.fromEntries([...journal.found].map(([key, { value }]) => [key, value]));

/** Returns the records that a new process would find if this one were killed now. */
async function foundIn(path: string) {
  const { journal, warnings } = await openIn(path);
  expect(warnings).toEqual([]);
  return valuesIn(journal);
}

/** Lets time pass until the journal file contains `text`. */
async function save({ clock }: { clock: ManualClock }, path: string, text: string) {
  await until(`the journal contains ${text}`, () => {
    if (clock.armedCount > 0) clock.advance(500); // during a write, the timer is armed later
    return readdirSync(dirname(path)).includes('journal') && readFileSync(path, 'utf8').includes(text);
  });
}

const journalPath = () => join(temporaryFolder(), 'journal');

test('journal: a change is on disk within a second, and only the owner can read it', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  const { records, attach, clock } = opened;
  attach();
  records.change('a', { uses: 1 });
  await save(opened, path, '"a"');
  expect(await foundIn(path)).toEqual({ a: { uses: 1 } });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(clock.armedCount).toBe(0);
});

test('journal: changes are appended, and the last of a key counts', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  const { records, attach } = opened;
  attach();
  for (const key of ['a', 'b', 'c']) records.change(key, 1);
  await save(opened, path, '"c"');
  const before = readFileSync(path, 'utf8');
  records.change('a', 2);
  records.change('b');
  records.change('d', 3);
  await save(opened, path, '"d"');
  expect(readFileSync(path, 'utf8').startsWith(before)).toBe(true);
  expect(await foundIn(path), 'without b, which was removed').toStrictEqual({ a: 2, c: 1, d: 3 });
});

test('journal: a record knows its age, though the wall clock was set', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  const { records, attach, clock } = opened;
  attach();
  records.change('a', 1);
  await save(opened, path, '"a"');
  clock.advance(20_000);
  records.change('b', 1);
  await save(opened, path, '"b"');
  clock.advance(5_000);
  clock.stepWall(-86_400_000);
  const { journal: next } = await openIn(path, clock);
  expect(next.found.get('a')?.ageMs).toBe(25_500);
  expect(next.found.get('b')?.ageMs).toBe(5_000);
});

test('journal: closing gives each record the time of the last write', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  const { records, attach, clock, journal } = opened;
  attach();
  records.change('a', 1);
  await save(opened, path, '"a"');
  clock.advance(20_000);
  await journal.close();
  clock.advance(5_000);
  const { journal: next } = await openIn(path, clock);
  expect(next.found.get('a')?.ageMs).toBe(5_000);
});

test('journal: changes during a write, more than one slice of them, are written after it', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  const { records, attach, clock, journal } = opened;
  attach();
  records.change('a', 1);
  clock.advance(499);
  expect(readdirSync(dirname(path)), 'it waits for more changes').toEqual([]);
  clock.advance(1);
  for (let number = 0; number < 1_200; number += 1) records.change(`key ${number}`, number);
  expect(clock.armedCount, 'the write that runs starts the next one').toBe(0);
  await save(opened, path, '["key 1199",');
  expect(Object.keys(await foundIn(path))).toHaveLength(1_201);
  await journal.close();
  records.change('late', 1);
  expect(clock.armedCount).toBe(0);
});

test('journal: a record from the future of another boot has the age 0', async () => {
  const path = journalPath();
  const clock = new ManualClock();
  const at = { wallAt: clock.now() + 60_000, boot: 'boot 0', elapsedMs: 0 };
  writeFileSync(path, `${JSON.stringify({ format: 1, at })}\n["a",1]\n`);
  const { journal, warnings } = await openIn(path, clock);
  expect(journal.found.get('a')).toEqual({ value: 1, ageMs: 0 });
  expect(warnings).toEqual([]);
});

test('journal: what it found is not kept once the records are attached', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  opened.attach();
  opened.records.change('a', 1);
  await save(opened, path, '"a"');
  const next = await openIn(path);
  expect(next.journal.found.size).toBe(1);
  next.attach();
  expect(next.journal.found.size).toBe(0);
});

test('journal: a file of outdated lines is replaced', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  const { records, attach } = opened;
  attach();
  for (let round = 0; round < 30; round += 1) {
    for (let number = 0; number < 100; number += 1) records.change(`key ${number}`, round);
    records.change('round', round);
    await save(opened, path, `["round",${round}]`);
  }
  expect(readFileSync(path, 'utf8').split('\n').length).toBeLessThan(1_500);
  expect(await foundIn(path)).toMatchObject({ 'key 0': 29, 'key 99': 29, round: 29 });
  expect(readdirSync(dirname(path))).toEqual(['journal']);
});

test('journal: a line that a crash cut off is ignored, and the next write is valid', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  opened.attach();
  opened.records.change('a', 1);
  await save(opened, path, '"a"');
  appendFileSync(path, '["b",{"mem');
  expect(await foundIn(path)).toEqual({ a: 1 });
  const next = await openIn(path);
  next.attach();
  next.records.change('c', 1);
  await save(next, path, '"c"');
  expect(await foundIn(path)).toEqual({ c: 1 });
});

test('journal: invalid lines are ignored with one warning', async () => {
  const path = journalPath();
  const opened = await openIn(path);
  opened.attach();
  opened.records.change('a', 1);
  await save(opened, path, '"a"');
  writeFileSync(path, `["early",1]\n${readFileSync(path, 'utf8')}{}\nx\n[7]\n["b",2]\n`);
  const { journal, warnings } = await openIn(path);
  expect(valuesIn(journal)).toEqual({ a: 1, b: 2 });
  expect(warnings).toEqual([`noria ignores 4 invalid lines of the journal ${path}`]);
});

test('journal: what is not a file is not read', async () => {
  const path = journalPath();
  mkdirSync(path);
  const { attach, records, warnings, clock } = await openIn(path);
  expect(warnings).toEqual([
    `cannot read the journal ${path}: ${path} is a directory, not a regular file; remove it`,
  ]);
  attach();
  records.change('a', 1);
  clock.advance(1_000);
  await until('it warns', () => warnings.length === 2);
  expect(warnings[1]).toContain(`cannot write the journal ${path}`);
  rmSync(path, { recursive: true });
  records.change('b', 1);
  await save({ clock }, path, '"b"');
  expect(await foundIn(path), 'changes of the failed write are not lost').toEqual({ a: 1, b: 1 });
});

test('journal: the last write has every record, and close is safe to call twice', async () => {
  const path = journalPath();
  const { attach, journal, records } = await openIn(path);
  attach();
  records.set('a', 1);
  await Promise.all([journal.close(), journal.close()]);
  records.change('b', 1);
  await journal.close();
  expect(await foundIn(path)).toEqual({ a: 1 });
});

test('journal: a hundred thousand records are written in slices, between which the event loop runs', async () => {
  const path = journalPath();
  const { journal, records } = await openIn(path);
  for (let number = 0; number < 100_000; number += 1)
    records.set(`alice:session-${number}`, { uses: number });
  let inTurn = 0;
  let mostInTurn = 0;
  const source: JournalRecords = {
    size: records.size,
    takeChanges: () => [],
    dropChanges: () => {},
    *all() {
      for (const entry of records) {
        inTurn += 1;
        mostInTurn = Math.max(mostInTurn, inTurn);
        yield entry;
      }
    },
  };
  journal.attach(() => source);
  let isWriting = true;
  const onTurn = () => {
    inTurn = 0;
    if (isWriting) setImmediate(onTurn);
  };
  onTurn();
  await journal.close();
  isWriting = false;
  expect(mostInTurn).toBeLessThanOrEqual(1_000);
  expect(Object.keys(await foundIn(path))).toHaveLength(100_000);
});
