/**
 * Which credentials go to the members of a source, learned from what the members say.
 *
 * `auto` starts without; the first member that asks gets the instance's, and from then on the whole source does. Refused
 * by two distinct members, they are the source's fault, which is told once, and over when one of them accepts.
 */
import { Secret } from '../core/secret.ts';
import type { Login } from './handshake.ts';

/** How members of one source want to be spoken to. */
export interface SourceAccess {
  /** `auto`: none until a member asks, then the instance's. `instance`: those from the start. */
  readonly auth: 'auto' | 'none' | 'instance' | Login;
  /** The instance's id, which is its user name. */
  readonly instance: string;
  /** The instance's password itself; absent where only its key is configured. */
  readonly password?: Secret;
  /** The instance's credentials must never reach these members: they are third parties unknown to the service (free product). */
  readonly neverInstance: boolean;
}

export interface SourceFault {
  readonly source: string;
  /** False when a member accepted after all. */
  readonly active: boolean;
  /** In noria's words. */
  readonly reason: string;
  readonly advice: string;
}

/** A login in the form it is sent in; made once. */
export interface PreparedLogin extends Login {
  /** The value of Proxy-Authorization (RFC 7617, in UTF-8). */
  readonly authorization: Secret;
}

/** From how many distinct members it is not the members that are wrong. */
const REFUSERS_OF_A_FAULTY_SOURCE = 2;

export class SourceCredentials {
  readonly #source: string;
  readonly #access: SourceAccess;
  readonly #onFault: (fault: SourceFault) => void;
  readonly #instance: PreparedLogin | undefined;
  /** What a first connection to a member carries. */
  #current: PreparedLogin | undefined;
  readonly #refusedBy = new Set<string>();
  /** It was told that the source is at fault, and not yet that it is no longer. */
  #told = false;

  constructor(source: string, access: SourceAccess, onFault: (fault: SourceFault) => void) {
    this.#source = source;
    this.#access = access;
    this.#onFault = onFault;
    this.#instance = instanceLogin(access);
    this.#current = firstLogin(access, this.#instance);
  }

  /** What to send to a member that has said nothing yet. */
  get current(): PreparedLogin | undefined {
    return this.#current;
  }

  /** Whether the source is at fault just now: its members refuse what it has to offer. */
  get faulty(): boolean {
    return this.#refusedBy.size >= REFUSERS_OF_A_FAULTY_SOURCE;
  }

  /** What to try, once, with a member that answered `sent` by asking for credentials; undefined when there is nothing else. */
  afterRefusal(sent: PreparedLogin | undefined): PreparedLogin | undefined {
    if (this.#access.auth !== 'auto' || sent !== undefined) return undefined;
    return this.#instance;
  }

  /** A member took `sent`: remembered for its whole source. */
  accepted(sent: PreparedLogin | undefined): void {
    // Never back to none: an attempt that began before this was learned may come in late.
    if (sent !== undefined) this.#current = sent;
    if (this.#refusedBy.size > 0) this.#refusedBy.clear();
    if (!this.#told) return;
    this.#told = false;
    this.#tell(false);
  }

  /**
   * A request in absolute form that had carried `sent` was answered 407: the next one carries what is left to try. It is no
   * evidence against the source: the answer may be the target's own, and one page must not set a whole source aside.
   */
  challenged(sent: PreparedLogin | undefined): void {
    this.#current = this.afterRefusal(sent) ?? this.#current;
  }

  /** A member refused all there is, or asked for what there is not. Members that are never given any are each at fault alone. */
  refused(member: string): void {
    if (this.#access.neverInstance && this.#current === undefined) return;
    if (this.faulty) return; // told already; the set stays small
    this.#refusedBy.add(member);
    if (!this.faulty) return;
    this.#told = true;
    this.#tell(true);
  }

  /** The source is to be tried again: refusals count from none, and what a member accepts will be told. */
  resetRefusals(): void {
    this.#refusedBy.clear();
    this.#told = true; // perhaps by another process: whoever is accepted first tells
  }

  #tell(active: boolean): void {
    this.#onFault({ source: this.#source, active, ...this.#explain(active) });
  }

  #explain(active: boolean): { reason: string; advice: string } {
    if (!active) return { reason: 'members accept the credentials again', advice: 'Nothing to do.' };
    const refusers = `${REFUSERS_OF_A_FAULTY_SOURCE} different members`;
    if (this.#current !== undefined || this.#instance !== undefined) {
      return {
        reason: `${refusers} refused the credentials`,
        advice: 'Check the password of the instance, or upstream.auth where it holds a login of its own.',
      };
    }
    return {
      reason: `${refusers} asked for credentials, and none are configured`,
      advice:
        "Bind this machine's public address in the service's console, or give the instance's password itself in the source: its key is not enough for this.",
    };
  }
}

function instanceLogin(access: SourceAccess): PreparedLogin | undefined {
  if (access.neverInstance || access.password === undefined) return undefined;
  return prepared({ username: access.instance, password: access.password });
}

function firstLogin(access: SourceAccess, instance: PreparedLogin | undefined): PreparedLogin | undefined {
  if (access.auth === 'none' || access.auth === 'auto') return undefined;
  return access.auth === 'instance' ? instance : prepared(access.auth);
}

function prepared({ username, password }: Login): PreparedLogin {
  const pair = Buffer.from(`${username}:${password.reveal()}`, 'utf8');
  return { username, password, authorization: new Secret(`Basic ${pair.toString('base64')}`) };
}
