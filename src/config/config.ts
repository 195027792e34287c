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
import type { StoreUrl } from './scalars.ts';
import type { FileConfig, FileFleet, FileListener } from './schema.ts';
import type { FileSource } from './schema-source.ts';

type Unresolved = 'account' | 'sources' | 'listeners' | 'admin' | 'state' | 'fleet';

export interface Config extends Readonly<Omit<FileConfig, Unresolved>> {
  readonly file: string;
  readonly account: { readonly username: string; readonly key: Secret } | undefined;
  /** The sources in the order of the file. Without a source, a configuration is valid only if it has an account. */
  readonly sources: readonly SourceConfig[];
  readonly listeners: readonly ListenerConfig[];
  readonly admin: { readonly address: ListenAddress; readonly token: Secret | undefined } | undefined;
  readonly state: { readonly dir: string } | undefined;
  readonly fleet: FleetConfig | undefined;
  readonly warnings: readonly Problem[];
}

export type ProxyPoolConfig = NonNullable<FileConfig['proxyPool']>;

export interface FleetConfig extends Omit<FileFleet, 'url' | 'tls'> {
  readonly url: StoreUrl;
  readonly tls:
    | {
        readonly files: NonNullable<FileFleet['tls']>;
        readonly ca: string | undefined;
        readonly cert: string | undefined;
        readonly key: Secret | undefined;
      }
    | undefined;
}

export type SourceConfig = ServiceSource | LinkSource | GatewaySource | ListSource;

export interface ServiceSource extends SourceBase, Pick<FileSource, 'format' | 'textLayout'> {
  readonly product: Product;
  readonly key: Secret;
}

export interface LinkSource extends SourceBase, Pick<FileSource, 'body' | 'answer'> {
  readonly product: 'link';
  readonly baseUrl: string;
  readonly url: Secret;
  readonly method: Method;
  readonly headers: Readonly<Record<string, Secret>>;
  readonly login: EntryLogin;
}

/** Members are names at one address, so no call gets them. */
export interface GatewaySource extends SourceBase {
  readonly product: 'gateway';
  readonly host: string;
  readonly port: number;
  /** The user name, in which `{session}` stands for the name of a member; and the password. */
  readonly account: Login;
}

export interface ListSource extends SourceBase, Pick<FileSource, 'answer'> {
  readonly product: 'list';
  readonly url: Secret | undefined;
  readonly file: string | undefined;
  readonly refreshMs: number;
  readonly rotate: (NonNullable<FileSource['rotate']> & { readonly check: string }) | undefined;
  readonly login: EntryLogin;
}

export interface SourceBase
  extends Pick<FileSource, 'name' | 'lifetimeMs' | 'dailyBudget' | 'priority' | 'price' | 'whitelist'> {
  /** The id of the instance. For a link: a name derived from a hash of its URL. */
  readonly instance: string;
  readonly key?: Secret;
  readonly password?: Secret | undefined;
  /** noria masks them in every text of the service. */
  readonly secrets: readonly Secret[];
  readonly params: Readonly<Record<string, string | number>>;
  readonly count: number | undefined;
  readonly baseUrl: string | undefined;
  readonly extractHost: string | undefined;
  readonly upstream: Pick<FileSource['upstream'], 'handshake'> & {
    /** `undefined` if each entry of an answer names the protocol of its member, as for `free` and for most links. */
    readonly protocol: MemberProtocol | undefined;
    readonly auth: UpstreamAuth;
  };
  readonly intervalMs: number;
  readonly size: number;
}

export type UpstreamAuth =
  | { readonly kind: 'auto'; readonly credentials: Login | undefined }
  | { readonly kind: 'none' }
  | { readonly kind: 'always'; readonly credentials: Login };

export interface ListenerConfig extends Omit<FileListener, 'tls' | 'users'> {
  readonly tls:
    | { readonly files: NonNullable<FileListener['tls']>; readonly cert: string; readonly key: Secret }
    | undefined;
  readonly users: readonly (Login & Pick<FileListener['users'][number], 'limits'>)[];
}
