/**
 * One attempt: connects to a member, performs the member's handshake, and ends with a connection to the target or with
 * a failure. An attempt owns its socket and its deadline until it ends.
 *
 * An attempt opens a second connection to the same member if the member requires credentials, refuses CONNECT for a
 * plain HTTP request, or fails a pipelined handshake. An attempt calls its owner exactly once, or not at all after
 * `cancel`.
 */
import type { Socket } from 'node:net';
import type { Deadline } from '../core/deadlines.ts';
import type { FaultCode } from '../core/faults.ts';
import type { Lease } from '../pool/lease.ts';
import type {
  AttemptFailure,
  AttemptParts,
  AttemptPhase,
  AttemptTask,
  RawConnection,
} from './attempt-contract.ts';
import type { PreparedLogin } from './credentials.ts';
import type { ForwardMode } from './dial.ts';
import { faultOfFrontFailure } from './front-handshake.ts';
import { frontFailureOf } from './front-sockets.ts';
import { type Handshake, type HandshakeFailure, NO_BYTES } from './handshake.ts';
import { HandshakeChoice } from './member-handshake.ts';
import { closeCode, isAnswerCode, isLocalCode, readyEvent, TCP_KEEP_ALIVE_MS } from './member-socket.ts';
import { networkSign } from './network-watch.ts';
import { socks4CanReach } from './socks-handshake.ts';
import type { SourceMemory } from './source-memory.ts';
import type { TakenConnection } from './warm-connection.ts';

export interface AttemptOwner {
  /** The attempt succeeded at the monotonic moment `now`. From this call on, the owner owns the socket. */
  attemptAccepted(attempt: Attempt, connection: RawConnection, now: number): void;
  attemptFailed(attempt: Attempt, failure: AttemptFailure): void;
}

type FailureNotes = Pick<AttemptFailure, 'targetRefused' | 'withheld' | 'frontFailure'>;

const NO_NOTES: FailureNotes = { targetRefused: false, withheld: false };
/**
 * The part of the timeout that TCP and TLS together may take. With the default timeout, the kernel repeats a lost SYN
 * twice in this time: after 1 s and after 3 s.
 */
const CONNECT_SHARE = 0.8;

export class Attempt {
  readonly lease: Lease;
  readonly hedge: boolean;
  /** What noria has learned about the members of the same source. */
  readonly memory: SourceMemory;
  /** The monotonic moment at which the attempt was created. The owner calls `start` directly afterwards. */
  readonly startedAt: number;
  readonly #parts: AttemptParts;
  readonly #owner: AttemptOwner;
  readonly #task: AttemptTask;
  #phase: AttemptPhase = 'connect';
  #socket: Socket | undefined;
  #handshake: Handshake | undefined;
  #deadline: Deadline | undefined;
  #login: PreparedLogin | undefined;
  #forwardMode: ForwardMode = 'direct';
  #tcpConnected = false;
  #connectStatus: number | undefined;
  readonly #choice: HandshakeChoice;
  /**
   * Whether the connection was opened before the attempt, and the member has sent nothing on it since the attempt
   * began.
   */
  #isWarm = false;
  /**
   * The monotonic moment at which the attempt began to open the current connection. Undefined for a connection that was
   * opened before the attempt.
   */
  #connectStartedAt: number | undefined;

  constructor(parts: AttemptParts, owner: AttemptOwner, task: AttemptTask) {
    this.lease = task.lease;
    this.hedge = task.hedge;
    this.memory = parts.memoryOf(task.lease.source);
    this.#parts = parts;
    this.#owner = owner;
    this.#task = task;
    this.#choice = new HandshakeChoice(parts.clock, task.lease, this.memory.pipelining);
    this.startedAt = parts.clock.monotonic();
  }

  get elapsedMs(): number {
    return this.#parts.clock.monotonic() - this.startedAt;
  }

  /** The time saved by a connection that noria opened before the attempt; 0 without such a connection. */
  get savedMs(): number {
    return this.#task.warm?.savedMs ?? 0;
  }

  /** The credentials that were sent to the member, if any. */
  get login(): PreparedLogin | undefined {
    return this.#login;
  }

  get phase(): AttemptPhase {
    return this.#phase;
  }

