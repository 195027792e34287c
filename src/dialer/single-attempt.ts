/**
 * One attempt through a member that is leased already, outside of any race: how a probe uses the dial path.
 *
 * The lease is the caller's to report on.
 */
import type { Blame } from '../core/events.ts';
import {
  Attempt,
  type AttemptFailure,
  type AttemptOwner,
  type AttemptTask,
  type RawConnection,
} from './attempt.ts';
import { blameFor, isOpenQuestion } from './blame.ts';
import type { NetworkWatch } from './network-watch.ts';
import type { SourceMemory } from './source-memory.ts';

export type SingleAttemptResult =
  /** The socket is the caller's. */
  | { readonly kind: 'accepted'; readonly way: RawConnection; readonly ms: number }
  /** `blame` is undefined where only the success of another member could tell whose fault it was. */
  | { readonly kind: 'failed'; readonly failure: AttemptFailure; readonly blame: Blame | undefined }
  | { readonly kind: 'cancelled' };

/** An attempt under way. */
export interface PendingAttempt {
  /** Never rejects. */
  readonly result: Promise<SingleAttemptResult>;
  /** Ends it at once with `cancelled`. Safe to call twice; a way that stands already is not touched. */
  cancel(): void;
}

export class SingleAttempt implements PendingAttempt, AttemptOwner {
  readonly result: Promise<SingleAttemptResult>;
  readonly #settle: (result: SingleAttemptResult) => void;
  readonly #attempt: Attempt;
  readonly #memory: SourceMemory;
  readonly #network: NetworkWatch;

  /** @param onOver - called once, when nothing of it is open any more. */
  constructor(
    memory: SourceMemory,
    network: NetworkWatch,
    task: Omit<AttemptTask, 'hedge'>,
    onOver: () => void,
  ) {
    const { promise, resolve } = Promise.withResolvers<SingleAttemptResult>();
    this.result = promise;
    this.#settle = (result) => {
      onOver();
      resolve(result);
    };
    this.#memory = memory;
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
    const way = attempt.takeConnection();
    if (way !== undefined) this.#settle({ kind: 'accepted', way, ms: attempt.elapsedMs });
  }

  /** A lost member says nothing of our network here: most members that are probed are dead. */
  attemptFailed(_: Attempt, failure: AttemptFailure): void {
    if (failure.heard) this.#network.answered();
    this.#settle({ kind: 'failed', failure, blame: this.#judge(failure) });
  }

  #judge(failure: AttemptFailure): Blame | undefined {
    if (isOpenQuestion(failure) && failure.fault !== 'member-auth') return undefined;
    return blameFor(failure, {
      reachedByOther: false,
      clientLeft: false,
      similarFailures: 1,
      memberWorked: false,
      targetsUnreachable: 1,
      sourceFaulty: this.#memory.credentials.faulty,
      networkDown: this.#network.down,
    });
  }
}
