/**
 * Serves one request in absolute form, and retries through another member if that is safe: no byte of a response has
 * arrived, the body can be sent again, and the method is idempotent, because a failed member may already have
 * forwarded the request (RFC 9110 §9.2.2). An idle connection may turn out to be closed, so a request may use one
 * only if it is idempotent and has no body.
 */
import type { Deadline } from '../../core/deadlines.ts';
import { SECOND_MS } from '../../core/duration.ts';
import type { FaultCode, NoriaError } from '../../core/faults.ts';
import type { Dialing, DialRequest, DialResult, MemberConnection } from '../../dialer/contract.ts';
import type { ClientConnection } from '../client-connection.ts';
import type { Refusal } from '../refusal.ts';
import { relayTunnel } from '../relay.ts';
import { type ExchangeEvent, HttpExchange } from './exchange.ts';
import { type ForwardRequest, formatRequestHead } from './forward-request.ts';
import {
  connectionOptions,
  endToEndTrailers,
  type Framing,
  fieldValues,
  type HeaderField,
  isEmptyBody,
  successHeaders,
  upgradeFields,
} from './header-fields.ts';
import {
  authenticatesConnection,
  offersConnectionAuthentication,
  type PinnedConnection,
  type PinPurpose,
} from './pinned-connection.ts';
import { refusalReply } from './replies.ts';
import type { ResponseHead } from './response-reader.ts';
import { formatResponseHead, type ResponseWriter } from './response-writer.ts';

/** The reading side of the client's connection. */
interface RequestReader {
  readonly connection: ClientConnection;
  readonly pin: PinnedConnection;
  adjustReading(): void;
  /** Stops reading for a tunnel. @returns what the client has sent after the request. */
  detach(): Buffer | undefined;
}

/** Each dial may try several members. */
const MAX_DIALS = 3;
const IDEMPOTENT = /^(?:GET|HEAD|OPTIONS|TRACE|PUT|DELETE|PROPFIND|REPORT|SEARCH)$/;
const PROXY_AUTHENTICATION_REQUIRED = 407;
/** Tells the client that its connection is bound to one connection to the target (RFC 4559 §6). */
const SESSION_BASED: [string, string] = ['Proxy-Support', 'Session-Based-Authentication'];

interface DialingPhase {
  readonly name: 'dialing';
  dialing?: Dialing;
}

type Phase =
  | DialingPhase
  /** `waiting`: no final response has arrived. `responding`: its head has. */
  | { readonly name: 'waiting' | 'responding'; readonly exchange: HttpExchange }
  /** The client may not have received its whole response yet. */
  | { readonly name: 'over' };

/** A further try beside a first one whose member relays nothing. The first that gets a byte of the response wins. */
interface Rival {
  dialing?: Dialing;
  exchange?: HttpExchange;
}

/** The client's connection calls this class when the client sends its body, reads slowly or disconnects. */
export class Forward {
  readonly #reader: RequestReader;
  readonly #connection: ClientConnection;
  readonly #response: ResponseWriter;
  readonly #forwardRequest: ForwardRequest;
  readonly #isRead: boolean;
  readonly body: RequestBody;
  readonly #avoid: string[] = [];
  #phase: Phase = { name: 'dialing' };
  #dialCount = 0;
  #maxDials = MAX_DIALS;
  /** A member answered a request in absolute form with its own error, so the next dial must use CONNECT. */
  #connectOnly = false;
  #attempts = 0;
  #idleTimeout: Deadline | undefined;
  #muteTimeout: Deadline | undefined;
  readonly #rivals: Rival[] = [];

  constructor(reader: RequestReader, response: ResponseWriter, forwardRequest: ForwardRequest) {
    this.#reader = reader;
    this.#connection = reader.connection;
    this.#response = response;
    this.#forwardRequest = forwardRequest;
    this.#isRead = forwardRequest.method === 'GET' || forwardRequest.method === 'HEAD';
    this.body = new RequestBody(forwardRequest.framing, () => reader.adjustReading());
  }

