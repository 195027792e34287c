/**
 * Serves the good HTTP members with one proxy-chain server for all of them. The socket identifies the member.
 *
 * proxy-chain reads the requests, asks for credentials and forwards. This class dials, so that each member connects
 * from its own exit. It answers 502 or 504 for a dead target, as real proxies do, and relays half-closes both ways.
 * Members listen themselves and pass their sockets to this class, so its server never listens.
 */
import { Agent, createServer, type Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { type PrepareRequestFunctionOpts, RequestError, Server } from 'proxy-chain';
import type { Exits } from './exits.ts';
import { joinStreams } from './join-streams.ts';
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
    // proxy-chain hands over an accepted tunnel by emitting `connection` on this server, which does not listen.
    this.#joiner = createServer().removeAllListeners('connection');
    this.#joiner.on('connection', (client: Socket) => this.#join(client));
  }

  /** Serves a connection that a member accepted. The member closes it at the end of its life. */
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
    if (client.destroyed) target.destroy(); // the client disconnected during the dial
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
      throw new RequestError(`cannot reach the target: ${cause}`, status); // proxy-chain sends this error to the client
    }
  }

  #join(client: Socket): void {
    const target = this.#dialed.get(client);
    if (target === undefined) throw new TypeError('an accepted tunnel has no target');
    joinStreams(client, target);
  }
}

/** Gives a forwarded request the connection that was dialed for it. The connection closes after the answer. */
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
