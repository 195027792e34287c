/** The contract of an attempt: its task and what it ends with. */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { Lease } from '../pool/lease.ts';
import type { PreparedLogin } from './credentials.ts';
import type { DialRequest, ForwardMode } from './dial.ts';
import type { HopFailure } from './front-hop.ts';
import type { OpenSocket } from './member-socket.ts';
import type { SourceMemory } from './source-memory.ts';
import type { TakenConnection } from './warm-connection.ts';

/** What all attempts of one dialer share. */
export interface AttemptParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
  memoryOf(source: string): SourceMemory;
}

export interface AttemptTask {
  readonly lease: Lease;
  readonly target: HostPort;
  readonly use: DialRequest['use'];
  /** Never use absolute form. */
  readonly connectOnly?: boolean | undefined;
  /** It runs in parallel with a slow first attempt. */
  readonly hedge: boolean;
  /** For the connection and the handshake together, including a second connection. */
  readonly timeoutMs: number;
  /** The first connection, if it was opened ahead. */
  readonly warm?: TakenConnection | undefined;
}

/** A connection to the target, as an attempt hands it over. */
export interface RawConnection {
  /** Paused, without listeners of the attempt. */
  readonly socket: Socket;
  /** Bytes that followed the member's answer. */
  readonly head: Buffer;
  readonly forwardMode: ForwardMode;
  /** With `absolute`: the status with which the member refused CONNECT for the same request, if it was tried. */
  readonly connectStatus?: number | undefined;
  /** With `absolute`: the connection was opened ahead, and may turn out to be closed. */
  readonly isWarm: boolean;
  /** The credentials that the member accepted or, with `absolute`, gets with the request; undefined: none. */
  readonly login: PreparedLogin | undefined;
}

/** `connect`: until TCP, and TLS if any, are established. `answer`: between noria's request and the member's answer. */
export type AttemptPhase = 'connect' | 'answer' | 'done';

export interface AttemptFailure {
  readonly fault: FaultCode;
  readonly phase: AttemptPhase;
  /** The cause in noria's words and numbers: `status 502`, `ECONNREFUSED`. */
  readonly detail: string;
  /** This machine is out of sockets, ports or memory. */
  readonly local: boolean;
  /** The member reports that the target refused the connection. */
  readonly targetRefused: boolean;
  /** The member requires credentials, and noria does not know yet whether the source needs them. */
  readonly withheld: boolean;
  /**
   * What the failure shows about our own network. `up`: another machine answered, if only to refuse. `down`: no answer, so
   * either the member or our network is down. `unknown`: nothing was sent.
   */
  readonly network: 'up' | 'down' | 'unknown';
  /** The front proxy did not connect noria to the member. */
  readonly hop?: HopFailure | undefined;
  readonly ms: number;
}
