/**
 * What the primary and a worker call in each other, through the pipe. `call` has no answer, `ask` has one. The calls of a
 * process run in their order. The owner of the pipe passes each received message to `receive`.
 *
 * All processes of a machine have the same monotonic time, so moments travel unchanged.
 */
import type { FaultCode } from '../../core/faults.ts';
import type { BoundAddress } from '../../core/listen-address.ts';
import type { MemberDialer } from '../../dialer/dialer.ts';
import type { ReplicaOptions } from '../../fleet/replica.ts';
import type { FactFollower, SharedPool } from '../../fleet/shared-pool.ts';
import type { WrongAttempt } from '../../listener/access.ts';
import type { SourceForecast } from '../../pool/lease.ts';
import type { ClientName, ClientUse } from '../../pool/leases.ts';
import type {
  DataPlane,
  ListenerSettings,
  LocalPlane,
  LocalPlaneOptions,
  PlaneContext,
  PlaneSettings,
} from '../local-plane.ts';
import type { PermitReply, PermitRequest } from './connection-permits.ts';
import type { EventColumns } from './event-columns.ts';
import { decodeFromIpc, encodeForIpc, type IpcEncoded } from './ipc-encoding.ts';

/** A terminal sends these signals to all processes of noria. Workers ignore them, because the primary decides what to do. */
export const SIGNALS_FOR_PRIMARY = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
] as const satisfies readonly NodeJS.Signals[];

export const HOW_TO_SHARE = {
  sameMachine: true,
  evictionVotes: () => 1,
  beatMs: 250,
} as const satisfies Partial<ReplicaOptions>;

/** What a process writes to the pipe. A call with an `id` wants an answer. */
export type RemoteMessage =
  | {
      readonly kind: 'call';
      readonly call: string;
      readonly args: IpcEncoded | readonly unknown[];
      readonly id?: number;
    }
  | { readonly kind: 'answer'; readonly id: number; readonly value: IpcEncoded };

export type FromWorker =
  | RemoteMessage
  | EventColumns
  | { readonly kind: 'loaded' }
  | { readonly kind: 'crashed'; readonly stack: string };

export interface WorkerCalls
  extends Pick<DataPlane, 'commit' | 'setContext' | 'resetRefusals' | 'closeConnections' | 'drain'>,
    Pick<LocalPlane, 'closeTunnels' | 'countWrongCredentials'>,
    Pick<FactFollower, 'receiveState' | 'receiveFacts' | 'receiveActivity'>,
    /** Another process got an answer from a member or the service, so the network is up. */
    Pick<MemberDialer, 'answeredElsewhere'> {
  /** The first call. */
  open(plane: {
    readonly replica: string;
    readonly settings: PlaneSettings;
    readonly forecasts: readonly SourceForecast[];
    readonly context: PlaneContext;
    readonly inheritedFds: readonly number[];
    readonly mark: string;
  }): void;
  update(
    listeners: readonly ListenerSettings[],
    drainTimeoutMs: number,
    permitListeners: readonly number[],
  ): Promise<UpdateOutcome>;
  receiveForecasts(forecasts: readonly SourceForecast[]): void;
  receivePermits(listener: number, reply: PermitReply): void;
  findUse(name: ClientName): ClientUse | undefined;
  close(): void;
}

export interface PrimaryCalls
  extends Pick<SharedPool, 'publish' | 'beat' | 'bindSession' | 'findSession'>,
    Pick<LocalPlane, 'closeTunnels'>,
    Pick<LocalPlaneOptions, 'onSourceFault' | 'onNetwork'> {
  /** From now on, the primary calls the methods of FactFollower. The answer comes after the first activity. */
  follow(): Promise<void>;
  /** A client sent wrong credentials to this worker: the other workers count the attempt as well. */
  countWrongCredentials(listener: number, attempt: WrongAttempt): void;
  receivePermits(listener: number, request: PermitRequest): void;
  lastUses(name: ClientName): Promise<readonly ClientUse[]>;
}