  start(): void {
    const { method, framing } = this.#forwardRequest;
    const pinned = this.#reader.pin.take(this.#pinPurpose);
    if (pinned !== undefined) this.#startExchange(pinned, true);
    else this.#dial(!(IDEMPOTENT.test(method) && isEmptyBody(framing)));
  }

  onBody(chunk: Buffer): void {
    this.#refreshIdleTimeout();
    this.body.add(chunk);
  }

  onClientDrain(): void {
    this.#refreshIdleTimeout();
    if (this.#phase.name === 'responding') this.#phase.exchange.resume();
  }

  #dial(noReuse: boolean): void {
    const phase: DialingPhase = { name: 'dialing' };
    this.#phase = phase;
    // `dial` may report before it returns, and the next dial then replaces `this.#phase`: hence `phase`.
    phase.dialing = this.#startDial(noReuse, this.#avoid, (result) => this.#onDialed(result));
  }

  #startDial(noReuse: boolean, avoid: readonly string[], onDialed: (result: DialResult) => void): Dialing {
    this.#dialCount += 1;
    const { url, routing, owner } = this.#forwardRequest;
    const request: DialRequest = {
      target: url.target,
      routing,
      use: 'forward',
      owner,
      noReuse,
      connectOnly: this.#connectOnly,
      avoid: [...avoid],
      record: this.#connection.record,
    };
    return this.#connection.options.dialer.dial(request, (result) => this.#safely(() => onDialed(result)));
  }

  #onDialed(result: DialResult): void {
    if (this.#phase.name !== 'dialing') {
      // The client disconnected during the dial, and no other code closes this connection.
      if (!result.ok) return;
      result.connection.socket.destroy();
      result.connection.end({ cut: false });
    } else if (result.ok) {
      this.#startExchange(result.connection, authenticatesConnection(this.#forwardRequest.fields));
    } else if (result.failure.code === 'client-gone') {
      this.#over();
      this.#connection.socket.destroy();
    } else {
      const { failure } = result;
      this.#connection.reportRefusal(failure.code, failure.reason, true);
      this.#sendRefusal({ ...failure, attempts: this.#attempts + failure.attempts });
    }
  }

  #startExchange(memberConnection: MemberConnection, pinned: boolean): void {
    const { deadlines, idleTimeoutMs } = this.#connection.options;
    const exchange = this.#makeExchange(memberConnection);
    if (pinned) this.#pin(exchange);
    this.#phase = { name: 'waiting', exchange };
    this.#connection.options.deadlines.clear(this.#idleTimeout);
    this.#idleTimeout = deadlines.set(idleTimeoutMs, this.#onIdle);
    if (!pinned) this.#armMuteTimeout(memberConnection);
    exchange.start(formatRequestHead(this.#forwardRequest, memberConnection));
    // If `start` failed, a retry may already send the body through another exchange.
    if (this.#phase.name === 'waiting' && this.#phase.exchange === exchange) this.body.sendTo(exchange);
  }

  /** When the member relays nothing for longer than the target needs, tries another one beside it. */
  #armMuteTimeout({ muteAfterMs }: MemberConnection): void {
    this.#connection.options.deadlines.clear(this.#muteTimeout);
    const { framing, upgrade } = this.#forwardRequest;
    const mayTryAnother = this.#isRead && framing.kind === 'none' && !upgrade && this.#dialCount < MAX_DIALS;
    if (muteAfterMs === undefined || !mayTryAnother) return;
    const { deadlines } = this.#connection.options;
    this.#muteTimeout = deadlines.set(muteAfterMs, () => this.#safely(() => this.#startRival()));
  }

  #startRival(): void {
    const phase = this.#phase;
    if (phase.name !== 'waiting') return;
    const rival: Rival = {};
    const exchanges = [phase.exchange, ...this.#rivals.map(({ exchange }) => exchange)];
    this.#rivals.push(rival);
    const silent = exchanges.flatMap((exchange) => exchange?.memberConnection.lease.member ?? []);
    rival.dialing = this.#startDial(true, [...this.#avoid, ...silent], (result) => {
      if (!this.#rivals.includes(rival)) this.#onDialed(result);
      else if (result.ok) {
        const { connection } = result;
        rival.exchange = this.#makeExchange(connection);
        this.#armMuteTimeout(connection);
        rival.exchange.start(formatRequestHead(this.#forwardRequest, connection));
      } else this.#rivals.splice(this.#rivals.indexOf(rival), 1); // the other tries go on
    });
  }

  /** The first part of a response ends the other tries. Those that began earlier relayed nothing in time. */
  #notePart(winner: HttpExchange): void {
    this.#refreshIdleTimeout();
    this.#connection.options.deadlines.clear(this.#muteTimeout);
    const phase = this.#phase;
    if (phase.name !== 'waiting') return;
    const rivals = this.#rivals.splice(0);
    this.#phase = { name: 'waiting', exchange: winner };
    let isEarlier = phase.exchange !== winner;
    if (isEarlier) phase.exchange.abort(true);
    for (const { dialing, exchange } of rivals) {
      if (exchange === winner) isEarlier = false;
      else {
        dialing?.cancel();
        exchange?.abort(isEarlier);
      }
    }
  }

  #endRivals(): void {
    for (const { dialing, exchange } of this.#rivals.splice(0)) {
      dialing?.cancel();
      exchange?.abort();
    }
  }

  #makeExchange(memberConnection: MemberConnection): HttpExchange {
    this.#attempts += memberConnection.attempts;
    return new HttpExchange(memberConnection, this.#forwardRequest, this.#connection, this.#onEvent);
  }

  readonly #onEvent = (exchange: HttpExchange, event: ExchangeEvent): void =>
    this.#safely(() => {
      switch (event.kind) {
        case 'interim':
          this.#notePart(exchange);
          this.#response.sendInterim(event.head);
          return;
        case 'head':
          this.#notePart(exchange);
          this.#startResponse(exchange, event.head, event.framing);
          return;
        case 'data':
          this.#notePart(exchange);
          this.#response.write(event.chunk);
          return;
        case 'complete':
          this.#over();
          this.#response.complete(event.trailers);
          return;
        case 'read':
          if (!this.#response.flush()) exchange.pause();
          return;
        case 'drained':
          this.body.resume();
          return;
        case 'switched':
          this.#onSwitched(exchange, event.head);
          return;
        case 'failed':
          this.#onFailed(exchange, event.error, event.silent);
      }
    });

  #startResponse(exchange: HttpExchange, head: ResponseHead, framing: Framing): void {
    const { memberConnection } = exchange;
    // The client never gets this 407: a 407 of a member is for the dialer, and a target must not send a 407.
    if (head.status === PROXY_AUTHENTICATION_REQUIRED) {
      if (memberConnection.forwardMode === 'absolute') {
        exchange.rejectChallenge();
        return;
      }
      exchange.abort();
      this.#refuse('bad-answer', 'the target replied 407, which only a proxy may send');
      return;
    }
    const { status, fields } = head;
    const isAbsolute = memberConnection.forwardMode === 'absolute';
    if (isAbsolute && memberConnection.isMemberError({ status, fields, isRead: this.#isRead })) {
      exchange.rejectMemberError(status);
      return;
    }
    this.#phase = { name: 'responding', exchange };
    exchange.response = {
      status,
      path: this.#forwardRequest.url.path.slice(0, MAX_PATH),
      retryAfterMs: retryAfterMs(head, this.#connection.options.clock.now()),
    };
    this.#connection.record?.noteFirstByte();
    const added = successHeaders(memberConnection.lease, this.#attempts);
    if (offersConnectionAuthentication(status, fields)) {
      this.#pin(exchange);
      added.push(SESSION_BASED);
    }
    // The target ignores the rest of the body. Some clients stop sending only when their connection closes.
    if (!this.body.complete && connectionOptions(fields).includes('close')) this.#response.closesAfter = true;
    this.#response.start(head, framing, added);
  }

  get #pinPurpose(): PinPurpose {
    const { url, owner, routing } = this.#forwardRequest;
    return { target: url.target.text, owner, routing };
  }

  #pin(exchange: HttpExchange): void {
    exchange.keep = (memberConnection) => this.#reader.pin.keep(memberConnection, this.#pinPurpose);
  }

  #onSwitched({ memberConnection, bytesUp, bytesDown }: HttpExchange, head: ResponseHead): void {
    this.#over();
    const early = this.#reader.detach();
    const fields = [...upgradeFields(head.fields), ...successHeaders(memberConnection.lease, this.#attempts)];
    this.#connection.socket.write(formatResponseHead(head, fields), 'latin1');
    relayTunnel(this.#connection, memberConnection, early, { bytesUp, bytesDown });
  }

  #onFailed(exchange: HttpExchange, error: NoriaError, silent: boolean): void {
    const at = this.#rivals.findIndex((rival) => rival.exchange === exchange);
    if (at >= 0) {
      this.#rivals.splice(at, 1); // the other tries go on
      return;
    }
    const next = this.#rivals.shift();
    if (next !== undefined) {
      const { dialing, exchange: other } = next;
      this.#phase =
        other === undefined
          ? { name: 'dialing', ...(dialing && { dialing }) }
          : { name: 'waiting', exchange: other };
      return;
    }
    this.#connection.options.deadlines.clear(this.#muteTimeout);
    if (this.#response.begun) {
      this.#cutOff('members-failed');
      return;
    }
    const { reused, lease } = exchange.memberConnection;
    // The member did not process the request, so it may be sent again: with credentials, or by CONNECT.
    const challenged = error.code === 'member-auth';
    const refused = error.code === 'member-refused';
    // The site resets this exit. If it resets another one too, a third would be lost for nothing.
    if (silent && exchange.memberConnection.hasWorked === true)
      this.#maxDials = Math.min(this.#maxDials, this.#dialCount + 1);
    const safe = challenged || refused || (silent && IDEMPOTENT.test(this.#forwardRequest.method));
    if (!safe || !this.body.replayable || this.#dialCount >= this.#maxDials) {
      this.#refuse(error.code === 'member-protocol' ? 'bad-answer' : 'members-failed', error.message);
      return;
    }
    this.body.stopSending();
    if (!reused && !challenged && !refused) this.#avoid.push(lease.member);
    if (refused) this.#connectOnly = true;
    this.#dial(true);
  }

  readonly #onIdle = (): void => {
    const phase = this.#phase;
    if (phase.name === 'waiting' || phase.name === 'responding') phase.exchange.abort();
    if (phase.name === 'waiting') {
      this.#connection.reportRefusal('deadline', 'neither side sent anything within the idle timeout');
      this.#sendRefusal({ code: 'deadline', attempts: this.#attempts });
    } else {
      this.#cutOff('deadline');
    }
  };

  abort(): void {
    const phase = this.#phase;
    this.#over();
    if (phase.name === 'dialing') phase.dialing?.cancel();
    if (phase.name === 'waiting' || phase.name === 'responding') phase.exchange.abort();
  }

  /** An unexpected error in a handler of the member's socket closes only this client connection. */
  #safely(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.abort();
      this.#connection.fail(error);
    }
  }

  /** Destroys the connection, so that the client does not take an incomplete response for complete. */
  #cutOff(outcome: FaultCode): void {
    this.#over();
    this.#connection.outcome = outcome;
    this.#response.cutOff();
  }

  #refuse(code: FaultCode, reason: string): void {
    this.#connection.reportRefusal(code, reason);
    this.#sendRefusal({ code, attempts: this.#attempts, reason });
  }

  #sendRefusal(refusal: Refusal): void {
    this.#over();
    this.#response.reply(refusalReply(refusal, this.#forwardRequest.fields, this.#connection.record));
  }

  #over(): void {
    this.#phase = { name: 'over' };
    this.#connection.options.deadlines.clear(this.#muteTimeout);
    this.#endRivals();
    this.#connection.options.deadlines.clear(this.#idleTimeout);
    this.body.release();
  }

  #refreshIdleTimeout(): void {
    if (this.#idleTimeout !== undefined) this.#connection.options.deadlines.refresh(this.#idleTimeout);
  }
}

