/**
 * Learns from the answers of members which credentials the members of one source need.
 *
 * The setting `auto` starts without credentials. It sends the credentials of the instance only after most of the
 * members tried have required credentials. The reason: a single member may require them only to collect a password.
 * After the first acceptance, all members of the source get the credentials. When most members refuse the credentials,
 * the source is at fault. noria reports the beginning and the end of this fault, each once.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { type Login, Secret } from '../core/secret.ts';

export interface SourceAccess {
  /**
   * Which credentials noria sends. `auto`: no credentials until members require credentials, then the credentials of
   * the instance. `instance`: the credentials of the instance from the start.
   */
  readonly auth: 'auto' | 'none' | 'instance' | Login;
  readonly instance: string;
  /** The password of the instance. Absent if only the key of the instance is configured. */
  readonly password?: Secret;
  /**
   * If true, noria never sends the instance's credentials to members, because the members belong to third parties. This
   * is so for the free product.
   */
  readonly neverInstance: boolean;
  /** Whether the logins of the members are names of one account, so that a refusal concerns the source. */
  readonly oneAccount?: boolean;
}

export interface SourceFault {
  readonly source: string;
  /** Whether the fault has begun (true), or has ended because a member accepted the credentials (false). */
  readonly active: boolean;
  /** What happened. The text contains nothing that a member sent. */
  readonly reason: string;
  readonly advice: string;
}

export interface PreparedLogin extends Login {
  /** The value of the Proxy-Authorization field (RFC 7617, in UTF-8). */
  readonly authorization: Secret;
  /**
   * Whether these credentials belong to one member. If so, noria learns nothing about the source's credentials when the
   * member accepts or refuses them.
   */
  readonly isOwn: boolean;
}

/**
 * A member's latest answer. `accepted`: it accepted credentials. `open`: it accepted a request without credentials.
 * `asked`: it required credentials and noria sent none. `refused`: it rejected the credentials, and noria has no other
 * credentials.
 */
type MemberAnswer = 'accepted' | 'open' | 'asked' | 'refused';

/** An answer counts as the answer of most members only if at least this number of members gave it. */
const MIN_MAJORITY_MEMBERS = 3;
/** The same for the names of one account at a gateway: they share a password. */
const MIN_REFUSED_NAMES = 2;
const WINDOW_MS = 5 * 60_000;
const MAX_MEMBERS = 1_024;

export class SourceCredentials {
  readonly #source: string;
  readonly #access: SourceAccess;
  readonly #onFault: (fault: SourceFault) => void;
  readonly #instance: PreparedLogin | undefined;
  #current: PreparedLogin | undefined;
  readonly #answers: AgedMap<string, MemberAnswer>;
  #faulty = false;
  /**
   * Whether noria has reported that most members refuse the credentials, and has not yet reported the end of this
   * fault.
   */
  #reported = false;

  constructor(source: string, access: SourceAccess, clock: Clock, onFault: (fault: SourceFault) => void) {
    this.#answers = new AgedMap(clock, WINDOW_MS, MAX_MEMBERS);
    this.#source = source;
    this.#access = access;
    this.#onFault = onFault;
    this.#instance = instanceLogin(access);
    this.#current = firstLogin(access, this.#instance);
  }

  /** The credentials that noria sends to all members of the source; undefined while it sends none. */
  get current(): PreparedLogin | undefined {
    return this.#current;
  }

  /**
   * Returns the credentials to try first with a member.
   * @param own - the member's own credentials, if it has any.
   */
  firstFor(own: Login | undefined): PreparedLogin | undefined {
    return own === undefined ? this.#current : prepare(own, this.#access.oneAccount !== true);
  }

  get faulty(): boolean {
    return this.#faulty;
  }

  /**
   * Whether noria has other credentials to try with a member that got the credentials `sent` and still required
   * credentials.
   */
  hasOthers(sent: PreparedLogin | undefined): boolean {
    return this.#access.auth === 'auto' && sent === undefined && this.#instance !== undefined;
  }

