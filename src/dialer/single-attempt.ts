/**
 * A single attempt through a leased member, without a dial. Probes use it. The caller reports the outcome of the lease
 * to the pool.
 */
import type { Blame } from '../core/events.ts';
import { Attempt, type AttemptOwner } from './attempt.ts';
import type { AttemptFailure, AttemptParts, AttemptTask, RawConnection } from './attempt-contract.ts';
import { blameFor, targetCanCause } from './blame.ts';
import type { NetworkWatch } from './network-watch.ts';

interface SingleAttemptParts extends AttemptParts {
  readonly network: NetworkWatch;
}

export type SingleAttemptResult =
  /** The member accepted. The caller owns the socket of the connection. */
  | { readonly kind: 'accepted'; readonly connection: RawConnection; readonly ms: number }
  /** The attempt failed. `blame` is undefined if it depends on whether another member succeeds. */
  | { readonly kind: 'failed'; readonly failure: AttemptFailure; readonly blame: Blame | undefined }
  | { readonly kind: 'cancelled' };

export class SingleAttempt implements AttemptOwner {
  /** The result of the attempt. This promise never rejects. */
  readonly result: Promise<SingleAttemptResult>;
  readonly #settle: (result: SingleAttemptResult) => void;
  readonly #attempt: Attempt;
  readonly #network: NetworkWatch;

  /** @param onEnd - called once, when the attempt has closed everything that it opened. */
  constructor(parts: SingleAttemptParts, task: Omit<AttemptTask, 'hedge'>, onEnd: () => void) {
    const { promise, resolve } = Promise.withResolvers<SingleAttemptResult>();
    this.result = promise;
    this.#settle = (result) => {
      onEnd();
      resolve(result);
    };
    this.#network = parts.network;
    this.#attempt = new Attempt(parts, this, { ...task, hedge: false });
  }

  start(): void {
    this.#attempt.start();
  }

  /** Ends the attempt with the result `cancelled`. Idempotent. An established connection stays open. */
  cancel(): void {
    this.#attempt.cancel();
    this.#settle({ kind: 'cancelled' });
  }

  attemptAccepted(attempt: Attempt, connection: RawConnection): void {
    this.#network.answered();
    connection.socket.pause(); // paused, because the caller gets the socket in a later tick
    this.#settle({ kind: 'accepted', connection, ms: attempt.elapsedMs });
  }

  /** A probe without an answer is no evidence about our own network, because most probed members are dead. */
  attemptFailed(attempt: Attempt, failure: AttemptFailure): void {
    if (failure.network === 'up') this.#network.answered();
    this.#settle({ kind: 'failed', failure, blame: this.#blame(attempt, failure) });
  }

  #blame({ memory, login }: Attempt, failure: AttemptFailure): Blame | undefined {
    if (targetCanCause(failure)) return undefined;
    return blameFor(failure, {
      reachedByOther: false,
      clientLeft: false,
      similarFailures: 1,
      sourceWorked: false,
      sourceFaulty: memory.credentials.faulty,
      credentialsWork: memory.credentials.isFaultOfMember(login),
      networkDown: this.#network.down,
    });
  }
}
