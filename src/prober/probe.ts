/**
 * One probe of one member: a request to the site of the check or, without a check, one or two attempts. A sign of life
 * is any reply that only a working proxy gives, such as an error about an unreachable target.
 *
 * The probe owns its connection; the prober owns the lease.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import { type HostPort, hostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { RawConnection } from '../dialer/attempt-contract.ts';
import type { MemberDialer } from '../dialer/dialer.ts';
import { memberHandshake } from '../dialer/member-handshake.ts';
import type { SingleAttempt, SingleAttemptResult } from '../dialer/single-attempt.ts';
import type { Lease } from '../pool/lease.ts';
import { askSite, type CheckSite, type SiteAnswer } from './check-site.ts';

export type ProbeOutcome =
  /**
   * `latencyMs` is absent if the probe required only a sign of life. `relays`: whether the member relayed bytes of a
   * target.
   */
  | { readonly kind: 'passed'; readonly latencyMs?: number; readonly relays: boolean }
  | { readonly kind: 'failed'; readonly fault: FaultCode; readonly blame: Blame }
  /** The member gave no sign of life: it closed every connection without an answer, or never answered. */
  | { readonly kind: 'lifeless'; readonly fault: FaultCode }
  /** The member did not connect to its own address, at which it listens, or relayed no bytes from this address. */
  | { readonly kind: 'unconnected'; readonly fault: FaultCode }
  /**
   * Either the member or the site failed. If another member reaches the site, the probed member is at fault. `alive`:
   * whether the probed member speaks its protocol.
   */
  | { readonly kind: 'suspect'; readonly fault: FaultCode; readonly alive: boolean }
  | { readonly kind: 'cancelled' };

export interface ProbeTask {
  readonly lease: Lease;
  readonly asks: SiteTask | 'sign-of-life' | 'own-address';
  /** The time limit in ms. It applies to the whole probe if `asks` is a site, otherwise to each step of the probe. */
  readonly timeoutMs: number;
}

interface SiteTask {
  readonly at: CheckSite;
  readonly expectStatus: number;
}

interface ProbeParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

/** Names under `.invalid` never resolve (RFC 6761): a working proxy reports that it cannot reach the target. */
const NOWHERE: HostPort = {
  host: 'probe.invalid',
  port: 443,
  kind: 'name',
  text: 'probe.invalid:443',
};

/** Errors that only a working member reports: the member says that it cannot reach the target. */
const SIGNS_OF_LIFE: ReadonlySet<FaultCode> = new Set(['target-doubted', 'member-refused']);

const SITE_FAULTS = {
  silent: 'member-silent',
  closed: 'member-closed',
  garbage: 'member-protocol',
} as const satisfies Record<Exclude<SiteAnswer, number>, FaultCode>;

export class Probe {
  readonly lease: Lease;
  readonly #parts: ProbeParts;
  readonly #task: ProbeTask;
  #attempt: SingleAttempt | undefined;
  #socket: Socket | undefined;
  #cancelled = false;

  constructor(parts: ProbeParts, task: ProbeTask) {
    this.lease = task.lease;
    this.#parts = parts;
    this.#task = task;
  }

  /** Cancels the probe: it ends with the outcome `cancelled`. */
  cancel(): void {
    this.#cancelled = true;
    this.#attempt?.cancel();
    this.#socket?.destroy();
  }

  run(): Promise<ProbeOutcome> {
    const { asks } = this.#task;
    return typeof asks === 'object' ? this.#askForSite(asks) : this.#askForSignOfLife(asks);
  }

