/**
 * One attempt: connects to a member, performs its handshake, and ends with a connection to the target or a failure.
 * It connects to the same member again if that requires credentials, refuses CONNECT for a plain request, or fails a
 * pipelined handshake. It reports exactly once, or not at all after `cancel`.
 */
import type { Socket } from 'node:net';
import type { Deadline } from '../core/deadlines.ts';
import type { FaultCode } from '../core/faults.ts';
import type { Lease } from '../pool/lease.ts';
import type { DialRequest, ForwardMode } from './contract.ts';
import { type FrontFailure, faultOfFrontFailure, frontFailureOf } from './front-proxy.ts';
import {
  type Handshake,
  type HandshakeFailure,
  memberHandshake,
  NO_BYTES,
  socks4CanReach,
} from './handshake.ts';
import { ANSWER_CODES, closeCode, readyEvent, TCP_KEEP_ALIVE_MS } from './member-socket.ts';
import type { HandshakeMode } from './pipelining.ts';
import type { PreparedLogin, SourceMemory } from './source-memory.ts';
import type { WarmConnection, WarmParts } from './warm-connections.ts';

export interface RawConnection {
  readonly kind: 'accepted';
  readonly at: number;
  /**
   * It may be flowing: add a 'data' listener or pause it in the same tick, or bytes are lost. The attempt does not
   * pause it, because that costs two system calls.
   */
  readonly socket: Socket;
  readonly early: Buffer;
  readonly forwardMode: ForwardMode;
  /** Only in absolute form: the status with which the member refused CONNECT for the same request. */
  readonly connectStatus?: number | undefined;
  /** Only in absolute form: opened before the attempt, so the member may have closed it in the meantime. */
  readonly isWarm: boolean;
  /** What the member accepted, or what to send with a request in absolute form. */
  readonly login: PreparedLogin | undefined;
}

export type AttemptPhase = 'connect' | 'answer' | 'done';

export interface AttemptFailure {
  readonly kind: 'failed';
  readonly fault: FaultCode;
  readonly phase: AttemptPhase;
  /** `status 502`, `ECONNREFUSED`: no data from outside. */
  readonly detail: string;
  readonly targetRefused: boolean;
  /** noria has credentials that it does not send before most members require them. */
  readonly withheld: boolean;
  readonly frontFailure?: FrontFailure | undefined;
  readonly ms: number;
}

/** With the default timeout, the kernel repeats a lost SYN twice in this time: after 1 s and after 3 s. */
const CONNECT_SHARE = 0.8;

export class Attempt {
  readonly lease: Lease;
  readonly hedge: boolean;
  readonly memory: SourceMemory;
  readonly startedAt: number;
  /** What a connection that noria opened before the attempt saves. */
  readonly savedMs: number;
  readonly #parts: Omit<WarmParts, 'pool'>;
  readonly #task: ConstructorParameters<typeof Attempt>[1];
  readonly #mayUseAbsolute: boolean;
  readonly #report: (attempt: Attempt, result: RawConnection | AttemptFailure) => void;
  phase: AttemptPhase = 'connect';
  #socket: Socket | undefined;
  #handshake: Handshake | undefined;
  #mode: HandshakeMode = 'plain';
  #deadline: Deadline | undefined;
  login: PreparedLogin | undefined;
  #forwardMode: ForwardMode = 'direct';
  #tcpConnected = false;
  #connectStatus: number | undefined;
  /** Opened before the attempt, and the member has sent nothing on it since. */
  #isWarm = false;
  #connectStartedAt: number | undefined;
  #sentAt = 0;
  /** After a failed trial: pipelining was the cause if the plain handshake takes less than this. */
  #maxPlainMs: number | undefined;

  constructor(
    parts: Omit<WarmParts, 'pool'>,
    task: {
      readonly lease: Lease;
      readonly request: Pick<DialRequest, 'target' | 'use' | 'connectOnly' | 'marks'>;
      readonly hedge: boolean;
      /** Of connection and handshake together, and of a second connection to the same member. */
      readonly timeoutMs: number;
      readonly warm?: WarmConnection | undefined;
    },
    report: (attempt: Attempt, result: RawConnection | AttemptFailure) => void,
  ) {
    this.lease = task.lease;
    this.hedge = task.hedge;
    this.savedMs = task.warm?.savedMs ?? 0;
    this.memory = parts.memoryOf(task.lease.source);
    this.#parts = parts;
    this.#task = task;
    this.#report = report;
    const { use, connectOnly } = task.request;
    const { protocol } = task.lease;
    this.#mayUseAbsolute = use === 'forward' && !connectOnly && protocol.startsWith('http');
    this.startedAt = parts.clock.monotonic();
  }

  get elapsedMs(): number {
    return this.#parts.clock.monotonic() - this.startedAt;
  }

