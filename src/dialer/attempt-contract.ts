/** The types of an attempt: its task, and its two results, a connection or a failure. */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { Lease } from '../pool/lease.ts';
import type { PreparedLogin } from './credentials.ts';
import type { DialRequest, ForwardMode } from './dial.ts';
import type { FrontFailure } from './front-handshake.ts';
import type { OpenSocket } from './member-socket.ts';
import type { SourceMemory } from './source-memory.ts';
import type { TakenConnection } from './warm-connection.ts';

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
  /** Whether to use only CONNECT and never absolute form. */
  readonly connectOnly?: boolean | undefined;
  /** Whether the attempt is a hedge: it runs in parallel with a slow first attempt. */
  readonly hedge: boolean;
  /**
   * The time limit for connection and handshake together. If the attempt connects to the same member again, the limit
   * includes the second connection.
   */
  readonly timeoutMs: number;
  /** A connection to the member that noria opened before the attempt, if there is one. */
  readonly warm?: TakenConnection | undefined;
}

/** A connection to the target: the result of a successful attempt. */
export interface RawConnection {
  /**
   * The attempt has removed its listeners from the socket. The socket may be flowing: the owner must add a 'data'
   * listener or pause the socket in the same tick, otherwise bytes are lost. The attempt does not pause the socket,
   * because a pause costs two system calls.
   */
  readonly socket: Socket;
  /** The bytes that the member sent after its answer to the handshake. They are for the client. */
  readonly early: Buffer;
  readonly forwardMode: ForwardMode;
  /**
   * Only with `forwardMode: 'absolute'`: the HTTP status with which the member refused CONNECT for the same request.
   */
  readonly connectStatus?: number | undefined;
  /**
   * Only with `forwardMode: 'absolute'`: whether noria opened the connection before the attempt. The member may have
   * closed such a connection in the meantime.
   */
  readonly isWarm: boolean;
  /**
   * The credentials that the member accepted. With `forwardMode: 'absolute'`: the credentials to send with the request.
   * Undefined: no credentials.
   */
  readonly login: PreparedLogin | undefined;
}

/**
 * The phases of an attempt. `connect`: until TCP, and TLS if used, are established. `answer`: from noria's request to
 * the member's answer.
 */
export type AttemptPhase = 'connect' | 'answer' | 'done';

export interface AttemptFailure {
  readonly fault: FaultCode;
  readonly phase: AttemptPhase;
  /** The cause as a short text without data from outside: `status 502`, `ECONNREFUSED`. */
  readonly detail: string;
  /** Whether the cause is that this machine is out of sockets, ports or memory. */
  readonly local: boolean;
  /** Whether the member reports that the target refused the connection. */
  readonly targetRefused: boolean;
  /**
   * Whether the member requires credentials that noria has but does not send yet: noria first finds out whether most
   * members require credentials.
   */
  readonly withheld: boolean;
  /**
   * What the failure shows about our own network. `up`: another machine answered, for example with a refusal. `down`:
   * no machine answered, so either the member or our network is down. `unknown`: noria has sent nothing, or the failure
   * is local.
   */
  readonly network: 'up' | 'down' | 'unknown';
  /**
   * Why the front proxy did not connect noria to the member. Absent if the front proxy did, or if there is no front
   * proxy.
   */
  readonly frontFailure?: FrontFailure | undefined;
  readonly ms: number;
}