const MAX_PATH = 256;

/** The time in Retry-After of a status that may be a ban (RFC 9110 §10.2.3). */
function retryAfterMs({ status, fields }: ResponseHead, now: number): number | undefined {
  if (status !== 403 && status !== 429 && status !== 503) return undefined;
  const [value] = fieldValues(fields, 'retry-after');
  if (value === undefined) return undefined;
  const ms = /^\d{1,8}$/.test(value) ? Number(value) * SECOND_MS : Date.parse(value) - now;
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

/** A longer body is never sent again. */
const MAX_KEPT_BYTES = 64 * 1024;
/** So many parts are merged into one: even a buffer of one byte costs some hundred bytes of memory. */
const MAX_KEPT_PARTS = 16;

class RequestBody {
  readonly #onWantsMore: () => void;
  /** All parts so far, for a retry; undefined once an exchange has received more than MAX_KEPT_BYTES. */
  #kept: Buffer[] | undefined = [];
  #keptBytes = 0;
  #trailers: readonly HeaderField[] | undefined;
  #exchange: HttpExchange | undefined;
  #blocked = false;
  #released = false;

  constructor(framing: Framing, onWantsMore: () => void) {
    this.#onWantsMore = onWantsMore;
    if (isEmptyBody(framing)) this.#trailers = [];
  }

  get wantsMore(): boolean {
    if (this.#released) return true;
    return this.#exchange === undefined ? this.#keptBytes < MAX_KEPT_BYTES : !this.#blocked;
  }

  get complete(): boolean {
    return this.#trailers !== undefined;
  }

  get replayable(): boolean {
    return this.#kept !== undefined;
  }

  add(chunk: Buffer): void {
    if (this.#released) return;
    this.#keptBytes += chunk.length;
    if (this.#kept?.push(chunk) === MAX_KEPT_PARTS) this.#kept = [Buffer.concat(this.#kept)];
    if (this.#exchange === undefined) return;
    this.#blocked = !this.#exchange.sendBody(chunk);
    this.#dropIfLong();
  }

  end(trailers: readonly HeaderField[]): void {
    this.#trailers = endToEndTrailers(trailers);
    if (!this.#released) this.#exchange?.finishBody(this.#trailers);
  }

  sendTo(exchange: HttpExchange): void {
    this.#exchange = exchange;
    this.#blocked = !(this.#kept ?? []).map((chunk) => exchange.sendBody(chunk)).every(Boolean);
    this.#dropIfLong();
    if (this.#trailers !== undefined) exchange.finishBody(this.#trailers);
    else if (!this.#blocked) this.#onWantsMore();
  }

  resume(): void {
    this.#blocked = false;
    if (this.#exchange !== undefined) this.#onWantsMore();
  }

  stopSending(): void {
    this.#exchange = undefined;
  }

  release(): void {
    this.#exchange = undefined;
    this.#kept = undefined;
    this.#released = true;
    this.#onWantsMore();
  }

  #dropIfLong(): void {
    if (this.#keptBytes > MAX_KEPT_BYTES) this.#kept = undefined;
  }
}
