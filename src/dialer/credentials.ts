/**
 * The credentials for the members of one source, learned from their answers.
 *
 * `auto` starts without credentials. Members get the instance's only if most of those tried require them, because a single
 * member may ask in order to collect a password. From the first acceptance on every member of the source gets them. When most
 * members refuse the credentials, the source is at fault: this is reported once, and reported as resolved once when a member
 * accepts.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { Login } from '../core/login.ts';
import { Secret } from '../core/secret.ts';

export interface SourceAccess {
  /** `auto`: none until a member requires them, then the instance's. `instance`: those from the start. */
  readonly auth: 'auto' | 'none' | 'instance' | Login;
  /** Id of the instance, which is its user name. */
  readonly instance: string;
  /** Password of the instance. Absent if only its key is configured. */
  readonly password?: Secret;
  /** Never send the instance's credentials: the members are third parties unknown to the service (free product). */
  readonly neverInstance: boolean;
}

export interface SourceFault {
  readonly source: string;
  /** False: the fault is resolved, a member accepted. */
  readonly active: boolean;
  /** In noria's words. */
  readonly reason: string;
  readonly advice: string;
}

export interface PreparedLogin extends Login {
  /** Value of the Proxy-Authorization field (RFC 7617, in UTF-8). */
  readonly authorization: Secret;
  /** They belong to one member: its answer says nothing about the credentials of the source. */
  readonly isOwn: boolean;
}

/**
 * What a member last did. `open`: it accepted a request without credentials. `asked`: it required credentials and did not
 * get them. `refused`: there are no others.
 */
type MemberAnswer = 'accepted' | 'open' | 'asked' | 'refused';

/** The least number of different members of a majority. */
export const MEMBERS_OF_A_MAJORITY = 3;
/** Answers longer ago do not count. */
const WINDOW_MS = 5 * 60_000;
/** A busy proxy renews the answer of a member at most this often, not for every tunnel. */
const RENEW_INTERVAL_MS = 1_000;
const MAX_MEMBERS = 1_024;

