/**
 * Leases for listeners in another process than the pool. RemotePool, in the worker, offers the pool's interface; LeaseServer,
 * in the primary, applies its requests to the pool.
 *
 * Requests, leases and reports are plain data and go through the channel unchanged, except for a member's own password. The owner of the channel passes each
 * received message to `receive`, in order, and calls `close` when the channel has closed.
 */
import {
  isLease,
  type Lease,
  type LeaseProvider,
  type LeaseRefusal,
  type LeaseReport,
  type LeaseRequest,
} from '../../pool/lease.ts';
import { decodeFromIpc, encodeForIpc, type IpcEncoded } from './ipc-encoding.ts';

type Answer = Lease | LeaseRefusal;
/** An answer as JSON carries it: a password becomes its mask there. */
type SentAnswer = (Omit<Lease, 'login'> & { readonly login?: IpcEncoded }) | LeaseRefusal;

/** From a worker to the pool. */
export type ToPool =
  | { readonly kind: 'lease.asked'; readonly request: LeaseRequest }
  | { readonly kind: 'lease.canceled'; readonly requestId: number }
  | { readonly kind: 'lease.reported'; readonly report: LeaseReport };

/** From the pool to a worker. */
export interface FromPool {
  readonly kind: 'lease.answered';
  readonly requestId: number;
  readonly answer: SentAnswer;
}

/** Request ids of a worker are below this. The pool sees each id plus this times the worker's number. */
const IDS_PER_WORKER = 2 ** 32;

/** Serves one worker. */
export class LeaseServer {
  readonly #pool: LeaseProvider;
  readonly #firstId: number;
  readonly #send: (message: FromPool) => void;
  readonly #waiting = new Set<number>();
  readonly #open = new Set<number>();
  #closed = false;

  /** @param worker - 1 or more, never used twice for this pool. 0 would collide with the requests of the primary itself. */
  constructor(pool: LeaseProvider, worker: number, send: (message: FromPool) => void) {
    this.#pool = pool;
    this.#firstId = worker * IDS_PER_WORKER;
    this.#send = send;
  }

  receive(message: ToPool): void {
    switch (message.kind) {
      case 'lease.asked':
        void this.#acquire(message.request); // never rejects: the pool's promise does not either
        break;
      case 'lease.canceled':
        this.#pool.cancel(this.#firstId + message.requestId);
        break;
      case 'lease.reported':
        if (message.report.kind !== 'accepted') this.#open.delete(message.report.lease);
        this.#pool.report(message.report);
        break;
    }
  }

  /** The worker has exited: cancels its requests and ends its leases without blame. Safe to call twice. */
  close(): void {
    this.#closed = true;
    for (const id of this.#waiting) this.#pool.cancel(id);
    for (const lease of this.#open) this.#endWithoutBlame(lease);
    this.#open.clear();
  }

  async #acquire(request: LeaseRequest): Promise<void> {
    const id = this.#firstId + request.id;
    const answer = this.#pool.acquire({ ...request, id });
    if (!(answer instanceof Promise)) {
      this.#answer(request.id, answer);
      return;
    }
    this.#waiting.add(id);
    const late = await answer;
    this.#waiting.delete(id);
    this.#answer(request.id, late);
  }

  #answer(requestId: number, answer: Answer): void {
    if (this.#closed) {
      if (isLease(answer)) this.#endWithoutBlame(answer.id);
      return;
    }
    if (isLease(answer)) this.#open.add(answer.id);
    this.#send({ kind: 'lease.answered', requestId, answer: toSent(answer) });
  }

  #endWithoutBlame(lease: number): void {
    this.#pool.report({ lease, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
  }
}

/** The pool of another process. `acquire` answers with a promise, except after `close`. */
export class RemotePool implements LeaseProvider {
  readonly #send: (message: ToPool) => void;
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #closed = false;

  constructor(send: (message: ToPool) => void) {
    this.#send = send;
  }

  acquire(request: LeaseRequest): LeaseRefusal | Promise<Answer> {
    if (this.#closed) return shuttingDown();
    if (this.#asked.has(request.id)) throw new TypeError(`lease request ${request.id} is already in flight`);
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#asked.set(request.id, resolve);
    this.#send({ kind: 'lease.asked', request });
    return promise;
  }

  cancel(requestId: number): void {
    if (this.#asked.has(requestId)) this.#send({ kind: 'lease.canceled', requestId });
  }

  /** Unknown here: the pool is in another process, and the answer would come too late. */
  upcoming(): readonly [] {
    return [];
  }

  report(report: LeaseReport): void {
    this.#send({ kind: 'lease.reported', report });
  }

  receive({ requestId, answer }: FromPool): void {
    this.#resolve(requestId, fromSent(answer));
  }

  /** The pool cannot be reached: refuses waiting requests with `shutting-down`. Safe to call twice. */
  close(): void {
    this.#closed = true;
    for (const requestId of [...this.#asked.keys()]) this.#resolve(requestId, shuttingDown());
  }

  #resolve(requestId: number, answer: Answer): void {
    const resolve = this.#asked.get(requestId);
    this.#asked.delete(requestId);
    resolve?.(answer);
  }
}

function toSent(answer: Answer): SentAnswer {
  if (!isLease(answer)) return answer;
  const { login, ...lease } = answer;
  return login === undefined ? lease : { ...lease, login: encodeForIpc(login) };
}

function fromSent(answer: SentAnswer): Answer {
  if ('refused' in answer) return answer;
  const { login, ...lease } = answer;
  return login === undefined ? lease : { ...lease, login: decodeFromIpc(login) };
}

function shuttingDown(): LeaseRefusal {
  return { refused: 'shutting-down', reason: 'noria is shutting down.', sources: [] };
}
