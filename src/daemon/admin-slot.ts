/** The admin server of the configuration in force, or none. A reload replaces the server. */
import type { AdminBackend } from '../admin/backend.ts';
import { type AdminServer, openAdmin } from '../admin/server.ts';
import type { AdminConfig } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { describeError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { readVersion } from '../core/version.ts';

export interface AdminSlotOptions {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly log: Log;
  readonly control: AdminBackend;
}

export class AdminSlot {
  readonly #options: AdminSlotOptions;
  #server: AdminServer | undefined;
  #config: AdminConfig | undefined;

  constructor(options: AdminSlotOptions) {
    this.#options = options;
  }

  /** The bound address. */
  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server && { host: this.#server.host, port: this.#server.port };
  }

  /**
   * Replaces the server. Closes the previous one first, because the next may need its address, and opens it again when the
   * next cannot be opened.
   *
   * @throws NoriaError listen-failed
   */
  async open(config: AdminConfig | undefined): Promise<void> {
    const before = this.#config;
    await this.close();
    try {
      this.#server = await this.#listen(config);
      this.#config = config;
    } catch (error) {
      this.#server = await this.#listen(before);
      throw error;
    }
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await server?.close();
  }

  async #listen(config: AdminConfig | undefined): Promise<AdminServer | undefined> {
    if (config?.address.kind !== 'tcp') return undefined;
    const { clock, bus, log, control } = this.#options;
    return openAdmin({
      host: config.address.host,
      port: config.address.port,
      ...(config.token !== undefined && { token: config.token }),
      version: readVersion(),
      backend: control,
      bus,
      clock,
      onError: (error) => log.error({ error: describeError(error) }, 'admin request failed'),
    });
  }
}
