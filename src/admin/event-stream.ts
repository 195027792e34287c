/**
 * GET /api/events: what happens, as server-sent events, one each. A reader that does not keep up loses its place and is
 * cut off rather than buffered without end; its browser comes back by itself.
 */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { streamSSE } from 'hono/streaming';
import type { Clock } from '../core/clock.ts';
import type { EventBus, EventName } from '../core/events.ts';

/** Events worth showing to a person: what happens to each connection is told in figures, by /api/status. */
const TOLD: readonly EventName[] = [
  'member.joined',
  'member.quarantined',
  'member.restored',
  'member.drained',
  'member.left',
  'member.banned',
  'session.bound',
  'session.moved',
  'session.ended',
  'draw.started',
  'draw.done',
  'source.moved',
  'source.warned',
  'dial.ended',
  'network.judged',
  'client.refused',
];

/** Events held for one reader at most. */
const MAX_PENDING = 1_000;
/** A comment line this often keeps proxies from ending a quiet stream. */
const HEARTBEAT_MS = 15_000;
/** How long a browser waits before it comes back. */
const RETRY_MS = 2_000;

/** One server-sent event, or a comment that only keeps the stream alive. */
type Message = { readonly event: string; readonly data: string } | 'heartbeat';

export function addEventStream(app: OpenAPIHono, bus: EventBus, clock: Clock): void {
  app.get('/api/events', (context) =>
    streamSSE(context, async (stream) => {
      const inbox = new Inbox(bus, clock);
      stream.onAbort(() => inbox.close());
      try {
        await stream.writeSSE({ event: 'hello', data: '{}', retry: RETRY_MS });
        for (let message = await inbox.next(); message !== undefined; message = await inbox.next()) {
          if (message === 'heartbeat') await stream.write(': still here\n\n');
          else await stream.writeSSE(message);
        }
      } finally {
        inbox.close();
      }
    }),
  );
}

/** What one reader has still to be told. Owns its subscriptions and one timer. */
class Inbox {
  readonly #clock: Clock;
  readonly #subscriptions: readonly Disposable[];
  readonly #pending: Message[] = [];
  #heartbeat: Disposable;
  #wake: (() => void) | undefined;
  #closed = false;

  constructor(bus: EventBus, clock: Clock) {
    this.#clock = clock;
    this.#subscriptions = TOLD.map((name) =>
      bus.on(name, (event) => this.#add({ event: name, data: JSON.stringify(event) })),
    );
    this.#heartbeat = this.#armHeartbeat();
  }

  /** The next message, waited for; undefined when the reader left or did not keep up. */
  async next(): Promise<Message | undefined> {
    while (!this.#closed && this.#pending.length === 0) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#closed ? undefined : this.#pending.shift();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    this.#heartbeat[Symbol.dispose]();
    this.#wake?.();
  }

  #add(message: Message): void {
    this.#pending.push(message);
    if (this.#pending.length > MAX_PENDING) this.close();
    this.#wake?.();
  }

  #armHeartbeat(): Disposable {
    return this.#clock.after(HEARTBEAT_MS, () => {
      this.#add('heartbeat');
      this.#heartbeat = this.#armHeartbeat();
    });
  }
}
