/** The data plane as the daemon controls it: the listeners and their dialer, in this process or in several workers. */
import type { BoundAddress, ListenAddress } from '../core/listen-address.ts';
import type { Secret } from '../core/secret.ts';
import type { DialerSettings, MemberDialer } from '../dialer/dialer.ts';
import type { AccessOptions } from '../listener/access.ts';
import type { ListenerOptions } from '../listener/listener.ts';
import type { UsedToday } from '../listener/user-limits.ts';
import type { LeaseHolder } from '../pool/leases.ts';
import type { PoolSettings } from '../pool/options.ts';

export interface DataPlane {
  readonly listeners: readonly ListenerStatus[];
  /** The number of processes that serve clients. `wanted`: the configured number. `running`: the current number. */
  readonly workers: { readonly wanted: number; readonly running: number };
  readonly dialer: Pick<MemberDialer, 'attempt'>;
  /**
   * Opens and closes listeners until they match `settings`. If a listener cannot be opened, restores the previous listeners and
   * throws. The update is provisional until `commit`. Before `commit`, a second call with the previous settings restores the
   * previous listeners and all their connections.
   * @param drainTimeoutMs - how long tunnels of removed listeners may take to finish.
   * @throws NoriaError listen-failed, bad-config
   */
  update(settings: readonly ListenerSettings[], drainTimeoutMs: number): Promise<void>;
  /** Makes the update final: applies these settings and drains the listeners that `update` removed. */
  commit(settings: PlaneSettings): void;
  setContext(context: PlaneContext): void;
  resetRefusals(source: string): void;
  closeConnections(of: LeaseHolder): void;
  /** Call it before `close`. A current or later `update` then ends within about a second, even if a worker hangs. */
  prepareToClose(): void;
  drain(): Promise<void>;
  close(): Promise<void>;
}

/** The settings of the data plane that a reload may change, except those of its listeners. */
export interface PlaneSettings {
  readonly dialer: DialerSettings;
  readonly pool: PoolSettings;
}

export interface ListenerSettings
  extends Pick<AccessOptions, 'users' | 'allow' | 'denyTargets'>,
    Pick<
      ListenerOptions,
      'protocols' | 'maxConnections' | 'idleTimeoutMs' | 'session' | 'source' | 'proxyProtocol'
    > {
  readonly address: ListenAddress;
  readonly tls?: { readonly cert: string; readonly key: Secret } | undefined;
  /** The settings that are equal in all processes that serve this listener. Absent if noria has no workers. */
  readonly shared?: {
    /** The id of the listener in every process. A reload that does not change the listener keeps the id. */
    readonly id: number;
    /** The port to use in place of port 0, which would be a different port in each process. */
    readonly port: number | undefined;
  };
}

export interface PlaneContext {
  readonly sourceNames: readonly string[];
  /** The addresses of the admin API and of proxyPool. Clients may not use them as targets. */
  readonly apiAddresses: readonly BoundAddress[];
  /** What the users with limits used today. Absent: as before. */
  readonly usedToday?: UsedToday;
}

export interface ListenerStatus {
  readonly name: string;
  readonly protocols: ListenerSettings['protocols'];
  readonly addresses: readonly BoundAddress[];
  /** The number of open client connections, including connections that were accepted before the last change of the listener. */
  readonly connections: number;
}
