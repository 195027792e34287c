/**
 * Who may use a listener, as which user, and for which targets. Passwords are compared as digests in constant time;
 * an unknown user name takes as long as a known one. Wrong attempts are counted by client network and user name:
 * above the maximum, further wrong ones get `too-many-requests`, and correct credentials still pass, so that one
 * client cannot lock out the others behind its address.
 */
import { isUtf8 } from 'node:buffer';
import { createHash, timingSafeEqual } from 'node:crypto';
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import type { LoopGuard } from '../core/front-proxy.ts';
import { type HostPort, parseHostPort } from '../core/host-port.ts';
import { isOwnAddress, isOwnName, ownNames } from '../core/listen-address.ts';
import { clientNetwork, isPrivateAddress, Networks } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import { parseTargetRule, type TargetRule } from '../core/target-rule.ts';
import { ownText } from '../core/words.ts';
import { refusalError } from './refusal.ts';
import { routingTextWithoutUsers } from './routing-options.ts';
import type { Limits } from './user-limits.ts';

export interface WrongAttempt {
  readonly address: string | undefined;
  readonly user: string;
}

export interface AccessOptions {
  readonly users: readonly {
    readonly username: string;
    readonly password: Secret;
    readonly limits?: Limits | undefined;
  }[];
  /** Client networks in CIDR notation; empty allows every address. */
  readonly allow: readonly string[];
  readonly denyTargets: readonly string[];
  /** noria refuses its own addresses as targets, whatever the rules say, and requests with its own mark. */
  readonly guard?: LoopGuard;
  /** Lets noria's other processes with this listener count the attempt. */
  readonly onWrongCredentials?: (attempt: WrongAttempt) => void;
  readonly clock: Clock;
}

export interface ClientCredentials {
  readonly username: string;
  readonly password: string;
}

export interface ClientIdentity {
  readonly user: string;
  readonly routingText: string;
}

/** Stands for the password of an unknown user, so that the response time does not show which names exist. */
const NO_PASSWORD = digest('');
/** Clients request the same few targets, and a check of an address costs as much as choosing a member. */
const MAX_CACHED_TARGETS = 1_024;
const MAX_CACHED_TARGET_LENGTH = 128;
/** Of one client and user within a minute. The automatic retries of browsers stay far below. */
const MAX_WRONG_ATTEMPTS = 20;
const WINDOW_MS = 60_000;
const MAX_WINDOWS = 10_000;
/** Of all clients. Above it, a client that has reached its own maximum is refused without a check. */
const MAX_WRONG_PER_SECOND = 2_000;

interface Window {
  readonly endsAt: number;
  count: number;
}

export class Access {
  readonly admitsAll: boolean;
  readonly requiresCredentials: boolean;
  readonly #options: AccessOptions;
  readonly #networks: Networks;
  readonly #deniedTargets: DenyTargets;
  /**
   * The wrong attempts, by client network and user name. The first one starts a window, so the oldest entry ends first.
   */
  readonly #windows = new BoundedMap<string, Window>(MAX_WINDOWS);
  #wrongInSecond: Window = { endsAt: 0, count: 0 };
  readonly #digests: ReadonlyMap<string, Buffer>;
  readonly #longestName: number;
  readonly #targets = new BoundedMap<string, HostPort>(MAX_CACHED_TARGETS);

  constructor(options: AccessOptions) {
    const { users, allow } = options;
    this.#options = options;
    this.admitsAll = allow.length === 0;
    this.requiresCredentials = users.length > 0;
    this.#networks = new Networks(allow);
    this.#deniedTargets = new DenyTargets(options.denyTargets);
    this.#digests = new Map(users.map((user) => [user.username, digest(user.password.reveal())]));
    this.#longestName = Math.max(0, ...users.map((user) => user.username.length));
  }

