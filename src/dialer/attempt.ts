/**
 * One try through one member: connects, speaks the member's protocol, and ends in a way or in a failure.
 *
 * Owns its socket and its deadline until it has ended. It may need a second connection to the same member: when that
 * asks for credentials, or does not CONNECT for a plain HTTP request. Tells its owner exactly once, or never when it
 * was cancelled.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { Lease } from '../pool/lease.ts';
import type { AttemptPhase, FailedAttempt } from './blame.ts';
import type { PreparedLogin, SourceCredentials } from './credentials.ts';
import type { ForwardMode, ForwardModeMemory } from './forward-mode.ts';
import { type Handshake, type HandshakeFailure, NO_BYTES } from './handshake.ts';
import { canName, makeHop } from './member-handshake.ts';
import { type OpenSocket, readyEvent } from './member-socket.ts';
import { endCode, isAnswer, isLocal } from './socket-errors.ts';

/** What attempts through members of one source are given by their dialer. */
export interface AttemptContext {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
  readonly credentials: SourceCredentials;
  readonly forwardMode: ForwardModeMemory;
}

/** What an attempt is to do. */
export interface AttemptTask {
  readonly lease: Lease;
  readonly target: HostPort;
  readonly use: 'tunnel' | 'forward';
  /** Started beside another one. */
  readonly hedge: boolean;
  /** Connection and handshake together, a second connection included. */
  readonly timeoutMs: number;
}

export interface AttemptOwner {
  /** `attempt.takeWay()` hands the connection over. */
  attemptAccepted(attempt: Attempt): void;
  attemptFailed(attempt: Attempt, failure: AttemptFailure): void;
}

export interface AttemptFailure extends FailedAttempt {
  /** What decided it, in our words and numbers: `status 502`, `ECONNREFUSED`. */
  readonly detail: string;
  readonly targetRefused: boolean;
  /** Nobody answered at all: it may be our own network. */
  readonly lost: boolean;
  /** The member's machine answered somehow, if only to refuse the connection. */
  readonly heard: boolean;
  readonly ms: number;
}

/** What an accepted attempt hands over. */
export interface RawConnection {
  /** Paused; the listeners of the attempt are gone from it. */
  readonly socket: Socket;
  readonly head: Buffer;
  readonly forwardMode: ForwardMode;
  readonly login: PreparedLogin | undefined;
}

/** Of the whole attempt, what TCP (and TLS) may take: a SYN that was lost is sent again after 1 and after 3 s. */
const CONNECT_SHARE = 0.8;

export class Attempt {
  readonly lease: Lease;
  readonly hedge: boolean;
  readonly #context: AttemptContext;
  readonly #owner: AttemptOwner;
  readonly #task: AttemptTask;
  readonly #startedAt: number;
  #phase: AttemptPhase = 'connect';
  #socket: Socket | undefined;
  #hop: Handshake | undefined;
  #deadline: Deadline | undefined;
  #login: PreparedLogin | undefined;
  #form: ForwardMode = 'direct';
  #head: Buffer = NO_BYTES;
  #tcpStands = false;

  constructor(context: AttemptContext, owner: AttemptOwner, task: AttemptTask) {
    this.#context = context;
    this.#owner = owner;
    this.#task = task;
    this.lease = task.lease;
    this.hedge = task.hedge;
    this.#startedAt = context.clock.monotonic();
  }

  /** Ms since its start. */
  get elapsedMs(): number {
    return this.#context.clock.monotonic() - this.#startedAt;
  }

  get phase(): AttemptPhase {
    return this.#phase;
  }

