/**
 * Who may use a listener, as whom, and for which targets.
 *
 * Owns the count of failed attempts per client address, bounded in memory and in time. Credentials are HTTP Basic
 * (RFC 7617) or SOCKS5 username/password (RFC 1929); both arrive here as text. Passwords are compared as digests in
 * constant time, and an unknown user costs the same work as a known one.
 */
import { isUtf8 } from 'node:buffer';
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import { clientNetwork, Networks } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import { DenyTargets, isOwnAddress, type OwnAddress } from './deny-targets.ts';
import { KnownTargets } from './known-targets.ts';
import { routingTextWithoutUsers } from './routing-options.ts';

/** What the configuration says of one listener, and what noria knows of itself. */
export interface AccessOptions {
  /** Empty: anyone, under any name. */
  readonly users: readonly { readonly username: string; readonly password: Secret }[];
  /** Client networks in CIDR form; empty: all. */
  readonly allow: readonly string[];
  /** Rules of deny-targets.ts. */
  readonly denyTargets: readonly string[];
  /** Where noria listens at this moment: refused as targets whatever the rules say. */
  readonly ownAddresses?: () => readonly OwnAddress[];
  /** Told of each attempt with wrong credentials: other processes with the same listener count it, too. */
  readonly onFailure?: (remoteAddress: string | undefined) => void;
  readonly clock: Clock;
}

/** One per listener. */
export interface Access {
  /** Every client may connect, whatever its address. */
  readonly admitsAll: boolean;
  /** Whether a client from this address may connect at all. */
  admits(remoteAddress: string | undefined): boolean;
  /** Whether users are configured, so that a client without credentials is refused. */
  readonly asksForCredentials: boolean;
  /**
   * The user that these credentials prove, and the wish that follows its name. With no users configured everyone is
   * user '', and credentials carry the wish alone.
   *
   * @returns `auth-required`, or `too-many-requests` with `retryAfterMs` in its context after too many wrong ones from
   *   this address: then right ones too, or the answer would tell a guesser when it has found them.
   */
  identify(
    credentials: ClientCredentials | undefined,
    remoteAddress: string | undefined,
  ): ClientIdentity | NoriaError;
  /** This address gave wrong credentials to another process with the same listener. */
  failedElsewhere(remoteAddress: string | undefined): void;
  readonly targets: {
    /** As `parseHostPort` reads it; what was read is kept for a while, since clients ask for the same ones again and again. */
    read(authority: string): HostPort | undefined;
    /** `forbidden`, with a `reason` for the client in its context; undefined when the target is not refused. */
    denies(target: HostPort): NoriaError | undefined;
  };
}

/** As a client gave them. */
export interface ClientCredentials {
  readonly username: string;
  readonly password: string;
}

export interface ClientIdentity {
  /** The configured user; '' when none is configured. */
  readonly user: string;
  /** What follows BASE in the user name, for `readRoutingOptions`. */
  readonly routingText: string;
}

/** Wrong credentials an address may give within one window. A browser's own retries stay far below it. */
const MAX_FAILURES = 20;
const FAILURE_WINDOW_MS = 60_000;
/** Addresses remembered at once; beyond it the one that failed longest ago is forgotten. */
const MAX_FAILING_ADDRESSES = 10_000;