  start(): void {
    const { warm, request } = this.#task;
    const { target } = request;
    if (this.lease.protocol === 'socks4' && !socks4CanReach(target)) {
      this.#fail('member-incapable', 'SOCKS4 has no IPv6 addresses');
      return;
    }
    const { credentials, forwardMode } = this.memory;
    const mode = this.#mayUseAbsolute ? forwardMode.first(target.text) : 'direct';
    if (warm === undefined) this.#connect(credentials.firstFor(this.lease.login), mode, this.startedAt);
    else this.#continue(warm, mode);
  }

  cancel(): void {
    this.#end();
    this.#closeSocket();
  }

  #connect(login: PreparedLogin | undefined, forwardMode: ForwardMode, now: number): void {
    const { use, marks } = this.#task.request;
    this.#begin(login, forwardMode, this.#parts.openSocket(this.lease, use, marks));
    this.#connectStartedAt = now;
    this.#setDeadline(now);
  }

  #continue({ socket, login, isConnected, handshake }: WarmConnection, forwardMode: ForwardMode): void {
    this.#begin(login, forwardMode, socket);
    this.#tcpConnected = !socket.connecting;
    const { use, target } = this.#task.request;
    if (use === 'forward') socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    this.#setDeadline(this.startedAt);
    if (!isConnected) return;
    this.#isWarm = true;
    if (handshake === undefined) {
      this.#onReady();
    } else {
      this.#mode = 'plain';
      this.#handshake = handshake;
      this.#send(handshake.request(target), this.startedAt);
    }
  }

  #begin(login: PreparedLogin | undefined, forwardMode: ForwardMode, socket: Socket): void {
    const { protocol, member } = this.lease;
    this.#socket = socket;
    socket.on('close', this.#onClose);
    socket.on(readyEvent(protocol), this.#onReady);
    if (protocol === 'https') socket.on('connect', this.#onTcpConnected);
    this.login = login;
    this.#forwardMode = forwardMode;
    this.phase = 'connect';
    this.#tcpConnected = false;
    this.#isWarm = false;
    if (forwardMode === 'absolute') {
      this.#handshake = undefined;
      return;
    }
    const isFree = protocol === 'socks5' && this.#maxPlainMs === undefined;
    this.#mode = isFree ? this.memory.pipelining.modeFor(member, login !== undefined) : 'plain';
    this.#handshake = memberHandshake(protocol, this.#task.request.target, login, this.#mode !== 'plain');
  }

  #setDeadline(now: number): void {
    const { timeoutMs } = this.#task;
    let limitMs = timeoutMs - (now - this.startedAt);
    if (this.phase === 'connect') limitMs = Math.min(limitMs, timeoutMs * CONNECT_SHARE);
    else if (this.#mode === 'trial') limitMs = Math.min(limitMs, this.memory.pipelining.silenceMs);
    this.#deadline = this.#parts.deadlines.set(limitMs, this.#onDeadline, now);
  }

  readonly #onDeadline = (): void => {
    const now = this.#parts.clock.monotonic();
    if (this.phase === 'connect') {
      if (this.#failAtFront()) return;
      if (this.#tcpConnected) this.#fail('member-silent', 'TLS handshake timed out');
      else this.#fail('member-unreachable', 'connection timed out');
    } else if (now - this.startedAt >= this.#task.timeoutMs) {
      this.#fail('member-silent', 'answer timed out');
    } else if (this.#mode === 'trial') {
      // A pipelined handshake also times out if the target is slow. So pipelining was the cause only if the plain
      // handshake that follows takes less time.
      this.#endTrial(now - this.#sentAt);
    } else {
      // The connect phase ended before its deadline, so the attempt continues. Set the deadline of the handshake.
      this.#setDeadline(now);
    }
  };

  readonly #onTcpConnected = (): void => {
    this.#tcpConnected = true;
  };

  readonly #onReady = (): void => {
    const startedAt = this.#connectStartedAt;
    const now = this.#parts.clock.monotonic();
    if (startedAt !== undefined) this.memory.opening.opened(now - startedAt);
    if (this.#handshake === undefined) this.#accept(NO_BYTES);
    else this.#send(this.#handshake.opening, now);
  };

  #send(message: string | Buffer | undefined, now: number): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.phase = 'answer';
    this.#sentAt = now;
    if (this.#mode === 'trial') {
      this.#parts.deadlines.clear(this.#deadline);
      this.#setDeadline(now);
    }
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    if (message !== undefined) socket.write(message, 'latin1');
  }

  readonly #onData = (bytes: Buffer): void => {
    this.#isWarm = false;
    const step = this.#handshake?.take(bytes);
    if (step === undefined) return;
    switch (step.kind) {
      case 'more':
        return;
      case 'send':
        this.#socket?.write(step.bytes);
        return;
      case 'accepted':
        if (this.#mayUseAbsolute) this.memory.forwardMode.connectAccepted(this.#task.request.target.port);
        this.#accept(step.rest);
        return;
      case 'failed':
        this.#onRefusal(step);
    }
  };

  readonly #onEnd = (): void => {
    this.#failHandshake('end of stream');
  };

  readonly #onClose = (): void => {
    if (this.#failAtFront()) return;
    const code = closeCode(this.#socket);
    if (this.phase === 'answer') this.#failHandshake(code);
    else if (!this.#tcpConnected) this.#fail('member-unreachable', code);
    else this.#fail(ANSWER_CODES.has(code) ? 'member-closed' : 'member-protocol', code);
  };

  #failAtFront(): boolean {
    const frontFailure = frontFailureOf(this.#socket, this.elapsedMs);
    if (frontFailure === undefined) return false;
    this.#fail(faultOfFrontFailure(frontFailure), frontFailure.detail, { frontFailure });
    return true;
  }

  /** Retries the same member once, with credentials or without CONNECT, if that may change the member's answer. */
  #onRefusal(refusal: HandshakeFailure): void {
    const { credentials, forwardMode } = this.memory;
    let withheld = false;
    if (this.#mode === 'trial' && this.#mayBeMisread(refusal)) {
      this.#endTrial();
      return;
    }
    if (refusal.fault === 'member-auth') {
      const login = credentials.refused(this.lease.member, this.login);
      if (login !== undefined) {
        this.#reconnect(login, this.#forwardMode);
        return;
      }
      withheld = credentials.hasOthers(this.login);
    } else if (refusal.noConnect === true && this.#mayUseAbsolute) {
      if (forwardMode.connectRefused(this.lease.member, this.#task.request.target.port)) {
        this.#connectStatus = refusal.status;
        this.#reconnect(this.login, 'absolute');
        return;
      }
    }
    const targetRefused = refusal.targetRefused === true;
    this.#fail(refusal.fault, refusal.detail, { targetRefused, withheld });
  }

  /** A member that misreads a pipelined login has not checked it. */
  #mayBeMisread({ fault }: HandshakeFailure): boolean {
    return fault === 'member-protocol' || (fault === 'member-auth' && this.login !== undefined);
  }

  #endTrial(maxPlainMs = Number.POSITIVE_INFINITY): void {
    this.#maxPlainMs = maxPlainMs;
    this.#reconnect(this.login, this.#forwardMode);
  }

  #failHandshake(detail: string): void {
    if (this.#mode === 'trial') this.#endTrial();
    else if (this.#isWarm) this.#reconnect(this.login, this.#forwardMode);
    else this.#fail('member-closed', detail);
  }

  #reconnect(login: PreparedLogin | undefined, forwardMode: ForwardMode): void {
    this.#parts.deadlines.clear(this.#deadline);
    this.#closeSocket();
    this.#connect(login, forwardMode, this.#parts.clock.monotonic());
  }

  #accept(early: Buffer): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#socket = undefined;
    this.#end();
    this.#removeListeners(socket);
    const at = this.#parts.clock.monotonic();
    const login = this.login;
    const forwardMode = this.#forwardMode;
    if (this.lease.protocol === 'socks5') this.#learnPipelining(at - this.#sentAt);
    if (forwardMode === 'direct') this.memory.credentials.accepted(this.lease.member, login, at);
    const isWarm = this.#isWarm;
    const connectStatus = this.#connectStatus;
    this.#report(this, { kind: 'accepted', at, socket, early, forwardMode, isWarm, login, connectStatus });
  }

  #learnPipelining(ms: number): void {
    const { pipelining } = this.memory;
    const { member } = this.lease;
    pipelining.accepted(member, this.#mode, ms, this.login !== undefined);
    if (this.#maxPlainMs !== undefined && ms < this.#maxPlainMs) pipelining.refused(member);
  }

  #fail(
    fault: FaultCode,
    detail: string,
    notes?: Partial<Pick<AttemptFailure, 'targetRefused' | 'withheld' | 'frontFailure'>>,
  ): void {
    const { elapsedMs: ms } = this;
    const { phase } = this;
    if (phase === 'answer') this.memory.pipelining.failed(this.lease.member);
    this.#end();
    this.#closeSocket();
    const known = { targetRefused: false, withheld: false, ...notes };
    this.#report(this, { kind: 'failed', fault, phase, detail, ms, ...known });
  }

  #end(): void {
    this.phase = 'done';
    this.#parts.deadlines.clear(this.#deadline);
  }

  #closeSocket(): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#socket = undefined;
    this.#removeListeners(socket);
    socket.destroy();
  }

  #removeListeners(socket: Socket): void {
    socket.off('data', this.#onData);
    socket.off('end', this.#onEnd);
    socket.off('close', this.#onClose);
    const { protocol } = this.lease;
    socket.off(readyEvent(protocol), this.#onReady);
    if (protocol === 'https') socket.off('connect', this.#onTcpConnected);
  }
}
