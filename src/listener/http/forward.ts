/**
 * One absolute-form request on its way: a way of its own, the request over it, the answer back; through another member
 * when one fails while that is safe.
 *
 * Safe is: no byte of an answer has come, the body can be sent again, and the method is idempotent (RFC 9110 §9.2.2),
 * since a member that fails may have passed the request on. For the same reason a request that is not idempotent never
 * goes over a connection that was used before and may turn out dead.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Deadline } from '../../core/deadlines.ts';
import type { FaultCode, NoriaError } from '../../core/faults.ts';
import type { Dialing, DialRequest, DialResult, MemberConnection } from '../../dialer/dial.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { dialForClient } from '../dial-for-client.ts';
import { HttpExchange } from './exchange.ts';
import { type Framing, upgradeFields } from './header-fields.ts';
import { discardRest, refuseRequest } from './refusal.ts';
import type { Refusal } from './replies.ts';
import { RequestBody } from './request-body.ts';
import { type ForwardRequest, formatRequestHead } from './request-head.ts';
import type { ResponseHead, ResponsePart } from './response-reader.ts';
import { formatResponseHead, ResponseWriter, wayFields } from './response-writer.ts';

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

interface DialingPhase {
  readonly name: 'dialing';
  /** Known once the dialer has returned. */
  dialing?: Dialing;
}

/** Where the request is, and what is known there alone. */
type Phase =
  | DialingPhase
  /** Sent, or being sent; no final answer has come. */
  | { readonly name: 'waiting'; readonly exchange: HttpExchange }
  | { readonly name: 'answering'; readonly exchange: HttpExchange }
  /** Answered in full; the client has yet to take the last of it. */
  | { readonly name: 'delivering' }
  | { readonly name: 'over' };

