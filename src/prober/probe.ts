/**
 * One probe of one member: an attempt, and where there is a site to ask, its answer.
 *
 * Owns what it opens until its outcome; the lease is its caller's.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { MemberDialer } from '../dialer/dialer.ts';
import type { PendingAttempt, SingleAttemptResult } from '../dialer/single-attempt.ts';
import type { Lease } from '../pool/lease.ts';
import { askSite, type CheckSite, type SiteAnswer } from './check-site.ts';

export type ProbeOutcome =
  /** `latencyMs` is absent for a mere sign of life. */
  | { readonly kind: 'passed'; readonly latencyMs?: number }
  | { readonly kind: 'failed'; readonly fault: FaultCode; readonly blame: Blame }
  /** It may be the site: whether another member reaches it will tell. `alive`: the member spoke its protocol. */
  | { readonly kind: 'suspect'; readonly fault: FaultCode; readonly alive: boolean }
  | { readonly kind: 'cancelled' };

export interface ProbeTask {
  readonly lease: Lease;
  /** `undefined`: only a sign of life is asked for. */
  readonly site: { readonly at: CheckSite; readonly expectStatus: number } | undefined;
  /** For all of it. */
  readonly timeoutMs: number;
}

export interface ProbeParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

/** Names under `.invalid` never resolve (RFC 6761): a proxy that works says so, in its protocol. */
const NOWHERE: HostPort = { host: 'probe.invalid', port: 443, kind: 'name', text: 'probe.invalid:443' };

/** What a member says of a target when it works but the target does not. */
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
  #solo: PendingAttempt | undefined;
  #socket: Socket | undefined;
  #cancelled = false;

  constructor(parts: ProbeParts, task: ProbeTask) {
    this.lease = task.lease;
    this.#parts = parts;
    this.#task = task;
  }

  /** Ends it at once with `cancelled`. */
  cancel(): void {
    this.#cancelled = true;
    this.#solo?.cancel();
    this.#socket?.destroy();
  }

  async run(): Promise<ProbeOutcome> {
    const { clock, deadlines, dialer } = this.#parts;
    const { lease, site, timeoutMs } = this.#task;
    const startedAt = clock.monotonic();
    const target = site?.at.target ?? NOWHERE;
    // With TLS inside it must be a tunnel; a plain request may go in absolute form, as a client's would.
    const use = site === undefined || site.at.tls ? 'tunnel' : 'forward';
    this.#solo = dialer.attempt({ lease, target, use, timeoutMs });
    const result = await this.#solo.result;
    if (result.kind === 'cancelled') return { kind: 'cancelled' };
    if (result.kind === 'failed') return this.#judge(result);
    this.#socket = result.way.socket;
    if (site === undefined || this.#cancelled) {
      result.way.socket.destroy();
      return this.#cancelled ? { kind: 'cancelled' } : { kind: 'passed' };
    }
    const leftMs = Math.max(0, timeoutMs - (clock.monotonic() - startedAt));
    const answer = await askSite(result.way, site.at, deadlines, leftMs);
    if (this.#cancelled) return { kind: 'cancelled' };
    if (answer === site.expectStatus) return { kind: 'passed', latencyMs: result.ms };
    const fault = typeof answer === 'number' ? 'target-doubted' : SITE_FAULTS[answer];
    return { kind: 'suspect', fault, alive: true };
  }

  #judge({ failure: { fault }, blame }: Extract<SingleAttemptResult, { kind: 'failed' }>): ProbeOutcome {
    if (blame !== undefined) return { kind: 'failed', fault, blame };
    const alive = SIGNS_OF_LIFE.has(fault);
    if (this.#task.site !== undefined) return { kind: 'suspect', fault, alive };
    // There is no site that could be at fault: it is asked for a name that does not exist, and has to say so.
    return alive ? { kind: 'passed' } : { kind: 'failed', fault, blame: 'member' };
  }
}
