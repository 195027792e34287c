/**
 * Serves the clients of all HTTP members that behave well, with one proxy-chain server. The socket tells to which
 * member a client has connected.
 *
 * proxy-chain reads the requests, checks the credentials and forwards. This class connects to the targets, so that each
 * member uses its own exit. Like a real proxy, it answers 502 or 504 for an unreachable target, and relays half-closes.
 * The proxy-chain server does not listen: members pass their sockets to it.
 */
import { Agent, createServer, type Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex, Transform } from 'node:stream';
import { type PrepareRequestFunctionOpts, RequestError, Server } from 'proxy-chain';
import type { Exits } from './exits.ts';
import type { RunningMember } from './member.ts';
import { refusalCauseOf } from './proxy-request.ts';

const STATUS_NOT_ALLOWED = 405;
const STATUS_TIMEOUT = 504;
const STATUS_BAD_GATEWAY = 502;

export class HttpProxy {
  readonly #exits: Pick<Exits, 'dial'>;
  readonly #server: Server;
  readonly #members = new WeakMap<Socket, RunningMember>();
  readonly #dialed = new WeakMap<Socket, Socket>();
  readonly #joiner: HttpServer;

  constructor(exits: Pick<Exits, 'dial'>) {
    this.#exits = exits;
    this.#server = new Server({ prepareRequestFunction: (request) => this.#prepare(request) });
    // When proxy-chain has accepted a tunnel, it passes the client's socket to this server, as a `connection` event.
    // This server does not listen.
    this.#joiner = createServer().removeAllListeners('connection');
    this.#joiner.on('connection', (client: Socket) => this.#join(client));
  }

  /** Serves a connection that a member has accepted. The member owns the socket. */
  serve(socket: Socket, member: RunningMember): void {
    this.#members.set(socket, member);
    this.#server.server.emit('connection', socket);
  }

  async #prepare({ request, username, password, hostname, port, isHttp }: PrepareRequestFunctionOpts) {
    const client = request.socket;
    const member = this.#members.get(client);
    if (member === undefined) throw new TypeError('the connection of a request belongs to no member');
    const { login } = member;
    if (login !== undefined && (username !== login.username || password !== login.password)) {
      return { requestAuthentication: true };
    }
    const { behaviour } = member;
    if (!isHttp && behaviour.how === 'no-connect' && behaviour.ports?.includes(port) !== true) {
      throw new RequestError('CONNECT is not allowed here', behaviour.status ?? STATUS_NOT_ALLOWED);
    }
    const target = await this.#dial(member, hostname.replace(/^\[|\]$/g, ''), port);
    const destroyTarget = () => target.destroy();
    client.once('close', destroyTarget);
    target.once('close', () => client.off('close', destroyTarget));
    if (client.destroyed) target.destroy(); // the client disconnected while the target was dialled
    if (isHttp) return { httpAgent: new DialedAgent(target) };
    this.#dialed.set(client, target);
    return { customConnectServer: this.#joiner };
  }

  async #dial(member: RunningMember, host: string, port: number): Promise<Socket> {
    try {
      return await this.#exits.dial(member.exit, host, port);
    } catch (error) {
      const cause = refusalCauseOf(error);
      const status = cause === 'ttl' ? STATUS_TIMEOUT : STATUS_BAD_GATEWAY;
      // proxy-chain sends the status and text of this error to the client
      throw new RequestError(`cannot reach the target: ${cause}`, status);
    }
  }

  #join(client: Socket): void {
    const target = this.#dialed.get(client);
    if (target === undefined) throw new TypeError('an accepted tunnel has no target');
    joinStreams(client, target);
  }
}

/**
 * Sends a forwarded request over the connection that is already open to the target. Closes the connection after the
 * answer.
 */
class DialedAgent extends Agent {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    super({ keepAlive: false });
    this.#socket = socket;
  }

  override createConnection(): Socket {
    return this.#socket;
  }
}

/**
 * Relays bytes in both directions between a member's client and the target, and passes on half-closes. Owns both
 * streams: if one of them closes too early, the function destroys the other one.
 *
 * @param back - transforms the bytes from the target to the client.
 */
export function joinStreams(client: Duplex, target: Duplex, back?: Transform): void {
  destroyWith(client, target);
  destroyWith(target, client);
  client.pipe(target);
  (back === undefined ? target : target.pipe(back)).pipe(client);
}

function destroyWith(one: Duplex, other: Duplex): void {
  const onClose = () => {
    const hasEnded = one.readableEnded && one.writableFinished && !one.errored;
    if (!hasEnded) other.destroy();
  };
  if (one.destroyed) onClose();
  else one.once('close', onClose);
}
