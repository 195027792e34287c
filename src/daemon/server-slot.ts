/** Owns one server or none. The server is the admin API or proxyPool. A reload replaces it. */
import type { HttpServer } from '../admin/http-server.ts';

export class ServerSlot<Settings> {
  readonly #listen: (settings: Settings) => Promise<HttpServer>;
  #server: HttpServer | undefined;
  #settings: Settings | undefined;

  constructor(listen: (settings: Settings) => Promise<HttpServer>) {
    this.#listen = listen;
  }

  /** The address on which the server listens; undefined without a server. */
  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server && { host: this.#server.host, port: this.#server.port };
  }

  /**
   * Replaces the server. Closes the previous server first, because the new server may need its address. If the new server cannot
   * be opened, opens the previous server again. Without settings, only closes the previous server.
   * @throws NoriaError listen-failed
   */
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