/** Owns the request's response, and the upgrade's socket, until both are done with. */
export class Forward {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #context: ConnectionContext;
  readonly #order: ForwardRequest;
  readonly #upgrade: Upgrade | undefined;
  readonly #body: RequestBody;
  readonly #answer: ResponseWriter;
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
    order: ForwardRequest,
    upgrade: Upgrade | undefined,
  ) {
    this.#request = request;
    this.#response = response;
    this.#context = context;
    this.#order = order;
    this.#upgrade = upgrade;
    this.#early = upgrade?.head;
    this.#body = new RequestBody(request, order.framing, () => this.#live());
    this.#answer = new ResponseWriter(request, response);
  }

  /** Dials, and goes on from there; called once. */
  start(): void {
    this.#response.on('close', this.giveUp).on('drain', this.#onClientDrain);
    this.#dial(!IDEMPOTENT.has(this.#order.method));
  }

  #dial(fresh: boolean): void {
    this.#tries += 1;
    const { target, routing } = this.#order.route;
    const request: DialRequest = {
      target: target.target,
      routing,
      use: 'forward',
      fresh,
      avoid: [...this.#avoid],
    };
    const phase: DialingPhase = { name: 'dialing' };
    this.#phase = phase;
    if (this.#upgrade !== undefined) {
      dialForClient(this.#upgrade.socket, this.#early, this.#context, request, (result, early) => {
        this.#early = early;
        this.#upgrade?.socket.pause();
        this.#onDialed(result);
      });
      return;
    }
    // Into its own phase: what was dialed may have failed before this returns, and another dial may run by now.
    phase.dialing = this.#context.options.dialer.dial(request, (result) => {
      this.#safely(() => this.#onDialed(result));
    });
  }

  #onDialed(result: DialResult): void {
    // Looked at again after the wait: the client may have left, and then nobody else owns the way.
    if (this.#phase.name !== 'dialing') {
      if (!result.ok) return;
      result.connection.socket.destroy();
      result.connection.end({ cut: false });
    } else if (result.ok) {
      this.#exchange(result.connection);
    } else {
      const { failure } = result;
      if (failure.code !== 'client-gone') this.#context.dialFailed(failure);
      this.#answerRefusal({ ...failure, attempts: this.#attempts + failure.attempts });
    }
  }

  #exchange(way: MemberConnection): void {
    this.#attempts += way.attempts;
    const { method, framing } = this.#order;
    const sent = { method, body: framing, upgrade: this.#order.upgrade };
    const exchange = new HttpExchange(way, sent, {
      onPart: (part) => this.#safely(() => this.#onPart(exchange, part)),
      onRead: () => this.#safely(() => this.#onRead(exchange)),
      onSwitched: (head) => this.#safely(() => this.#onSwitched(exchange, head)),
      onDrain: () => this.#safely(() => this.#body.resume()),
      onFailed: (error, silent) => this.#safely(() => this.#onFailed(exchange, error, silent)),
    });
    this.#phase = { name: 'waiting', exchange };
    const { deadlines, idleTimeoutMs, clock } = this.#context.options;
    this.#exchangedAt = clock.monotonic();
    this.#hush();
    this.#silence = deadlines.set(idleTimeoutMs, this.#onSilence);
    exchange.start(formatRequestHead(this.#order, way));
    // One that failed at once may have another in its place already, which has the body.
    if (this.#phase.name === 'waiting' && this.#phase.exchange === exchange) this.#body.sendTo(exchange);
  }

  #onPart(exchange: HttpExchange, part: ResponsePart): void {
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
        this.#phase = { name: 'delivering' };
        this.#tellClosed(exchange);
        this.#body.letGo();
        this.#answer.complete(part.trailers);
        discardRest(this.#request, this.#context);
    }
  }

  #begin(exchange: HttpExchange, head: ResponseHead, body: Framing): void {
    const { way } = exchange;
    // Neither is the client's to answer: a member's own question is the dialer's, and a target is no proxy.
    if (head.status === PROXY_AUTHENTICATION_REQUIRED) {
      if (way.forwardMode === 'absolute') {
        exchange.rejectChallenge();
        return;
      }
      exchange.abort();
      this.#tellClosed(exchange);
      const reason = 'the target answered 407, which is for a proxy to say';
      this.#refuse({ code: 'bad-answer', attempts: this.#attempts, reason }, reason);
      return;
    }
    this.#phase = { name: 'answering', exchange };
    this.#answer.start(head, body, wayFields(way, this.#attempts), this.#context.draining);
  }

  #onRead(exchange: HttpExchange): void {
    if (!this.#answer.flush()) exchange.pause();
  }

  readonly #onClientDrain = (): void => {
    this.#live();
    if (this.#phase.name === 'answering') this.#phase.exchange.resume();
  };

  #onSwitched(exchange: HttpExchange, head: ResponseHead): void {
    const { way } = exchange;
    const socket = this.#upgrade?.socket;
    if (socket === undefined) throw new TypeError('a protocol was switched that nobody asked to switch');
    this.#phase = { name: 'over' };
    this.#hush();
    this.#response.detachSocket(socket);
    socket.write(
      formatResponseHead(head, [...upgradeFields(head.fields), ...wayFields(way, this.#attempts)]),
      'latin1',
    );
    this.#context.tunnel(socket, way, this.#early);
  }

  #onFailed(exchange: HttpExchange, error: NoriaError, silent: boolean): void {
    this.#tellClosed(exchange);
    if (this.#answer.begun) {
      this.#cutOff('members-failed');
      return;
    }
    const { reused, member } = exchange.way;
    const challenged = error.code === 'member-auth'; // refused unread, and a new dial knows what to offer
    const safe = challenged || (silent && IDEMPOTENT.has(this.#order.method));
    if (!safe || !this.#body.replayable || this.#tries >= MAX_TRIES) {
      const code = error.code === 'member-protocol' ? 'bad-answer' : 'members-failed';
      this.#refuse({ code, attempts: this.#attempts, reason: error.message }, error.message);
      return;
    }
    this.#body.hold();
    if (!reused && !challenged) this.#avoid.push(member);
    this.#dial(true);
  }

  /** No byte went either way for too long. */
  readonly #onSilence = (): void => {
    const phase = this.#phase;
    if (phase.name === 'waiting' || phase.name === 'answering') {
      phase.exchange.abort();
      this.#tellClosed(phase.exchange);
    }
    if (phase.name === 'waiting') {
      this.#refuse({ code: 'deadline', attempts: this.#attempts }, 'neither side sent anything');
    } else {
      this.#cutOff('deadline');
    }
  };

  /** The client has left, has its whole answer, or sends what cannot be read on. */
  readonly giveUp = (): void => {
    const phase = this.#phase;
    this.#phase = { name: 'over' };
    this.#hush();
    if (phase.name === 'dialing') phase.dialing?.cancel();
    if (phase.name === 'waiting' || phase.name === 'answering') {
      phase.exchange.abort();
      this.#tellClosed(phase.exchange);
    }
  };

  /** Runs what a member's socket brought about: a mistake of ours in it ends this connection, and no other. */
  #safely(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.giveUp();
      this.#context.broke(error);
    }
  }

  /** In the middle of an answer: cut off and not ended, since the client must see that something is missing. */
  #cutOff(outcome: FaultCode): void {
    this.#phase = { name: 'over' };
    this.#context.endedWith(outcome);
    this.#response.destroy();
  }

  #refuse(failure: Refusal, detail: string): void {
    this.#context.refused(failure.code, detail);
    this.#answerRefusal(failure);
  }

  #answerRefusal(failure: Refusal): void {
    this.#phase = { name: 'over' };
    this.#body.letGo();
    if (failure.code === 'client-gone') {
      this.#response.destroy();
      return;
    }
    refuseRequest(this.#request, this.#response, failure, this.#context);
  }

  #tellClosed({ way, bytesUp, bytesDown }: HttpExchange): void {
    const { bus, clock } = this.#context.options;
    const { source, member } = way;
    const ms = clock.monotonic() - this.#exchangedAt;
    bus.emit('tunnel.closed', { source, member, kind: 'forward', bytesUp, bytesDown, ms });
  }

  #hush(): void {
    if (this.#silence !== undefined) this.#context.options.deadlines.clear(this.#silence);
  }

  /** A sign of life. */
  #live(): void {
    if (this.#silence !== undefined) this.#context.options.deadlines.refresh(this.#silence);
  }
}