  async #askForSite({ at, expectStatus }: SiteTask): Promise<ProbeOutcome> {
    const { clock, deadlines } = this.#parts;
    const startedAt = clock.monotonic();
    // A check of an https site needs a tunnel. A check of an http site may use absolute form, like a client's plain
    // request.
    const result = await this.#try(at.target, at.tls ? 'tunnel' : 'forward');
    if (result.kind === 'cancelled') return result;
    if (result.kind === 'failed') {
      const { failure, blame } = result;
      const { fault } = failure;
      if (blame !== undefined) return { kind: 'failed', fault, blame };
      return { kind: 'suspect', fault, alive: SIGNS_OF_LIFE.has(fault) };
    }
    const leftMs = Math.max(0, this.#task.timeoutMs - (clock.monotonic() - startedAt));
    const answer = await askSite(result.connection, at, { deadlines, timeoutMs: leftMs });
    if (this.#cancelled) return { kind: 'cancelled' };
    if (answer === expectStatus) return { kind: 'passed', latencyMs: result.ms, relays: true };
    const fault = typeof answer === 'number' ? 'target-doubted' : SITE_FAULTS[answer];
    return { kind: 'suspect', fault, alive: true };
  }

  /**
   * Asks the member to connect to `NOWHERE`, a target that does not exist, and to the member's own address, until the
   * member gives a sign of life.
   *
   * Most working members report `NOWHERE` as unreachable; some close the connection or wait for their resolver. A
   * working member can usually reach its own address, because it listens there itself.
   *
   * @param asks - `sign-of-life`: tries `NOWHERE` first. `own-address`: tries the member's own address first. If the
   * member connects to its own address, it must then also relay bytes from there.
   */
  async #askForSignOfLife(asks: 'sign-of-life' | 'own-address'): Promise<ProbeOutcome> {
    const { host, port } = this.lease;
    const own = hostPort(host, port) ?? NOWHERE;
    let lastFault: FaultCode = 'member-silent';
    for (const target of asks === 'own-address' ? [own, NOWHERE] : [NOWHERE, own]) {
      const mustRelay = asks === 'own-address' && target === own;
      const result = await this.#try(target, 'tunnel');
      if (result.kind === 'cancelled') return result;
      if (result.kind === 'accepted') {
        if (mustRelay) return this.#checkRelay(result.connection);
        result.connection.socket.destroy();
        return { kind: 'passed', relays: false };
      }
      const { blame } = result;
      const { fault } = result.failure;
      if (blame !== undefined) return { kind: 'failed', fault, blame };
      if (mustRelay && fault === 'target-doubted') return { kind: 'unconnected', fault };
      if (SIGNS_OF_LIFE.has(fault)) return { kind: 'passed', relays: false };
      lastFault = fault;
    }
    return { kind: 'lifeless', fault: lastFault };
  }

  async #checkRelay(connection: RawConnection): Promise<ProbeOutcome> {
    const { protocol } = this.lease;
    const { timeoutMs } = this.#task;
    const relays = await isRelayed(connection, protocol, { deadlines: this.#parts.deadlines, timeoutMs });
    if (this.#cancelled) return { kind: 'cancelled' };
    return relays ? { kind: 'passed', relays } : { kind: 'unconnected', fault: 'member-cut' };
  }

  async #try(target: HostPort, use: 'tunnel' | 'forward'): Promise<SingleAttemptResult> {
    const { lease, timeoutMs } = this.#task;
    if (this.#cancelled) return { kind: 'cancelled' };
    this.#attempt = this.#parts.dialer.attempt({ lease, target, use, timeoutMs });
    const result = await this.#attempt.result;
    if (result.kind !== 'accepted') return result;
    this.#socket = result.connection.socket;
    if (!this.#cancelled) return result;
    result.connection.socket.destroy();
    return { kind: 'cancelled' };
  }
}

/**
 * Whether the member relays bytes. `connection` leads through the member to the member's own address. Sends the first
 * message of a client in the protocol of the member, such as a SOCKS5 greeting, and waits for any byte. Always closes
 * the connection. Never rejects.
 */
function isRelayed(
  { socket, early }: RawConnection,
  protocol: MemberProtocol,
  { deadlines, timeoutMs }: { readonly deadlines: Deadlines; readonly timeoutMs: number },
): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (answered: boolean) => {
      deadlines.clear(deadline);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.destroy();
      resolve(answered);
    };
    const deadline = deadlines.set(timeoutMs, () => end(false));
    const onData = () => end(true);
    const onEnd = () => end(false);
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    if (early.length > 0) end(true);
    else {
      socket.write(memberHandshake(protocol, { target: NOWHERE }).opening, 'latin1');
      socket.resume();
    }
  });
}
