/**
 * Lending across a channel: the same interface for listeners that live in another process than the pool.
 *
 * Requests, leases and reports are plain data, so they go over as they are. Two halves, each spoken to by whoever owns the
 * channel: `hear` what the other half said, in order, and `close` when the channel has gone. Then they tidy up: who waits is
 * refused, and leases that nobody can report on any more end.
 */
import {
  isLease,
  type Lease,
  type LeaseProvider,
  type LeaseRefusal,
  type LeaseReport,
  type LeaseRequest,
} from '../../pool/lease.ts';

type Answer = Lease | LeaseRefusal;

/** What the asker says to the pool. */
export type ToPool =
  | { readonly kind: 'take'; readonly request: LeaseRequest }
  | { readonly kind: 'cancel'; readonly requestId: number }
  | { readonly kind: 'report'; readonly report: LeaseReport };

/** What the pool says to an asker. */
export interface FromPool {
  readonly kind: 'answer';
  readonly requestId: number;
  readonly answer: Answer;
}

/** The pool's half, for one asker. */
export interface ServedLending {
  hear(message: ToPool): void;
  /** The asker has gone: nobody is blamed for what it had. Safe to call twice. */
  close(): void;
}

/** The asker's half. */
export interface RemoteLending extends LeaseProvider {
  hear(message: FromPool): void;
  /** The pool has gone. Who waits is refused with `shutting-down`. Safe to call twice. */
  close(): void;
}

/** Request ids of one asker stay below this; the pool sees them shifted by the asker's number. */
const IDS_PER_ASKER = 2 ** 32;

/**
 * Lends to the asker at the other end of the channel, until it is closed.
 *
 * @param asker - a number from 1 on that no other asker of this pool has had: requests of different askers may have the
 * same id, and are kept apart by it. Requests made at the pool itself are those of asker 0.
 */
export function serveLending(
  lending: LeaseProvider,
  asker: number,
  say: (message: FromPool) => void,
): ServedLending {
  const waiting = new Set<number>();
  const open = new Set<number>();
  let closed = false;

  const give = (requestId: number, answer: Answer) => {
    if (closed) {
      if (isLease(answer)) endForNobody(lending, answer.id);
      return;
    }
    if (isLease(answer)) open.add(answer.id);
    say({ kind: 'answer', requestId, answer });
  };

  const take = async (request: LeaseRequest) => {
    const id = asker * IDS_PER_ASKER + request.id;
    const answer = lending.acquire({ ...request, id });
    if (!(answer instanceof Promise)) {
      give(request.id, answer);
      return;
    }
    waiting.add(id);
    const late = await answer;
    waiting.delete(id);
    give(request.id, late);
  };

  return {
    hear(message) {
      switch (message.kind) {
        case 'take':
          void take(message.request); // never rejects: neither does the promise of a lease
          break;
        case 'cancel':
          lending.cancel(asker * IDS_PER_ASKER + message.requestId);
          break;
        case 'report':
          if (message.report.kind !== 'accepted') open.delete(message.report.lease);
          lending.report(message.report);
          break;
      }
    },
    close() {
      closed = true;
      for (const id of waiting) lending.cancel(id);
      for (const lease of open) endForNobody(lending, lease);
      open.clear();
    },
  };
}

function endForNobody(lending: LeaseProvider, lease: number): void {
  lending.report({ lease, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
}

/** The pool at the other end of the channel. Every `take` is answered by a promise. */
export function connectLending(say: (message: ToPool) => void): RemoteLending {
  return new ChannelLending(say);
}

class ChannelLending implements RemoteLending {
  readonly #say: (message: ToPool) => void;
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #closed = false;

  constructor(say: (message: ToPool) => void) {
    this.#say = say;
  }

  acquire(request: LeaseRequest): LeaseRefusal | Promise<Answer> {
    if (this.#closed) return shuttingDown();
    if (this.#asked.has(request.id)) throw new TypeError(`lease request ${request.id} is under way already`);
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#asked.set(request.id, resolve);
    this.#say({ kind: 'take', request });
    return promise;
  }

  cancel(requestId: number): void {
    if (this.#asked.has(requestId)) this.#say({ kind: 'cancel', requestId });
  }

  report(report: LeaseReport): void {
    this.#say({ kind: 'report', report });
  }

  hear({ requestId, answer }: FromPool): void {
    this.#settle(requestId, answer);
  }

  close(): void {
    this.#closed = true;
    for (const requestId of [...this.#asked.keys()]) this.#settle(requestId, shuttingDown());
  }

  #settle(requestId: number, answer: Answer): void {
    const resolve = this.#asked.get(requestId);
    this.#asked.delete(requestId);
    resolve?.(answer);
  }
}

function shuttingDown(): LeaseRefusal {
  return { refused: 'shutting-down', reason: 'The pool is not there any more.', sources: [] };
}
