/** The HTTP APIs of a noria: the admin API and proxyPool. Opens each API that the configuration has. */
import type { AdminBackend } from '../admin/backend.ts';
import type { HttpServer } from '../admin/http-server.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { describeError } from '../core/faults.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import type { Log } from '../core/log.ts';
import type { Ownership } from '../core/ownership.ts';
import { readVersion } from '../core/version.ts';
import type { Pool } from '../pool/pool.ts';
import { openProxyPoolOf, type ProxyPoolSettings, proxyPoolSettings } from './proxy-pool.ts';

type AdminConfig = NonNullable<Config['admin']>;

interface ApisOptions {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly log: Log;
  readonly owner: Ownership;
  readonly pool: Pool;
  readonly control: AdminBackend;
}

export interface Apis {
  readonly admin: ServerSlot<AdminConfig>;
  readonly proxyPool: ServerSlot<ProxyPoolSettings>;
  readonly addresses: () => readonly BoundAddress[];
}

export async function openApis(config: Config, options: ApisOptions): Promise<Apis> {
  const { owner } = options;
  const admin = new ServerSlot((settings: AdminConfig) => openAdminOf(settings, options));
  owner.own('admin', () => admin.close());
  await admin.open(config.admin);
  const proxyPool = new ServerSlot((settings: ProxyPoolSettings) => openProxyPoolOf(settings, options));
  owner.own('proxyPool', () => proxyPool.close());
  await proxyPool.open(proxyPoolSettings(config));
  return { admin, proxyPool, addresses: () => [admin, proxyPool].flatMap(({ address = [] }) => address) };
}

async function openAdminOf(
  { address, token }: AdminConfig,
  { control, clock, bus, log }: ApisOptions,
): Promise<HttpServer> {
  if (address.kind !== 'tcp') throw new TypeError('admin.address is not host:port');
  const { host, port } = address;
  const { openAdmin } = await import('../admin/server.ts'); // loaded only if the configuration has an admin API
  return openAdmin({
    host,
    port,
    ...(token !== undefined && { token }),
    version: readVersion(),
    backend: control,
    bus,
    clock,
    onError: (error) => log.error({ error: describeError(error) }, 'admin request failed'),
  });
}

/** Owns at most one server. A reload replaces it. */
class ServerSlot<Settings> {
  readonly #listen: (settings: Settings) => Promise<HttpServer>;
  #server: HttpServer | undefined;
  #settings: Settings | undefined;

  constructor(listen: (settings: Settings) => Promise<HttpServer>) {
    this.#listen = listen;
  }

  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server && { host: this.#server.host, port: this.#server.port };
  }

  /** Closes the previous server first, as the new one may need its address. Opens it again if the new one fails to. */
  async open(settings: Settings | undefined): Promise<void> {
    const before = this.#settings;
    await this.close();
    try {
      this.#server = settings && (await this.#listen(settings));
      this.#settings = settings;
    } catch (error) {
      this.#server = before && (await this.#listen(before));
      throw error;
    }
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await server?.close();
  }
}
