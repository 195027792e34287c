/**
 * Connections through the front proxy: to members (`dial.via`) and to the service (`service.via`). noria asks the front
 * proxy for a connection to a server. A silent front proxy may be at fault itself, or may be waiting for a dead server.
 *
 * A front proxy that leads back to noria would open connections without end. So noria refuses its own addresses, and
 * each CONNECT to a front proxy carries the marks of the norias on its way (core/front-proxy.ts).
 */
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Clock } from '../core/clock.ts';
import { type FaultCode, NoriaError } from '../core/faults.ts';
import { type FrontProxy, formatMarks, type LoopGuard } from '../core/front-proxy.ts';
import { formatHostPort, type HostPort, hostPort } from '../core/host-port.ts';
import { isOwnMember } from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import { ConnectHandshake, type Handshake, type HandshakeFailure, Socks5Handshake } from './handshake.ts';
import { closeCode, LOCAL_CODES, type OpenSocket, secureSocket } from './member-socket.ts';

export interface FrontFailure {
  /**
   * Why noria did not get a connection through the front proxy. `local`: this machine is out of sockets or ports.
   * `unresolved`, `down`: no connection to the front proxy. `login`, `refused`, `protocol`: the front proxy answered
   * with an error. `silent`: the front proxy did not answer. `unreachable`: the front proxy could not reach the server.
   * `loop`: the front proxy leads back to noria.
   */
  readonly problem:
    | 'local'
    | 'unresolved'
    | 'down'
    | 'login'
    | 'refused'
    | 'protocol'
    | 'silent'
    | 'unreachable'
    | 'loop';
  /** `ECONNREFUSED`, `status 407`, `reply 2`. */
  readonly detail: string;
  readonly answeredOthers?: boolean;
}

const FRONT = Symbol('front');

interface FrontSocket extends Socket {
  [FRONT]?: { readonly front: FrontProxy; failureAfter(ms: number): FrontFailure | undefined };
}

const DNS_CODES = new Set(['ENOTFOUND', 'EAI_AGAIN', 'ENODATA', 'EAI_FAIL', 'EAI_NODATA']);
/** No standard defines these. Some proxies use them (522, 594) if they cannot reach a server. */
const FIRST_OWN_STATUS = 520;

export interface FrontTask {
  readonly front: FrontProxy;
  readonly server: HostPort;
  readonly guard: LoopGuard;
  readonly marks?: readonly string[] | undefined;
}

/** The handshake does not own the socket; it only listens until the front proxy has answered. */
export class FrontHandshake {
  readonly #socket: Socket;
  readonly #guard: LoopGuard;
  readonly #handshake: Handshake;
  readonly #done: (failure: FrontFailure | undefined) => void;
  #phase: 'connecting' | 'asking' | 'done' = 'connecting';
  #failure: FrontFailure | undefined;

