/**
 * Decides who may use a listener, as which user, and for which targets.
 *
 * noria compares passwords as digests in constant time. The check of an unknown user name takes as long as the check of
 * a known one.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { type HostPort, parseHostPort } from '../core/host-port.ts';
import { type BoundAddress, isOwnAddress } from '../core/listen-address.ts';
import { Networks } from '../core/networks.ts';
import { ownText } from '../core/own-text.ts';
import type { Secret } from '../core/secret.ts';
import { DenyTargets } from './deny-targets.ts';
import { routingTextWithoutUsers } from './routing-options.ts';
import { MAX_WRONG_ATTEMPTS, type WrongAttempt, WrongAttempts } from './wrong-attempts.ts';

export interface AccessOptions {
  /** The configured users. If there are none, any client may connect, with any user name. */
  readonly users: readonly { readonly username: string; readonly password: Secret }[];
  /** Client networks in CIDR notation; empty allows every address. */
  readonly allow: readonly string[];
  /** The targets that clients must not use, as rules in the grammar of core/target-rule.ts. */
  readonly denyTargets: readonly string[];
  /** Returns the addresses that noria listens on now. noria refuses them as targets, whatever the rules say. */
  readonly ownAddresses?: () => readonly BoundAddress[];
  /**
   * Called for each attempt with wrong credentials, so that noria's other processes with this listener can count it.
   */
  readonly onWrongCredentials?: (attempt: WrongAttempt) => void;
  readonly clock: Clock;
}

/** The credentials that the client has sent; not checked yet. */
export interface ClientCredentials {
  readonly username: string;
  readonly password: string;
}

export interface ClientIdentity {
  /** The configured user; '' when the listener has no users. */
  readonly user: string;
  /** The routing options in the user name; `readRoutingOptions` parses them. */
  readonly routingText: string;
}

/**
 * noria compares the password of an unknown user with this digest, so that the response time does not show which user
 * names exist.
 */
const NO_PASSWORD = digest('');
const MAX_CACHED_TARGETS = 1_024;
const MAX_CACHED_TARGET_LENGTH = 128;

export class Access {
  readonly admitsAll: boolean;
  /** Whether a client without credentials is refused, because the listener has users. */
  readonly requiresCredentials: boolean;
  readonly #options: AccessOptions;
  readonly #networks: Networks;
  readonly #deniedTargets: DenyTargets;
  readonly #wrong: WrongAttempts;
  readonly #digests: ReadonlyMap<string, Buffer>;
  readonly #longestName: number;
  readonly #longestPassword: number;
  readonly #targets = new BoundedMap<string, HostPort>(MAX_CACHED_TARGETS);

  /**
   * @throws TypeError for an invalid network or rule. The configuration is checked earlier, so this is a programming
   *   error.
   */
  constructor(options: AccessOptions) {
    const { users, allow } = options;
    this.#options = options;
    this.admitsAll = allow.length === 0;
    this.requiresCredentials = users.length > 0;
    this.#networks = new Networks(allow);
    this.#deniedTargets = new DenyTargets(options.denyTargets);
    this.#wrong = new WrongAttempts(options.clock);
    this.#digests = new Map(users.map((user) => [user.username, digest(user.password.reveal())]));
    this.#longestName = Math.max(0, ...users.map((user) => user.username.length));
    this.#longestPassword = Math.max(0, ...users.map((user) => user.password.reveal().length));
  }

  /** Whether a client from this address may connect at all. */
  admits(remoteAddress: string | undefined): boolean {
    return this.admitsAll || (remoteAddress !== undefined && this.#networks.has(remoteAddress));
  }

  /**
   * Checks the client's credentials, and splits the user name into a configured user and routing options. In a listener
   * without users, every client has the user '' and the user name contains only routing options.
   *
   * @returns `auth-required` for wrong credentials; after too many wrong attempts for this user from this address,
   *   `too-many-requests` with `retryAfterMs` in its context.
   */
  identify(
    credentials: ClientCredentials | undefined,
    remoteAddress: string | undefined,
  ): ClientIdentity | NoriaError {
    if (!this.requiresCredentials) {
      return { user: '', routingText: routingTextWithoutUsers(credentials?.username ?? '') };
    }
    if (credentials === undefined) return new NoriaError('auth-required', 'the client sent no credentials');
    const { username, password } = credentials;
    const user = longestUser(username, this.#digests, this.#longestName);
    const attempt = { address: remoteAddress, user: user ?? this.#firstName(username) };
    const retryAfterMs = this.#wrong.retryAfterMs(attempt);
    if (retryAfterMs > 0 && this.#wrong.isFlooded) return tooManyAttempts(retryAfterMs);
    const expected = (user === undefined ? undefined : this.#digests.get(user)) ?? NO_PASSWORD;
    // A password longer than all configured passwords is wrong in any case, so noria hashes only its start to save
    // time.
    const matches = timingSafeEqual(expected, digest(password.slice(0, this.#longestPassword + 1)));
    if (user !== undefined && matches) return { user, routingText: username.slice(user.length + 1) };
    this.#wrong.count(attempt);
    this.#options.onWrongCredentials?.(attempt);
    return retryAfterMs > 0
      ? tooManyAttempts(retryAfterMs)
      : new NoriaError('auth-required', 'wrong credentials');
  }

  /** Counts an attempt with wrong credentials that another process received on the same listener. */
  countWrongCredentials(attempt: WrongAttempt): void {
    this.#wrong.count(attempt);
  }

  /**
   * The name under which an attempt with an unknown user name is counted. Such attempts have the same limit as those of
   * known users, so that the limit does not reveal which names exist.
   */
  #firstName(username: string): string {
    return username.slice(0, this.#longestName).replace(/[-,].*$/s, '');
  }

  /**
   * Parses `host:port`. The result is cached, because clients request the same few targets repeatedly.
   *
   * All requests for a cached target share one string, so that V8 does not have to hash it again when it is used as a
   * map key.
   */
  readTarget(authority: string): HostPort | undefined {
    const cached = this.#targets.get(authority);
    if (cached !== undefined) return cached;
    if (authority.length > MAX_CACHED_TARGET_LENGTH) return parseHostPort(authority);
    const text = ownText(authority);
    const target = parseHostPort(text);
    if (target !== undefined) this.#targets.set(text, target);
    return target;
  }

  /** @returns an error `forbidden` with a `reason` that the client may see; undefined if the target is allowed. */
  checkTarget(target: HostPort): NoriaError | undefined {
    const own = this.#options.ownAddresses?.();
    const isOwn = own !== undefined && isOwnAddress(target, own);
    const reason = isOwn
      ? 'the target is an address of noria itself'
      : this.#deniedTargets.reasonToDeny(target);
    if (reason === undefined) return undefined;
    return new NoriaError('forbidden', `target ${target.text} refused: ${reason}`, { context: { reason } });
  }
}

function tooManyAttempts(retryAfterMs: number): NoriaError {
  const message = `${MAX_WRONG_ATTEMPTS} attempts with wrong credentials for this user from this address within a minute`;
  return new NoriaError('too-many-requests', message, { context: { retryAfterMs } });
}

/**
 * Returns the configured name with which the user name begins. After this name, the user name ends or continues with a
 * separator. If several names match, returns the longest.
 *
 * @param longest - the length of the longest configured name. It limits the work for a user name with thousands of
 * hyphens.
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
