/** The types of an attempt: its task, and its two results, a connection or a failure. */
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
  /** Use only CONNECT, never absolute form. */
  readonly connectOnly?: boolean | undefined;
  /** The attempt is a hedge: it runs in parallel with a slow first attempt. */
  readonly hedge: boolean;
  /** Limits connection and handshake together, including a second connection to the same member. */
  readonly timeoutMs: number;
  /** A connection to the member that was opened before the attempt, if there is one. */
  readonly warm?: TakenConnection | undefined;
}

/** A connection to the target, as an attempt hands it over. */
export interface RawConnection {
  /** Paused. The attempt has removed its listeners. */
  readonly socket: Socket;
  /** Bytes that the member sent after its answer. */
  readonly head: Buffer;
  readonly forwardMode: ForwardMode;
  /** Only with `absolute`: the HTTP status with which the member refused CONNECT for the same request. */
  readonly connectStatus?: number | undefined;
  /** Only with `absolute`: the connection was opened before the attempt, so the member may have closed it. */
  readonly isWarm: boolean;
  /**
   * The credentials that the member accepted. With `absolute`: the credentials to send with the request. Undefined:
   * none.
   */
  readonly login: PreparedLogin | undefined;
}

/** `connect`: until TCP, and TLS if used, are established. `answer`: from noria's request to the member's answer. */
export type AttemptPhase = 'connect' | 'answer' | 'done';

export interface AttemptFailure {
  readonly fault: FaultCode;
  readonly phase: AttemptPhase;
  /** The cause as a short text without data from outside: `status 502`, `ECONNREFUSED`. */
  readonly detail: string;
  /** This machine is out of sockets, ports or memory. */
  readonly local: boolean;
  /** The member reports that the target refused the connection. */
  readonly targetRefused: boolean;
  /** The member requires credentials, and noria does not know yet whether the source needs them. */
  readonly withheld: boolean;
  /**
   * What the failure shows about our own network. `up`: another machine answered, for example with a refusal. `down`:
   * no answer, so either the member or our network is down. `unknown`: nothing was sent.
   */
  readonly network: 'up' | 'down' | 'unknown';
  /** Present if the front proxy did not connect noria to the member. */
  readonly hop?: HopFailure | undefined;
  readonly ms: number;
}
