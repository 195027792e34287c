/** The data plane in one process: all of noria's, or that of a worker. */
import { type DialerOptions, type DialerSettings, MemberDialer } from '../dialer/dialer.ts';
import type { ClientName, ClientUse } from '../pool/clients.ts';
import type { Pool } from '../pool/pool.ts';
import type { DataPlane, ListenerStatus, PlaneContext, PlaneSettings } from './data-plane.ts';
import { ListenerSet, type ListenerSetOptions } from './listener-set.ts';

export interface LocalPlaneOptions
  extends Omit<ListenerSetOptions, 'dialer' | 'desk'>,
    Pick<DialerOptions, 'leases' | 'onSourceFault' | 'onNetwork'> {
  readonly pool: Pool;
  readonly dialer: DialerSettings;
  readonly elsewhere?: Elsewhere | undefined;
}

/** What clients ask and say through the proxy, in other processes and norias that serve them. */
interface Elsewhere {
  /** Learns a session that only others have used so far. */
  findSession(name: string): Promise<unknown>;
  /** What each worker knows of the client's last use. */
  lastUses?(name: ClientName): Promise<readonly ClientUse[]>;
  closeTunnels?(name: ClientName, host: string): void;
}

export class LocalPlane implements DataPlane {
  readonly workers = { wanted: 1, running: 1 };
  readonly dialer: MemberDialer;
  readonly listenerSet: ListenerSet;
  readonly #pool: Pool;

  constructor({ dialer: settings, elsewhere, ...options }: LocalPlaneOptions) {
    const { pool, mark } = options;
    const guard = { mark, ownAddresses: () => this.listenerSet.guard.ownAddresses() };
    this.#pool = pool;
    this.dialer = new MemberDialer({ ...options, ...settings, guard });
    this.listenerSet = new ListenerSet({
      ...options,
      dialer: this.dialer,
      desk: {
        clients: pool.clients,
        lastUse: (name) =>
          elsewhere === undefined ? pool.clients.find(name) : this.#lastUse(name, elsewhere),
        rotateSession: (name) => pool.rotateSession(name) !== undefined,
        closeTunnels: (name, host) => {
          this.closeTunnels(name, host);
          elsewhere?.closeTunnels?.(name, host);
        },
      },
    });
  }

  get listeners(): readonly ListenerStatus[] {
    return this.listenerSet.status();
  }

  update(...args: Parameters<DataPlane['update']>): Promise<void> {
    return this.listenerSet.update(...args);
  }

  commit({ dialer }: Pick<PlaneSettings, 'dialer'>): void {
    this.listenerSet.commit();
    this.dialer.configure(dialer);
  }

  setContext(context: PlaneContext): void {
    this.listenerSet.setContext(context);
  }

  resetRefusals(source: string): void {
    this.dialer.resetRefusals(source);
  }

  closeConnections(of: Parameters<DataPlane['closeConnections']>[0]): void {
    this.dialer.closeConnections(this.#pool.leases.of(of));
  }

  closeTunnels(name: ClientName, host: string): void {
    this.dialer.closeConnections(this.#pool.leases.to(name, host));
  }

  prepareToClose(): void {} // nothing to prepare: an update in this process cannot hang

  drain(): Promise<void> {
    return this.listenerSet.drain();
  }

  async close(): Promise<void> {
    await this.listenerSet.close();
    await this.dialer.close();
  }

  async #lastUse(name: ClientName, { findSession, lastUses }: Elsewhere): Promise<ClientUse | undefined> {
    const { session } = name;
    const [uses = []] = await Promise.all([
      lastUses?.(name),
      session === undefined ? undefined : findSession(session),
    ]);
    const { clients } = this.#pool;
    return clients.latest(name, [clients.find(name), ...uses]);
  }
}
