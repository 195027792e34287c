/**
 * What bans exits together. A site is a registrable domain, an IP literal, or what a rule of `targets` names. An exit is the IP address
 * that a target sees. `Sites` remembers the uses and the ban of each pair in one bounded table; docs/sites.md explains the decisions.
 */
import { getDomain } from 'tldts';
import type { Clock } from '../core/clock.ts';
import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { parseTargetRule, type TargetRule } from '../core/target-rule.ts';
import { DEFAULT_SITE_RULE, type ProcessPart, partOfProcess, type SiteRule } from './options.ts';

export type BanEvidence = 'report' | 'status' | 'reset';

/** A ban as replicas exchange it and a snapshot stores it. Moments are monotonic. */
export interface SiteBan {
  readonly site: string;
  readonly exit: string;
  readonly source: string;
  /** The user for whom alone the ban counts; absent: it counts for everybody. */
  readonly user?: string | undefined;
  readonly sinceAt: number;
  /** The end of the ban. A ban with an end in the past has been lifted. */
  readonly untilAt: number;
  /** The length of the ban by the rule, which the next ban of the pair doubles. */
  readonly forMs: number;
  readonly spacingMs: number;
}

const MAX_SITES = 10_000;
/** Maximum number of (exit, site) pairs: about 50 MB. */
const MAX_PAIRS = 300_000;
const MAX_HOSTS = 20_000;
const DROPPED_SHARE = 0.1;
const USES_KEPT_MS = 10 * MINUTE_MS;
const MIN_LEARNT_MS = SECOND_MS;
const MAX_LEARNT_MS = 5 * MINUTE_MS;
/** How far the first ban and each further one raise the spacing above the gap at which they came: the first gap is the shortest. */
const FIRST_RAISE = 2;
const RAISE = 1.25;
/** The learnt spacing falls by a tenth for each time of this length without a ban. */
const FALL_AFTER_MS = 10 * MINUTE_MS;
const FALL = 0.9;
const MAX_SHOWN = 100;
/** A site counts as one without an exit if clients wanted it in the last minute and no exit has served them for ten seconds. */
const WANTED_LATELY_MS = MINUTE_MS;
const UNSERVED_MS = 10 * SECOND_MS;

/** The moments are rounded, because V8 stores small integers without an allocation: a third of the memory of 100,000 pairs. */
export class Pair {
  usedAt = -1;
  gapMs = 0;
  uses = 0;
  round = -1;
  openLeases = 0;
  /** Before the first ban: earlier than any moment of an earlier run. */
  sinceAt = -2_000_000_000;
  untilAt = 0;
  /** The length of the last ban by the rule; 0 before the first ban and after a verdict `ok`. */
  forMs = 0;
  source = '';
  /** Members remember their last pair, and must not use it after it was deleted. */
  isDeleted = false;
}

export class Site {
  readonly name: string;
  rule: SiteRule;
  readonly pairs = new Map<string, Pair>();
  usersBans: Map<string, Map<string, Pair>> | undefined;
  /** In each round, the site uses every exit once, as long as the pick finds one that it has not used. */
  round = 0;
  usedInRound = 0;
  nextRequestAt = 0;
  uses = 0;
  banCount = 0;
  drawCount = 0;
  lastUsedAt = 0;
  lastWantedAt = 0;
  waitingCount = 0;
  /** How often clients without a session use the site; undefined until noria has learnt a spacing for it. */
  requests: RequestRate | undefined;
  #draws: { readonly at: number; readonly source: string }[] = [];
  #learntMs = 0;
  #learntAt = 0;

  constructor(name: string, rule: SiteRule) {
    this.name = name;
    this.rule = rule;
  }

  /** Metrics show only sites of a rule by name. */
  get isNamed(): boolean {
    return this.rule !== DEFAULT_SITE_RULE;
  }

