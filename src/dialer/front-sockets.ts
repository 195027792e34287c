/**
 * Opens sockets to members through the front proxy (`dial.via`). They behave like direct sockets: 'connect' is emitted
 * once the front proxy has connected the socket to the member. Before 'connect', nothing is written to the socket: the
 * front proxy would read a request meant for the member, and could connect to the target itself.
 */
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Clock } from '../core/clock.ts';
import type { FrontProxy } from '../core/front-proxy.ts';
import { type HostPort, hostPort } from '../core/host-port.ts';
import { type FrontFailure, FrontHandshake } from './front-handshake.ts';
import { type OpenSocket, secureSocket } from './member-socket.ts';

/** The monotonic moment of the front proxy's last answer on any connection. */
interface FrontAnswers {
  at: number;
}

type OpenThroughFront = (front: FrontProxy, ...member: Parameters<OpenSocket>) => Socket;

export function frontSockets(open: OpenSocket, clock: Clock): OpenThroughFront {
  const answers: FrontAnswers = { at: Number.NEGATIVE_INFINITY };
  return (front, member, use) => {
    const server = hostPort(member.host, member.port);
    if (server === undefined)
      throw new TypeError(`not an address of a member: host ${member.host}, port ${member.port}`);
    const isTls = member.protocol === 'https';
    const { host, port } = front;
    const raw = open({ protocol: 'http', host, port }, isTls ? 'forward' : use);
    const connection = new FrontConnection(raw, { front, server, answers, clock });
    const socket = isTls ? secureSocket(new FrontStream(raw)) : raw;
    if (socket !== raw) raw.on('connect', () => socket.emit('connect'));
    return Object.assign(socket, { [FRONT]: connection });
  };
}

/**
 * Why the front proxy has not connected this socket to its member: what failed, or that `ms` have passed without an
 * answer. Undefined if the socket is connected, or for a direct socket.
 */
export function frontFailureOf(socket: Socket | undefined, ms: number): FrontFailure | undefined {
  return frontConnectionOf(socket)?.failureAfter(ms);
}

/** The front proxy of this socket; undefined for a direct socket. */
export function frontProxyOf(socket: Socket): FrontProxy | undefined {
  return frontConnectionOf(socket)?.front;
}

function frontConnectionOf(socket: Socket | undefined): FrontConnection | undefined {
  return socket !== undefined && FRONT in socket && socket[FRONT] instanceof FrontConnection
    ? socket[FRONT]
    : undefined;
}

const FRONT = Symbol('front');

interface FrontConnectionOptions {
  readonly front: FrontProxy;
  readonly server: HostPort;
  readonly answers: FrontAnswers;
  readonly clock: Clock;
}

class FrontConnection {
  readonly front: FrontProxy;
  readonly #handshake: FrontHandshake;
  readonly #answers: FrontAnswers;
  readonly #startedAt: number;
  #result: 'pending' | 'open' | FrontFailure = 'pending';

  constructor(raw: Socket, { front, server, answers, clock }: FrontConnectionOptions) {
    this.front = front;
    this.#answers = answers;
    this.#startedAt = clock.monotonic();
    this.#handshake = new FrontHandshake(raw, { front, server }, (failure) => {
      this.#result = failure ?? 'open';
      if (failure === undefined || isAnswer(failure)) answers.at = clock.monotonic();
      if (failure === undefined) emitConnect();
      else raw.destroy();
    });
    const emitConnect = withholdConnect(raw, () => this.#handshake.start());
  }

  failureAfter(ms: number): FrontFailure | undefined {
    if (this.#result === 'open') return undefined;
    const failure = this.#result === 'pending' ? this.#handshake.failureAfter(ms) : this.#result;
    // If the front proxy answered on another connection at the same time, the front proxy works. Then this member is
    // the cause of the silence.
    return failure.problem === 'silent'
      ? { ...failure, answeredOthers: this.#answers.at >= this.#startedAt }
      : failure;
  }
}

function isAnswer({ problem }: FrontFailure): boolean {
  return problem === 'login' || problem === 'refused' || problem === 'protocol' || problem === 'unreachable';
}

/**
 * Withholds the 'connect' event from the socket's listeners, and calls `start` instead.
 * @returns a function that emits the event after all.
 */
function withholdConnect(socket: Socket, start: () => void): () => void {
  const { emit } = socket;
  socket.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    if (event !== 'connect') return Reflect.apply(emit, socket, [event, ...args]);
    start();
    return true;
  };
  return () => {
    Reflect.deleteProperty(socket, 'emit');
    socket.emit('connect');
  };
}

type Done = (error?: Error | null) => void;

/**
 * A stream over a socket to the front proxy, used as the transport of TLS to a member. TLS writes immediately, so this
 * stream delays the bytes until the front proxy has connected the socket to the member ('connect').
 */
class FrontStream extends Duplex {
  readonly #raw: Socket;
  #isOpen = false;
  /** The write, or the end of the stream, that waits for 'connect'. */
  #waiting: (() => void) | undefined;

  constructor(raw: Socket) {
    super({ allowHalfOpen: true });
    this.#raw = raw;
    raw.on('connect', () => this.#onConnect());
    raw.on('close', () => this.destroy(raw.errored ?? undefined));
  }

  override _read(): void {
    if (this.#isOpen) this.#raw.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#whenOpen(() => this.#raw.write(chunk, done));
  }

  override _final(done: Done): void {
    this.#whenOpen(() => this.#raw.end(done));
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#waiting = undefined;
    this.#raw.destroy();
    done(error);
  }

  #whenOpen(then: () => void): void {
    if (this.#isOpen) then();
    else this.#waiting = then;
  }

  #onConnect(): void {
    this.#isOpen = true;
    this.#raw.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) this.#raw.pause();
    });
    this.#raw.on('end', () => this.push(null));
    this.#waiting?.();
    this.#waiting = undefined;
  }
}
