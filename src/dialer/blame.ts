/**
 * Decides what caused a failed attempt: the member, the target, the source, our own network, or none of them.
 *
 * `blameFor` decides from the evidence, `DialBlame` collects the evidence of one dial. docs/health.md explains the rules.
 * A blamed member is quarantined or evicted. If members were blamed for dead targets or for a cut cable, the pool would
 * empty itself.
 */
import type { Clock } from '../core/clock.ts';
import type { Blame, EventBus, NoriaEvents } from '../core/events.ts';
import type { LeaseProvider } from '../pool/lease.ts';
import type { Attempt, AttemptFailure, AttemptPhase } from './attempt.ts';
import type { NetworkWatch } from './network-watch.ts';
import type { Reachability } from './reachability.ts';

export type FailedAttempt = Pick<AttemptFailure, 'fault' | 'phase' | 'local'>;

/** What is known at the end of the dial, or as soon as nothing can change the decision. */
export interface Evidence {
  /** Another member reached the same target for the same client request. */
  readonly reachedByOther: boolean;
  /** The client left before the dial had a result. */
  readonly clientLeft: boolean;
  /** Members of the same dial, including this one, that failed in a way that the target can cause. */
  readonly similarFailures: number;
  /** The member reached a target recently. */
  readonly memberWorked: boolean;
  /** Different targets in a row, including this one, that only this member reported as unreachable. */
  readonly targetsUnreachable: number;
  /** Several members of the source refuse its credentials. */
  readonly sourceFaulty: boolean;
  readonly networkDown: boolean;
}

/** A member that reports more targets in a row as unreachable has probably lost its own internet connection. */
export const MAX_TARGETS_UNREACHABLE = 8;
/** Similar failures that mean that the target is at fault. */
const FAILURES_OF_A_DEAD_TARGET = 2;

export function blameFor({ fault, phase, local }: FailedAttempt, evidence: Evidence): Blame {
  if (local) return 'network';
  switch (fault) {
    case 'member-unreachable':
      return evidence.networkDown ? 'network' : 'member';
    case 'member-protocol':
      return 'member';
    case 'member-auth':
      return evidence.sourceFaulty ? 'source' : 'member';
    case 'member-cut':
      return 'half-member';
    case 'member-silent':
    case 'member-closed':
    case 'member-refused':
      if (phase === 'connect') return evidence.networkDown ? 'network' : 'member';
      if (evidence.reachedByOther) return 'member';
      if (evidence.clientLeft) return 'nobody';
      // A dead target can cause this too. It is blamed only if the member worked recently: otherwise a pool of nothing but
      // bad members would never be replaced.
      return evidence.similarFailures >= FAILURES_OF_A_DEAD_TARGET && evidence.memberWorked
        ? 'target'
        : 'member';
    case 'target-doubted':
      if (evidence.reachedByOther) return 'member';
      if (evidence.clientLeft) return 'nobody';
      if (evidence.targetsUnreachable > MAX_TARGETS_UNREACHABLE) return 'member';
      return evidence.similarFailures >= FAILURES_OF_A_DEAD_TARGET ? 'target' : 'nobody';
    default:
      return 'nobody';
  }
}

/** Whether the rest of the same dial can change the blame. */
export function isUndecided(failure: FailedAttempt): boolean {
  return failure.fault === 'member-auth' || targetCanCause(failure);
}

/** Whether a dead target can cause the failure: the member had received the request. */
export function targetCanCause({ fault, phase }: FailedAttempt): boolean {
  switch (fault) {
    case 'member-silent':
    case 'member-closed':
    case 'member-refused':
      return phase === 'answer';
    case 'target-doubted':
      return true;
    default:
      return false;
  }
}

export interface BlameParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: LeaseProvider;
  readonly reachability: Reachability;
  readonly network: NetworkWatch;
}

/** How a dial ended. */
export type DialEnd =
  | { readonly kind: 'connected'; readonly member: string }
  | { readonly kind: 'client-left' }
  | { readonly kind: 'failed' };

