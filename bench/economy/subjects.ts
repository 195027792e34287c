/** noria, and what people use instead of it. Each gets pages from sites through IPs of the world's vendor. */
import { request } from 'node:http';
import { z } from 'zod';
import type { Config } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { createLog } from '../../src/core/log.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import type { FleetConnector } from '../../src/daemon/fleet.ts';
import { until } from '../../test/support/until.ts';
import { INTERVAL_MS, type World } from './world.ts';

export interface Subject {
  /**
   * Gets one page. Tries as often as its users would, at most three times.
   * @param session - a name whose pages should come from one exit.
   */
  page(url: string, session?: string): Promise<boolean>;
  /** IPs that the vendor has handed out to this subject. */
  drawn(): number;
  close(): Promise<void>;
}

export type SubjectName =
  | 'noria'
  | 'noria (clients talk)'
  | 'noria (fill: size)'
  | 'random picks'
  | 'raw proxy pool'
  | 'one IP'
  | 'rotating';

export const SUBJECTS: Readonly<Record<SubjectName, (world: World) => Promise<Subject>>> = {
  noria: (world) => openNoria(world, 'demand'),
  'noria (clients talk)': (world) => openNoria(world, 'demand', { talks: true }),
  'noria (fill: size)': (world) => openNoria(world, 'size'),
  'random picks': async (world) => new RandomPicks(world),
  'raw proxy pool': async (world) => new RawProxyPool(world),
  'one IP': async (world) => new OneIp(world),
  rotating: async (world) => new RotatingProxies(world),
};

const answerSchema = z.object({
  data: z
    .object({ proxy_list: z.array(z.object({ ip: z.string(), port: z.number(), timeout: z.number() })) })
    .catch({ proxy_list: [] }), // a refused call
});

const TRIES = 3;
/** What the clients that talk ask for: twenty pages, one each two seconds, and some time to spare. */
const LOGIN_LIFE = '45s';
const PAGE_TIMEOUT_MS = 10_000;
const NORIA_TIMEOUT_MS = 30_000;
const SIZE = 20;
const COUNT = 5;

interface Proxy {
  readonly host: string;
  readonly port: number;
  /** When the vendor says that the IP ends, on the world's clock. */
  readonly endsAt: number;
}

export function configOf(world: World, fill: string): Config {
  const { id, password, baseUrl } = world.instance;
  return parseConfig(
    `
sources: [{ name: city, product: short-classic, instance: "${id}", password: "${password}", baseUrl: "${baseUrl}", params: { timespan: 3 } }]
pool: { fill: ${fill}, allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:0", denyTargets: [] }]
admin: off
state: off
`,
    'economy.yaml',
    { env: {} },
  );
}

/** @param talks - whether the clients report each ban that they see, and say how long their logins last. */
export async function openNoria(
  world: World,
  fill: string,
  { talks = false, fleet }: { readonly talks?: boolean; readonly fleet?: FleetConnector | undefined } = {},
): Promise<Subject> {
  const config = configOf(world, fill);
  const log = createLog({ level: 'error', format: 'json', destination: { write: () => {} } });
  const elapsedMs = () => world.clock.monotonic();
  const boot = { id: 'economy', elapsedMs, uptimeMs: elapsedMs };
  const { clock, random } = world;
  const daemon: Daemon = await startDaemon({ config, log, clock, random, boot, ...(fleet && { fleet }) });
  let drawn = 0;
  daemon.bus.on('draw.done', ({ received }) => {
    drawn += received;
  });
  const port = Number(daemon.addresses.listeners[0]?.split(':')[1]);
  await until('the first draw', () => daemon.control.status().pool.ready > 0 || drawn > 0, 30_000);
  let pages = 0;
  const getBy = (headers: Through['headers'], url: string) =>
    get(world, { host: '127.0.0.1', port, headers, timeoutMs: NORIA_TIMEOUT_MS }, url);
  return {
    async page(url, session) {
      for (let attempt = 0; attempt < TRIES; attempt += 1) {
        pages += 1;
        const tag = talks && session === undefined ? { 'X-Noria-Tag': `p${pages}` } : {};
        const life = talks && session !== undefined ? { 'X-Noria-Life': LOGIN_LIFE } : {};
        const headers = { ...tag, ...life, ...(session !== undefined && { 'X-Noria-Session': session }) };
        const status = await getBy(headers, url);
        if (status === 200) return true;
        if (talks && status === 403)
          await getBy(headers, `http://noria.invalid/banned?host=${new URL(url).hostname}`);
      }
      return false;
    },
    drawn: () => drawn,
    close: () => daemon.close(),
  };
}

/** What all scripts share: they call the vendor at its pace, and keep a list of IPs. */
abstract class Script implements Subject {
  protected readonly world: World;
  protected proxies: Proxy[] = [];
  #drawn = 0;
  #nextCallAt = 0;
  #calling: Promise<void> | undefined;
  protected isClosed = false;

  constructor(world: World) {
    this.world = world;
  }

  abstract page(url: string, session?: string): Promise<boolean>;

  drawn(): number {
    return this.#drawn;
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.#calling;
  }

  protected alive(): Proxy[] {
    const now = this.world.clock.monotonic();
    this.proxies = this.proxies.filter(({ endsAt }) => endsAt > now);
    return this.proxies;
  }

  protected drop(proxy: Proxy): void {
    this.proxies = this.proxies.filter((other) => other !== proxy);
  }

