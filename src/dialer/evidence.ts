/**
 * Decides from the answers of hosts which exits a site bans (docs/sites.md). An answer counts against an exit only while the
 * same host answers other exits: a page that is 403 for everybody bans nobody.
 */
import { AgedMap, BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { ownText } from '../core/words.ts';

export interface SiteBans {
  readonly sites: {
    of(host: string): {
      readonly rule: { readonly ban: { readonly onStatus: 'auto' | 'off' | readonly number[] } };
    };
  };
  banExit(ban: {
    readonly host: string;
    readonly exit: string;
    readonly source: string;
    readonly evidence: 'status' | 'reset';
    readonly forMs?: number;
  }): void;
  unbanExit(host: string, exit: string): void;
}

export interface ExitUse {
  readonly host: string;
  readonly exit: string;
  readonly source: string;
}

export interface SiteResponse {
  readonly status: number;
  readonly path: string;
  readonly retryAfterMs?: number | undefined;
}

/** How long the answer to another exit shows that the host answers. */
const ANSWERED_MS = 60_000;
/** So many different pages that are 403, or so many early resets in a row, are a ban. */
const MIN_STRIKES = 2;
const WORKING_MS = 10 * 60_000;
const MAX_WORKING = 4_096;
const MAX_HOSTS = 1_024;
const MAX_EXITS = 256;
const MAX_ANSWERED = 64;
const MAX_PAGES = 256;
/** In place of an exit: the page was 403 for several exits. */
const EVERYBODY = '';

interface Strikes {
  /** The pages that were 403, with no other answer between. */
  readonly pages: Set<string>;
  resets: number;
  firstResetAt: number;
  /** Whether `pages` led to a ban, which ends if they turn out to be 403 for everybody. */
  isBanned: boolean;
}

type HostEvidence = ReturnType<typeof makeEvidence>;

export class SiteEvidence {
  readonly #clock: Clock;
  readonly #bans: SiteBans;
  readonly #hosts = new BoundedMap<string, HostEvidence>(MAX_HOSTS);
  /** The exits through which a host has answered: their members relay bytes. */
  readonly #working: AgedMap<string>;

  constructor(clock: Clock, bans: SiteBans) {
    this.#clock = clock;
    this.#working = new AgedMap(clock, WORKING_MS, MAX_WORKING);
    this.#bans = bans;
  }

  /** The target sent bytes through the exit: in a tunnel, or a response that is no evidence. */
  answered({ host, exit }: ExitUse): void {
    const evidence = this.#of(host);
    const now = this.#clock.monotonic();
    evidence.answers.add(exit, now);
    if (!evidence.answered.has(exit)) evidence.answered.set(exit, true);
    this.#working.renew(exit, true, now);
    evidence.strikes.delete(exit);
  }

  hasAnswered(host: string, exit: string): boolean {
    return this.#hosts.get(host)?.answered.has(exit) === true;
  }

  responded(use: ExitUse, response: SiteResponse): void {
    const { status, path, retryAfterMs } = response;
    const evidence = this.#of(use.host);
    const { onStatus } = this.#bans.sites.of(use.host).rule.ban;
    if (status < 400) {
      evidence.successes.add(use.exit, this.#clock.monotonic());
      evidence.forbidden.delete(path);
    }
    if (onStatus === 'auto' && status === 403 && retryAfterMs === undefined)
      this.#forbade(use, path, evidence);
    else if (this.#isBan(onStatus, use, response, evidence)) this.#ban(use, 'status', retryAfterMs);
    else this.answered(use);
  }

  /**
   * The site reset or ended the connection before any byte came back, or after a TLS handshake before any application
   * data. @param hasRelayed - whether bytes came back, which shows that the exit relays.
   */
  reset(use: ExitUse, hasRelayed = false): void {
    const now = this.#clock.monotonic();
    if (hasRelayed) this.#working.renew(use.exit, true, now);
    const { strikes, answers } = this.#of(use.host);
    const own = strikes.getOrMake(use.exit, makeStrikes);
    if (own.resets === 0) own.firstResetAt = now;
    own.resets += 1;
    // Through an exit that relays nothing, the member is at fault. And the host must have answered another exit since the
    // first reset: otherwise the host itself may be down.
    if (own.resets < MIN_STRIKES || !this.#working.has(use.exit)) return;
    if (answers.latestOfOther(use.exit) < own.firstResetAt) return;
    strikes.delete(use.exit);
    this.#ban(use, 'reset');
  }

  #isBan(
    onStatus: 'auto' | 'off' | readonly number[],
    { exit }: ExitUse,
    { status, path, retryAfterMs }: SiteResponse,
    { successes, forbidden }: HostEvidence,
  ): boolean {
    if (onStatus === 'off') return false;
    if (onStatus !== 'auto') return onStatus.includes(status);
    const isRefusal = status === 429 || ((status === 403 || status === 503) && retryAfterMs !== undefined);
    if (!isRefusal || !this.#isRecent(successes.latestOfOther(exit))) return false;
    const by = forbidden.get(path);
    return status === 429 || by === undefined || by === exit;
  }

  #forbade(use: ExitUse, target: string, { strikes, forbidden, successes }: HostEvidence): void {
    const { host, exit } = use;
    const path = ownText(target);
    const by = forbidden.get(path);
    if (by !== undefined && by !== exit) {
      forbidden.set(path, EVERYBODY);
      for (const [other, { pages, isBanned }] of strikes) {
        if (pages.delete(path) && pages.size === 0 && isBanned) this.#bans.unbanExit(host, other);
      }
      return;
    }
    forbidden.set(path, exit);
    const own = strikes.getOrMake(exit, makeStrikes);
    own.pages.add(path);
    if (own.pages.size < MIN_STRIKES || !this.#isRecent(successes.latestOfOther(exit))) return;
    own.isBanned = true;
    this.#ban(use, 'status');
  }

  #ban({ host, exit, source }: ExitUse, evidence: 'status' | 'reset', forMs?: number): void {
    this.#bans.banExit({ host, exit, source, evidence, ...(forMs !== undefined && { forMs }) });
  }

  #isRecent(at: number): boolean {
    return this.#clock.monotonic() - at <= ANSWERED_MS;
  }

  #of(host: string): HostEvidence {
    return this.#hosts.getOrMake(host, makeEvidence);
  }
}

function makeEvidence() {
  return {
    successes: new LatestBy(),
    answers: new LatestBy(),
    answered: new BoundedMap<string, true>(MAX_ANSWERED),
    strikes: new BoundedMap<string, Strikes>(MAX_EXITS),
    /** For each page that was 403: the exit, or EVERYBODY. */
    forbidden: new BoundedMap<string, string>(MAX_PAGES),
  };
}

function makeStrikes(): Strikes {
  return { pages: new Set(), resets: 0, firstResetAt: 0, isBanned: false };
}

/** The moments of the latest event through a member or exit, and of the latest one through any other. */
export class LatestBy {
  #latest: string | undefined;
  #latestAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  add(by: string, now: number): void {
    if (by !== this.#latest) {
      this.#otherAt = this.#latestAt;
      this.#latest = by;
    }
    this.#latestAt = now;
  }

  latestOfOther(by: string): number {
    return by === this.#latest ? this.#otherAt : this.#latestAt;
  }
}
