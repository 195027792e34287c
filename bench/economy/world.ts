/**
 * The world of the economy bench: one vendor and its sites, the same for each subject. Its clock runs faster than the
 * machine's, so that ten minutes take one.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { type Random, seededRandom } from '../../src/core/random.ts';
import { openSandbox, type Sandbox } from '../../src/sandbox/sandbox.ts';

export class ScaledClock implements Clock {
  readonly #factor: number;
  readonly #wallAt = systemClock.now();
  readonly #startedAt = systemClock.monotonic();

  constructor(factor: number) {
    this.#factor = factor;
  }

  now(): number {
    return this.#wallAt + this.monotonic();
  }

  monotonic(): number {
    return (systemClock.monotonic() - this.#startedAt) * this.#factor;
  }

  after(ms: number, fn: () => void): Disposable {
    return systemClock.after(ms / this.#factor, fn);
  }
}

/** What a site answers to a page from this exit at monotonic `now`. */
type Rule = (exit: string, now: number) => 'page' | 'banned' | 'reset';

export interface Site {
  /** `http://NAME.example:PORT/`; a page of a login has the login's name as its path. */
  readonly url: string;
  readonly server: Server;
  /** How many visits met a ban. */
  bannedVisits: number;
  /** The exits that each login came from. */
  readonly exitsOf: Map<string, Set<string>>;
}

export const SITE_NAMES = ['open', 'minute', 'total', 'resetting'] as const;
export type SiteName = (typeof SITE_NAMES)[number];

export interface Vendor {
  /** The share of IPs that refuse every connection, that answer two seconds late, and that die after a third of their life. */
  readonly dead: number;
  readonly slow: number;
  readonly early: number;
}

export const PERFECT: Vendor = { dead: 0, slow: 0, early: 0 };
export const USUAL: Vendor = { dead: 0.2, slow: 0.05, early: 0.1 };

export interface WorldOptions {
  readonly factor: number;
  readonly seed: number;
  readonly vendor: Vendor;
}

export const LIFETIME_MS = 180_000;
export const INTERVAL_MS = 10_000;
/** More living IPs than a run draws at once, but few enough that later draws repeat some. */
const STOCK = 60;
const BAN_MS = 600_000;
const WATCH_EVERY_MS = 1_000;

export class World {
  readonly clock: ScaledClock;
  readonly random: Random;
  readonly sandbox: Sandbox;
  readonly sites: Readonly<Record<SiteName, Site>>;
  readonly #watched = new Set<string>();
  readonly #early: number;
  #watching: Disposable | undefined;

  constructor(options: WorldOptions, clock: ScaledClock, sandbox: Sandbox, sites: Record<SiteName, Site>) {
    this.clock = clock;
    this.random = seededRandom(options.seed + 1);
    this.sandbox = sandbox;
    this.sites = sites;
    this.#early = options.vendor.early;
    this.#watch();
  }

  get instance() {
    return this.sandbox.instance('short-classic');
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }

  async close(): Promise<void> {
    this.#watching?.[Symbol.dispose]();
    for (const { server } of Object.values(this.sites)) {
      server.closeAllConnections();
      server.close();
    }
    await this.sandbox.close();
  }

  /** Chooses, when an IP appears, whether it dies early. */
  #watch(): void {
    this.#watching = this.clock.after(WATCH_EVERY_MS, () => {
      for (const { id, remainingMs } of this.sandbox.members()) {
        if (this.#watched.has(id)) continue;
        this.#watched.add(id);
        if (this.random() >= this.#early) continue;
        // ignored: the IP has ended before
        this.clock.after(remainingMs / 3, () => void this.sandbox.kill(id).catch(() => {}));
      }
      this.#watch();
    });
  }
}

export async function openWorld(options: WorldOptions): Promise<World> {
  const clock = new ScaledClock(options.factor);
  const { dead, slow } = options.vendor;
  const sandbox = await openSandbox({
    clock,
    random: seededRandom(options.seed),
    instances: [{ product: 'short-classic' }],
    members: STOCK,
    lifetimeMs: LIFETIME_MS,
    paceMs: INTERVAL_MS,
    dead,
    slow,
  });
  const rules: Record<SiteName, Rule> = {
    open: () => 'page',
    minute: limited({ pages: 3, withinMs: 60_000, after: 'banned' }),
    total: limited({ pages: 6, withinMs: Infinity, after: 'banned' }),
    resetting: limited({ pages: 5, withinMs: 60_000, after: 'reset' }),
  };
  const open = (name: SiteName) => openSite(name, rules[name], clock);
  const sites = {
    open: await open('open'),
    minute: await open('minute'),
    total: await open('total'),
    resetting: await open('resetting'),
  };
  return new World(options, clock, sandbox, sites);
}

/** A site that serves each exit so many pages in this time, and then bans it for ten minutes. */
function limited(limit: {
  readonly pages: number;
  readonly withinMs: number;
  readonly after: 'banned' | 'reset';
}): Rule {
  const pages = new Map<string, number[]>();
  const bannedUntil = new Map<string, number>();
  return (exit, now) => {
    if (now < (bannedUntil.get(exit) ?? 0)) return limit.after;
    const recent = (pages.get(exit) ?? []).filter((at) => now - at < limit.withinMs);
    recent.push(now);
    pages.set(exit, recent);
    if (recent.length <= limit.pages) return 'page';
    bannedUntil.set(exit, now + BAN_MS);
    pages.delete(exit);
    return limit.after;
  };
}

async function openSite(name: SiteName, rule: Rule, clock: Clock): Promise<Site> {
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const exit = request.socket.remoteAddress ?? '';
    const login = request.url?.slice(1) ?? '';
    if (login !== '') site.exitsOf.set(login, (site.exitsOf.get(login) ?? new Set()).add(exit));
    const verdict = rule(exit, clock.monotonic());
    if (verdict !== 'page') site.bannedVisits += 1;
    if (verdict === 'reset') request.socket.resetAndDestroy();
    else if (verdict === 'banned') response.writeHead(403, { 'Retry-After': '600' }).end('banned\n');
    else response.end(`<title>${name}</title>${'x'.repeat(2_000)}\n`);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const site: Site = {
    ...{ url: `http://${name}.example:${port}/`, server },
    ...{ bannedVisits: 0, exitsOf: new Map() },
  };
  return site;
}