export class SourceCredentials {
  readonly #clock: Clock;
  readonly #source: string;
  readonly #access: SourceAccess;
  readonly #onFault: (fault: SourceFault) => void;
  readonly #instance: PreparedLogin | undefined;
  #current: PreparedLogin | undefined;
  /** The latest answers of members, the oldest first. */
  readonly #answers = new BoundedMap<string, { readonly what: MemberAnswer; readonly at: number }>(
    MAX_MEMBERS,
  );
  #faulty = false;
  /** The source was reported as faulty, and not yet as resolved. */
  #reported = false;

  constructor(
    source: string,
    access: SourceAccess,
    { clock, onSourceFault }: { readonly clock: Clock; readonly onSourceFault: (fault: SourceFault) => void },
  ) {
    this.#clock = clock;
    this.#source = source;
    this.#access = access;
    this.#onFault = onSourceFault;
    this.#instance = instanceLogin(access);
    this.#current = firstLogin(access, this.#instance);
  }

  /** What the first connection to a member carries. */
  get current(): PreparedLogin | undefined {
    return this.#current;
  }

  /** What the first connection to a member carries. @param own - the member's own credentials, if it has any. */
  firstFor(own: Login | undefined): PreparedLogin | undefined {
    return own === undefined ? this.#current : ownLogin(own);
  }

  /** Most members refuse the credentials. */
  get faulty(): boolean {
    return this.#faulty;
  }

  /** A member got `sent` and requires credentials. Returns whether noria has others for it. */
  hasOthers(sent: PreparedLogin | undefined): boolean {
    return this.#access.auth === 'auto' && sent === undefined && this.#instance !== undefined;
  }

  /** Whether a member that did not accept `sent` is at fault: others accept the same, or it is the only one to decide. */
  isMemberAtFault(sent: PreparedLogin | undefined): boolean {
    if (sent?.isOwn === true) return true;
    if (this.#access.neverInstance && this.#current === undefined) return true;
    return this.#has(sent === undefined ? 'open' : 'accepted');
  }

  /**
   * `member` answered `sent` by requiring credentials. If noria has none that these members may get (`neverInstance`), that
   * is the fault of this member alone.
   *
   * @returns what to retry once with the same member; undefined if it gets nothing else.
   */
  refused(member: string, sent: PreparedLogin | undefined): PreparedLogin | undefined {
    if (sent?.isOwn === true) return undefined;
    if (this.hasOthers(sent)) return this.#asked(member);
    if (this.#faulty || (this.#access.neverInstance && this.#current === undefined)) return undefined;
    this.#record(member, 'refused');
    if (!this.#isMajority('refused')) return undefined;
    this.#faulty = true;
    this.#reported = true;
    this.#report(true);
    return undefined;
  }

  /** `member` accepted `sent`: the whole source gets it from now on. */
  accepted(member: string, sent: PreparedLogin | undefined): void {
    if (sent?.isOwn === true) return;
    // Never back to none: this attempt may have started before members required credentials.
    if (sent !== undefined) this.#current = sent;
    if (this.#faulty) {
      this.#answers.clear();
      this.#faulty = false;
    }
    const before = this.#answers.get(member);
    const what = sent === undefined ? 'open' : 'accepted';
    const isRecent = before !== undefined && this.#clock.monotonic() - before.at < RENEW_INTERVAL_MS;
    if (!isRecent || before.what !== what) this.#record(member, what);
    if (!this.#reported) return;
    this.#reported = false;
    this.#report(false);
  }

  /**
   * A request in absolute form with `sent` was answered 407 through `member`, so the next one may carry other credentials. It
   * does not count as a refusal: the 407 may come from the target, and one page must not block a whole source.
   */
  challenged(member: string, sent: PreparedLogin | undefined): void {
    if (this.hasOthers(sent)) this.#current = this.#asked(member);
  }

  /** Tries the source again: the next acceptance reports it as resolved, the next refusals report it as faulty. */
  resetRefusals(): void {
    this.#answers.clear();
    this.#faulty = false;
    this.#reported = true; // possibly by another process: the first process to see an acceptance reports it
  }

  /** @returns the instance's credentials if most members ask for them, or if the only member asks again. */
  #asked(member: string): PreparedLogin | undefined {
    const again = this.#answers.get(member)?.what === 'asked';
    this.#record(member, 'asked');
    const isNeeded = this.#isMajority('asked') || (again && !this.#has('open'));
    return isNeeded ? this.#instance : undefined;
  }

  #record(member: string, what: MemberAnswer): void {
    const at = this.#clock.monotonic();
    this.#answers.set(member, { what, at });
    this.#answers.deleteOldestWhile((answer) => at - answer.at > WINDOW_MS);
  }

  #has(what: MemberAnswer): boolean {
    return [...this.#answers.values()].some((answer) => answer.what === what);
  }

  #isMajority(what: MemberAnswer): boolean {
    let count = 0;
    for (const answer of this.#answers.values()) if (answer.what === what) count += 1;
    return count >= MEMBERS_OF_A_MAJORITY && count > this.#answers.size / 2;
  }

  #report(active: boolean): void {
    this.#onFault({ source: this.#source, active, ...this.#explain(active) });
  }

  #explain(active: boolean): { reason: string; advice: string } {
    if (!active) return { reason: 'members accept the credentials again', advice: 'Nothing to do.' };
    const refusals = [...this.#answers.values()].filter(({ what }) => what === 'refused').length;
    const members = `${refusals} of ${this.#answers.size} members`;
    if (this.#current !== undefined || this.#instance !== undefined) {
      return {
        reason: `${members} refused the credentials`,
        advice: 'Check the password of the instance, or upstream.auth if it contains other credentials.',
      };
    }
    return {
      reason: `${members} require credentials, and none are configured`,
      advice:
        "Bind this machine's public address in the console of the service, or configure credentials: the password of the instance (its key is not enough here), or upstream.auth.",
    };
  }
}

/** The credentials of one member. */
export function ownLogin(login: Login): PreparedLogin {
  return prepare(login, true);
}

/** Whether a member gets the same credentials from both. */
export function isSameLogin(one: Login | undefined, other: Login | undefined): boolean {
  if (one === other) return true;
  return one?.username === other?.username && one?.password.reveal() === other?.password.reveal();
}

function instanceLogin(access: SourceAccess): PreparedLogin | undefined {
  if (access.neverInstance || access.password === undefined) return undefined;
  return prepare({ username: access.instance, password: access.password });
}

function firstLogin(access: SourceAccess, instance: PreparedLogin | undefined): PreparedLogin | undefined {
  if (access.auth === 'none' || access.auth === 'auto') return undefined;
  return access.auth === 'instance' ? instance : prepare(access.auth);
}

function prepare({ username, password }: Login, isOwn = false): PreparedLogin {
  const pair = Buffer.from(`${username}:${password.reveal()}`, 'utf8');
  return { username, password, authorization: new Secret(`Basic ${pair.toString('base64')}`), isOwn };
}
