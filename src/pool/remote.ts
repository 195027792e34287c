/**
 * Lending over a MessagePort: the same interface for listeners that live in another thread or process than the pool.
 *
 * Requests, leases and reports are plain data, so they go over as they are. Each end belongs to whoever opened it.
 * When one end goes, the other tidies up: who waits is refused, and leases that nobody can report on any more end.
 */
import type { MessagePort } from 'node:worker_threads';
import {
  isLease,
  type Lease,
  type LeaseReport,
  type LeaseRequest,
  type Lending,
  type Refusal,
} from './lease.ts';

type Answer = Lease | Refusal;

type ToPool =
  | { readonly kind: 'take'; readonly request: LeaseRequest }
  | { readonly kind: 'cancel'; readonly requestId: number }
  | { readonly kind: 'report'; readonly report: LeaseReport };

interface FromPool {
  readonly requestId: number;
  readonly answer: Answer;
}

/** Request ids of one asker stay below this; the pool sees them shifted by the asker's number. */
const IDS_PER_ASKER = 2 ** 32;

/** A connection that its owner closes. */
export interface RemoteLending extends Lending {
  /** Closes the port. Who waits is refused with `shutting-down`. Safe to call twice. */
  close(): void;
}

/**
 * Lends to whoever is at the other end of the port, until either end closes it.
 *
 * @param asker - a number from 1 on that no other port of this pool has: requests of different askers may have the
 * same id, and are kept apart by it. Requests made at the pool itself are those of asker 0.
 */
export function serveLending(port: MessagePort, lending: Lending, asker: number): { close(): void } {
  const waiting = new Set<number>();
  const open = new Set<number>();
  let closed = false;

  const give = (requestId: number, answer: Answer) => {
    if (isLease(answer)) {
      if (closed) {
        lending.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
        return;
      }
      open.add(answer.id);
    }
    const message: FromPool = { requestId, answer };
    port.postMessage(message); // to a closed port: does nothing
  };

  const take = async (request: LeaseRequest) => {
    const id = asker * IDS_PER_ASKER + request.id;
    const answer = lending.take({ ...request, id });
    if (!(answer instanceof Promise)) {
      give(request.id, answer);
      return;
    }
    waiting.add(id);
    const late = await answer;
    waiting.delete(id);
    give(request.id, late);
  };

  port.on('message', (message: ToPool) => {
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
  });
  port.on('close', () => {
    closed = true;
    for (const id of waiting) lending.cancel(id);
    for (const lease of open)
      lending.report({ lease, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
    open.clear();
  });
  return { close: () => port.close() };
}

/** The pool at the other end of the port. Every `take` is answered by a promise. */
export function connectLending(port: MessagePort): RemoteLending {
  return new PortLending(port);
}

class PortLending implements RemoteLending {
  readonly #port: MessagePort;
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #closed = false;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', ({ requestId, answer }: FromPool) => this.#settle(requestId, answer));
    port.on('close', () => this.#gone());
  }

  take(request: LeaseRequest): Refusal | Promise<Answer> {
    if (this.#closed) return shuttingDown();
    if (this.#asked.has(request.id)) throw new TypeError(`lease request ${request.id} is under way already`);
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#asked.set(request.id, resolve);
    this.#post({ kind: 'take', request });
    return promise;
  }

  cancel(requestId: number): void {
    if (this.#asked.has(requestId)) this.#post({ kind: 'cancel', requestId });
  }

  report(report: LeaseReport): void {
    this.#post({ kind: 'report', report });
  }

  close(): void {
    this.#gone();
    this.#port.close();
  }

  #post(message: ToPool): void {
    this.#port.postMessage(message);
  }

  #settle(requestId: number, answer: Answer): void {
    const resolve = this.#asked.get(requestId);
    this.#asked.delete(requestId);
    resolve?.(answer);
  }

  #gone(): void {
    this.#closed = true;
    for (const requestId of [...this.#asked.keys()]) this.#settle(requestId, shuttingDown());
  }
}

function shuttingDown(): Refusal {
  return { refused: 'shutting-down', reason: 'The pool is not there any more.', sources: [] };
}