  /** @param done - called once, unless `cancel` is called first. */
  constructor(
    socket: Socket,
    { front: { protocol, login }, server, guard, marks }: FrontTask,
    done: (failure: FrontFailure | undefined) => void,
  ) {
    this.#socket = socket;
    this.#guard = guard;
    this.#done = done;
    const via = formatMarks([...(marks ?? []), guard.mark]);
    this.#handshake =
      protocol === 'http'
        ? new ConnectHandshake(server, login && basic(login), via)
        : new Socks5Handshake(server, login);
    socket.on('close', this.#onClose);
  }

  start(): void {
    this.#phase = 'asking';
    const { remoteAddress = '', remotePort = 0 } = this.#socket;
    const address = hostPort(remoteAddress, remotePort);
    if (address !== undefined && isOwnMember(address, this.#guard.ownAddresses())) {
      this.#end({ problem: 'loop', detail: "one of noria's own addresses" });
      return;
    }
    this.#socket.on('data', this.#onData);
    this.#socket.on('end', this.#onEnd);
    this.#socket.write(this.#handshake.opening, 'latin1');
  }

  /** Undefined if the front proxy has connected the socket to the server. */
  failureAfter(ms: number): FrontFailure | undefined {
    if (this.#phase === 'done') return this.#failure;
    const problem = this.#phase === 'asking' ? 'silent' : 'down';
    return { problem, detail: `no answer within ${Math.round(ms)} ms` };
  }

  cancel(): void {
    this.#socket.off('data', this.#onData);
    this.#socket.off('end', this.#onEnd);
    this.#socket.off('close', this.#onClose);
  }

  readonly #onData = (bytes: Buffer): void => {
    const step = this.#handshake.take(bytes);
    switch (step.kind) {
      case 'more':
        return;
      case 'send':
        this.#socket.write(step.bytes);
        return;
      case 'accepted':
        // The server behind the front proxy waits for a request, so bytes after the front proxy's answer break the
        // protocol.
        if (step.rest.length > 0) this.#end({ problem: 'protocol', detail: 'extra bytes after the reply' });
        else this.#end(undefined);
        return;
      case 'failed':
        this.#end(frontFailureFrom(step));
    }
  };

  readonly #onEnd = (): void => {
    this.#end({ problem: 'silent', detail: 'end of stream' });
  };

  readonly #onClose = (): void => {
    const detail = closeCode(this.#socket);
    if (LOCAL_CODES.has(detail)) this.#end({ problem: 'local', detail });
    else if (this.#phase === 'asking') this.#end({ problem: 'silent', detail });
    else this.#end({ problem: DNS_CODES.has(detail) ? 'unresolved' : 'down', detail });
  };

  #end(failure: FrontFailure | undefined): void {
    this.cancel();
    this.#failure = failure;
    this.#phase = 'done';
    this.#done(failure);
  }
}

function basic({ username, password }: NonNullable<FrontProxy['login']>): Secret {
  return new Secret(`Basic ${Buffer.from(`${username}:${password.reveal()}`).toString('base64')}`);
}

function frontFailureFrom(failure: HandshakeFailure): FrontFailure {
  const { fault, detail } = failure;
  if (failure.isLoop === true) return { problem: 'loop', detail };
  if (isUnreachable(failure)) return { problem: 'unreachable', detail };
  // tinyproxy answers wrong credentials with 401 instead of 407
  if (fault === 'member-auth' || failure.status === 401) return { problem: 'login', detail };
  return { problem: fault === 'member-refused' ? 'refused' : 'protocol', detail };
}

/** HTTP proxies report this with 502 to 504 (tinyproxy: 500), SOCKS proxies with reply 3 to 6 (some with 1). */
function isUnreachable({ fault, detail, status = 0 }: HandshakeFailure): boolean {
  if (fault === 'target-doubted' || detail === 'reply 1') return true;
  return status === 500 || status >= FIRST_OWN_STATUS;
}

/** `front`, `server`: noun phrases. `key`: the configuration key, such as `service.via`. */
type FrontNames = Readonly<Record<'front' | 'server' | 'key', string>>;

export function faultOfFrontFailure({ problem, answeredOthers }: FrontFailure): FaultCode {
  switch (problem) {
    case 'local':
    case 'unreachable':
      return 'member-unreachable';
    case 'loop':
      return 'proxy-loop';
    case 'silent':
      return answeredOthers === true ? 'member-unreachable' : 'front-proxy-silent';
    default:
      return 'front-proxy-failed';
  }
}

/** A front proxy may refuse or be silent only for some members. */
export function helpsAnotherMember(
  failures: readonly { readonly frontFailure?: FrontFailure | undefined }[],
  maxAttempts: number,
): boolean {
  const isAboutMember = ({ frontFailure }: (typeof failures)[number]) =>
    frontFailure?.problem === 'refused' || frontFailure?.problem === 'silent';
  return failures.length < maxAttempts && failures.every(isAboutMember);
}

const PROBLEMS: Record<
  FrontFailure['problem'],
  (names: FrontNames) => { readonly what: string; readonly advice: string }
> = {
  local: ({ front }) => ({
    what: `this machine could not open a connection to ${front}`,
    advice: 'raise the limit of open files (ulimit -n), or free local ports',
  }),
  unresolved: ({ front, key }) => ({
    what: `could not resolve the name of ${front}`,
    advice: `check the host in ${key} and the DNS of this machine`,
  }),
  down: ({ front, key }) => ({
    what: `could not connect to ${front}`,
    advice: `check that the front proxy runs and that this machine may reach it; check host and port in ${key}`,
  }),
  login: ({ front, key }) => ({
    what: `${front} requires a valid user name and password`,
    advice: `set the user name and password of the front proxy in ${key}`,
  }),
  refused: ({ front, server }) => ({
    what: `${front} refused to connect to ${server}`,
    advice:
      'allow the host and the port in the front proxy; many front proxies allow CONNECT only to port 443',
  }),
  protocol: ({ front, key }) => ({
    what: `${front} did not answer like a proxy`,
    advice: `check the scheme and the port in ${key}`,
  }),
  silent: ({ front, server }) => ({
    what: `${front} did not answer`,
    advice: `check that the front proxy works and can reach ${server}`,
  }),
  unreachable: ({ front, server }) => ({
    what: `${front} could not reach ${server}`,
    advice: 'check the name of the server, and whether the front proxy may reach this server',
  }),
  loop: ({ front, key }) => ({
    what: `${front} leads back to noria`,
    advice: `set ${key} to a front proxy that does not send its connections to noria`,
  }),
};

export function describeFrontFailure({ problem, detail }: FrontFailure, names: FrontNames): string {
  const { what, advice } = PROBLEMS[problem](names);
  return `${what} (${detail}); ${advice}`;
}

/**
 * The sockets behave like direct ones: 'connect' follows once the front proxy has connected the socket to the member.
 * Nothing is written before: the front proxy would read a request meant for the member.
 */
export function frontSockets(
  open: OpenSocket,
  clock: Clock,
  guard: LoopGuard,
): (front: FrontProxy, ...member: Parameters<OpenSocket>) => Socket {
  let answeredAt = Number.NEGATIVE_INFINITY;
  return (front, member, use, marks) => {
    const server = hostPort(member.host, member.port);
    if (server === undefined)
      throw new TypeError(`not an address of a member: host ${member.host}, port ${member.port}`);
    const isTls = member.protocol === 'https';
    const { host, port } = front;
    const raw = open({ protocol: 'http', host, port }, isTls ? 'forward' : use);
    const startedAt = clock.monotonic();
    const handshake = new FrontHandshake(raw, { front, server, guard, marks }, (failure) => {
      if (failure === undefined || isAnswer(failure)) answeredAt = clock.monotonic();
      if (failure === undefined) emitConnect();
      else raw.destroy();
    });
    const emitConnect = withholdConnect(raw, () => handshake.start());
    const failureAfter = (ms: number): FrontFailure | undefined => {
      const failure = handshake.failureAfter(ms);
      // If the front proxy answered on another connection at the same time, the front proxy works. Then this member is
      // the cause of the silence.
      return failure?.problem === 'silent'
        ? { ...failure, answeredOthers: answeredAt >= startedAt }
        : failure;
    };
    const socket = isTls ? secureSocket(new FrontStream(raw)) : raw;
    if (socket !== raw) raw.on('connect', () => socket.emit('connect'));
    return Object.assign(socket, { [FRONT]: { front, failureAfter } });
  };
}

/** Undefined if the socket is connected to its member, or direct. */
export function frontFailureOf(socket: Socket | undefined, ms: number): FrontFailure | undefined {
  return (socket as FrontSocket | undefined)?.[FRONT]?.failureAfter(ms);
}

export function frontProxyOf(socket: Socket): FrontProxy | undefined {
  return (socket as FrontSocket)[FRONT]?.front;
}

function isAnswer({ problem }: FrontFailure): boolean {
  return problem !== 'local' && problem !== 'unresolved' && problem !== 'down' && problem !== 'silent';
}

/** @returns a function that emits the withheld event after all. */
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

/** The transport of TLS to a member through the front proxy: TLS writes at once, this waits for 'connect'. */
class FrontStream extends Duplex {
  readonly #raw: Socket;
  #isOpen = false;
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
  }
}