  /** Adds IPs from one call, at the vendor's pace. Callers at the same time share the call. */
  protected extract(count: number): Promise<void> {
    this.#calling ??= this.#extract(count).finally(() => {
      this.#calling = undefined;
    });
    return this.#calling;
  }

  async #extract(count: number): Promise<void> {
    const { clock, instance } = this.world;
    const waitMs = this.#nextCallAt - clock.monotonic();
    if (waitMs > 0) await this.world.wait(waitMs);
    if (this.isClosed) return;
    const sentAt = clock.monotonic();
    const query = `api=${instance.id}&akey=${instance.akey}&count=${count}&timespan=3&type=3&fitter=2`;
    const answer = await fetch(`${instance.baseUrl}/ShortProxy/GetIP/?${query}`);
    const { data } = answerSchema.parse(await answer.json());
    this.#nextCallAt = clock.monotonic() + INTERVAL_MS;
    this.#drawn += data.proxy_list.length;
    for (const { ip, port, timeout } of data.proxy_list)
      this.proxies.push({ host: ip, port, endsAt: sentAt + timeout * 1_000 });
  }

  protected async through(proxy: Proxy, url: string): Promise<boolean> {
    const { host, port } = proxy;
    return (await get(this.world, { host, port, headers: {}, timeoutMs: PAGE_TIMEOUT_MS }, url)) === 200;
  }

  protected pick(proxies: readonly Proxy[]): Proxy | undefined {
    return proxies[Math.floor(this.world.random() * proxies.length)];
  }
}

/** A script that keeps a list of IPs, takes one at random for each try, and refills the list when it is short. */
class RandomPicks extends Script {
  async page(url: string): Promise<boolean> {
    for (let attempt = 0; attempt < TRIES; attempt += 1) {
      if (this.alive().length === 0) await this.extract(COUNT);
      else if (this.proxies.length < COUNT) void this.extract(COUNT);
      const proxy = this.pick(this.alive());
      if (proxy !== undefined && (await this.through(proxy, url))) return true;
    }
    return false;
  }
}

/** A loop fills a pool of raw proxies, whoever needs them; a client takes one at random and deletes one that fails. */
class RawProxyPool extends Script {
  constructor(world: World) {
    super(world);
    void this.#fill();
  }

  async #fill(): Promise<void> {
    while (!this.isClosed) {
      if (this.alive().length < SIZE) await this.extract(COUNT);
      else await this.world.wait(INTERVAL_MS);
    }
  }

  async page(url: string): Promise<boolean> {
    for (let attempt = 0; attempt < TRIES; attempt += 1) {
      const proxy = this.pick(this.alive());
      if (proxy === undefined) {
        await this.world.wait(1_000);
        continue;
      }
      if (await this.through(proxy, url)) return true;
      this.drop(proxy);
    }
    return false;
  }
}

/** A script that keeps one IP until a page fails, and then draws another one. */
class OneIp extends Script {
  async page(url: string): Promise<boolean> {
    for (let attempt = 0; attempt < TRIES; attempt += 1) {
      let [proxy] = this.alive();
      if (proxy === undefined) {
        await this.extract(1);
        [proxy] = this.alive();
      }
      if (proxy !== undefined && (await this.through(proxy, url))) return true;
      if (proxy !== undefined) this.drop(proxy);
    }
    return false;
  }
}

const BACKOFF_BASE_MS = 300_000;

/**
 * What scrapy-rotating-proxies does with a list: a proxy that fails or is banned is dead, and is tried again after a time
 * that doubles; a page goes through a random proxy that is not dead. The list is extended when all are dead.
 */
class RotatingProxies extends Script {
  readonly #deadUntil = new Map<string, { until: number; failures: number }>();

  async page(url: string): Promise<boolean> {
    for (let attempt = 0; attempt < TRIES; attempt += 1) {
      if (this.#usable().length === 0) await this.extract(SIZE);
      const proxy = this.pick(this.#usable());
      if (proxy === undefined) continue;
      const key = `${proxy.host}:${proxy.port}`;
      if (await this.through(proxy, url)) {
        this.#deadUntil.delete(key);
        return true;
      }
      const failures = (this.#deadUntil.get(key)?.failures ?? 0) + 1;
      const backoffMs = this.world.random() * BACKOFF_BASE_MS * 2 ** failures;
      this.#deadUntil.set(key, { until: this.world.clock.monotonic() + backoffMs, failures });
    }
    return false;
  }

  #usable(): Proxy[] {
    const now = this.world.clock.monotonic();
    return this.alive().filter(
      ({ host, port }) => (this.#deadUntil.get(`${host}:${port}`)?.until ?? 0) <= now,
    );
  }
}

interface Through {
  readonly host: string;
  readonly port: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
}

/** Gets a page through an HTTP proxy. @returns its status; undefined without an answer. */
function get(
  world: World,
  { host, port, headers, timeoutMs }: Through,
  url: string,
): Promise<number | undefined> {
  return new Promise((resolve) => {
    const client = request({
      ...{ host, port, path: url, agent: false },
      headers: { ...headers, Host: new URL(url).host },
    });
    const timer = world.clock.after(timeoutMs, () => client.destroy());
    const end = (status?: number) => {
      timer[Symbol.dispose]();
      resolve(status);
    };
    client.on('response', (response) => {
      response.resume();
      response.on('end', () => end(response.statusCode));
      response.on('error', () => end());
    });
    client.on('error', () => end());
    client.on('close', () => end());
    client.end();
  });
}
