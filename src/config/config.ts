/**
 * What a configuration comes to once it is read: complete, checked, frozen.
 *
 * Every default is filled in, every duration is in ms, every path absolute, every address parsed. Keys that have no default and were not given are `undefined`. The commands and the daemon map it to each
 * part's own options; no part reads these types. The keys, their ranges and their defaults stand in schema.ts.
 */

import type { ListenAddress } from '../core/listen-address.ts';
import type { LogLevel } from '../core/log.ts';
import type { ListenerProtocol, MemberProtocol } from '../core/protocol.ts';
import type { Secret } from '../core/secret.ts';
import type { Strategy } from '../pool/options.ts';
import type { Format, Method, Product } from '../service/operations.ts';

/** What can name a session: `session` of a listener. */
export const SESSION_MODES = ['none', 'client-ip', 'port', 'target-host'] as const;
/** What names the session of a client that names none. */
export type SessionMode = (typeof SESSION_MODES)[number];

/** `auto` is pretty on a terminal, else JSON lines. */
export const LOG_FORMATS = ['auto', 'json', 'pretty'] as const;
/** One of them. */
export type LogFormat = (typeof LOG_FORMATS)[number];

/** The configuration of one noria. */
export interface Config {
  /** The file it was read from, as it was named; stands before every problem. */
  readonly file: string;
  readonly service: ServiceConfig;
  /** For `noria instances` alone. */
  readonly account: AccountConfig | undefined;
  /** In the order of the file. Empty only where an account is given. */
  readonly sources: readonly SourceConfig[];
  readonly pool: PoolConfig;
  readonly rotation: RotationConfig;
  readonly dial: DialConfig;
  readonly health: HealthConfig;
  /** At least one. */
  readonly listeners: readonly ListenerConfig[];
  /** `undefined`: off. */
  readonly admin: AdminConfig | undefined;
  readonly log: LogConfig;
  /** `undefined`: nothing is kept. */
  readonly state: StateConfig | undefined;
  readonly shutdown: ShutdownConfig;
  /** Processes that share the listeners. */
  readonly workers: number | 'auto';
  /** What is worth saying about it although it is valid. */
  readonly warnings: readonly Problem[];
}

/** The extraction service. */
export interface ServiceConfig {
  /** http or https, without a trailing slash, user info, query or fragment. */
  readonly baseUrl: string | undefined;
  readonly method: Method;
  /** For one call, from its start to the last byte of the answer. */
  readonly timeoutMs: number;
}

/** The account that operation 10 is asked for. */
export interface AccountConfig {
  readonly username: string;
  /** The 16-character form of the password. */
  readonly key: Secret;
}

/** One instance to draw from. */
export interface SourceConfig {
  readonly name: string;
  readonly product: Product;
  readonly instance: string;
  /** The 16-character key, given or derived from the password. */
  readonly key: Secret;
  /** The plain password, where it was given: what members ask for in the mode of user name and password. */
  readonly password: Secret | undefined;
  /** As `checkParams` gives them: defaults filled in, `count` taken out. */
  readonly params: Readonly<Record<string, string | number>>;
  /** The most to ask for in one call. */
  readonly count: number | undefined;
  readonly format: Format;
  /** Only with the format `text`. */
  readonly textLayout: string | undefined;
  /** Where calls go; `undefined` only for `short-pure` with `extractHost`. */
  readonly baseUrl: string | undefined;
  /** {extract_host} of `short-pure`, `host` or `host:port`; `undefined` for the other products. */
  readonly extractHost: string | undefined;
  readonly upstream: UpstreamConfig;
  /** The pace, start to start. */
  readonly intervalMs: number;
  readonly dailyBudget: number | undefined;
  /** How long members live whose lifetime the service does not tell; `undefined`: as the product has it. */
  readonly lifetimeMs: number | undefined;
  /** Usable members to hold: its own size or `pool.size`. */
  readonly size: number;
  /** 1 comes first. */
  readonly priority: number;
}

