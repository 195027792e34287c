/**
 * The configuration as the daemon and the commands use it: complete, checked and frozen.
 *
 * Its types are inferred from schema.ts, except for what resolving changes. Durations are in ms and their names end in
 * `Ms`; paths are absolute; secrets are read from their files. What was left out and has no default is `undefined`, and so
 * is a section that is `off`.
 */
import type { ListenAddress } from '../core/listen-address.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Secret } from '../core/secret.ts';
import type { EntryLogin } from '../service/link/rules.ts';
import type { Method, Product } from '../service/operations.ts';
import type { Problem } from './problems.ts';
import type { FileConfig, FileListener } from './schema.ts';
import type { FileFleet, StoreUrl } from './schema-fleet.ts';
import type { FileSource } from './schema-source.ts';

type Unresolved = 'account' | 'sources' | 'listeners' | 'admin' | 'state' | 'fleet';

export interface Config extends Readonly<Omit<FileConfig, Unresolved>> {
  /** The file that was read, as it was named. */
  readonly file: string;
  /** For `noria instances` only. */
  readonly account: AccountConfig | undefined;
  /** In the order of the file. Empty only if there is an account. */
  readonly sources: readonly SourceConfig[];
  /** At least one. */
  readonly listeners: readonly ListenerConfig[];
  readonly admin: AdminConfig | undefined;
  readonly state: { readonly dir: string } | undefined;
  readonly fleet: FleetConfig | undefined;
  readonly warnings: readonly Problem[];
}

export interface AccountConfig {
  readonly username: string;
  /** The 16-character form of the password. */
  readonly key: Secret;
}

export interface AdminConfig {
  /** One port, not an inherited socket. */
  readonly address: ListenAddress;
  readonly token: Secret | undefined;
}

/** The API of raw proxy pools. A listener has its ports. */
export type ProxyPoolConfig = NonNullable<FileConfig['proxyPool']>;

/** The store that several norias share. */
export interface FleetConfig {
  readonly url: StoreUrl;
  readonly name: string;
  /** `undefined`: a new name for each process. */
  readonly replica: string | undefined;
  readonly tls: FleetTls | undefined;
  readonly sentinel: FileFleet['sentinel'];
}

export interface FleetTls {
  readonly caFile: string | undefined;
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  /** PEM. */
  readonly ca: string | undefined;
  /** PEM, with `key`. */
  readonly cert: string | undefined;
  readonly key: Secret | undefined;
}

/** What to draw from: an instance of the service, or a link. */
export type SourceConfig = ServiceSource | LinkSource;

/** An instance of the service. */
export interface ServiceSource extends SourceBase, Pick<FileSource, 'password' | 'format' | 'textLayout'> {
  readonly product: Product;
  /** The 16-character key, given or derived from the password. */
  readonly key: Secret;
}

/** An extraction link of any vendor. */
export interface LinkSource extends SourceBase, Pick<FileSource, 'body' | 'answer'> {
  readonly product: 'link';
  /** The origin of the URL. */
  readonly baseUrl: string;
  readonly url: Secret;
  readonly method: Method;
  readonly headers: Readonly<Record<string, Secret>>;
  /** Everything in URL, headers and body that no text may contain. */
  readonly secrets: readonly Secret[];
  readonly entryLogin: EntryLogin;
  readonly key?: undefined;
  readonly password?: undefined;
}

interface SourceBase extends Pick<FileSource, 'name' | 'lifetimeMs' | 'dailyBudget' | 'priority'> {
  /** Of the instance; for a link a hash of its URL. */
  readonly instance: string;
  /** Complete, as `checkParams` returns them, without `count`. */
  readonly params: Readonly<Record<string, string | number>>;
  /** The maximum to ask for in one call. */
  readonly count: number | undefined;
  /** `undefined` only for `short-pure` with an `extractHost`, or if the service has no address. */
  readonly baseUrl: string | undefined;
  /** Only for `short-pure`: `host` or `host:port` of the instance's extraction server. */
  readonly extractHost: string | undefined;
  readonly upstream: UpstreamConfig;
  readonly intervalMs: number;
  readonly size: number;
}

/** How noria talks to the members of a source. */
export interface UpstreamConfig {
  /** `undefined` for `free` and most links, where each entry of an answer names its own. */
  readonly protocol: MemberProtocol | undefined;
  readonly auth: UpstreamAuth;
  readonly handshake: FileSource['upstream']['handshake'];
}

export type UpstreamAuth =
  /** Sent once a member asks for credentials, if there are any. */
  | { readonly kind: 'auto'; readonly credentials: Credentials | undefined }
  | { readonly kind: 'none' }
  /** Sent from the first request on. */
  | { readonly kind: 'always'; readonly credentials: Credentials };

/** A user name and a password of 1 to 255 bytes each (RFC 1929). */
export interface Credentials {
  readonly username: string;
  readonly password: Secret;
}

export interface ListenerConfig extends Omit<FileListener, 'tls' | 'users'> {
  readonly tls: TlsConfig | undefined;
  readonly users: readonly Credentials[];
}

export interface TlsConfig {
  readonly certFile: string;
  readonly keyFile: string;
  /** PEM. The certificate and the key match. */
  readonly cert: string;
  readonly key: Secret;
}
