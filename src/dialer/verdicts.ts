/**
 * The failures of one dial on their way to a verdict: at once where it is clear, else when the dial is over and shows
 * whether another member reached the target. Each verdict ends the lease and is told on the bus.
 */
import type { EventBus } from '../core/events.ts';
import type { Lending } from '../pool/lease.ts';
import type { Attempt, AttemptFailure } from './attempt.ts';
import { blameFor, isOpenQuestion } from './blame.ts';
import type { NetworkWatch } from './network-watch.ts';
import type { SourceMemory } from './source-memory.ts';
import type { Witnesses } from './witnesses.ts';

export interface VerdictParts {
  readonly bus: EventBus;
  readonly pool: Lending;
  readonly witnesses: Witnesses;
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

  /** An attempt failed, before or after the dial was over. */
  add(attempt: Attempt, failure: AttemptFailure): void {
    const { network } = this.#parts;
    if (failure.lost) network.lost(attempt.lease.member);
    else if (failure.heard) network.answered();
    this.#failures.push(failure);
    const failed = { attempt, failure };
    if (this.#end !== undefined) this.#judge(failed, this.#end);
    else if (isOpenQuestion(failure)) this.#open.push(failed);
    else this.#judge(failed, { kind: 'nobody-reached' });
  }

  /** The dial is over: what is open is judged now, what fails later at once. */
  close(end: DialEnd): void {
    this.#end = end;
    for (const failed of this.#open.splice(0)) this.#judge(failed, end);
  }

  #judge({ attempt, failure }: Failed, end: DialEnd): void {
    const { bus, pool, witnesses, network, memoryOf } = this.#parts;
    const { lease, hedge } = attempt;
    const { fault, phase, ms } = failure;
    const reached = end.kind === 'reached' && end.by !== lease.member;
    const doubted = fault === 'target-doubted' && end.kind === 'nobody-reached';
    const blame = blameFor(failure, {
      reached,
      clientGone: end.kind === 'client-gone',
      alike: this.#failures.filter(leavesDoubt).length,
      proven: witnesses.isProven(lease.member),
      targetsDoubted: doubted ? witnesses.doubted(lease.member, this.#target) : 0,
      sourceFaulty: memoryOf(lease.source).credentials.faulty,
      networkDown: network.down,
    });
    if (doubted && blame === 'member') witnesses.judged(lease.member);
    pool.report({ lease: lease.id, kind: 'failed', blame, fault });
    if (!bus.hears('dial.attempted')) return;
    const { source, member } = lease;
    bus.emit('dial.attempted', { source, member, outcome: fault, phase, blame, ms, hedge });
  }
}

/** A failure that the target could have caused: the member had taken the request. */
function leavesDoubt(failure: AttemptFailure): boolean {
  return isOpenQuestion(failure) && failure.fault !== 'member-auth';
}