  /**
   * Whether a member that refused the credentials `sent` is at fault.
   *
   * It is at fault if other members accept the same credentials, or if the credentials belong to this member alone. It
   * is also at fault if noria must not send the instance's credentials (`neverInstance`) and has no others.
   */
  isFaultOfMember(sent: PreparedLogin | undefined): boolean {
    if (sent?.isOwn === true) return true;
    if (this.#access.neverInstance && this.#current === undefined) return true;
    return this.#has(sent === undefined ? 'open' : 'accepted');
  }

  /**
   * Records that `member` got the credentials `sent` and still required credentials.
   *
   * If noria must not send the instance's credentials (`neverInstance`) and has no others, only this member is at
   * fault, not the source.
   * @returns the credentials for one retry with the same member; undefined if noria has none for this member.
   */
  refused(member: string, sent: PreparedLogin | undefined): PreparedLogin | undefined {
    if (sent?.isOwn === true) return undefined;
    if (this.hasOthers(sent)) return this.#asked(member);
    if (this.#faulty || (this.#access.neverInstance && this.#current === undefined)) return undefined;
    this.#answers.set(member, 'refused');
    if (!this.#isMajority('refused')) return undefined;
    this.#faulty = true;
    this.#reported = true;
    this.#report(true);
    return undefined;
  }

  /**
   * Records that `member` accepted the credentials `sent`. From now on, all members of the source get the same
   * credentials.
   */
  accepted(member: string, sent: PreparedLogin | undefined, now?: number): void {
    if (sent?.isOwn === true) return;
    // If the attempt sent no credentials, `#current` stays unchanged: the attempt may have started before members
    // required credentials.
    if (sent !== undefined && this.#access.oneAccount !== true) this.#current = sent;
    if (this.#faulty) {
      this.#answers.clear();
      this.#faulty = false;
    }
    this.#answers.renew(member, sent === undefined ? 'open' : 'accepted', now);
    if (!this.#reported) return;
    this.#reported = false;
    this.#report(false);
  }

  /**
   * Records that the answer to a request in absolute form was a 407. The request went through `member`, with the
   * credentials `sent`. The next request may then carry other credentials.
   *
   * The 407 does not count as a refusal: the target may have sent it, and one target must not block a whole source.
   */
  challenged(member: string, sent: PreparedLogin | undefined): void {
    if (this.hasOthers(sent)) this.#current = this.#asked(member);
  }

  /**
   * Forgets the refusals, so that dials use the source again. When a member next accepts the credentials, noria reports
   * that the fault has ended. If most members refuse the credentials again, noria reports the fault again.
   */
  resetRefusals(): void {
    this.#answers.clear();
    this.#faulty = false;
    // When a member next accepts the credentials, this process reports the end of the fault, even if another process
    // reported its beginning.
    this.#reported = true;
  }

  /**
   * Records that `member` required credentials and got none.
   * @returns the instance's credentials if most members require credentials, or if this member requires them for the
   *   second time and no member works without credentials.
   */
  #asked(member: string): PreparedLogin | undefined {
    const again = this.#answers.get(member) === 'asked';
    this.#answers.set(member, 'asked');
    const isNeeded = this.#isMajority('asked') || (again && !this.#has('open'));
    return isNeeded ? this.#instance : undefined;
  }

  #has(what: MemberAnswer): boolean {
    return this.#answers.values().includes(what);
  }

  #isMajority(what: MemberAnswer): boolean {
    const answers = this.#answers.values();
    const count = answers.filter((answer) => answer === what).length;
    const least = this.#access.oneAccount === true ? MIN_REFUSED_NAMES : MIN_MAJORITY_MEMBERS;
    return count >= least && count > answers.length / 2;
  }

  #report(active: boolean): void {
    this.#onFault({ source: this.#source, active, ...this.#explain(active) });
  }

  #explain(active: boolean): { reason: string; advice: string } {
    if (!active) return { reason: 'members accept the credentials again', advice: 'No action needed.' };
    const answers = this.#answers.values();
    const refusals = answers.filter((answer) => answer === 'refused').length;
    const members = `${refusals} of ${answers.length} members`;
    if (this.#access.oneAccount === true)
      return {
        reason: `the gateway refused the credentials of ${members}`,
        advice:
          'Check the user name and the password in upstream.auth, and whether the vendor has to authorise the address of this machine; then resume the source.',
      };
    if (this.#current !== undefined || this.#instance !== undefined) {
      return {
        reason: `${members} refused the credentials`,
        advice: 'Check the password of the instance, or upstream.auth if it contains other credentials.',
      };
    }
    return {
      reason: `${members} require credentials, and none are configured`,
      advice:
        "Bind this machine's public address in the console of the service, or configure the password of the instance (its key is not sufficient here), or set upstream.auth.",
    };
  }
}

export function ownLogin(login: Login): PreparedLogin {
  return prepare(login, true);
}

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