export type UpdateOutcome =
  | { readonly ok: true; readonly addresses: readonly (readonly BoundAddress[])[] }
  | {
      readonly ok: false;
      readonly code: FaultCode;
      readonly message: string;
      /**
       * True if the worker has a socket that could not be bound. node:cluster never closes that socket, so this worker can no
       * longer listen on the port.
       */
      readonly holdsUnboundSocket?: boolean;
    };

type Functions<Calls> = { readonly [Name in keyof Calls]: (...args: never[]) => unknown };

/** Frequent calls whose arguments contain no secret and no `Infinity`. They are not copied. */
const PLAIN: readonly string[] = ['beat', 'receiveActivity'];

export class RemoteCalls<Theirs extends Functions<Theirs>, Own extends Functions<Own>> {
  own: Partial<Own> = {};
  readonly #send: (message: RemoteMessage) => void;
  readonly #asked = new Map<number, (value: unknown) => void>();
  #lastId = 0;
  #isClosed = false;

  constructor(send: (message: RemoteMessage) => void) {
    this.#send = send;
  }

  call<Name extends keyof Theirs & string>(call: Name, ...args: Parameters<Theirs[Name]>): void {
    this.#send({ kind: 'call', call, args: encodedArguments(call, args) });
  }

  /** @returns undefined if the other process ends before it answers. */
  ask<Name extends keyof Theirs & string>(
    call: Name,
    ...args: Parameters<Theirs[Name]>
  ): Promise<Awaited<ReturnType<Theirs[Name]>> | undefined> {
    if (this.#isClosed) return Promise.resolve(undefined);
    this.#lastId += 1;
    const { promise, resolve } = Promise.withResolvers<Awaited<ReturnType<Theirs[Name]>> | undefined>();
    // The cast is safe because the other process answers with the result of this call.
    this.#asked.set(this.#lastId, resolve as (value: unknown) => void);
    this.#send({ kind: 'call', call, args: encodedArguments(call, args), id: this.#lastId });
    return promise;
  }

  receive(message: RemoteMessage): void {
    if (message.kind === 'answer') {
      this.#asked.get(message.id)?.(decodeFromIpc<{ readonly value?: unknown }>(message.value).value);
      this.#asked.delete(message.id);
      return;
    }
    const { call, args, id } = message;
    // The cast is safe because the other process checks the arguments of each call.
    const own = this.own[call as keyof Own] as ((...args: unknown[]) => unknown) | undefined;
    if (own === undefined) throw new TypeError(`the call ${call} arrived before the call open`);
    const result = own(...('encoded' in args ? decodeFromIpc<unknown[]>(args) : args));
    if (id === undefined) return;
    void Promise.resolve(result).then((value) =>
      this.#send({ kind: 'answer', id, value: encodeForIpc({ value }) }),
    );
  }

  close(): void {
    this.#isClosed = true;
    for (const answer of this.#asked.values()) answer(undefined);
    this.#asked.clear();
  }
}

function encodedArguments(call: string, args: readonly unknown[]): IpcEncoded | readonly unknown[] {
  return PLAIN.includes(call) ? args : encodeForIpc(args);
}

/** The calls of a worker that follows the pool, which the primary shares with it. */
export function followerIn(worker: Pick<RemoteCalls<WorkerCalls, PrimaryCalls>, 'call'>): FactFollower {
  return {
    receiveState: (state) => worker.call('receiveState', state),
    receiveFacts: (facts) => worker.call('receiveFacts', facts),
    receiveActivity: (activity) => worker.call('receiveActivity', activity),
    heldSessions: () => [], // the state of this machine contains all sessions
  };
}

export function sharedPoolOf(primary: RemoteCalls<PrimaryCalls, WorkerCalls>): SharedPool {
  return {
    follow(follower) {
      Object.assign(primary.own, {
        receiveState: (state) => follower.receiveState(state),
        receiveFacts: (facts) => follower.receiveFacts(facts),
        receiveActivity: (activity) => follower.receiveActivity(activity),
      } satisfies Partial<WorkerCalls>);
      return primary.ask('follow');
    },
    publish: (facts) => primary.call('publish', facts),
    beat: (beat) => primary.call('beat', beat),
    bindSession: (session, from) => primary.ask('bindSession', session, from),
    findSession: (name) => primary.ask('findSession', name),
    close: async () => {},
  };
}
