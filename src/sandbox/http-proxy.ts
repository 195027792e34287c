/**
 * The good HTTP members: one proxy-chain for all of them, told by the socket which member it speaks for.
 *
 * proxy-chain reads the requests, asks for credentials and forwards; dialing is ours, so that each member leaves by
 * its own exit, answers 502 or 504 for a dead target as real proxies do, and carries half-closes both ways. Members
 * listen themselves and hand their sockets over, so this server never listens.
 */
import { Agent, createServer, type Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { type PrepareRequestFunctionOpts, RequestError, Server } from 'proxy-chain';
import type { Outlet } from './exits.ts';
import { joinStreams } from './join-streams.ts';
import type { RunningMember } from './member.ts';
import { refusalCauseOf } from './proxy-request.ts';

const STATUS_NOT_ALLOWED = 405;
const STATUS_TIMEOUT = 504;
const STATUS_BAD_GATEWAY = 502;

export class HttpProxy {
  readonly #outlet: Outlet;
  readonly #server: Server;
  readonly #members = new WeakMap<Socket, RunningMember>();
  readonly #dialed = new WeakMap<Socket, Socket>();
  readonly #joiner: HttpServer;

  constructor(outlet: Outlet) {
    this.#outlet = outlet;
    this.#server = new Server({ prepareRequestFunction: (asked) => this.#prepare(asked) });
    // proxy-chain hands an accepted tunnel to this "server" by emitting `connection`; nothing listens.
    this.#joiner = createServer().removeAllListeners('connection');
    this.#joiner.on('connection', (client: Socket) => this.#join(client));
  }

  /** Takes over a connection that a member accepted. The member still closes it at the end of its life. */
  serve(socket: Socket, member: RunningMember): void {
    this.#members.set(socket, member);
    this.#server.server.emit('connection', socket);
  }

  async #prepare({ request, username, password, hostname, port, isHttp }: PrepareRequestFunctionOpts) {
    const client = request.socket;
    const member = this.#members.get(client);
    if (member === undefined) throw new TypeError('a request on a connection that no member handed over');
    const { login } = member;
    if (login !== undefined && (username !== login.username || password !== login.password)) {
      return { requestAuthentication: true };
    }
    const { behaviour } = member;
    if (!isHttp && behaviour.how === 'no-connect' && behaviour.ports?.includes(port) !== true) {
      throw new RequestError('CONNECT is not allowed here', behaviour.status ?? STATUS_NOT_ALLOWED);
    }
    const target = await this.#dial(member, hostname.replace(/^\[|\]$/g, ''), port);
    const leave = () => target.destroy();
    client.once('close', leave);
    target.once('close', () => client.off('close', leave));
    if (client.destroyed) target.destroy(); // it left while we dialed
    if (isHttp) return { httpAgent: new DialedAgent(target) };
    this.#dialed.set(client, target);
    return { customConnectServer: this.#joiner };
  }

  async #dial(member: RunningMember, host: string, port: number): Promise<Socket> {
    try {
      return await this.#outlet.dial(member.exit, host, port);
    } catch (error) {
      const why = refusalCauseOf(error);
      const status = why === 'ttl' ? STATUS_TIMEOUT : STATUS_BAD_GATEWAY;
      throw new RequestError(`the target cannot be reached: ${why}`, status); // to the client, in proxy-chain's form
    }
  }

  #join(client: Socket): void {
    const target = this.#dialed.get(client);
    if (target === undefined) throw new TypeError('a tunnel accepted without a target');
    joinStreams(client, target);
  }
}

/** Gives a forwarded request the connection that was dialed for it; it is closed after the answer. */
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