/** How the members of a source are spoken to. */
export interface UpstreamConfig {
  /** What members speak; `undefined` where each entry of an answer says so itself (free). */
  readonly protocol: MemberProtocol | undefined;
  readonly auth: UpstreamAuth;
}

/** What members are given when they ask who we are. */
export type UpstreamAuth =
  /** Nothing, until a member asks; then the instance and its password, where they are known. */
  | { readonly kind: 'auto'; readonly credentials: Credentials | undefined }
  /** Nothing, ever. */
  | { readonly kind: 'none' }
  /** These, from the start: the instance and its password, or what the configuration names. */
  | { readonly kind: 'always'; readonly credentials: Credentials };

/** A user name and a password of 1 to 255 bytes each (RFC 1929). */
export interface Credentials {
  readonly username: string;
  readonly password: Secret;
}

/** The members held ready. */
export interface PoolConfig {
  readonly size: number;
  /** 0: never stop drawing. */
  readonly idleAfterMs: number;
  readonly safetyMarginMs: number;
  readonly minRemainingMs: number;
  readonly allowPrivateAddresses: boolean;
}

/** Who gets which member. */
export interface RotationConfig {
  readonly strategy: Strategy;
  /** 0: no limit. */
  readonly maxTunnelsPerMember: number;
  /** 0: never retired. */
  readonly maxUsesPerMember: number;
  readonly perHostSpacingMs: number;
  readonly sessionTtlMs: number;
}

/** How a target is reached. */
export interface DialConfig {
  readonly attempts: number;
  readonly attemptTimeoutMs: number;
  /** Ms after which a second attempt starts beside the first; `auto`: by what was measured; `off`: never. */
  readonly hedgeAfter: number | 'auto' | 'off';
  readonly deadlineMs: number;
  readonly waitForMemberMs: number;
}

/** Which members are trusted. */
export interface HealthConfig {
  readonly maxFailures: number;
  readonly quarantineMs: number;
  /** `undefined`: off. */
  readonly check: HealthCheckConfig | undefined;
}

/** What is fetched through every member, and how often. */
export interface HealthCheckConfig {
  readonly url: string;
  readonly everyMs: number;
  readonly timeoutMs: number;
  readonly expectStatus: number;
}

/** Where clients connect, and what they may do there. */
export interface ListenerConfig {
  readonly address: ListenAddress;
  readonly protocols: readonly ListenerProtocol[];
  readonly tls: TlsConfig | undefined;
  readonly users: readonly Credentials[];
  /** Networks in CIDR form; empty: everyone who can reach it. */
  readonly allow: readonly string[];
  /** Rules as listener/deny-targets.ts reads them. */
  readonly denyTargets: readonly string[];
  readonly idleTimeoutMs: number;
  readonly maxConnections: number;
  /** The one source this listener draws from. */
  readonly source: string | undefined;
  readonly session: SessionMode;
}

/** What a listener needs to speak TLS. */
export interface TlsConfig {
  readonly certFile: string;
  readonly keyFile: string;
  /** PEM, read with the configuration; checked to belong together. */
  readonly cert: string;
  readonly key: Secret;
}

/** Where noria is watched and steered. */
export interface AdminConfig {
  /** One port. */
  readonly address: ListenAddress;
  readonly token: Secret | undefined;
}

/** What is logged, and how. */
export interface LogConfig {
  readonly level: LogLevel;
  readonly format: LogFormat;
}

/** Where is kept what outlives a restart. */
export interface StateConfig {
  readonly dir: string;
}

/** How noria stops. */
export interface ShutdownConfig {
  readonly drainTimeoutMs: number;
}

/** One thing to say about a configuration: an error, or a warning. */
export interface Problem {
  /** As in `sources[0].interval`; empty where it is about the whole file. */
  readonly path: string;
  /** 1-based; 0 where there is no place in the file. */
  readonly line: number;
  /** 1-based, in characters. */
  readonly column: number;
  /** What is wrong, what is wanted, and where possible what a good value looks like. Never a secret. */
  readonly message: string;
  /** The line of the file, secrets masked, and below it a pointer to the place. */
  readonly excerpt: string | undefined;
}
