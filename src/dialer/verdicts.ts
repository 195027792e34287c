/**
 * The attempts of one dial on their way to a verdict: at once where it is clear, else when the dial is over and shows
 * whether another member reached the target. Each verdict goes to the pool, to the memories that learn from it, and
 * to the bus.
 */
import type { Clock } from '../core/clock.ts';
import type { Blame, EventBus, NoriaEvents } from '../core/events.ts';
import type { LeaseProvider } from '../pool/lease.ts';
import type { Attempt, AttemptFailure } from './attempt.ts';
import { type AttemptPhase, blameFor, isOpenQuestion } from './blame.ts';
import type { NetworkWatch } from './network-watch.ts';
import type { Reachability } from './reachability.ts';
import type { SourceMemory } from './source-memory.ts';

export interface VerdictParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: LeaseProvider;
  readonly witnesses: Reachability;
  readonly network: NetworkWatch;
  memoryOf(source: string): SourceMemory;
}

/** How a dial ended, as far as blame is concerned. */
export type DialEnd =
  | { readonly kind: 'reached'; readonly by: string }
  | { readonly kind: 'client-gone' }
  | { readonly kind: 'nobody-reached' };

interface Failed {
  readonly attempt: Attempt;
  readonly failure: AttemptFailure;
}

export class Verdicts {
  readonly #parts: VerdictParts;
  readonly #target: string;
  readonly #failures: AttemptFailure[] = [];
  readonly #open: Failed[] = [];
  #end: DialEnd | undefined;

  /** @param target - `host:port`. */
  constructor(parts: VerdictParts, target: string) {
    this.#parts = parts;
    this.#target = target;
  }

  get failures(): readonly AttemptFailure[] {
    return this.#failures;
  }

  /** How many members said that they cannot reach the target. */
  get doubts(): number {
    return this.#failures.filter(({ fault }) => fault === 'target-doubted').length;
  }

  /** An attempt was accepted, before or after the dial was over. Its lease stays open. */
  accepted(attempt: Attempt): void {
    const { lease, elapsedMs: ms } = attempt;
    const { clock, pool, network, witnesses, memoryOf } = this.#parts;
    network.answered();
    witnesses.recordReached(lease.member, this.#target);
    memoryOf(lease.source).latency.add({ member: lease.member, ms, at: clock.monotonic() });
    pool.report({ lease: lease.id, kind: 'accepted', latencyMs: ms });
    this.#tell(attempt, 'accepted', 'done', 'nobody', ms);
  }

  /** An attempt failed, before or after the dial was over. */
  failed(attempt: Attempt, failure: AttemptFailure): void {
    const { network } = this.#parts;
    if (failure.lost) network.lost(attempt.lease.member, failure.ms);
    else if (failure.heard) network.answered();
    this.#failures.push(failure);
    const failed = { attempt, failure };
    if (this.#end !== undefined) this.#judge(failed, this.#end);
    else if (isOpenQuestion(failure)) this.#open.push(failed);
    else this.#judge(failed, { kind: 'nobody-reached' });
  }

  /** An attempt was cancelled in `phase`: nothing can be said of its member. */
  cancelled(attempt: Attempt, phase: AttemptPhase): void {
    this.#parts.pool.report({
      lease: attempt.lease.id,
      kind: 'failed',
      blame: 'nobody',
      fault: 'client-gone',
    });
    this.#tell(attempt, 'cancelled', phase, 'nobody', attempt.elapsedMs);
  }

  /** The dial is over: what is open is judged now, what fails later at once. */
  close(end: DialEnd): void {
    this.#end = end;
    for (const failed of this.#open.splice(0)) this.#judge(failed, end);
  }

  #judge({ attempt, failure }: Failed, end: DialEnd): void {
    const { pool, witnesses, network, memoryOf } = this.#parts;
    const { lease } = attempt;
    const { fault, phase, ms } = failure;
    const doubted = fault === 'target-doubted' && end.kind === 'nobody-reached';
    const blame = blameFor(failure, {
      reachedByOther: end.kind === 'reached' && end.by !== lease.member,
      clientLeft: end.kind === 'client-gone',
      similarFailures: this.#failures.filter(leavesDoubt).length,
      memberWorked: witnesses.memberWorked(lease.member),
      targetsUnreachable: doubted ? witnesses.recordUnreachable(lease.member, this.#target) : 0,
      sourceFaulty: memoryOf(lease.source).credentials.faulty,
      networkDown: network.down,
    });
    if (doubted && blame === 'member') witnesses.resetUnreachable(lease.member);
    pool.report({ lease: lease.id, kind: 'failed', blame, fault });
    this.#tell(attempt, fault, phase, blame, ms);
  }

  #tell(
    { lease: { source, member }, hedge }: Attempt,
    outcome: NoriaEvents['dial.attempted']['outcome'],
    phase: AttemptPhase,
    blame: Blame,
    ms: number,
  ): void {
    const { bus } = this.#parts;
    if (bus.hears('dial.attempted')) {
      bus.emit('dial.attempted', { source, member, outcome, phase, blame, ms, hedge });
    }
  }
}

/** A failure that the target could have caused: the member had taken the request. */
function leavesDoubt(failure: AttemptFailure): boolean {
  return isOpenQuestion(failure) && failure.fault !== 'member-auth';
}