interface Failed {
  readonly attempt: Attempt;
  readonly failure: AttemptFailure;
}

/**
 * The results of all attempts of one dial. Blame that the rest of the dial can change is decided at its end. Reports each
 * result to the pool, to the evidence for later dials, and to the bus.
 */
export class DialBlame {
  readonly #parts: BlameParts;
  /** `host:port`. */
  readonly #target: string;
  readonly #failures: AttemptFailure[] = [];
  readonly #undecided: Failed[] = [];
  #unreachableReports = 0;
  #end: DialEnd | undefined;

  constructor(parts: BlameParts, target: string) {
    this.#parts = parts;
    this.#target = target;
  }

  get failures(): readonly AttemptFailure[] {
    return this.#failures;
  }

  /** Members that reported the target as unreachable. */
  get unreachableReports(): number {
    return this.#unreachableReports;
  }

  /** An attempt was accepted, before or after the end of the dial. Its lease stays open. */
  accepted(attempt: Attempt): void {
    const { lease, elapsedMs: ms } = attempt;
    const { clock, pool, network, reachability } = this.#parts;
    network.answered();
    reachability.recordReached(lease.member, this.#target);
    attempt.memory.latency.add({ member: lease.member, ms, at: clock.monotonic() });
    pool.report({ lease: lease.id, kind: 'accepted', latencyMs: ms });
    this.#emit(attempt, 'accepted', 'done', 'nobody', ms);
  }

  /** An attempt failed, before or after the end of the dial. */
  failed(attempt: Attempt, failure: AttemptFailure): void {
    const { network } = this.#parts;
    if (failure.network === 'down') network.lost(attempt.lease.member, failure.ms);
    else if (failure.network === 'up') network.answered();
    this.#failures.push(failure);
    if (failure.fault === 'target-doubted') this.#unreachableReports += 1;
    const failed = { attempt, failure };
    if (this.#end !== undefined) this.#decide(failed, this.#end);
    else if (isUndecided(failure)) this.#undecided.push(failed);
    else this.#decide(failed, { kind: 'failed' });
  }

  /** An attempt was cancelled in `phase`, which says nothing about its member. */
  cancelled(attempt: Attempt, phase: AttemptPhase): void {
    const { pool } = this.#parts;
    pool.report({ lease: attempt.lease.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
    this.#emit(attempt, 'cancelled', phase, 'nobody', attempt.elapsedMs);
  }

  /** The dial ended: decides what is undecided. Later failures are decided at once. */
  close(end: DialEnd): void {
    this.#end = end;
    for (const failed of this.#undecided.splice(0)) this.#decide(failed, end);
  }

  #decide({ attempt, failure }: Failed, end: DialEnd): void {
    const { pool, reachability, network } = this.#parts;
    const { lease } = attempt;
    const { fault, phase, ms } = failure;
    const unreachable = fault === 'target-doubted' && end.kind === 'failed';
    const blame = blameFor(failure, {
      reachedByOther: end.kind === 'connected' && end.member !== lease.member,
      clientLeft: end.kind === 'client-left',
      similarFailures: this.#failures.filter(targetCanCause).length,
      memberWorked: reachability.memberWorked(lease.member),
      targetsUnreachable: unreachable ? reachability.recordUnreachable(lease.member, this.#target) : 0,
      sourceFaulty: attempt.memory.credentials.faulty,
      networkDown: network.down,
    });
    if (unreachable && blame === 'member') reachability.resetUnreachable(lease.member);
    pool.report({ lease: lease.id, kind: 'failed', blame, fault });
    this.#emit(attempt, fault, phase, blame, ms);
  }

  #emit(
    { lease: { source, member }, hedge }: Attempt,
    outcome: NoriaEvents['dial.attempted']['outcome'],
    phase: AttemptPhase,
    blame: Blame,
    ms: number,
  ): void {
    const { bus } = this.#parts;
    if (bus.hasSubscribers('dial.attempted')) {
      bus.emit('dial.attempted', { source, member, outcome, phase, blame, ms, hedge });
    }
  }
}
