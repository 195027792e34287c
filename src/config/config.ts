/**
 * The configuration as the daemon and the commands use it: complete, checked and frozen.
 *
 * Its types are inferred from schema.ts, except for keys whose type resolve.ts changes. Durations are in ms and their
 * names end in `Ms`; paths are absolute; secrets are read from their files. A key without a value and without a default
 * is `undefined`; so is a section that is `off`.
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
  /** The path of the file, as the caller gave it. */
  readonly file: string;
  /** The account, used only by `noria instances`. */
  readonly account: AccountConfig | undefined;
  /** In the order of the file. Empty only if there is an account. */
  readonly sources: readonly SourceConfig[];
  /** The listeners; always at least one. */
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
  /** A single port; never a range or an inherited socket. */
  readonly address: ListenAddress;
  readonly token: Secret | undefined;
}

/** The API of raw proxy pools. One of the listeners has its ports. */
export type ProxyPoolConfig = NonNullable<FileConfig['proxyPool']>;

/** The store that several norias share. */
export interface FleetConfig {
  readonly url: StoreUrl;
  readonly name: string;
  /** The name of this noria in the fleet. `undefined`: each process chooses a new name. */
  readonly replica: string | undefined;
  readonly tls: FleetTls | undefined;
  readonly sentinel: FileFleet['sentinel'];
}

export interface FleetTls {
  readonly caFile: string | undefined;
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  /** PEM text. */
  readonly ca: string | undefined;
  /** PEM text of the certificate that belongs to `key`. */
  readonly cert: string | undefined;
  readonly key: Secret | undefined;
}

/** A source of members: an instance of the service, or a link. */
export type SourceConfig = ServiceSource | LinkSource;

/** A source that draws from an instance of the service. */
export interface ServiceSource extends SourceBase, Pick<FileSource, 'password' | 'format' | 'textLayout'> {
  readonly product: Product;
  /** The 16-character key, given or derived from the password. */
  readonly key: Secret;
}

/** A source that draws from an extraction link of any vendor. */
export interface LinkSource extends SourceBase, Pick<FileSource, 'body' | 'answer'> {
  readonly product: 'link';
  /** The origin of the URL. */
  readonly baseUrl: string;
  readonly url: Secret;
  readonly method: Method;
  readonly headers: Readonly<Record<string, Secret>>;
  /** All secrets in URL, headers and body. noria masks them in every text. */
  readonly secrets: readonly Secret[];
  readonly entryLogin: EntryLogin;
  readonly key?: undefined;
  readonly password?: undefined;
}

interface SourceBase extends Pick<FileSource, 'name' | 'lifetimeMs' | 'dailyBudget' | 'priority'> {
  /** The id of the instance; for a link, a hash of its URL. */
  readonly instance: string;
  /** All parameters with their defaults, as `checkParams` returns them, without `count`. */
  readonly params: Readonly<Record<string, string | number>>;
  /** The maximum number of proxies to request in one call. */
  readonly count: number | undefined;
  /** `undefined` only for `short-pure` with an `extractHost`, or if no address is configured. */
  readonly baseUrl: string | undefined;
  /** Only for `short-pure`: `host` or `host:port` of the instance's extraction server. */
  readonly extractHost: string | undefined;
  readonly upstream: UpstreamConfig;
  readonly intervalMs: number;
  readonly size: number;
}

/** How noria talks to the members of a source. */
export interface UpstreamConfig {
  /** `undefined` for `free` and most links, where each entry of an answer names its protocol. */
  readonly protocol: MemberProtocol | undefined;
  readonly auth: UpstreamAuth;
  readonly handshake: FileSource['upstream']['handshake'];
}

export type UpstreamAuth =
  /** noria sends the credentials, if there are any, only after the member asks for them. */
  | { readonly kind: 'auto'; readonly credentials: Credentials | undefined }
  | { readonly kind: 'none' }
  /** noria sends the credentials with the first request. */
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
  /** PEM text. The certificate matches `key`. */
  readonly cert: string;
  readonly key: Secret;
}
