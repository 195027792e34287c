/**
 * The configuration as the daemon and the commands use it: complete, checked and frozen.
 *
 * Its types come from schema.ts, except for keys whose type resolve.ts changes. Durations are in ms, and their names
 * end in `Ms`. Paths are absolute. Secrets have been read from their files. A section that is `off`, and a key
 * without a value and a default, is `undefined`.
 */

import type { ListenAddress } from '../core/listen-address.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Login, Secret } from '../core/secret.ts';
import type { EntryLogin } from '../service/link/rules.ts';
import type { Method, Product } from '../service/operations.ts';
import type { Problem } from './problems.ts';
import type { FileConfig, FileListener } from './schema.ts';
import type { FileFleet, StoreUrl } from './schema-fleet.ts';
import type { FileSource } from './schema-source.ts';

type Unresolved = 'account' | 'sources' | 'listeners' | 'admin' | 'state' | 'fleet';

export interface Config extends Readonly<Omit<FileConfig, Unresolved>> {
  readonly file: string;
  /** The account of the service, which only `noria instances` uses. */
  readonly account: AccountConfig | undefined;
  /** The sources in the order of the file. Without a source, a configuration is valid only if it has an account. */
  readonly sources: readonly SourceConfig[];
  /** There is always at least one listener. */
  readonly listeners: readonly ListenerConfig[];
  readonly admin: AdminConfig | undefined;
  readonly state: { readonly dir: string } | undefined;
  readonly fleet: FleetConfig | undefined;
  readonly warnings: readonly Problem[];
}

export interface AccountConfig {
  readonly username: string;
  /** The 16-character key of the account. */
  readonly key: Secret;
}

export interface AdminConfig {
  /** An address with a single port, never a range or an inherited socket. */
  readonly address: ListenAddress;
  readonly token: Secret | undefined;
}

/** The HTTP API of raw proxy pools: its address, and the local ports that it hands out. */
export type ProxyPoolConfig = NonNullable<FileConfig['proxyPool']>;

/** The store that the norias of a fleet share. */
export interface FleetConfig {
  readonly url: StoreUrl;
  readonly name: string;
  /** The name of this noria in the fleet. If `undefined`, noria chooses a new name at each start. */
  readonly replica: string | undefined;
  readonly tls: FleetTls | undefined;
  readonly sentinel: FileFleet['sentinel'];
}

export interface FleetTls {
  readonly caFile: string | undefined;
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  /** The certificates of the trusted authorities, as PEM text. */
  readonly ca: string | undefined;
  /** The certificate for `key`, as PEM text. */
  readonly cert: string | undefined;
  readonly key: Secret | undefined;
}

export type SourceConfig = ServiceSource | LinkSource;

export interface ServiceSource extends SourceBase, Pick<FileSource, 'password' | 'format' | 'textLayout'> {
  readonly product: Product;
  /** The 16-character key, from the configuration or derived from the password. */
  readonly key: Secret;
}

export interface LinkSource extends SourceBase, Pick<FileSource, 'body' | 'answer'> {
  readonly product: 'link';
  /** The origin of `url`. */
  readonly baseUrl: string;
  readonly url: Secret;
  readonly method: Method;
  readonly headers: Readonly<Record<string, Secret>>;
  /** The secrets in the URL, the headers and the body. noria masks them in every text. */
  readonly secrets: readonly Secret[];
  readonly entryLogin: EntryLogin;
  readonly key?: undefined;
  readonly password?: undefined;
}

interface SourceBase extends Pick<FileSource, 'name' | 'lifetimeMs' | 'dailyBudget' | 'priority'> {
  /** The id of the instance. For a link: a name derived from a hash of its URL. */
  readonly instance: string;
  /** The parameters with their defaults, as `checkParams` returns them, but without `count`. */
  readonly params: Readonly<Record<string, string | number>>;
  /** The maximum number of proxies that noria requests in one call. */
  readonly count: number | undefined;
  /**
   * The base address of the service. `undefined` if the source has an `extractHost` instead, or if no base address is configured.
   */
  readonly baseUrl: string | undefined;
  /** Only for `short-pure`: the extraction server of the instance, as `host` or `host:port`. */
  readonly extractHost: string | undefined;
  readonly upstream: UpstreamConfig;
  readonly intervalMs: number;
  readonly size: number;
}

/** How noria connects to the members of a source. */
export interface UpstreamConfig {
  /**
   * The protocol of the members. `undefined` if each entry of an answer names the protocol of its member, as for `free`
   * and for most links.
   */
  readonly protocol: MemberProtocol | undefined;
  readonly auth: UpstreamAuth;
  readonly handshake: FileSource['upstream']['handshake'];
}

export type UpstreamAuth =
  /** noria sends the credentials, if there are any, only after a member has asked for them. */
  | { readonly kind: 'auto'; readonly credentials: Login | undefined }
  | { readonly kind: 'none' }
  /** noria sends the credentials with the first request. */
  | { readonly kind: 'always'; readonly credentials: Login };

export interface ListenerConfig extends Omit<FileListener, 'tls' | 'users'> {
  readonly tls: TlsConfig | undefined;
  readonly users: readonly Login[];
}

export interface TlsConfig {
  readonly certFile: string;
  readonly keyFile: string;
  /** The certificate for `key`, as PEM text. */
  readonly cert: string;
  readonly key: Secret;
}
