/** All that the primary and a worker say to each other: plain data that survives JSON. */
import type { EventName, NoriaEvents } from '../../core/events.ts';
import type { FaultCode } from '../../core/faults.ts';
import type { SourceFault } from '../../dialer/credentials.ts';
import type { BoundAddress } from '../../listener/bind.ts';
import type { OwnAddress } from '../../listener/deny-targets.ts';
import type { PermitOrder, PermitRequest } from './connection-permits.ts';
import type { IpcEncoded } from './ipc-encoding.ts';
import type { FromPool, ToPool } from './lease-channel.ts';

/** Signals that workers ignore: a terminal sends them to all processes, and what is to be done then is the primary's to say. */
export const SIGNALS_OF_THE_PRIMARY = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
] as const satisfies readonly NodeJS.Signals[];

/** What the data plane tells on its bus: the primary tells it again on its own. */
export const FORWARDED_EVENTS = [
  'connection.opened',
  'connection.closed',
  'client.refused',
  'dial.attempted',
  'dial.ended',
  'hedge.ended',
  'tunnel.closed',
] as const satisfies readonly EventName[];

export type ForwardedEventName = (typeof FORWARDED_EVENTS)[number];

/** One event on its way. */
export interface ForwardedEvent<Name extends ForwardedEventName = ForwardedEventName> {
  readonly kind: 'told';
  readonly name: Name;
  readonly event: NoriaEvents[Name];
}

export type FromWorker =
  | ToPool
  | ForwardedEvent
  /** It has loaded, and can be told what to do. */
  | { readonly kind: 'loaded' }
  /** The answer to `update`. */
  | { readonly kind: 'updated'; readonly outcome: UpdateOutcome }
  /** The answer to `drain`: nothing is under way any more. */
  | { readonly kind: 'drained' }
  | { readonly kind: 'source.fault'; readonly fault: SourceFault }
  /** This worker's own judgement of our network. */
  | { readonly kind: 'network.judged'; readonly down: boolean }
  /** Somebody gave wrong credentials. */
  | { readonly kind: 'client.failed'; readonly listener: number; readonly address: string | undefined }
  | { readonly kind: 'permits'; readonly listener: number; readonly request: PermitRequest }
  /** It ends, by an error that nobody caught. */
  | { readonly kind: 'crashed'; readonly stack: string };

export type ToWorker =
  | FromPool
  | Begin
  | { readonly kind: 'permits'; readonly listener: number; readonly order: PermitOrder }
  | PlaneCommand;

/** First of all: what it works with. */
export interface Begin {
  readonly kind: 'begin';
  readonly dialer: IpcEncoded;
  readonly surroundings: Surroundings;
  /** Descriptors of listening sockets that were handed over to the primary. */
  readonly handedOver: readonly number[];
}

/** What is done with the data plane. */
export type PlaneCommand =
  | Update
  /** What the dialer is to do from now on. */
  | { readonly kind: 'configure'; readonly dialer: IpcEncoded }
  /** What listeners have to know of the rest of noria. */
  | { readonly kind: 'surroundings'; readonly surroundings: Surroundings }
  | { readonly kind: 'forgive'; readonly source: string }
  | { readonly kind: 'cut'; readonly leases: readonly number[] }
  /** Somebody out there answered another process. */
  | { readonly kind: 'answered' }
  /** Somebody gave wrong credentials to another process. */
  | { readonly kind: 'client.failed'; readonly listener: number; readonly address: string | undefined }
  | { readonly kind: 'drain' }
  | { readonly kind: 'close' };

/** Open these listeners, and close those that are not among them; all or none. */
export interface Update {
  readonly kind: 'update';
  readonly listeners: IpcEncoded;
  readonly drainTimeoutMs: number;
  /** Ids of all listeners whose connections the primary still counts: what is known of others may be forgotten. */
  readonly counted: readonly number[];
}

export type UpdateOutcome =
  /** What is bound, for each listener, in order. */
  | { readonly ok: true; readonly addresses: readonly (readonly BoundAddress[])[] }
  | {
      readonly ok: false;
      readonly code: FaultCode;
      readonly message: string;
      /**
       * It holds a socket that could not be bound, which node:cluster never lets go of: it ends the worker when that port
       * is named again.
       */
      readonly spoilt?: boolean;
    };

export interface Surroundings {
  /** Names of all sources. */
  readonly sources: readonly string[];
  /** Where noria listens, but for these listeners: never a target. */
  readonly own: readonly OwnAddress[];
}
