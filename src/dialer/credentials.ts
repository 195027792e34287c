/**
 * The credentials for the members of one source, learned from their answers.
 *
 * `auto` starts without credentials. The first member that requires them gets the instance's, and from then on every member
 * of the source does. When two different members refuse the credentials, the source is at fault: this is reported once,
 * and reported as resolved once when a member accepts.
 */
import { Secret } from '../core/secret.ts';
import type { Login } from './handshake.ts';

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
}

/** Different members that must refuse the credentials before the source is at fault. */
const REFUSALS_OF_A_FAULTY_SOURCE = 2;

export class SourceCredentials {
  readonly #source: string;
  readonly #access: SourceAccess;
  readonly #onFault: (fault: SourceFault) => void;
  readonly #instance: PreparedLogin | undefined;
  #current: PreparedLogin | undefined;
  readonly #refusedBy = new Set<string>();
  /** The source was reported as faulty, and not yet as resolved. */
  #reported = false;

  constructor(source: string, access: SourceAccess, onFault: (fault: SourceFault) => void) {
    this.#source = source;
    this.#access = access;
    this.#onFault = onFault;
    this.#instance = instanceLogin(access);
    this.#current = firstLogin(access, this.#instance);
  }

  /** What the first connection to a member carries. */
  get current(): PreparedLogin | undefined {
    return this.#current;
  }

  get faulty(): boolean {
    return this.#refusedBy.size >= REFUSALS_OF_A_FAULTY_SOURCE;
  }

  /** What to retry once with a member that answered `sent` by requiring credentials; undefined if there is nothing else. */
  afterRefusal(sent: PreparedLogin | undefined): PreparedLogin | undefined {
    if (this.#access.auth !== 'auto' || sent !== undefined) return undefined;
    return this.#instance;
  }

  /** A member accepted `sent`: the whole source gets it from now on. */
  accepted(sent: PreparedLogin | undefined): void {
    // Never back to none: this attempt may have started before a member required credentials.
    if (sent !== undefined) this.#current = sent;
    if (this.#refusedBy.size > 0) this.#refusedBy.clear();
    if (!this.#reported) return;
    this.#reported = false;
    this.#report(false);
  }

  /**
   * A request in absolute form with `sent` was answered 407, so the next one carries other credentials if there are any. It
   * does not count as a refusal: the 407 may come from the target, and one page must not block a whole source.
   */
  challenged(sent: PreparedLogin | undefined): void {
    this.#current = this.afterRefusal(sent) ?? this.#current;
  }

  /**
   * A member refused the credentials, or requires some and none are configured. If noria has none that these members may
   * get (`neverInstance`), the refusal is the fault of that member alone.
   */
  refused(member: string): void {
    if (this.#access.neverInstance && this.#current === undefined) return;
    if (this.faulty) return;
    this.#refusedBy.add(member);
    if (!this.faulty) return;
    this.#reported = true;
    this.#report(true);
  }

  /** Tries the source again: the next acceptance reports it as resolved, the next two refusals report it as faulty. */
  resetRefusals(): void {
    this.#refusedBy.clear();
    this.#reported = true; // possibly by another process: the first process to see an acceptance reports it
  }

  #report(active: boolean): void {
    this.#onFault({ source: this.#source, active, ...this.#explain(active) });
  }

  #explain(active: boolean): { reason: string; advice: string } {
    if (!active) return { reason: 'members accept the credentials again', advice: 'Nothing to do.' };
    const members = `${REFUSALS_OF_A_FAULTY_SOURCE} different members`;
    if (this.#current !== undefined || this.#instance !== undefined) {
      return {
        reason: `${members} refused the credentials`,
        advice: 'Check the password of the instance, or upstream.auth if it contains other credentials.',
      };
    }
    return {
      reason: `${members} require credentials, and none are configured`,
      advice:
        "Bind this machine's public address in the service's console, or configure the password of the instance: its key is not enough here.",
    };
  }
}

function instanceLogin(access: SourceAccess): PreparedLogin | undefined {
  if (access.neverInstance || access.password === undefined) return undefined;
  return prepare({ username: access.instance, password: access.password });
}

function firstLogin(access: SourceAccess, instance: PreparedLogin | undefined): PreparedLogin | undefined {
  if (access.auth === 'none' || access.auth === 'auto') return undefined;
  return access.auth === 'instance' ? instance : prepare(access.auth);
}

function prepare({ username, password }: Login): PreparedLogin {
  const pair = Buffer.from(`${username}:${password.reveal()}`, 'utf8');
  return { username, password, authorization: new Secret(`Basic ${pair.toString('base64')}`) };
}
