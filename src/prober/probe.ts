/**
 * One probe of one member: an attempt and, if a check is configured, a request to its site.
 *
 * Owns its connection until the outcome. The lease belongs to the prober.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { MemberDialer } from '../dialer/dialer.ts';
import type { SingleAttempt, SingleAttemptResult } from '../dialer/single-attempt.ts';
import type { Lease } from '../pool/lease.ts';
import { askSite, type CheckSite, type SiteAnswer } from './check-site.ts';

export type ProbeOutcome =
  /** `latencyMs` is absent if only a sign of life was required. */
  | { readonly kind: 'passed'; readonly latencyMs?: number }
  | { readonly kind: 'failed'; readonly fault: FaultCode; readonly blame: Blame }
  /** The member or the site failed. The success of another member decides. `alive`: the member speaks its protocol. */
  | { readonly kind: 'suspect'; readonly fault: FaultCode; readonly alive: boolean }
  | { readonly kind: 'cancelled' };

export interface ProbeTask {
  readonly lease: Lease;
  /** Undefined: only a sign of life is required. */
  readonly site: { readonly at: CheckSite; readonly expectStatus: number } | undefined;
  /** For the whole probe. */
  readonly timeoutMs: number;
}

export interface ProbeParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

/** Names under `.invalid` never resolve (RFC 6761): a working proxy answers that it cannot reach the target. */
const NOWHERE: HostPort = { host: 'probe.invalid', port: 443, kind: 'name', text: 'probe.invalid:443' };

/** Answers of a working member about a target that it cannot reach. */
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

  /** Ends the probe with `cancelled`. */
  cancel(): void {
    this.#cancelled = true;
    this.#attempt?.cancel();
    this.#socket?.destroy();
  }

  async run(): Promise<ProbeOutcome> {
    const { clock, deadlines, dialer } = this.#parts;
    const { lease, site, timeoutMs } = this.#task;
    const startedAt = clock.monotonic();
    const target = site?.at.target ?? NOWHERE;
    // TLS needs a tunnel. A plain request may use absolute form, as a client's request would.
    const use = site === undefined || site.at.tls ? 'tunnel' : 'forward';
    this.#attempt = dialer.attempt({ lease, target, use, timeoutMs });
    const result = await this.#attempt.result;
    if (result.kind === 'cancelled') return { kind: 'cancelled' };
    if (result.kind === 'failed') return this.#failed(result);
    const { connection, ms } = result;
    this.#socket = connection.socket;
    if (site === undefined || this.#cancelled) {
      connection.socket.destroy();
      return this.#cancelled ? { kind: 'cancelled' } : { kind: 'passed' };
    }
    const leftMs = Math.max(0, timeoutMs - (clock.monotonic() - startedAt));
    const answer = await askSite(connection, site.at, deadlines, leftMs);
    if (this.#cancelled) return { kind: 'cancelled' };
    if (answer === site.expectStatus) return { kind: 'passed', latencyMs: ms };
    const fault = typeof answer === 'number' ? 'target-doubted' : SITE_FAULTS[answer];
    return { kind: 'suspect', fault, alive: true };
  }

  #failed({ failure: { fault }, blame }: Extract<SingleAttemptResult, { kind: 'failed' }>): ProbeOutcome {
    if (blame !== undefined) return { kind: 'failed', fault, blame };
    const alive = SIGNS_OF_LIFE.has(fault);
    if (this.#task.site !== undefined) return { kind: 'suspect', fault, alive };
    // The target does not exist, so it cannot be at fault: the member must report it as unreachable.
    return alive ? { kind: 'passed' } : { kind: 'failed', fault, blame: 'member' };
  }
}
