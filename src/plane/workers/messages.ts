/** All messages between the primary and a worker: plain data that can be sent as JSON. */
import type { FaultCode } from '../../core/faults.ts';
import type { BoundAddress } from '../../core/listen-address.ts';
import type { SourceFault } from '../../dialer/credentials.ts';
import type { MemberDialer } from '../../dialer/dialer.ts';
import type { WrongAttempt } from '../../listener/access.ts';
import type { ClientName, ClientUse } from '../../pool/clients.ts';
import type { SourceForecast } from '../../pool/lease.ts';
import type { DataPlane, PlaneContext } from '../data-plane.ts';
import type { LocalPlane } from '../local-plane.ts';
import type { PermitReply, PermitRequest } from './connection-permits.ts';
import type { EventColumns } from './event-columns.ts';
import type { IpcEncoded } from './ipc-encoding.ts';
import type { FromSharedPool, ToSharedPool } from './shared-channel.ts';

/** A terminal sends these signals to all processes of noria. Workers ignore them, because the primary decides what to do. */
export const SIGNALS_FOR_PRIMARY = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
] as const satisfies readonly NodeJS.Signals[];

export type FromWorker =
  | ToSharedPool
  | EventColumns
  | { readonly kind: 'loaded' }
  | { readonly kind: 'updated'; readonly outcome: UpdateOutcome }
  | { readonly kind: 'drained' }
  | { readonly kind: 'source.fault'; readonly fault: SourceFault }
  | { readonly kind: 'network.judged'; readonly down: boolean }
  /** A client sent wrong credentials to this worker: the other workers count the attempt as well. */
  | { readonly kind: 'wrong-credentials'; readonly listener: number; readonly attempt: WrongAttempt }
  | { readonly kind: 'permits'; readonly listener: number; readonly request: PermitRequest }
  | { readonly kind: 'uses.asked'; readonly id: number; readonly name: ClientName }
  | { readonly kind: 'use.found'; readonly id: number; readonly use: ClientUse | undefined }
  | { readonly kind: 'tunnels.unwanted'; readonly name: ClientName; readonly host: string }
  | { readonly kind: 'crashed'; readonly stack: string };

export type ToWorker =
  | FromSharedPool
  | OpenPlane
  | { readonly kind: 'permits'; readonly listener: number; readonly reply: PermitReply }
  | PlaneUpdate
  | { readonly kind: 'call'; readonly call: keyof WorkerCalls; readonly args: IpcEncoded }
  | { readonly kind: 'uses.asked'; readonly id: number; readonly name: ClientName }
  | { readonly kind: 'uses.found'; readonly id: number; readonly uses: readonly ClientUse[] }
  | { readonly kind: 'drain' }
  | { readonly kind: 'close' };

/** What the primary calls in every worker. No call has an answer. */
export interface WorkerCalls
  extends Pick<DataPlane, 'commit' | 'setContext' | 'resetRefusals' | 'closeConnections'>,
    Pick<LocalPlane, 'closeTunnels' | 'countWrongCredentials'>,
    /** Another process got an answer from a member or the service, so the network is up. */
    Pick<MemberDialer, 'answeredElsewhere'> {
  receiveForecasts(forecasts: readonly SourceForecast[]): void;
}

export interface OpenPlane {
  readonly kind: 'open';
  readonly replica: string;
  readonly settings: IpcEncoded;
  readonly forecasts: IpcEncoded;
  readonly context: PlaneContext;
  readonly inheritedFds: readonly number[];
  readonly mark: string;
}

export interface PlaneUpdate {
  readonly kind: 'update';
  readonly listeners: IpcEncoded;
  readonly drainTimeoutMs: number;
  readonly permitListeners: readonly number[];
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