  pairOfUser(user: string, exit: string): Pair {
    this.usersBans ??= new Map();
    const pairs = this.usersBans.get(user) ?? new Map<string, Pair>();
    const pair = pairs.get(exit) ?? new Pair();
    this.usersBans.set(user, pairs.set(exit, pair));
    return pair;
  }

  isBannedForOther(exit: string, user: string, now: number): boolean {
    for (const [other, pairs] of this.usersBans ?? []) {
      if (other !== user && (pairs.get(exit)?.untilAt ?? 0) > now) return true;
    }
    return false;
  }

  /** Monotonic moment at which the exit's ban for this user alone ends; 0 if there is none. */
  bannedForUser(exit: string, user = ''): number {
    return this.usersBans?.get(user)?.get(exit)?.untilAt ?? 0;
  }

  *bansByUser(): Generator<readonly [user: string | undefined, ReadonlyMap<string, Pair>]> {
    yield [undefined, this.pairs];
    yield* this.usersBans ?? [];
  }

  learntAt(now: number): number {
    if (this.#learntMs === 0) return 0;
    const learnt = this.#learntMs * FALL ** Math.floor((now - this.#learntAt) / FALL_AFTER_MS);
    return learnt < MIN_LEARNT_MS ? 0 : Math.round(learnt);
  }

  exitsNeeded(now: number): number {
    return ((this.requests?.perSecond(now) ?? 0) * this.learntAt(now)) / SECOND_MS;
  }

  startRound(): void {
    this.round += 1;
    this.usedInRound = 0;
  }

  /**
   * Not if an exit with the raised spacing could serve no more pages in its life than this one before its ban: the site then limits the
   * pages, and spacing would only cost IPs.
   */
  learn(pair: Pair, lifeMs: number, now: number): void {
    const { gapMs, uses } = pair;
    pair.uses = 0;
    if (this.rule.spacing !== 'auto' || gapMs === 0 || gapMs >= MAX_LEARNT_MS) return;
    const known = this.learntAt(now);
    const raisedMs = Math.min(
      MAX_LEARNT_MS,
      Math.max(MIN_LEARNT_MS, (known === 0 ? FIRST_RAISE : RAISE) * gapMs),
    );
    if (raisedMs * uses > lifeMs) return;
    this.adoptSpacing(Math.max(known, raisedMs), now);
  }

  adoptSpacing(spacingMs: number, now: number): void {
    if (spacingMs < this.learntAt(now)) return;
    this.requests ??= new RequestRate();
    this.#learntMs = Math.round(spacingMs);
    this.#learntAt = Math.round(now);
  }

  /** How many IPs of this source this process may still cause because of the bans of the site. */
  drawsLeft(source: string, part: ProcessPart, now: number): number {
    const { drawsForBans } = this.rule;
    const limit = drawsForBans === 0 ? 0 : partOfProcess(drawsForBans, part);
    this.#draws = this.#draws.filter(({ at }) => at > now - HOUR_MS);
    return limit - this.#draws.filter((draw) => draw.source === source).length;
  }

  get nextDrawAt(): number {
    return (this.#draws[0]?.at ?? 0) + HOUR_MS;
  }

  drew(source: string, now: number): void {
    this.#draws.push({ at: now, source });
    this.drawCount += 1;
  }

  prune(now: number): void {
    for (const [user, pairs] of [[undefined, this.pairs] as const, ...(this.usersBans ?? [])]) {
      for (const [exit, pair] of pairs) {
        const { usedAt, untilAt, forMs, openLeases } = pair;
        const isBanKnown = untilAt > now || (forMs > 0 && untilAt + this.rule.ban.maxMs > now);
        if (isBanKnown || usedAt >= now - USES_KEPT_MS || openLeases > 0) continue;
        pair.isDeleted = true;
        pairs.delete(exit);
      }
      if (user !== undefined && pairs.size === 0) this.usersBans?.delete(user);
    }
  }
}

interface SiteMember {
  readonly exit: string;
  lastSite: Site | undefined;
  lastPair: Pair | undefined;
}

export function pairAt(site: Site, member: SiteMember): Pair | undefined {
  if (member.lastSite === site && member.lastPair?.isDeleted === false) return member.lastPair;
  const pair = site.pairs.get(member.exit);
  if (pair === undefined) return undefined;
  member.lastSite = site;
  member.lastPair = pair;
  return pair;
}

/** At most `now`: noria may use the member now, after its ban and its spacing. */
export function freeAt(site: Site, member: SiteMember, spacingMs: number, user: string | undefined): number {
  const pair = pairAt(site, member);
  const isSpaced = spacingMs > 0 && pair !== undefined && pair.usedAt >= 0;
  const spacedUntil = isSpaced ? pair.usedAt + spacingMs : 0;
  return Math.max(pair?.untilAt ?? 0, spacedUntil, site.bannedForUser(member.exit, user));
}

export class Sites {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #onBan: (ban: SiteBan) => void;
  readonly byName = new Map<string, Site>();
  readonly #byHost = new Map<string, Site>();
  readonly #members = new Map<string, number>();
  readonly waiting = new Set<Site>();
  #rules: readonly {
    readonly name: string;
    readonly rule: SiteRule;
    readonly match: readonly TargetRule[];
  }[] = [];
  #perHostSpacingMs = 0;
  #pairCount = 0;
  #lastHost = '';
  #last: Site | undefined;

  /** @param onBan - called for each ban that this process decides or lifts. */
  constructor(clock: Clock, bus: EventBus, onBan: (ban: SiteBan) => void) {
    this.#clock = clock;
    this.#bus = bus;
    this.#onBan = onBan;
  }

  configure(targets: readonly SiteRule[], perHostSpacingMs: number): void {
    this.#perHostSpacingMs = perHostSpacingMs;
    this.#rules = targets.map((rule) => {
      const match = rule.match.map(parseTargetRule).filter((one) => one !== undefined);
      return { name: (rule.match[0] ?? '').toLowerCase(), rule, match };
    });
    this.#byHost.clear();
    this.#lastHost = '';
    for (const site of this.byName.values()) site.rule = this.#ruleOf(site.name);
  }

  of(host: string): Site {
    if (host === this.#lastHost && this.#last !== undefined) return this.#last;
    let site = this.#byHost.get(host);
    if (site === undefined) {
      const found = this.#rules.find(({ match }) => match.some((rule) => matches(rule, host)));
      site = this.#named(
        found?.name ?? getDomain(host, { allowPrivateDomains: true, extractHostname: false }) ?? host,
      );
      if (this.#byHost.size >= MAX_HOSTS) this.#byHost.clear();
      this.#byHost.set(host, site);
    }
    this.#lastHost = host;
    this.#last = site;
    return site;
  }

  exitsNeeded(now: number): number {
    let most = 0;
    for (const site of this.byName.values()) most = Math.max(most, site.exitsNeeded(now));
    return most;
  }

  spacingOf(site: Site, now: number): number {
    const { spacing } = site.rule;
    return spacing === 'auto' ? Math.max(this.#perHostSpacingMs, site.learntAt(now)) : spacing;
  }

  /**
   * Records a use of the member's exit at the site. The lease keeps the pair, to count its end.
   * @param rotates - whether the use belongs to a client without a session.
   */
  used(site: Site, member: SiteMember, rotates: boolean, now: number): Pair {
    let pair = pairAt(site, member);
    if (pair === undefined) {
      pair = this.#pairOf(site, member.exit, now);
      member.lastSite = site;
      member.lastPair = pair;
    }
    const at = Math.round(now);
    if (pair.usedAt >= 0) {
      const gapMs = at - pair.usedAt;
      pair.gapMs = pair.gapMs === 0 ? Math.max(1, gapMs) : Math.round((pair.gapMs + gapMs) / 2);
    }
    pair.usedAt = at;
    pair.uses += 1;
    pair.openLeases += 1;
    site.lastUsedAt = now;
    site.uses += 1;
    if (!rotates) return pair;
    site.requests?.add(now);
    if (pair.round === site.round) site.startRound();
    pair.round = site.round;
    site.usedInRound += 1;
    return pair;
  }

  /** Starts the site's next round if it has used every exit: a pick need not search for one that it has not used. */
  endRound(site: Site): void {
    if (site.usedInRound >= this.#members.size) site.startRound();
  }

  memberJoined(exit: string): void {
    this.#members.set(exit, (this.#members.get(exit) ?? 0) + 1);
  }

  memberLeft(exit: string): void {
    const count = (this.#members.get(exit) ?? 1) - 1;
    if (count === 0) this.#members.delete(exit);
    else this.#members.set(exit, count);
  }

  /**
   * A ban of a banned pair changes nothing unless it names a time. With `user`, it counts for this user only, until a second user reports it.
   * @returns whether anything changed.
   */
  ban({
    host,
    exit,
    evidence,
    source = '',
    lifeMs = Number.POSITIVE_INFINITY,
    forMs,
    user,
  }: {
    readonly host: string;
    readonly exit: string;
    readonly evidence: BanEvidence;
    readonly source?: string | undefined;
    /** How long an exit of the source lives at most; absent: unknown. */
    readonly lifeMs?: number | undefined;
    /** A named time (`for`, `Retry-After`), which replaces that of the rule, up to its `max`. */
    readonly forMs?: number | undefined;
    readonly user?: string | undefined;
  }): boolean {
    const now = this.#clock.monotonic();
    const site = this.of(host);
    const shared = user === undefined || site.isBannedForOther(exit, user, now);
    const pair = shared ? this.#pairOf(site, exit, now) : site.pairOfUser(user, exit);
    const { ban } = site.rule;
    const isBanned = pair.untilAt > now;
    if (isBanned && forMs === undefined) return false;
    if (!isBanned) {
      pair.sinceAt = Math.round(now);
      site.banCount += 1;
      site.learn(this.#pairOf(site, exit, now), lifeMs, now);
    }
    if (forMs === undefined) pair.forMs = Math.min(ban.maxMs, pair.forMs === 0 ? ban.forMs : 2 * pair.forMs);
    pair.untilAt = Math.round(now + Math.min(ban.maxMs, forMs ?? pair.forMs));
    pair.source = source;
    this.#onBan(describe(site, exit, shared ? undefined : user, pair, now));
    if (!isBanned) {
      const { name, isNamed } = site;
      this.#bus.emit('site.banned', { site: name, isNamed, exit, evidence, forMs: pair.untilAt - now });
    }
    return true;
  }

  /** For this user or, without one, for everybody. */
  lift(host: string, exit: string, user?: string): void {
    const now = this.#clock.monotonic();
    const site = this.of(host);
    for (const [whose, pairs] of site.bansByUser()) {
      const pair = pairs.get(exit);
      if (pair === undefined || pair.untilAt <= now) continue;
      if (user !== undefined && whose !== undefined && whose !== user) continue;
      pair.untilAt = 0;
      pair.forMs = 0;
      this.#onBan(describe(site, exit, whose, pair, now));
    }
  }

  /** From another replica or a snapshot. The ban with the later beginning wins. */
  adopt({ site: name, exit, source, user, sinceAt, untilAt, forMs, spacingMs }: SiteBan): void {
    const now = this.#clock.monotonic();
    const site = this.#named(name);
    const pair = user === undefined ? this.#pairOf(site, exit, now) : site.pairOfUser(user, exit);
    if (sinceAt >= pair.sinceAt) {
      const isLonger = sinceAt > pair.sinceAt || untilAt <= now;
      pair.untilAt = isLonger ? Math.round(untilAt) : Math.max(pair.untilAt, Math.round(untilAt));
      pair.sinceAt = Math.round(sinceAt);
      pair.forMs = forMs;
      pair.source = source;
    }
    if (spacingMs > 0) site.adoptSpacing(spacingMs, now);
  }

  *bans(): Generator<SiteBan> {
    const now = this.#clock.monotonic();
    for (const site of this.byName.values()) {
      for (const [user, pairs] of site.bansByUser()) {
        for (const [exit, pair] of pairs) if (pair.untilAt > now) yield describe(site, exit, user, pair, now);
      }
    }
  }

  byExit(): ReadonlyMap<string, readonly string[]> {
    const names = new Map<string, string[]>();
    for (const { exit, site, user } of this.bans()) {
      if (user !== undefined) continue;
      const known = names.get(exit);
      if (known === undefined) names.set(exit, [site]);
      else known.push(site);
    }
    return names;
  }

  /** The spacing in ms of the sites that rules name, and the greatest of all others as `other`. */
  namedSpacings(): ReadonlyMap<string, number> {
    const now = this.#clock.monotonic();
    const spacings = new Map<string, number>();
    for (const site of this.byName.values()) {
      const name = site.isNamed ? site.name : 'other';
      spacings.set(name, Math.max(spacings.get(name) ?? 0, this.spacingOf(site, now)));
    }
    return spacings;
  }

  withoutExit(): string[] {
    const now = this.#clock.monotonic();
    return [...this.byName.values()]
      .filter((site) => {
        const { lastUsedAt, lastWantedAt, pairs } = site;
        if (this.#members.size === 0) return false;
        if (lastWantedAt < now - WANTED_LATELY_MS || lastUsedAt > now - UNSERVED_MS) return false;
        return [...this.#members.keys()].every((exit) => (pairs.get(exit)?.untilAt ?? 0) > now);
      })
      .map(({ name }) => name);
  }

  views() {
    const now = this.#clock.monotonic();
    const busiest = [...this.byName.values()].sort((a, b) => b.uses - a.uses).slice(0, MAX_SHOWN);
    return busiest.map((site) => {
      const spacingMs = this.spacingOf(site, now);
      let bannedExits = 0;
      let bannedHere = 0;
      let spacedHere = 0;
      let nextAt = Number.POSITIVE_INFINITY;
      for (const [exit, { untilAt, usedAt }] of site.pairs) {
        const isBanned = untilAt > now;
        if (isBanned) bannedExits += 1;
        if (!this.#members.has(exit)) continue;
        if (isBanned) bannedHere += 1;
        const freeAt = Math.max(untilAt, usedAt < 0 ? 0 : usedAt + spacingMs);
        if (freeAt > now && !isBanned) spacedHere += 1;
        nextAt = Math.min(nextAt, freeAt);
      }
      const usableExits = this.#members.size - bannedHere;
      if (usableExits > spacedHere) nextAt = now;
      const nextSlotAt = Number.isFinite(nextAt)
        ? new Date(this.#clock.now() + nextAt - now).toISOString()
        : null;
      const { name, uses, banCount: bans, drawCount: draws } = site;
      return { name, uses, bans, bannedExits, usableExits, spacingMs, nextSlotAt, draws };
    });
  }

  #pairOf(site: Site, exit: string, now: number): Pair {
    const known = site.pairs.get(exit);
    if (known !== undefined) return known;
    this.#grew(now);
    const pair = new Pair();
    site.pairs.set(exit, pair);
    return pair;
  }

  #ruleOf(siteName: string): SiteRule {
    return this.#rules.find(({ name }) => name === siteName)?.rule ?? DEFAULT_SITE_RULE;
  }

  #named(name: string): Site {
    let site = this.byName.get(name);
    if (site !== undefined) return site;
    if (this.byName.size >= MAX_SITES) this.#drop(MAX_SITES * DROPPED_SHARE);
    site = new Site(name, this.#ruleOf(name));
    site.lastUsedAt = this.#clock.monotonic();
    this.byName.set(name, site);
    return site;
  }

  /** If there are too many pairs, deletes those that no longer matter, then the sites used longest ago. */
  #grew(now: number): void {
    this.#pairCount += 1;
    if (this.#pairCount <= MAX_PAIRS) return;
    for (const site of this.byName.values()) site.prune(now);
    this.#pairCount = this.#count();
    while (this.#pairCount > MAX_PAIRS * (1 - DROPPED_SHARE) && this.byName.size > 1) {
      this.#drop(Math.ceil(this.byName.size * DROPPED_SHARE));
      this.#pairCount = this.#count();
    }
  }

  #count(): number {
    let count = 0;
    for (const site of this.byName.values()) for (const [, pairs] of site.bansByUser()) count += pairs.size;
    return count;
  }

  #drop(count: number): void {
    const oldest = [...this.byName.values()].sort((a, b) => a.lastUsedAt - b.lastUsedAt).slice(0, count);
    for (const { name } of oldest) this.byName.delete(name);
    this.#byHost.clear();
    this.#lastHost = '';
  }
}

function matches(rule: TargetRule, host: string): boolean {
  if (rule.kind === 'below') return host.endsWith(`.${rule.text}`);
  return (rule.kind === 'host' || rule.kind === 'network') && host === rule.text;
}

function describe(site: Site, exit: string, user: string | undefined, pair: Pair, now: number): SiteBan {
  const { source, sinceAt, untilAt, forMs } = pair;
  const spacingMs = site.learntAt(now);
  return {
    site: site.name,
    exit,
    source,
    ...(user !== undefined && { user }),
    ...{ sinceAt, untilAt, forMs, spacingMs },
  };
}

const RATE_STEP_MS = 5_000;
const RATE_STEPS = 60;
const MIN_RATE_MS = 60_000;
/** The first requests after a quiet time count as the rate of this time at least. */
const MIN_START_MS = 30_000;
/** A rate counts at least this number of requests, if five minutes have as many: so that it does not follow chance. */
const MIN_COUNTED = 20;

/** How often clients send requests. `add` runs for every request, so it must be fast. */
export class RequestRate {
  readonly #counts = new Uint32Array(RATE_STEPS);
  #step = 0;

  add(now: number): void {
    this.#advance(now);
    const at = this.#step % RATE_STEPS;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  /**
   * Of the last minute. If there were few, the rate of the gaps between those of up to five minutes: one request is no rate, and the second in
   * a minute is. After a quiet time, the rate since the first request.
   */
  perSecond(now: number): number {
    this.#advance(now);
    let ms = now - this.#step * RATE_STEP_MS;
    let count = 0;
    let sinceOldestMs = 0;
    let lately: number | undefined;
    for (let back = 0; back < RATE_STEPS; back += 1) {
      if (back > 0) ms += RATE_STEP_MS;
      const inStep = this.#counts[(this.#step - back + RATE_STEPS) % RATE_STEPS] ?? 0;
      count += inStep;
      if (inStep > 0) {
        if (lately !== undefined) return lately;
        sinceOldestMs = ms;
      }
      if (lately === undefined && ms >= MIN_RATE_MS && count >= MIN_COUNTED) lately = (count * 1_000) / ms;
    }
    return (Math.max(0, count - 1) * 1_000) / Math.max(MIN_START_MS, sinceOldestMs);
  }

  #advance(now: number): void {
    const step = Math.floor(now / RATE_STEP_MS);
    const passed = Math.min(RATE_STEPS, step - this.#step);
    for (let next = 1; next <= passed; next += 1) this.#counts[(step - passed + next) % RATE_STEPS] = 0;
    this.#step = Math.max(this.#step, step);
  }
}
