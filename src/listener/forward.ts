/**
 * Forwards one absolute-form request: a way of its own, the request over it, the answer back; through another member
 * when one fails while that is safe.
 *
 * Safe is: no byte of an answer has come, the body can be sent again, and the method is idempotent (RFC 9110 §9.2.2),
 * since a member that fails may have passed the request on. For the same reason a request that is not idempotent never
 * goes over a connection that was used before and may turn out dead.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Deadline } from '../core/deadlines.ts';
import { NoriaError } from '../core/faults.ts';
import type { Dialed, Dialing, DialRequest, DialResult } from '../dialer/dial.ts';
import type { ConnectionContext } from './connection.ts';
import { dialForClient } from './dial-for-client.ts';
import { ForwardedAnswer, headText, wayFields } from './forwarded-answer.ts';
import {
  type AbsoluteTarget,
  absoluteTarget,
  endToEnd,
  type Field,
  type Framing,
  fieldLines,
  pairFields,
  requestFraming,
  upgrading,
  withHost,
} from './http-fields.ts';
import { discardRest, refuseRequest } from './http-refusal.ts';
import { MemberExchange } from './member-exchange.ts';
import type { Refused } from './replies.ts';
import { RequestBody } from './request-body.ts';
import type { ResponseHead, ResponsePart } from './response-reader.ts';
import { type Route, routeRequest, toldToClient } from './route.ts';

/** A request to change the protocol, whose socket node:http has let go. */
export interface Upgrade {
  readonly socket: Socket;
  /** What the client sent behind its request. */
  readonly head: Buffer;
}

/** Dials for one request; each may itself go through several members. */
const MAX_TRIES = 3;
const IDEMPOTENT = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'PUT',
  'DELETE',
  'PROPFIND',
  'REPORT',
  'SEARCH',
]);
const PROXY_AUTHENTICATION_REQUIRED = 407;

/**
 * Serves one request; owns its response, and the socket where it is an upgrade, until both are done with.
 *
 * @returns gives it up, telling the client nothing; without effect once it is over.
 */
export function forward(
  request: IncomingMessage,
  response: ServerResponse,
  context: ConnectionContext,
  upgrade?: Upgrade,
): () => void {
  const fields = pairFields(request.rawHeaders);
  const order = readOrder(request, fields, context);
  if (order instanceof NoriaError) {
    context.refused(order.code, order.message);
    refuseRequest(request, response, toldToClient(order), context);
    return () => {};
  }
  const forwarding = new Forwarding(request, response, context, order, upgrade);
  forwarding.start();
  return forwarding.giveUp;
}

/** What is to be sent, and to whom. */
interface Order {
  readonly method: string;
  readonly fields: readonly Field[];
  readonly framing: Framing;
  readonly route: Route<AbsoluteTarget>;
}

function readOrder(
  request: IncomingMessage,
  fields: readonly Field[],
  context: ConnectionContext,
): Order | NoriaError {
  const { method = '', url = '' } = request;
  const framing = requestFraming(fields, request.httpVersionMinor);
  if (framing instanceof NoriaError) return framing;
  const route = routeRequest(
    context,
    fields,
    () => absoluteTarget(method, url),
    ({ target }) => target,
  );
  return route instanceof NoriaError ? route : { method, fields, framing, route };
}

/** Where the request is, and what is known there alone. */
type Phase =
  | { readonly name: 'dialing'; readonly dialing?: Dialing }
  /** Sent, or being sent; no final answer has begun. */
  | { readonly name: 'waiting'; readonly exchange: MemberExchange }
  | { readonly name: 'answering'; readonly exchange: MemberExchange }
  | { readonly name: 'over' };

