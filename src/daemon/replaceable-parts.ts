/** Parts of the daemon that a reload exchanges as a whole: what they replace finishes what it has begun. */

import type { AdminBackend } from '../admin/backend.ts';
import { type AdminServer, openAdmin } from '../admin/server.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { describeError } from '../core/faults.ts';
import { hostPort } from '../core/host-port.ts';
import type { Log } from '../core/log.ts';
import { readVersion } from '../core/version.ts';
import { isOwnAddress, type OwnAddress } from '../listener/deny-targets.ts';
import { openServiceClient, type ServiceClient } from '../service/client.ts';
import { refusesOf } from './part-options.ts';

export interface ReplaceableGround {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly log: Log;
  /** The configuration in force. */
  readonly config: () => Config;
}

/** The service client of the configuration in force; calls under way end with the one they began with. */
export class ReplaceableClient {
  readonly #ground: ReplaceableGround;
  readonly #ownAddresses: () => readonly OwnAddress[];
  #client: ServiceClient;

  constructor(ground: ReplaceableGround, ownAddresses: () => readonly OwnAddress[]) {
    this.#ground = ground;
    this.#ownAddresses = ownAddresses;
    this.#client = this.#open();
  }

  extract(...call: Parameters<ServiceClient['extract']>): ReturnType<ServiceClient['extract']> {
    return this.#client.extract(...call);
  }

  renew(): void {
    this.#client = this.#open();
  }

  close(): void {
    this.#client.close();
  }

  #open(): ServiceClient {
    const { clock, config } = this.#ground;
    const isOwn = (host: string, port: number) => {
      const target = hostPort(host, port);
      return target !== undefined && isOwnAddress(target, this.#ownAddresses());
    };
    return openServiceClient({
      timeoutMs: config().service.timeoutMs,
      clock,
      refuses: refusesOf(config(), isOwn),
    });
  }
}

/** The admin server of the configuration in force, or none. */
export class AdminSlot {
  readonly #ground: ReplaceableGround;
  #server: AdminServer | undefined;
  #openedFor: Config | undefined;

  constructor(ground: ReplaceableGround) {
    this.#ground = ground;
  }

  get address(): Pick<AdminServer, 'host' | 'port'> | undefined {
    return this.#server;
  }

  /**
   * Opens it anew: the one before is closed first, its address may be wanted again. When this fails that one is opened again.
   *
   * @throws NoriaError listen-failed
   */
  async open(config: Config, backend: AdminBackend): Promise<void> {
    const before = this.#openedFor;
    await this.close();
    try {
      this.#server = await this.#listen(config, backend);
      this.#openedFor = config;
    } catch (error) {
      if (before !== undefined) this.#server = await this.#listen(before, backend);
      throw error;
    }
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await server?.close();
  }

  async #listen({ admin }: Config, backend: AdminBackend): Promise<AdminServer | undefined> {
    const { clock, bus, log } = this.#ground;
    if (admin === undefined || admin.address.kind !== 'tcp') return undefined;
    return openAdmin({
      host: admin.address.host,
      port: admin.address.port,
      ...(admin.token === undefined ? {} : { token: admin.token }),
      version: readVersion(),
      backend,
      bus,
      clock,
      onError: (error) => log.error({ error: describeError(error) }, 'admin request failed'),
    });
  }
}