const SERVICE_FAULTS: Partial<Record<FrontFailure['problem'], FaultCode>> = {
  unreachable: 'service-transport',
  loop: 'proxy-loop',
};

/** @param done - called once. The error is `service-transport` if the front proxy could not reach the service. */
export function openFrontTunnel(
  task: FrontTask,
  done: (error: NoriaError | undefined) => void,
): {
  /** The caller owns it from the start. It has an 'error' handler. */
  readonly socket: Socket;
  timedOut(ms: number): NoriaError | undefined;
} {
  const { server } = task;
  const { host, port } = task.front;
  const socket = connect({ host, port, noDelay: true });
  socket.on('error', () => {}); // ignored: 'close' follows every error, and `socket.errored` keeps the error
  const toError = (failure: FrontFailure): NoriaError => {
    const names = {
      front: `the front proxy ${formatHostPort(host, port)}`,
      server: server.text,
      key: 'service.via',
    };
    const code = SERVICE_FAULTS[failure.problem] ?? 'front-proxy-failed';
    return new NoriaError(code, describeFrontFailure(failure, names));
  };
  socket.on('connect', () => handshake.start());
  const handshake = new FrontHandshake(socket, task, (failure) => done(failure && toError(failure)));
  const timedOut = (ms: number) => {
    const failure = handshake.failureAfter(ms);
    return failure && toError(failure);
  };
  return { socket, timedOut };
}