class Forwarding {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #context: ConnectionContext;
  readonly #order: Order;
  readonly #upgrade: Upgrade | undefined;
  readonly #body: RequestBody;
  readonly #answer: ForwardedAnswer;
  readonly #avoid: string[] = [];
  #phase: Phase = { name: 'dialing' };
  #tries = 0;
  #attempts = 0;
  /** What an upgrading client has sent ahead of the answer. */
  #early: Buffer | undefined;
  #silence: Deadline | undefined;
  #exchangedAt = 0;

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    context: ConnectionContext,
    order: Order,
    upgrade: Upgrade | undefined,
  ) {
    this.#request = request;
    this.#response = response;
    this.#context = context;
    this.#order = order;
    this.#upgrade = upgrade;
    this.#early = upgrade?.head;
    this.#body = new RequestBody(request, order.framing, () => this.#live());
    this.#answer = new ForwardedAnswer(request, response);
  }

  start(): void {
    this.#response.on('close', this.giveUp).on('drain', this.#onClientDrain);
    this.#dial(!IDEMPOTENT.has(this.#order.method));
  }

  #dial(fresh: boolean): void {
    this.#tries += 1;
    const { target, wish } = this.#order.route;
    const request: DialRequest = {
      target: target.target,
      wish,
      use: 'forward',
      fresh,
      avoid: [...this.#avoid],
    };
    if (this.#upgrade !== undefined) {
      this.#phase = { name: 'dialing' };
      dialForClient(this.#upgrade.socket, this.#early, this.#context, request, (result, early) => {
        this.#early = early;
        this.#upgrade?.socket.pause();
        this.#onDialed(result);
      });
      return;
    }
    const dialing = this.#context.options.dialer.dial(request);
    this.#phase = { name: 'dialing', dialing };
    dialing.result
      .then((result) => this.#onDialed(result))
      .catch((error: unknown) => this.#context.broke(error));
  }

  #onDialed(result: DialResult): void {
    // Looked at again after the wait: the client may have left, and then nobody else owns the way.
    if (this.#phase.name !== 'dialing') {
      if (!result.ok) return;
      result.way.socket.destroy();
      result.way.end({ cut: false });
    } else if (result.ok) {
      this.#exchange(result.way);
    } else {
      const { failure } = result;
      this.#refuse({ ...failure, attempts: this.#attempts + failure.attempts }, failure.reason);
    }
  }

  #exchange(way: Dialed): void {
    this.#attempts += way.attempts;
    const { method, framing } = this.#order;
    const sent = { method, body: framing, upgrade: this.#upgrade !== undefined };
    const exchange = new MemberExchange(way, sent, {
      onPart: (part) => this.#onPart(exchange, part),
      onRead: () => this.#onRead(exchange),
      onSwitched: (head) => this.#onSwitched(exchange, head),
      onDrain: () => this.#body.resume(),
      onFailed: (error, silent) => this.#onFailed(exchange, error, silent),
    });
    this.#phase = { name: 'waiting', exchange };
    const { deadlines, idleTimeoutMs, clock } = this.#context.options;
    this.#exchangedAt = clock.monotonic();
    this.#silence = deadlines.set(idleTimeoutMs, () => this.#onSilence(exchange));
    exchange.start(this.#head(way));
    if (this.#phase.name === 'waiting') this.#body.sendTo(exchange);
  }

  #head(way: Dialed): string {
    const { method, fields, framing, route } = this.#order;
    const { authority, path } = route.target;
    const absolute = way.form === 'absolute';
    const target = absolute ? `http://${authority}${path === '*' ? '' : path}` : path;
    const sent = withHost(
      this.#upgrade === undefined ? endToEnd(fields, framing) : upgrading(fields),
      authority,
    );
    if (absolute && way.proxyAuthorization !== undefined)
      sent.push(['Proxy-Authorization', way.proxyAuthorization]);
    return `${method} ${target} HTTP/1.1\r\n${fieldLines(sent)}\r\n`;
  }

  #onPart(exchange: MemberExchange, part: ResponsePart): void {
    this.#live();
    switch (part.kind) {
      case 'information':
        this.#answer.inform(part.head);
        return;
      case 'head':
        this.#begin(exchange, part.head, part.body);
        return;
      case 'data':
        this.#answer.data(part.chunk);
        return;
      case 'complete':
        this.#finish(exchange);
        this.#answer.complete(part.trailers);
        discardRest(this.#request, this.#context);
    }
  }

  #begin(exchange: MemberExchange, head: ResponseHead, body: Framing): void {
    const { way } = exchange;
    if (way.form === 'absolute' && head.status === PROXY_AUTHENTICATION_REQUIRED) {
      // The member's own question: the client has no answer to it, and must not be led to give one.
      exchange.reject(new NoriaError('member-auth', 'the member asked for credentials'));
      return;
    }
    this.#phase = { name: 'answering', exchange };
    this.#answer.start(head, body, wayFields(way, this.#attempts), this.#context.draining);
  }

  #onRead(exchange: MemberExchange): void {
    if (!this.#answer.flush()) exchange.pause();
  }

  readonly #onClientDrain = (): void => {
    this.#live();
    if (this.#phase.name === 'answering') this.#phase.exchange.resume();
  };

  #onSwitched(exchange: MemberExchange, head: ResponseHead): void {
    const { way } = exchange;
    const socket = this.#upgrade?.socket;
    if (socket === undefined) throw new TypeError('a protocol was switched that nobody asked to switch');
    this.#phase = { name: 'over' };
    this.#quiet();
    this.#response.detachSocket(socket);
    socket.write(headText(head, [...upgrading(head.fields), ...wayFields(way, this.#attempts)]), 'latin1');
    this.#context.tunnel(socket, way, this.#early);
  }

  #onFailed(exchange: MemberExchange, error: NoriaError, silent: boolean): void {
    const answering = this.#phase.name === 'answering';
    this.#close(exchange);
    if (answering) {
      // Cut off, not ended: the client must see that something is missing.
      this.#phase = { name: 'over' };
      this.#context.endedWith('members-failed');
      this.#response.destroy();
      return;
    }
    const refusedUnread = error.code === 'member-auth';
    const safe = refusedUnread || (silent && IDEMPOTENT.has(this.#order.method));
    if (safe && this.#body.replayable && this.#tries < MAX_TRIES) {
      this.#body.hold();
      const { reused, member } = exchange.way;
      if (!reused) this.#avoid.push(member);
      this.#dial(true);
      return;
    }
    this.#refuse({ code: 'members-failed', attempts: this.#attempts }, error.message);
  }

  #onSilence(exchange: MemberExchange): void {
    const answering = this.#phase.name === 'answering';
    exchange.abort();
    this.#finish(exchange);
    if (answering) this.#response.destroy();
    else this.#refuse({ code: 'deadline', attempts: this.#attempts }, 'neither side sent anything');
  }

  /** The client has left, or what it sends cannot be read on. */
  readonly giveUp = (): void => {
    const phase = this.#phase;
    this.#phase = { name: 'over' };
    if (phase.name === 'over') return;
    if (phase.name === 'dialing') {
      phase.dialing?.cancel();
      return;
    }
    phase.exchange.abort();
    this.#close(phase.exchange);
  };

  #refuse(failure: Refused, detail: string): void {
    this.#phase = { name: 'over' };
    this.#body.letGo();
    if (failure.code === 'client-gone') {
      this.#response.destroy();
      return;
    }
    this.#context.refused(failure.code, detail);
    refuseRequest(this.#request, this.#response, failure, this.#context);
  }

  /** The exchange is over and so is the request; only the client's answer may still be under way. */
  #finish(exchange: MemberExchange): void {
    this.#phase = { name: 'over' };
    this.#body.letGo();
    this.#close(exchange);
  }

  #close(exchange: MemberExchange): void {
    this.#quiet();
    const { bus, clock } = this.#context.options;
    const { source, member } = exchange.way;
    const { bytesUp, bytesDown } = exchange;
    const ms = clock.monotonic() - this.#exchangedAt;
    bus.emit('tunnel.closed', { source, member, kind: 'forward', bytesUp, bytesDown, ms });
  }

  #quiet(): void {
    if (this.#silence !== undefined) this.#context.options.deadlines.clear(this.#silence);
  }

  /** A sign of life. */
  #live(): void {
    if (this.#silence !== undefined) this.#context.options.deadlines.refresh(this.#silence);
  }
}