/** @throws TypeError for a network or a rule that is none: the configuration has checked them. */
export function createAccess(options: AccessOptions): Access {
  const networks = new Networks(options.allow);
  const denied = new DenyTargets(options.denyTargets);
  const failures = new Failures(options.clock);
  const digests = new Map(options.users.map((user) => [user.username, digest(user.password.reveal())]));
  const longestName = Math.max(0, ...options.users.map((user) => user.username.length));
  const noDigest = digest('');
  const known = new KnownTargets();
  const admitsAll = options.allow.length === 0;

  return {
    admitsAll,
    admits: (remoteAddress) => admitsAll || (remoteAddress !== undefined && networks.has(remoteAddress)),
    asksForCredentials: digests.size > 0,
    identify(credentials, remoteAddress) {
      if (digests.size === 0) {
        return { user: '', routingText: routingTextWithoutUsers(credentials?.username ?? '') };
      }
      if (credentials === undefined) return new NoriaError('auth-required', 'no credentials given');
      const retryAfterMs = failures.blockedForMs(remoteAddress);
      if (retryAfterMs > 0) {
        const message = `${MAX_FAILURES} wrong credentials from this address within a minute`;
        return new NoriaError('too-many-requests', message, { context: { retryAfterMs } });
      }
      const user = longestUser(credentials.username, digests, longestName);
      // The digest of an unknown user is one too, so that the time taken does not tell which names exist.
      const expected = (user === undefined ? undefined : digests.get(user)) ?? noDigest;
      const fits = timingSafeEqual(expected, digest(credentials.password));
      if (user !== undefined && fits) {
        return { user, routingText: credentials.username.slice(user.length + 1) };
      }
      failures.count(remoteAddress);
      options.onFailure?.(remoteAddress);
      return new NoriaError('auth-required', 'wrong credentials');
    },
    failedElsewhere: (remoteAddress) => failures.count(remoteAddress),
    targets: {
      read: (authority) => known.read(authority),
      denies(target) {
        const own = options.ownAddresses?.();
        const isOwn = own !== undefined && isOwnAddress(target, own);
        const why = isOwn ? "as noria's own address" : denied.reasonToDeny(target);
        return why === undefined ? undefined : deniedTarget(target, why);
      },
    },
  };
}

function deniedTarget({ text }: HostPort, why: string): NoriaError {
  const context = { reason: `The target is denied ${why}.` };
  return new NoriaError('forbidden', `target ${text} is denied ${why}`, { context });
}

/**
 * Credentials from the value of Proxy-Authorization: the Basic scheme alone, in UTF-8 or else Latin-1.
 *
 * @returns undefined where there is no header, another scheme, or nothing that is base64. Without a colon all of it is
 *   the user name.
 */
export function parseBasicCredentials(header: string | undefined): ClientCredentials | undefined {
  const encoded = /^basic +([A-Za-z0-9+/_-]+=*) *$/i.exec(header ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString(isUtf8(bytes) ? 'utf8' : 'latin1');
  const colon = text.indexOf(':');
  if (colon < 0) return { username: text, password: '' };
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

/**
 * The longest of the names that is the whole user name or is followed by a separator.
 *
 * @param longest - length of the longest of them: a user name of thousands of hyphens costs no more than one of these.
 */
function longestUser(username: string, names: ReadonlyMap<string, unknown>, longest: number) {
  for (let end = Math.min(username.length, longest); end > 0; end -= 1) {
    const next = username[end];
    if (next !== undefined && next !== '-' && next !== ',') continue;
    const name = username.slice(0, end);
    if (names.has(name)) return name;
  }
  return undefined;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text, 'utf8').digest();
}

/** How often each client address gave wrong credentials within its window. */
class Failures {
  readonly #clock: Clock;
  /** In the order of their beginnings. */
  readonly #windows = new Map<string, { readonly endsAt: number; count: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ms until this address may try again; 0 when it may now. */
  blockedForMs(address: string | undefined): number {
    const window = this.#windows.get(clientNetwork(address ?? ''));
    if (window === undefined || window.count < MAX_FAILURES) return 0;
    return Math.max(0, window.endsAt - this.#clock.monotonic());
  }

  count(address: string | undefined): void {
    const key = clientNetwork(address ?? '');
    const nowMs = this.#clock.monotonic();
    const window = this.#windows.get(key);
    if (window !== undefined && window.endsAt > nowMs) {
      window.count += 1;
      return;
    }
    this.#forgetOld(nowMs);
    this.#windows.set(key, { endsAt: nowMs + FAILURE_WINDOW_MS, count: 1 });
  }

  /** Removes the windows that have ended, and the oldest beyond the most there may be: the first ones, all being of one length. */
  #forgetOld(nowMs: number): void {
    for (const [key, window] of this.#windows) {
      if (window.endsAt > nowMs && this.#windows.size < MAX_FAILING_ADDRESSES) return;
      this.#windows.delete(key);
    }
  }
}
