/** The data plane as the daemon controls it: the listeners and the dialer behind them, in this process or in several workers. */
import type { ListenAddress } from '../core/listen-address.ts';
import type { Secret } from '../core/secret.ts';
import type { DialerSettings, MemberDialer } from '../dialer/dialer.ts';
import type { AccessOptions } from '../listener/access.ts';
import type { BoundAddress } from '../listener/bind.ts';
import type { ListenerOptions } from '../listener/listener.ts';
import type { LeaseHolder } from '../pool/leases.ts';
import type { PoolSettings } from '../pool/options.ts';

export interface DataPlane {
  /** In the order of the settings. */
  readonly listeners: readonly ListenerStatus[];
  /** How many processes serve clients, and how many should. */
  readonly workers: { readonly wanted: number; readonly running: number };
  /** The dialer of this process, for health checks. */
  readonly dialer: Pick<MemberDialer, 'attempt'>;
  /**
   * Opens and closes listeners until they match `settings`. When one cannot be opened, restores the previous listeners and
   * throws. The update is provisional until `commit`: updating back to the previous settings restores those listeners with
   * their connections.
   *
   * @param drainTimeoutMs - how long tunnels of removed listeners may take to finish.
   * @throws NoriaError listen-failed, bad-config
   */
  update(settings: readonly ListenerSettings[], drainTimeoutMs: number): Promise<void>;
  /** Completes a reload that can no longer fail: applies these settings and drains the listeners that `update` removed. */
  commit(settings: PlaneSettings): void;
  setContext(context: PlaneContext): void;
  /** Forgets which members of the source refused its credentials. */
  resetRefusals(source: string): void;
  /** Closes the connections of this session or member now. */
  closeConnections(of: LeaseHolder): void;
  /** noria is about to close: a running or later `update` ends within about a second, even if a worker hangs. */
  prepareToClose(): void;
  /** Stops accepting clients. Resolves when every connection with a request under way has ended. */
  drain(): Promise<void>;
  /** Closes everything now. */
  close(): Promise<void>;
}

/** What a reload may change behind the listeners. The daemon reconfigures its own pool itself. */
export interface PlaneSettings {
  readonly dialer: DialerSettings;
  /** For the pools of other processes. */
  readonly pool: PoolSettings;
}

/** One listener of the configuration. */
export interface ListenerSettings
  extends Pick<AccessOptions, 'users' | 'allow' | 'denyTargets'>,
    Pick<ListenerOptions, 'protocols' | 'maxConnections' | 'idleTimeoutMs' | 'sessionMode' | 'source'> {
  readonly address: ListenAddress;
  readonly tls?: { readonly cert: string; readonly key: Secret };
  /** Set by the workers plane for listeners that several processes open. */
  readonly shared?: {
    /** Equal in every process; a reload that does not change the listener keeps it. */
    readonly id: number;
    /** Replaces port 0, which would give every process another port. */
    readonly port: number | undefined;
  };
}

/** What listeners know about the rest of noria. */
export interface PlaneContext {
  /** Names that clients may use in the `source` routing option. */
  readonly sourceNames: readonly string[];
  /** Of the admin API and of proxyPool. Never a target, like the listeners themselves. */
  readonly apiAddresses: readonly BoundAddress[];
}

export interface ListenerStatus {
  /** The address as configured: the listener's name in events and metrics. */
  readonly name: string;
  readonly protocols: ListenerSettings['protocols'];
  readonly addresses: readonly BoundAddress[];
  /** Open client connections, including those accepted before a reload changed the listener. */
  readonly connections: number;
}