  /** Begins; may fail before it returns, when the member's protocol cannot name the target. */
  start(): void {
    if (!canName(this.lease.protocol, this.#task.target)) {
      this.#fail('member-incapable', 'its protocol cannot name the target');
      return;
    }
    const form = this.#mayBeAbsolute() ? this.#context.forwardMode.current : 'direct';
    this.#connect(this.#context.credentials.current, form);
  }

  /** Ends it at once; the owner is not told. */
  cancel(): void {
    if (this.#phase === 'done') return;
    this.#end();
    this.#drop();
  }

  /** The connection, which from now on is the caller's; undefined unless accepted, and the second time. */
  takeConnection(): RawConnection | undefined {
    const socket = this.#socket;
    if (this.#phase !== 'done' || socket === undefined) return undefined;
    this.#socket = undefined;
    return { socket, head: this.#head, forwardMode: this.#form, login: this.#login };
  }

  #connect(login: PreparedLogin | undefined, form: ForwardMode): void {
    this.#login = login;
    this.#form = form;
    this.#phase = 'connect';
    this.#tcpStands = false;
    const { protocol } = this.lease;
    this.#hop = form === 'absolute' ? undefined : makeHop(protocol, this.#task.target, login);
    const socket = this.#context.openSocket(this.lease, this.#task.use);
    this.#socket = socket;
    this.#watchClock();
    socket.on('close', this.#onClose);
    socket.on(readyEvent(protocol), this.#onReady);
    if (protocol === 'https') socket.on('connect', this.#onTcp);
  }

  /** One deadline at a time: the connection's first, what is left of the attempt after it. */
  #watchClock(): void {
    const leftMs = this.#task.timeoutMs - this.elapsedMs;
    const connectMs = this.#task.timeoutMs * CONNECT_SHARE;
    const ms = this.#phase === 'connect' ? Math.min(leftMs, connectMs) : leftMs;
    this.#deadline = this.#context.deadlines.set(ms, this.#onDeadline);
  }

  readonly #onDeadline = (): void => {
    if (this.#phase === 'connect') {
      if (this.#tcpStands) this.#fail('member-silent', 'no TLS handshake');
      else this.#fail('member-unreachable', 'no connection in time');
    } else if (this.elapsedMs < this.#task.timeoutMs) {
      this.#watchClock();
    } else {
      this.#fail('member-silent', 'no answer in time');
    }
  };

  readonly #onTcp = (): void => {
    this.#tcpStands = true;
  };

  readonly #onReady = (): void => {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#phase = 'answer';
    this.#tcpStands = true;
    const hop = this.#hop;
    if (hop === undefined) {
      this.#accept(NO_BYTES);
      return;
    }
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.write(hop.opening, 'latin1');
  };

  readonly #onData = (bytes: Buffer): void => {
    const step = this.#hop?.take(bytes);
    if (step === undefined) return;
    switch (step.kind) {
      case 'more':
        return;
      case 'send':
        this.#socket?.write(step.bytes);
        return;
      case 'accepted':
        if (this.#mayBeAbsolute()) this.#context.forwardMode.connectAccepted();
        this.#accept(step.rest);
        return;
      case 'failed':
        this.#refused(step);
    }
  };

  readonly #onEnd = (): void => {
    this.#fail('member-closed', 'end of stream');
  };

  readonly #onClose = (): void => {
    const code = endCode(this.#socket);
    if (this.#phase === 'answer') this.#fail('member-closed', code);
    else if (!this.#tcpStands) this.#fail('member-unreachable', code);
    else this.#fail(isAnswer(code) ? 'member-closed' : 'member-protocol', code);
  };

  /** The member said no. It may mean: with credentials, or not by CONNECT; then it is asked once more. */
  #refused(refusal: HandshakeFailure): void {
    const { credentials, forwardMode: forms } = this.#context;
    if (refusal.fault === 'member-auth') {
      const login = credentials.afterRefusal(this.#login);
      if (login !== undefined) {
        this.#again(login, this.#form);
        return;
      }
      credentials.refused(this.lease.member);
    } else if (
      refusal.noConnect === true &&
      this.#mayBeAbsolute() &&
      forms.connectRefused(this.lease.member)
    ) {
      this.#again(this.#login, 'absolute');
      return;
    }
    this.#fail(refusal.fault, refusal.detail, refusal.targetRefused === true);
  }

  #again(login: PreparedLogin | undefined, form: ForwardMode): void {
    this.#clearDeadline();
    this.#drop();
    this.#connect(login, form);
  }

  #accept(rest: Buffer): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    socket.pause(); // before its listener goes: a flowing stream without one loses bytes
    this.#head = rest;
    this.#end();
    this.#release(socket);
    if (this.#form === 'direct') this.#context.credentials.accepted(this.#login);
    this.#owner.attemptAccepted(this);
  }

  #fail(fault: FaultCode, detail: string, targetRefused = false): void {
    const { elapsedMs: ms } = this;
    const phase = this.#phase;
    if (phase === 'done') return;
    this.#end();
    this.#drop();
    const local = isLocal(detail);
    const unreachable = fault === 'member-unreachable';
    const heard = unreachable ? isAnswer(detail) : fault !== 'member-incapable';
    const lost = unreachable && !heard && !local;
    this.#owner.attemptFailed(this, { fault, phase, local, detail, targetRefused, lost, heard, ms });
  }

  #end(): void {
    this.#phase = 'done';
    this.#clearDeadline();
  }

  #clearDeadline(): void {
    if (this.#deadline !== undefined) this.#context.deadlines.clear(this.#deadline);
    this.#deadline = undefined;
  }

  /** Closes the connection without hearing of it again. */
  #drop(): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#socket = undefined;
    this.#release(socket);
    socket.destroy();
  }

  #release(socket: Socket): void {
    socket.off('data', this.#onData);
    socket.off('end', this.#onEnd);
    socket.off('close', this.#onClose);
    const { protocol } = this.lease;
    socket.off(readyEvent(protocol), this.#onReady);
    if (protocol === 'https') socket.off('connect', this.#onTcp);
  }

  /** Whether there is a choice of form at all: for a plain HTTP request through an HTTP member. */
  #mayBeAbsolute(): boolean {
    const { protocol } = this.lease;
    return this.#task.use === 'forward' && (protocol === 'http' || protocol === 'https');
  }
}
