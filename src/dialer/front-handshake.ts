/**
 * The handshake with the front proxy: noria asks the front proxy for a connection to a server. The handshake does not
 * own the socket; it only listens until the front proxy has answered. A silent front proxy may be at fault itself, or
 * may be waiting for a dead server. `describeFrontFailure` says why a handshake failed, and what to do.
 */
import type { Socket } from 'node:net';
import type { FaultCode } from '../core/faults.ts';
import type { FrontProxy } from '../core/front-proxy.ts';
import type { HostPort } from '../core/host-port.ts';
import { Secret } from '../core/secret.ts';
import { ConnectHandshake } from './connect-handshake.ts';
import type { Handshake, HandshakeFailure } from './handshake.ts';
import { closeCode, isLocalCode } from './member-socket.ts';
import { Socks5Handshake } from './socks-handshake.ts';

export interface FrontFailure {
  /**
   * Why noria did not get a connection through the front proxy. `local`: this machine is out of sockets or ports.
   * `unresolved`, `down`: no connection to the front proxy. `login`, `refused`, `protocol`: the front proxy answered
   * with an error. `silent`: the front proxy did not answer. `unreachable`: the front proxy could not reach the server.
   */
  readonly problem:
    | 'local'
    | 'unresolved'
    | 'down'
    | 'login'
    | 'refused'
    | 'protocol'
    | 'silent'
    | 'unreachable';
  /** The error code, status or reply that shows the cause: `ECONNREFUSED`, `status 407`, `reply 2`. */
  readonly detail: string;
  /** Only with `silent`: whether the front proxy answered on another connection during the same time. */
  readonly answeredOthers?: boolean;
}

const DNS_CODES = new Set(['ENOTFOUND', 'EAI_AGAIN', 'ENODATA', 'EAI_FAIL', 'EAI_NODATA']);
/**
 * No standard defines statuses from this number upward. Some proxies use them, for example 522 and 594, if they cannot
 * reach a server.
 */
const FIRST_OWN_STATUS = 520;

export class FrontHandshake {
  readonly #socket: Socket;
  readonly #handshake: Handshake;
  readonly #done: (failure: FrontFailure | undefined) => void;
  #isConnected = false;

  /**
   * @param done - called once, unless `cancel` is called first. If `failure` is undefined, the socket is connected to
   *   the server.
   */
  constructor(
    socket: Socket,
    { front, server }: { readonly front: FrontProxy; readonly server: HostPort },
    done: (failure: FrontFailure | undefined) => void,
  ) {
    const { protocol, login } = front;
    this.#socket = socket;
    this.#done = done;
    this.#handshake =
      protocol === 'http'
        ? new ConnectHandshake(server, login && basic(login))
        : new Socks5Handshake(server, login);
    socket.on('close', this.#onClose);
  }

  /** Starts the handshake on a socket that is connected to the front proxy. */
  start(): void {
    this.#isConnected = true;
    this.#socket.on('data', this.#onData);
    this.#socket.on('end', this.#onEnd);
    this.#socket.write(this.#handshake.opening, 'latin1');
  }

  /** Describes the failure of a front proxy that has not connected noria to the server within `ms`. */
  failureAfter(ms: number): FrontFailure {
    return {
      problem: this.#isConnected ? 'silent' : 'down',
      detail: `no answer within ${Math.round(ms)} ms`,
    };
  }

  /** Removes the socket listeners. Idempotent. */
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
    if (isLocalCode(detail)) this.#end({ problem: 'local', detail });
    else if (this.#isConnected) this.#end({ problem: 'silent', detail });
    else this.#end({ problem: DNS_CODES.has(detail) ? 'unresolved' : 'down', detail });
  };

  #end(failure: FrontFailure | undefined): void {
    this.cancel();
    this.#done(failure);
  }
}

function basic({ username, password }: NonNullable<FrontProxy['login']>): Secret {
  return new Secret(`Basic ${Buffer.from(`${username}:${password.reveal()}`).toString('base64')}`);
}

function frontFailureFrom(failure: HandshakeFailure): FrontFailure {
  const { fault, detail } = failure;
  if (isUnreachable(failure)) return { problem: 'unreachable', detail };
  // tinyproxy answers wrong credentials with 401 instead of 407
  if (fault === 'member-auth' || failure.status === 401) return { problem: 'login', detail };
  return { problem: fault === 'member-refused' ? 'refused' : 'protocol', detail };
}

/**
 * Whether the failure means that the front proxy could not reach the service or the member. HTTP proxies report this
 * with status 502 to 504 (tinyproxy: 500), SOCKS proxies with reply 3 to 6 (some with 1, general failure).
 */
function isUnreachable({ fault, detail, status = 0 }: HandshakeFailure): boolean {
  if (fault === 'target-doubted' || detail === 'reply 1') return true;
  return status === 500 || status >= FIRST_OWN_STATUS;
}

interface FrontNames {
  /** The front proxy as a noun phrase, such as `the front proxy bastion:3128`. */
  readonly front: string;
  /** The server behind the front proxy, as a noun phrase. */
  readonly server: string;
  /** The configuration key of the front proxy, such as `service.via`. */
  readonly key: string;
}

interface FrontProblem {
  /** What happened, without a full stop at the end. */
  readonly reason: string;
  readonly advice: string;
}

export function faultOfFrontFailure({ problem, answeredOthers }: FrontFailure): FaultCode {
  switch (problem) {
    case 'local':
    case 'unreachable':
      return 'member-unreachable';
    case 'silent':
      return answeredOthers === true ? 'member-unreachable' : 'front-proxy-silent';
    default:
      return 'front-proxy-failed';
  }
}

/**
 * Whether the dial should try another member although the front proxy has reached no member so far. True if attempts
 * are left, and the front proxy either refused each connection or did not answer. A front proxy may do so only for some
 * members.
 */
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
};

export function describeFrontFailure({ problem, detail }: FrontFailure, names: FrontNames): FrontProblem {
  const { what, advice } = PROBLEMS[problem](names);
  return { reason: `${what} (${detail})`, advice };
}
