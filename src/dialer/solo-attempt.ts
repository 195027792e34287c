/**
 * One attempt through a member that is leased already, outside of any race: how a probe uses the dial path.
 *
 * The network watch learns from it as from any other; the lease is the caller's to report on.
 */
import { Attempt, type AttemptFailure, type AttemptOwner, type AttemptTask, type RawWay } from './attempt.ts';
import type { NetworkWatch } from './network-watch.ts';
import type { SourceMemory } from './source-memory.ts';

export type SoloResult =
  /** The socket is the caller's. */
  | { readonly kind: 'accepted'; readonly way: RawWay; readonly ms: number }
  | { readonly kind: 'failed'; readonly failure: AttemptFailure }
  | { readonly kind: 'cancelled' };

export class SoloAttempt implements AttemptOwner {
  /** Never rejects. */
  readonly result: Promise<SoloResult>;
  readonly #settle: (result: SoloResult) => void;
  readonly #attempt: Attempt;
  readonly #network: NetworkWatch;

  constructor(memory: SourceMemory, network: NetworkWatch, task: Omit<AttemptTask, 'hedge'>) {
    const { promise, resolve } = Promise.withResolvers<SoloResult>();
    this.result = promise;
    this.#settle = resolve;
    this.#network = network;
    this.#attempt = new Attempt(memory, this, { ...task, hedge: false });
  }

  start(): void {
    this.#attempt.start();
  }

  cancel(): void {
    this.#attempt.cancel();
    this.#settle({ kind: 'cancelled' });
  }

  attemptAccepted(attempt: Attempt): void {
    this.#network.answered();
    const way = attempt.takeWay();
    if (way !== undefined) this.#settle({ kind: 'accepted', way, ms: attempt.elapsedMs });
  }

  attemptFailed(attempt: Attempt, failure: AttemptFailure): void {
    if (failure.lost) this.#network.lost(attempt.lease.member);
    else if (failure.heard) this.#network.answered();
    this.#settle({ kind: 'failed', failure });
  }
}