  admits(remoteAddress: string | undefined): boolean {
    return this.admitsAll || (remoteAddress !== undefined && this.#networks.has(remoteAddress));
  }

  /**
   * Splits the user name into a configured user and routing options. Without users, it contains only routing options.
   * @returns `auth-required`, or after too many wrong attempts `too-many-requests` with `retryAfterMs` in its
   * context.
   */
  identify(
    credentials: ClientCredentials | undefined,
    remoteAddress: string | undefined,
  ): ClientIdentity | NoriaError {
    if (!this.requiresCredentials) {
      const name = credentials?.username ?? '';
      return { user: '', routingText: name === '' ? '' : routingTextWithoutUsers(name) };
    }
    if (credentials === undefined) return new NoriaError('auth-required', 'the client sent no credentials');
    const { username, password } = credentials;
    const user = longestUser(username, this.#digests, this.#longestName);
    // The name under which an unknown user counts has the same limit, so the limit does not reveal which names exist.
    const name = user ?? username.slice(0, this.#longestName).replace(/[-,].*$/s, '');
    const attempt = { address: remoteAddress, user: name };
    const nowMs = this.#options.clock.monotonic();
    const retryAfterMs = this.#retryAfterMs(attempt, nowMs);
    const { endsAt, count } = this.#wrongInSecond;
    const isFlooded = count >= MAX_WRONG_PER_SECOND && endsAt > nowMs;
    if (retryAfterMs > 0 && isFlooded) return tooManyAttempts(retryAfterMs);
    const expected = this.#digests.get(user ?? '') ?? NO_PASSWORD;
    const matches = timingSafeEqual(expected, digest(password));
    if (user !== undefined && matches) return { user, routingText: username.slice(user.length + 1) };
    this.countWrongCredentials(attempt);
    this.#options.onWrongCredentials?.(attempt);
    return retryAfterMs > 0
      ? tooManyAttempts(retryAfterMs)
      : new NoriaError('auth-required', 'wrong credentials');
  }

  #retryAfterMs(attempt: WrongAttempt, nowMs: number): number {
    const window = this.#windows.get(keyOf(attempt));
    if (window === undefined || window.count < MAX_WRONG_ATTEMPTS) return 0;
    return Math.max(0, window.endsAt - nowMs);
  }

  countWrongCredentials(attempt: WrongAttempt): void {
    const key = keyOf(attempt);
    const nowMs = this.#options.clock.monotonic();
    if (this.#wrongInSecond.endsAt <= nowMs) this.#wrongInSecond = { endsAt: nowMs + SECOND_MS, count: 0 };
    this.#wrongInSecond.count += 1;
    const window = this.#windows.get(key);
    if (window !== undefined && window.endsAt > nowMs) {
      window.count += 1;
      return;
    }
    this.#windows.set(key, { endsAt: nowMs + WINDOW_MS, count: 1 });
  }

  /**
   * Cached, because clients request the same few targets. They share one string, which V8 hashes once as a map key.
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

  /** @param marks - the norias that the request has passed. @returns an error `proxy-loop` if this one is among them. */
  checkMarks(marks: readonly string[]): NoriaError | undefined {
    const { guard } = this.#options;
    if (guard === undefined || !marks.includes(guard.mark)) return undefined;
    return refusalError(
      'proxy-loop',
      'the request has already passed this noria, whose front proxy sends it back',
    );
  }

  /** @returns an error `forbidden` with a `reason` that the client may see; undefined if the target is allowed. */
  checkTarget(target: HostPort): NoriaError | undefined {
    const own = this.#options.guard?.ownAddresses();
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
 * The longest configured name before the end or a separator. @param longest - limits the work for a name with
 * thousands of hyphens.
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

function keyOf({ address, user }: WrongAttempt): string {
  return `${clientNetwork(address ?? '')} ${user}`;
}

/** Accepts only Basic; text that is not UTF-8 is Latin-1. Text without a colon is a user name. */
export function parseBasicCredentials(header: string | undefined): ClientCredentials | undefined {
  if (header === undefined) return undefined;
  const encoded = /^basic +([A-Za-z0-9+/_-]+=*) *$/i.exec(header)?.[1];
  if (encoded === undefined) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString(isUtf8(bytes) ? 'utf8' : 'latin1');
  const colon = text.indexOf(':');
  if (colon < 0) return { username: text, password: '' };
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

const SMTP_PORTS: readonly number[] = [25, 465, 587];
/** Names of this machine or network: RFC 6761 §6.3, RFC 6762 §3, ICANN's .internal. */
const PRIVATE_SUFFIXES = ['.localhost', '.local', '.internal'];
const ALLOWED = '';

/**
 * Checks targets against `denyTargets`. Targets are in canonical form (core/host-port.ts), so `2130706433` and
 * `[::ffff:127.0.0.1]` are compared as the addresses that they mean. noria does not resolve names; members do, so a
 * name of a private address cannot lead into noria's own network.
 */
export class DenyTargets {
  readonly #private: boolean;
  readonly #ownNames = ownNames();
  readonly #hosts: ReadonlySet<string>;
  readonly #suffixes: readonly string[];
  readonly #networks: Networks;
  readonly #ports: readonly { readonly from: number; readonly to: number }[];
  readonly #reasons = new BoundedMap<string, string>(MAX_CACHED_TARGETS);

  constructor(rules: readonly string[]) {
    const parsed = rules.map((text) => {
      const rule = parseTargetRule(text);
      if (rule === undefined) throw new TypeError(`not a rule of denyTargets: ${text}`);
      return rule;
    });
    const texts = (kind: TargetRule['kind']) =>
      parsed.flatMap((rule) => ('text' in rule && rule.kind === kind ? [rule.text] : []));
    this.#private = parsed.some((rule) => rule.kind === 'private');
    this.#hosts = new Set(texts('host'));
    this.#suffixes = texts('below').map((name) => `.${name}`);
    this.#networks = new Networks(texts('network'));
    this.#ports = parsed.flatMap((rule) => {
      if (rule.kind === 'smtp') return SMTP_PORTS.map((port) => ({ from: port, to: port }));
      return rule.kind === 'ports' ? [rule] : [];
    });
  }

  /** The text is for the client and does not reveal the rule. */
  reasonToDeny(target: HostPort): string | undefined {
    let reason = this.#reasons.get(target.text);
    if (reason === undefined) {
      reason = this.#check(target) ?? ALLOWED;
      this.#reasons.set(target.text, reason);
    }
    return reason === ALLOWED ? undefined : reason;
  }

  #check(target: HostPort): string | undefined {
    if (this.#ports.some(({ from, to }) => target.port >= from && target.port <= to)) {
      return 'the port of the target is in denyTargets';
    }
    if (target.kind !== 'name') {
      if (this.#networks.hasOrEmbeds(target.host)) return 'the network of the target is in denyTargets';
      const isPrivate = this.#private && isPrivateAddress(target.host);
      return isPrivate ? 'the target is a private address, which denyTargets excludes' : undefined;
    }
    if (this.#hosts.has(target.host)) return 'the host of the target is in denyTargets';
    if (this.#suffixes.some((suffix) => target.host.endsWith(suffix))) {
      return 'the domain of the target is in denyTargets';
    }
    const isPrivate = this.#private && isPrivateName(target.host, this.#ownNames);
    return isPrivate
      ? 'the target is a name of this machine or its network, which denyTargets excludes'
      : undefined;
  }
}

function isPrivateName(name: string, own: ReadonlySet<string>): boolean {
  return isOwnName(name, own) || PRIVATE_SUFFIXES.some((suffix) => name.endsWith(suffix));
}
