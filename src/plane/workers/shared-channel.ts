/**
 * Connects a worker to the shared pool of the primary (see fleet/shared-pool.ts). `IpcSharedPool` in the worker sends
 * each call to the primary, where `SharedPoolServer` executes it.
 *
 * All processes of a machine have the same monotonic time, so moments travel unchanged. Facts are encoded, because they may
 * contain passwords of members.
 * The owner of the pipe passes each received message to `receive`, in order.
 */
import type { ReplicaOptions } from '../../fleet/replica.ts';
import type { Beat, Fact, LoggedFact, SharedSession, SharedState } from '../../fleet/schemas.ts';
import type { FactFollower, FleetActivity, SharedPool } from '../../fleet/shared-pool.ts';
import { decodeFromIpc, encodeForIpc, type IpcEncoded } from './ipc-encoding.ts';

/**
 * Each process reports its activity every `beatMs`. This is often enough for people who watch the status, and costs little
 * compared with tunnels.
 */
export const HOW_TO_SHARE = {
  sameMachine: true,
  evictionVotes: () => 1,
  beatMs: 250,
} as const satisfies Partial<ReplicaOptions>;

export type ToSharedPool =
  | { readonly kind: 'shared.follow' }
  | { readonly kind: 'shared.publish'; readonly facts: IpcEncoded }
  | { readonly kind: 'shared.beat'; readonly beat: Beat }
  | {
      readonly kind: 'shared.bind';
      readonly id: number;
      readonly session: SharedSession;
      readonly from: string | undefined;
    }
  | { readonly kind: 'shared.find'; readonly id: number; readonly name: string };

export type FromSharedPool =
  | { readonly kind: 'shared.state'; readonly state: IpcEncoded }
  | { readonly kind: 'shared.facts'; readonly facts: IpcEncoded }
  | { readonly kind: 'shared.activity'; readonly activity: FleetActivity }
  | { readonly kind: 'shared.bound'; readonly id: number; readonly session: SharedSession | undefined };

export class SharedPoolServer implements FactFollower {
  readonly #shared: SharedPool;
  readonly #send: (message: FromSharedPool) => void;
  #closed = false;

  constructor(shared: SharedPool, send: (message: FromSharedPool) => void) {
    this.#shared = shared;
    this.#send = send;
  }

  receive(message: ToSharedPool): void {
    switch (message.kind) {
      case 'shared.follow':
        void this.#shared.follow(this);
        break;
      case 'shared.publish':
        this.#shared.publish(decodeFromIpc<readonly Fact[]>(message.facts));
        break;
      case 'shared.beat':
        this.#shared.beat(message.beat);
        break;
      case 'shared.bind':
        void this.#answer(message.id, this.#shared.bindSession(message.session, message.from));
        break;
      case 'shared.find':
        void this.#answer(message.id, this.#shared.findSession(message.name));
        break;
    }
  }

  receiveState(state: SharedState): void {
    this.#send({ kind: 'shared.state', state: encodeForIpc(state) });
  }

  receiveFacts(facts: readonly LoggedFact[]): void {
    this.#send({ kind: 'shared.facts', facts: encodeForIpc(facts) });
  }

  receiveActivity(activity: FleetActivity): void {
    this.#send({ kind: 'shared.activity', activity });
  }

  /** The state of this machine contains all sessions. */
  heldSessions(): string[] {
    return [];
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#shared.close();
  }

  async #answer(id: number, found: Promise<SharedSession | undefined>): Promise<void> {
    const session = await found;
    if (!this.#closed) this.#send({ kind: 'shared.bound', id, session });
  }
}

export class IpcSharedPool implements SharedPool {
  readonly #send: (message: ToSharedPool) => void;
  readonly #binding = new Map<number, (session: SharedSession | undefined) => void>();
  readonly #following = Promise.withResolvers<void>();
  #follower: FactFollower | undefined;
  #lastId = 0;
  #closed = false;

  constructor(send: (message: ToSharedPool) => void) {
    this.#send = send;
  }

  follow(follower: FactFollower): Promise<void> {
    this.#follower = follower;
    this.#send({ kind: 'shared.follow' });
    return this.#following.promise;
  }

  publish(facts: readonly Fact[]): void {
    if (!this.#closed) this.#send({ kind: 'shared.publish', facts: encodeForIpc(facts) });
  }

  beat(beat: Beat): void {
    if (!this.#closed) this.#send({ kind: 'shared.beat', beat });
  }

  bindSession(session: SharedSession, from: string | undefined): Promise<SharedSession | undefined> {
    return this.#ask((id) => ({ kind: 'shared.bind', id, session, from }));
  }

  findSession(name: string): Promise<SharedSession | undefined> {
    return this.#ask((id) => ({ kind: 'shared.find', id, name }));
  }

  receive(message: FromSharedPool): void {
    switch (message.kind) {
      case 'shared.state':
        this.#follower?.receiveState(decodeFromIpc<SharedState>(message.state));
        break;
      case 'shared.facts':
        this.#follower?.receiveFacts(decodeFromIpc<readonly LoggedFact[]>(message.facts));
        break;
      case 'shared.activity':
        this.#follower?.receiveActivity(message.activity);
        this.#following.resolve();
        break;
      case 'shared.bound':
        this.#binding.get(message.id)?.(message.session);
        this.#binding.delete(message.id);
        break;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
  }

  #ask(question: (id: number) => ToSharedPool): Promise<SharedSession | undefined> {
    if (this.#closed) return Promise.resolve(undefined);
    this.#lastId += 1;
    const { promise, resolve } = Promise.withResolvers<SharedSession | undefined>();
    this.#binding.set(this.#lastId, resolve);
    this.#send(question(this.#lastId));
    return promise;
  }
}