  /**
   * Starts the attempt. If the member's protocol cannot address the target, `start` calls the owner's `attemptFailed`
   * before `start` returns.
   */
  start(): void {
    if (this.lease.protocol === 'socks4' && !socks4CanReach(this.#task.target)) {
      this.#fail('member-incapable', 'SOCKS4 has no IPv6 addresses');
      return;
    }
    const { credentials, forwardMode } = this.memory;
    const mayForward = this.#canUseAbsoluteForm();
    const mode = mayForward ? forwardMode.first(this.#task.target.text) : 'direct';
    const { warm } = this.#task;
    if (warm === undefined) this.#connect(credentials.firstFor(this.lease.login), mode, this.startedAt);
    else this.#continue(warm, mode);
  }

  /** Aborts the attempt without a call to its owner. Idempotent. */
  cancel(): void {
    if (this.#phase === 'done') return;
    this.#end();
    this.#closeSocket();
  }

  #connect(login: PreparedLogin | undefined, forwardMode: ForwardMode, now: number): void {
    this.#begin(login, forwardMode);
    this.#connectStartedAt = now;
    const socket = this.#parts.openSocket(this.lease, this.#task.use);
    this.#listen(socket);
    this.#setDeadline(now);
  }

  #continue({ socket, login, isConnected, handshake }: TakenConnection, forwardMode: ForwardMode): void {
    this.#begin(login, forwardMode);
    this.#listen(socket);
    this.#tcpConnected = !socket.connecting;
    if (this.#task.use === 'forward') socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    this.#setDeadline(this.startedAt);
    if (!isConnected) return;
    this.#isWarm = true;
    if (handshake === undefined) {
      this.#onReady();
    } else {
      this.#choice.setPlain();
      this.#handshake = handshake;
      this.#request(handshake.request(this.#task.target), this.startedAt);
    }
  }

  #begin(login: PreparedLogin | undefined, forwardMode: ForwardMode): void {
    this.#login = login;
    this.#forwardMode = forwardMode;
    this.#phase = 'connect';
    this.#tcpConnected = false;
    this.#isWarm = false;
    this.#connectStartedAt = undefined;
    this.#handshake = forwardMode === 'absolute' ? undefined : this.#choice.next(this.#task.target, login);
  }

  #listen(socket: Socket): void {
    const { protocol } = this.lease;
    this.#socket = socket;
    socket.on('close', this.#onClose);
    socket.on(readyEvent(protocol), this.#onReady);
    if (protocol === 'https') socket.on('connect', this.#onTcpConnected);
  }

  /** Sets the deadline of the current phase. The deadline is never later than the end of `timeoutMs`. */
  #setDeadline(now: number): void {
    const leftMs = this.#task.timeoutMs - (now - this.startedAt);
    const limitMs = Math.min(leftMs, this.#phaseLimitMs);
    this.#deadline = this.#parts.deadlines.set(limitMs, this.#onDeadline, now);
  }

  get #phaseLimitMs(): number {
    return this.#phase === 'connect' ? this.#task.timeoutMs * CONNECT_SHARE : this.#choice.limitMs;
  }

  readonly #onDeadline = (): void => {
    if (this.#phase === 'connect') {
      if (this.#failAtFront()) return;
      if (this.#tcpConnected) this.#fail('member-silent', 'TLS handshake timed out');
      else this.#fail('member-unreachable', 'connection timed out');
    } else if (this.elapsedMs >= this.#task.timeoutMs) {
      this.#fail('member-silent', 'answer timed out');
    } else if (this.#choice.isTrial) {
      // A pipelined handshake also times out if the target is slow. So pipelining was the cause only if the plain
      // handshake that follows takes less time.
      this.#endTrial(this.#choice.elapsedMs);
    } else {
      // The connect phase ended before its deadline, so the attempt continues. Set the deadline of the handshake.
      this.#setDeadline(this.#parts.clock.monotonic());
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
    else this.#request(this.#handshake.opening, now);
  };

  /**
   * Sends the first message on the established connection. `message` is undefined if noria has to wait for the member
   * first.
   */
  #request(message: string | Buffer | undefined, now: number): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#phase = 'answer';
    this.#tcpConnected = true;
    this.#choice.sent(now);
    if (this.#choice.isTrial) {
      this.#clearDeadline();
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
        if (this.#canUseAbsoluteForm()) this.memory.forwardMode.connectAccepted(this.#task.target.port);
        this.#accept(step.rest);
        return;
      case 'failed':
        this.#onRefusal(step);
    }
  };

  readonly #onEnd = (): void => {
    this.#failHandshake('member-closed', 'end of stream');
  };

  readonly #onClose = (): void => {
    if (this.#failAtFront()) return;
    const code = closeCode(this.#socket);
    if (this.#phase === 'answer') this.#failHandshake('member-closed', code);
    else if (!this.#tcpConnected) this.#fail('member-unreachable', code);
    else this.#fail(isAnswerCode(code) ? 'member-closed' : 'member-protocol', code);
  };

  /** Fails the attempt and returns true if the front proxy did not connect noria to the member. */
  #failAtFront(): boolean {
    const frontFailure = frontFailureOf(this.#socket, this.elapsedMs);
    if (frontFailure === undefined) return false;
    this.#fail(faultOfFrontFailure(frontFailure), frontFailure.detail, { ...NO_NOTES, frontFailure });
    return true;
  }

  /** Retries the same member once, with credentials or without CONNECT, if that may change the member's answer. */
  #onRefusal(refusal: HandshakeFailure): void {
    const { credentials, forwardMode } = this.memory;
    let withheld = false;
    if (this.#choice.isTrial && this.#mayBeMisread(refusal)) {
      this.#endTrial();
      return;
    }
    if (refusal.fault === 'member-auth') {
      const login = credentials.refused(this.lease.member, this.#login);
      if (login !== undefined) {
        this.#reconnect(login, this.#forwardMode);
        return;
      }
      withheld = credentials.hasOthers(this.#login);
    } else if (refusal.noConnect === true && this.#canUseAbsoluteForm()) {
      if (forwardMode.connectRefused(this.lease.member, this.#task.target.port)) {
        this.#connectStatus = refusal.status;
        this.#reconnect(this.#login, 'absolute');
        return;
      }
    }
    const targetRefused = refusal.targetRefused === true;
    this.#fail(refusal.fault, refusal.detail, { targetRefused, withheld });
  }

  /**
   * Whether the member may have misread a pipelined handshake. Such a member has not checked the login, so its refusal
   * does not show that the login is wrong.
   */
  #mayBeMisread({ fault }: HandshakeFailure): boolean {
    return fault === 'member-protocol' || (fault === 'member-auth' && this.#login !== undefined);
  }

  /** Ends a failed trial of pipelining, and starts a plain handshake with the same member. */
  #endTrial(maxPlainMs?: number): void {
    this.#choice.endTrial(maxPlainMs);
    this.#reconnect(this.#login, this.#forwardMode);
  }

  #failHandshake(fault: FaultCode, detail: string): void {
    if (this.#choice.isTrial) this.#endTrial();
    else if (this.#isWarm) this.#reconnect(this.#login, this.#forwardMode);
    else this.#fail(fault, detail);
  }

  #reconnect(login: PreparedLogin | undefined, forwardMode: ForwardMode): void {
    this.#clearDeadline();
    this.#closeSocket();
    this.#connect(login, forwardMode, this.#parts.clock.monotonic());
  }

  #accept(early: Buffer): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#socket = undefined;
    this.#end();
    this.#removeListeners(socket);
    const now = this.#parts.clock.monotonic();
    const login = this.#login;
    const forwardMode = this.#forwardMode;
    this.#choice.accepted(login);
    if (forwardMode === 'direct') this.memory.credentials.accepted(this.lease.member, login, now);
    const connectStatus = this.#connectStatus;
    const isWarm = this.#isWarm && forwardMode === 'absolute';
    this.#owner.attemptAccepted(this, { socket, early, forwardMode, isWarm, login, connectStatus }, now);
  }

  #fail(fault: FaultCode, detail: string, notes: FailureNotes = NO_NOTES): void {
    const { elapsedMs: ms } = this;
    const phase = this.#phase;
    if (phase === 'done') return;
    if (phase === 'answer') this.#choice.failed();
    this.#end();
    this.#closeSocket();
    const local = isLocalCode(detail);
    const network = networkSign(fault, detail);
    this.#owner.attemptFailed(this, { fault, phase, detail, local, network, ms, ...notes });
  }

  #end(): void {
    this.#phase = 'done';
    this.#clearDeadline();
  }

  #clearDeadline(): void {
    if (this.#deadline !== undefined) this.#parts.deadlines.clear(this.#deadline);
    this.#deadline = undefined;
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

  /** Only HTTP members accept requests in absolute form. */
  #canUseAbsoluteForm(): boolean {
    const { protocol } = this.lease;
    const isHttp = protocol === 'http' || protocol === 'https';
    return isHttp && this.#task.use === 'forward' && !this.#task.connectOnly;
  }
}
