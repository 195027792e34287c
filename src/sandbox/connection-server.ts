/**
 * Serves the clients of members: with proxy-chain (HTTP), with its own SOCKS server, or, if the member misbehaves, with
 * a bad answer.
 */
import type { Socket } from 'node:net';
import type { Transform } from 'node:stream';
import { type Clock, pause } from '../core/clock.ts';
import { answerBadly, cutAfter, endWith } from './bad-answers.ts';
import type { Exits } from './exits.ts';
import { HttpProxy, joinStreams } from './http-proxy.ts';
import type { RunningMember } from './member.ts';
import {
  type ProxyRequest,
  type RefusalCause,
  readProxyRequest,
  refusalCauseOf,
  type Send,
  sendTo,
} from './proxy-request.ts';
import type { Behaviour } from './scenario.ts';
import { HandshakeError } from './socket-reader.ts';

interface ClientWriter {
  /** Sends answers of the member itself to the client. */
  readonly send: Send;
  /** Transforms the bytes from the target to the client. */
  readonly back?: Transform;
}

export class ConnectionServer {
  readonly #exits: Pick<Exits, 'dial'>;
  readonly #clock: Clock;
  readonly #httpProxy: HttpProxy;

  constructor(exits: Pick<Exits, 'dial'>, clock: Clock) {
    this.#exits = exits;
    this.#clock = clock;
    this.#httpProxy = new HttpProxy(exits);
  }

  serve(socket: Socket, member: RunningMember): void {
    this.#serve(socket, member, member.behaviour).catch((error: unknown) => {
      socket.destroy();
      if (!isOfConnection(error)) throw error;
    });
  }

  async #serve(socket: Socket, member: RunningMember, behaviour: Behaviour): Promise<void> {
    const send = sendTo(socket);
    switch (behaviour.how) {
      case 'good':
      case 'no-connect': // HttpProxy refuses CONNECT for these members
        return this.#serveWell(socket, member);
      case 'slow':
        await this.#pause(behaviour.ms, socket);
        return this.#serveWell(socket, member);
      case 'dribble':
        return this.#relay(socket, member, { send: (bytes) => this.#dribble(socket, bytes, behaviour.ms) });
      case 'cut':
        return this.#relay(socket, member, { send, back: cutAfter(behaviour.afterBytes, socket) });
      default:
        return answerBadly(socket, member, behaviour);
    }
  }

  #serveWell(socket: Socket, member: RunningMember): Promise<void> | void {
    if (member.traits.protocol === 'http') return this.#httpProxy.serve(socket, member);
    return this.#relay(socket, member, { send: sendTo(socket) });
  }

  /** Reads the client's request, connects to the target, answers the client, and relays between both. */
  async #relay(socket: Socket, member: RunningMember, { send, back }: ClientWriter): Promise<void> {
    const request = await readProxyRequest(
      socket,
      { protocol: member.traits.protocol, login: member.login },
      send,
    );
    if (request === undefined) return endWith(socket);
    const target = await this.#dial(member, request);
    if ('cause' in target) {
      await send(request.refusal(target.cause));
      return endWith(socket);
    }
    if (socket.destroyed) {
      target.destroy(); // the client disconnected, or the member closed, while the target was dialled
      return;
    }
    if (request.first.length > 0) target.write(request.first);
    await send(request.accepted);
    joinStreams(socket, target, back);
  }

  async #dial(
    member: RunningMember,
    { host, port }: ProxyRequest,
  ): Promise<Socket | { readonly cause: RefusalCause }> {
    try {
      return await this.#exits.dial(member.exit, host, port);
    } catch (error) {
      return { cause: refusalCauseOf(error) };
    }
  }

  async #dribble(socket: Socket, bytes: Buffer, ms = 0): Promise<void> {
    const send = sendTo(socket);
    for (const byte of bytes) {
      await send(Buffer.from([byte]));
      if (ms > 0) await this.#pause(ms, socket);
      // without this wait, the kernel could merge two bytes into one packet
      else await new Promise((next) => setImmediate(next));
    }
  }

  /** @throws HandshakeError if the connection has closed. */
  async #pause(ms: number, socket: Socket): Promise<void> {
    const closing = new AbortController();
    const abort = () => closing.abort();
    socket.once('close', abort);
    await pause(this.#clock, ms, closing.signal);
    socket.off('close', abort);
    if (socket.destroyed) throw new HandshakeError('the client left');
  }
}

/** Whether the error comes from the client or the operating system. Any other error is a bug in the sandbox. */
function isOfConnection(error: unknown): boolean {
  return error instanceof HandshakeError || (error instanceof Error && 'code' in error);
}
