/**
 * What users, sites and sources used and cost, by day of this machine. Owns the files of the days in the state folder,
 * and keeps 32 of them. It writes the current day every few seconds, so a kill loses at most WRITE_EVERY_MS.
 *
 * The price of a member is divided among those who used it, by their uses, when it has left the pool; until then by its
 * uses so far.
 */
import { readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../core/clock.ts';
import { DAY_MS, HOUR_MS, SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { describeError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import type { RequestRecord } from '../core/request-record.ts';
import { readStateFile, replaceStateFile } from '../state/state-files.ts';

export const USAGE_KINDS = ['user', 'site', 'source'] as const;
export type UsageKind = (typeof USAGE_KINDS)[number];

export interface UsageRow {
  readonly name: string;
  readonly requests: number;
  readonly failed: number;
  readonly bytesUp: number;
  readonly bytesDown: number;
  readonly members: number;
  readonly spend: number;
}

const WRITE_EVERY_MS = 4 * SECOND_MS;
const KEPT_DAYS = 32;
/** Names and members beyond these numbers are counted together, so that a client cannot fill the memory. */
const MAX_NAMES = 5_000;
const MAX_MEMBERS = 10_000;
const OTHERS = '(others)';
const FILE = /^usage\.(\d{4}-\d{2}-\d{2})\.json$/;

const countsSchema = z.object({
  requests: z.number(),
  failed: z.number(),
  bytesUp: z.number(),
  bytesDown: z.number(),
  spend: z.number(),
  members: z.array(z.string()),
});
type Counts = Omit<z.infer<typeof countsSchema>, 'members'> & { readonly members: Set<string> };

const usesSchema = z.record(z.string(), z.number());
/** The uses of a member that is still in the pool. */
const tabSchema = z.object({ source: z.string(), user: usesSchema, site: usesSchema });
type Tab = z.infer<typeof tabSchema>;

const table = z.record(z.string(), countsSchema);
const daySchema = z.object({
  user: table,
  site: table,
  source: table,
  tabs: z.record(z.string(), tabSchema).default({}),
});

type Day = { readonly [Kind in UsageKind]: Map<string, Counts> };

/** Vendors count a GB as 10⁹ bytes. */
const BYTES_PER_GB = 1e9;

export interface UsageOptions {
  readonly bus: EventBus;
  readonly clock: Clock;
  readonly log: Log;
  /** Without a folder, usage is kept in memory only. */
  readonly dir: string | undefined;
  readonly siteOf: (host: string) => string;
  /** What a member of the source and a GB through it cost; 0 without a price. */
  readonly pricesOf: (source: string) => { readonly perMember: number; readonly perGb: number };
}

export class Usage {
  readonly #options: UsageOptions;
  readonly #subscriptions: readonly Disposable[];
  #name: string;
  /** In epoch ms. A day with a change of the clock may have 25 hours. */
  #dayEndsAt = 0;
  #day: Day = emptyDay();
  #tabs = new Map<string, Tab>();
  #changed = false;
  #writing: Promise<void> | undefined;
  #timer: Disposable;
  #closed = false;

  constructor(options: UsageOptions) {
    this.#options = options;
    const { bus, clock } = options;
    this.#name = dayOf(clock.now());
    this.#subscriptions = [
      bus.on('request.ended', (record) => this.#count(record)),
      bus.on('request.grew', ({ user, target, source, up, down }) => {
        this.#add(user, this.#siteAt(target), source, up, down);
      }),
      bus.on('draw.done', ({ source, joined, forbidden }) => this.#charge(source, joined + forbidden)),
      bus.on('member.left', ({ member }) => this.#settle(member)),
    ];
    this.#timer = this.#arm();
  }

  /** The days of which usage is known, the newest first. */
  async days(): Promise<string[]> {
    return [...new Set([this.#name, ...(await this.#storedDays())])].sort().reverse();
  }

  /** Undefined for a day of which nothing is known. */
  async read(kind: UsageKind, day = this.#today()): Promise<UsageRow[] | undefined> {
    if (day !== this.#today()) {
      const stored = await this.#readDay(day);
      return stored && rowsOf(stored.day[kind], new Map());
    }
    return rowsOf(this.#day[kind], kind === 'source' ? new Map() : this.#openSpend(kind));
  }

  /** The bytes and members of a user today, for limits. */
  todayOf(user: string): { readonly bytes: number; readonly members: number } {
    this.#today();
    const counts = this.#day.user.get(user);
    if (counts === undefined) return { bytes: 0, members: 0 };
    return { bytes: counts.bytesUp + counts.bytesDown, members: counts.members.size };
  }

  /** Reads the current day, so that it goes on after a restart. */
  async load(): Promise<void> {
    const stored = await this.#readDay(this.#name);
    if (stored === undefined) return;
    this.#day = stored.day;
    this.#tabs = stored.tabs;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#timer[Symbol.dispose]();
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await this.#writing;
    await this.#write();
  }

  #count(record: RequestRecord): void {
    const { target, attempts } = record;
    const user = record.user ?? '';
    const serving = attempts.findLast(({ code }) => code === null);
    const source = (serving ?? attempts.at(-1))?.source ?? '';
    const site = this.#siteAt(target ?? '');
    const up = record.bytesUp - record.countedUp;
    const down = record.bytesDown - record.countedDown;
    for (const counts of this.#add(user, site, source, up, down)) {
      counts.requests += 1;
      if (record.outcome === 'failed') counts.failed += 1;
      for (const { member } of attempts) {
        if (counts.members.size < MAX_MEMBERS) counts.members.add(member);
      }
    }
    if (serving === undefined || this.#options.pricesOf(serving.source).perMember === 0) return;
    let tab = this.#tabs.get(serving.member);
    if (tab === undefined) {
      tab = { source, user: {}, site: {} };
      this.#tabs.set(serving.member, tab);
    }
    tab.user[user] = (tab.user[user] ?? 0) + 1;
    tab.site[site] = (tab.site[site] ?? 0) + 1;
  }

  /** Adds the bytes to the rows that the request belongs to, and returns these. */
  #add(user: string, site: string, source: string, up: number, down: number): Counts[] {
    this.#today();
    this.#changed = true;
    const { user: users, site: sites, source: sources } = this.#day;
    const rows = [countsOf(users, user), countsOf(sites, site), countsOf(sources, source)];
    const spend = (this.#options.pricesOf(source).perGb * (up + down)) / BYTES_PER_GB;
    for (const counts of rows) {
      counts.bytesUp += up;
      counts.bytesDown += down;
      counts.spend += spend;
    }
    return rows;
  }

  #siteAt(target: string): string {
    const host = target.slice(0, target.lastIndexOf(':'));
    return host === '' ? '' : this.#options.siteOf(host.replace(/^\[|\]$/g, ''));
  }

  #charge(source: string, members: number): void {
    const price = this.#options.pricesOf(source).perMember;
    if (price === 0 || members === 0) return;
    this.#today();
    countsOf(this.#day.source, source).spend += price * members;
    this.#changed = true;
  }

  /** Divides the price of a member that has left among those who used it. */
  #settle(member: string): void {
    const tab = this.#tabs.get(member);
    if (tab === undefined) return;
    this.#today();
    this.#tabs.delete(member);
    for (const kind of ['user', 'site'] as const) {
      for (const [name, share] of this.#shares(tab, kind)) countsOf(this.#day[kind], name).spend += share;
    }
    this.#changed = true;
  }

  #shares(tab: Tab, kind: 'user' | 'site'): [name: string, share: number][] {
    const uses = Object.entries(tab[kind]);
    const all = uses.reduce((sum, [, count]) => sum + count, 0);
    const price = this.#options.pricesOf(tab.source).perMember;
    return uses.map(([name, count]) => [name, (price * count) / all]);
  }

  #openSpend(kind: 'user' | 'site'): Map<string, number> {
    const spend = new Map<string, number>();
    for (const tab of this.#tabs.values()) {
      for (const [name, share] of this.#shares(tab, kind)) spend.set(name, (spend.get(name) ?? 0) + share);
    }
    return spend;
  }

  /** Begins a new day if the last one is over. */
  #today(): string {
    const now = this.#options.clock.now();
    if (now >= this.#dayEndsAt || now < this.#dayEndsAt - DAY_MS - HOUR_MS) {
      const name = dayOf(now);
      this.#dayEndsAt = endOfDay(now);
      if (name === this.#name) return name;
      const ended = this.#serialize();
      const before = this.#name;
      this.#name = name;
      this.#day = emptyDay();
      this.#writing = (this.#writing ?? Promise.resolve()).then(() => this.#store(before, ended));
    }
    return this.#name;
  }

  #arm(): Disposable {
    return this.#options.clock.after(WRITE_EVERY_MS, () => {
      this.#timer = this.#arm();
      this.#today();
      if (!this.#changed) return;
      this.#writing = (this.#writing ?? Promise.resolve()).then(() => this.#write());
    });
  }

  async #write(): Promise<void> {
    if (!this.#changed) return;
    this.#changed = false;
    await this.#store(this.#name, this.#serialize());
  }

  #serialize(): string {
    const tableOf = (rows: Map<string, Counts>) =>
      Object.fromEntries([...rows].map(([name, row]) => [name, { ...row, members: [...row.members] }]));
    const { user, site, source } = this.#day;
    const tabs = Object.fromEntries(this.#tabs);
    return JSON.stringify({ user: tableOf(user), site: tableOf(site), source: tableOf(source), tabs });
  }

  async #store(day: string, text: string): Promise<void> {
    const { dir, log } = this.#options;
    if (dir === undefined) return;
    try {
      const file = await replaceStateFile(join(dir, `usage.${day}.json`), async (draft) => {
        await draft.writeFile(text);
      });
      await file.close();
      const old = (await this.#storedDays()).slice(0, -KEPT_DAYS);
      for (const name of old) await unlink(join(dir, `usage.${name}.json`));
    } catch (error) {
      log.warn({ error: describeError(error) }, 'usage not written');
    }
  }

  /** The oldest first. */
  async #storedDays(): Promise<string[]> {
    const { dir } = this.#options;
    if (dir === undefined) return [];
    const names = await readdir(dir);
    return names.flatMap((name) => FILE.exec(name)?.[1] ?? []).sort();
  }

  async #readDay(name: string): Promise<{ day: Day; tabs: Map<string, Tab> } | undefined> {
    const { dir, log } = this.#options;
    if (dir === undefined || !/^\d{4}-\d{2}-\d{2}$/.test(name)) return undefined;
    try {
      const text = await readStateFile(join(dir, `usage.${name}.json`));
      if (text === undefined) return undefined;
      const { tabs, ...stored } = daySchema.parse(JSON.parse(text));
      const tableOf = (rows: z.infer<typeof table>) =>
        new Map(Object.entries(rows).map(([key, row]) => [key, { ...row, members: new Set(row.members) }]));
      const day = {
        user: tableOf(stored.user),
        site: tableOf(stored.site),
        source: tableOf(stored.source),
      };
      return { day, tabs: new Map(Object.entries(tabs)) };
    } catch (error) {
      log.warn({ day: name, error: describeError(error) }, 'usage not read');
      return undefined;
    }
  }
}

function emptyDay(): Day {
  return { user: new Map(), site: new Map(), source: new Map() };
}

function countsOf(rows: Map<string, Counts>, wanted: string): Counts {
  const known = rows.get(wanted);
  if (known !== undefined) return known;
  const name = rows.size < MAX_NAMES ? wanted : OTHERS;
  let counts = rows.get(name);
  if (counts === undefined) {
    counts = { requests: 0, failed: 0, bytesUp: 0, bytesDown: 0, spend: 0, members: new Set() };
    rows.set(name, counts);
  }
  return counts;
}

/** The rows with the most bytes first. */
function rowsOf(rows: ReadonlyMap<string, Counts>, openSpend: ReadonlyMap<string, number>): UsageRow[] {
  const names = new Set([...rows.keys(), ...openSpend.keys()]);
  return [...names]
    .map((name) => {
      const counts = rows.get(name) ?? countsOf(new Map(), name);
      const { requests, failed, bytesUp, bytesDown, members } = counts;
      const spend = Math.round((counts.spend + (openSpend.get(name) ?? 0)) * 1e6) / 1e6;
      return { name, requests, failed, bytesUp, bytesDown, members: members.size, spend };
    })
    .sort((one, other) => other.bytesUp + other.bytesDown - one.bytesUp - one.bytesDown);
}

/** The day of this machine's time zone, as `2026-11-23`. */
function dayOf(now: number): string {
  const date = new Date(now);
  const parts = [date.getFullYear(), date.getMonth() + 1, date.getDate()];
  return parts.map((part) => String(part).padStart(2, '0')).join('-');
}

/** In this machine's time zone. */
export function endOfDay(now: number): number {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1).getTime();
}
