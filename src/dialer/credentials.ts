/**
 * Learns which credentials the members of one source need. `auto` sends those of the instance only after most members
 * have required some, because a single member may ask only to collect a password; after the first acceptance, all
 * members get them. When most members refuse them, the source is at fault. Beginning and end are reported once.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { type Login, Secret } from '../core/secret.ts';

export interface SourceAccess {
  /** `auto`: none until members require some, then those of the instance. */
  readonly auth: 'auto' | 'none' | 'instance' | Login;
  readonly instance: string;
  readonly password?: Secret;
  /** The members belong to third parties (the free product). */
  readonly neverInstance: boolean;
  /** Whether the logins of the members are names of one account, so that a refusal concerns the source. */
  readonly oneAccount?: boolean;
}

export interface SourceFault {
  readonly source: string;
  readonly active: boolean;
  /** What happened. The text contains nothing that a member sent. */
  readonly reason: string;
  readonly advice: string;
}

export interface PreparedLogin extends Login {
  /** The value of the Proxy-Authorization field (RFC 7617, in UTF-8). */
  readonly authorization: Secret;
  /** Of one member alone: its answer says nothing about the source's credentials. */
  readonly isOwn: boolean;
}

/**
 * `open`: accepted a request without credentials. `asked`: required some, and noria sent none. `refused`: rejected
 * them, and noria has no others.
 */
type MemberAnswer = 'accepted' | 'open' | 'asked' | 'refused';

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
  /** What noria sends to all members of the source. */
  current: PreparedLogin | undefined;
  readonly #answers: AgedMap<string, MemberAnswer>;
  faulty = false;
  #reported = false;

  constructor(source: string, access: SourceAccess, clock: Clock, onFault: (fault: SourceFault) => void) {
    this.#answers = new AgedMap(clock, WINDOW_MS, MAX_MEMBERS);
    this.#source = source;
    this.#access = access;
    this.#onFault = onFault;
    const { auth, instance: username, password, neverInstance } = access;
    if (!neverInstance && password !== undefined) this.#instance = prepare({ username, password });
    if (auth === 'instance') this.current = this.#instance;
    else if (typeof auth === 'object') this.current = prepare(auth);
  }

  firstFor(own: Login | undefined): PreparedLogin | undefined {
    return own === undefined ? this.current : prepare(own, this.#access.oneAccount !== true);
  }

  hasOthers(sent: PreparedLogin | undefined): boolean {
    return this.#access.auth === 'auto' && sent === undefined && this.#instance !== undefined;
  }

  /** Others accept the same credentials, they are this member's own, or noria must not send the instance's. */
  isFaultOfMember(sent: PreparedLogin | undefined): boolean {
    if (sent?.isOwn === true) return true;
    if (this.#access.neverInstance && this.current === undefined) return true;
    return this.#has(sent === undefined ? 'open' : 'accepted');
  }

  /** @returns the credentials for one retry with the same member, if noria has any. */
  refused(member: string, sent: PreparedLogin | undefined): PreparedLogin | undefined {
    if (sent?.isOwn === true) return undefined;
    if (this.hasOthers(sent)) return this.#asked(member);
    if (this.faulty || (this.#access.neverInstance && this.current === undefined)) return undefined;
    this.#answers.set(member, 'refused');
    if (!this.#isMajority('refused')) return undefined;
    this.faulty = true;
    this.#reported = true;
    this.#onFault({ source: this.#source, active: true, ...this.#explainRefusals() });
    return undefined;
  }

  /** From now on, all members of the source get these credentials. */
  accepted(member: string, sent: PreparedLogin | undefined, now?: number): void {
    if (sent?.isOwn === true) return;
    // If the attempt sent no credentials, `#current` stays unchanged: the attempt may have started before members
    // required credentials.
    if (sent !== undefined && this.#access.oneAccount !== true) this.current = sent;
    if (this.faulty) {
      this.#answers.clear();
      this.faulty = false;
    }
    this.#answers.renew(member, sent === undefined ? 'open' : 'accepted', now);
    if (!this.#reported) return;
    this.#reported = false;
    const reason = 'members accept the credentials again';
    this.#onFault({ source: this.#source, active: false, reason, advice: 'No action needed.' });
  }

  /**
   * The answer in absolute form was a 407. It is no refusal: the target may have sent it, and one target must not
   * block a whole source.
   */
  challenged(member: string, sent: PreparedLogin | undefined): void {
    if (this.hasOthers(sent)) this.current = this.#asked(member);
  }

  /** Dials use the source again. The next acceptance, or majority of refusals, is reported again. */
  resetRefusals(): void {
    this.#answers.clear();
    this.faulty = false;
    // When a member next accepts the credentials, this process reports the end of the fault, even if another process
    // reported its beginning.
    this.#reported = true;
  }

  /**
   * @returns the instance's credentials if most members require some, or this one for the second time while no member
   * works without.
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

  #explainRefusals(): Pick<SourceFault, 'reason' | 'advice'> {
    const answers = this.#answers.values();
    const refusals = answers.filter((answer) => answer === 'refused').length;
    const members = `${refusals} of ${answers.length} members`;
    if (this.#access.oneAccount === true)
      return {
        reason: `the gateway refused the credentials of ${members}`,
        advice:
          'Check the user name and the password in upstream.auth, and whether the vendor has to authorise the address of this machine; then resume the source.',
      };
    if (this.current !== undefined || this.#instance !== undefined) {
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

export function isSameLogin(one: Login | undefined, other: Login | undefined): boolean {
  if (one === other) return true;
  return one?.username === other?.username && one?.password.reveal() === other?.password.reveal();
}

function prepare({ username, password }: Login, isOwn = false): PreparedLogin {
  const pair = Buffer.from(`${username}:${password.reveal()}`, 'utf8');
  return { username, password, authorization: new Secret(`Basic ${pair.toString('base64')}`), isOwn };
}
