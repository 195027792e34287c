/**
 * What members do with the connections they accept: serve them well, by proxy-chain or as SOCKS servers, or badly in
 * the way their behaviour says.
 */
import type { Socket } from 'node:net';
import type { Transform } from 'node:stream';
import { type Clock, pause } from '../core/clock.ts';
import { answerBadly, cutAfter, endWith } from './bad-answers.ts';
import type { Outlet } from './exits.ts';
import { HttpProxy } from './http-proxy.ts';
import { joinStreams } from './join-streams.ts';
import type { RunningMember } from './member.ts';
import type { Behaviour } from './member-behaviour.ts';
import {
  type ProxyRequest,
  type RefusalCause,
  readProxyRequest,
  refusalCauseOf,
  type Send,
  sendTo,
} from './proxy-request.ts';
import { HandshakeError } from './socket-reader.ts';

export class ConnectionServer {
  readonly #outlet: Outlet;
  readonly #clock: Clock;
  readonly #proxy: HttpProxy;

  constructor(outlet: Outlet, clock: Clock) {
    this.#outlet = outlet;
    this.#clock = clock;
    this.#proxy = new HttpProxy(outlet);
  }

  /** Takes over a connection that `member` accepted. */
  serve(socket: Socket, member: RunningMember): void {
    this.#serve(socket, member, member.behaviour).catch((error: unknown) => {
      socket.destroy();
      if (!endsConnectionOnly(error)) throw error;
    });
  }

  async #serve(socket: Socket, member: RunningMember, behaviour: Behaviour): Promise<void> {
    const say = sendTo(socket);
    switch (behaviour.how) {
      case 'good':
      case 'no-connect': // a matter of the HTTP proxy
        return this.#serveWell(socket, member);
      case 'slow':
        await this.#pause(behaviour.ms, socket);
        return this.#serveWell(socket, member);
      case 'dribble':
        return this.#serveAsk(socket, member, (bytes) => this.#dribble(socket, bytes, behaviour.ms));
      case 'cut':
        return this.#serveAsk(socket, member, say, cutAfter(behaviour.afterBytes, socket));
      default:
        return answerBadly(socket, member, behaviour);
    }
  }

  #serveWell(socket: Socket, member: RunningMember): Promise<void> | void {
    if (member.traits.protocol === 'http') return this.#proxy.serve(socket, member);
    return this.#serveAsk(socket, member, sendTo(socket));
  }

  /** Reads what is asked, dials it, answers, joins. */
  async #serveAsk(socket: Socket, member: RunningMember, say: Send, back?: Transform): Promise<void> {
    const ask = await readProxyRequest(socket, member.traits.protocol, member.login, say);
    if (ask === undefined) return endWith(socket);
    const target = await this.#dial(member, ask);
    if ('why' in target) {
      await say(ask.refusal(target.why));
      return endWith(socket);
    }
    if (socket.destroyed) {
      target.destroy(); // the client left, or the member ended, while we dialed
      return;
    }
    if (ask.first.length > 0) target.write(ask.first);
    await say(ask.accepted);
    joinStreams(socket, target, back);
  }

  async #dial(member: RunningMember, ask: ProxyRequest): Promise<Socket | { readonly why: RefusalCause }> {
    try {
      return await this.#outlet.dial(member.exit, ask.host, ask.port);
    } catch (error) {
      return { why: refusalCauseOf(error) };
    }
  }

  async #dribble(socket: Socket, bytes: Buffer, ms = 0): Promise<void> {
    const say = sendTo(socket);
    for (const byte of bytes) {
      await say(Buffer.from([byte]));
      if (ms > 0) await this.#pause(ms, socket);
      else await new Promise((next) => setImmediate(next)); // else the kernel would send several at once
    }
  }

  /** Waits. @throws HandshakeEnded as soon as the connection is gone. */
  async #pause(ms: number, socket: Socket): Promise<void> {
    const gone = new AbortController();
    const leave = () => gone.abort();
    socket.once('close', leave);
    await pause(this.#clock, ms, gone.signal);
    socket.off('close', leave);
    if (socket.destroyed) throw new HandshakeError('the client left');
  }
}

/** A client that left, or the system's word for it. Anything else is a mistake of ours. */
function endsConnectionOnly(error: unknown): boolean {
  return error instanceof HandshakeError || (error instanceof Error && 'code' in error);
}
