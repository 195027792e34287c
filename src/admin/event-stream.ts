/**
 * GET /api/events: what happens, as server-sent events, one each. A reader that does not keep up loses its place and is
 * cut off rather than buffered without end; it comes back by itself.
 */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import type { Clock } from '../core/clock.ts';
import type { EventBus, EventName } from '../core/events.ts';
import { jsonResponse, sendError } from './openapi.ts';
import { errorSchema } from './schemas.ts';

/** Events worth showing to a person: what happens to each connection is told in figures, by /api/history. */
const TOLD = [
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
] as const satisfies readonly EventName[];

/** Readers at a time: each costs memory and a share of every event. */
const MAX_READERS = 64;
/** Events held for one reader at most. */
const MAX_PENDING = 1_000;
/** A comment line this often keeps proxies from ending a quiet stream, and tells the reader that noria is there. */
const HEARTBEAT_MS = 5_000;
/** How long a browser's EventSource waits before it comes back. */
const RETRY_MS = 2_000;

const HELLO = `retry: ${RETRY_MS}\nevent: hello\ndata: {}\n\n`;
const HEARTBEAT = ': still here\n\n';

const eventsRoute = createRoute({
  method: 'get',
  path: '/api/events',
  summary: 'What happens, as server-sent events',
  description:
    'Begins with `hello`; a comment line every 5 seconds tells that noria is still there. A reader that falls behind by 1,000 events is cut off.',
  request: {
    query: z.object({
      only: z
        .string()
        .optional()
        .openapi({
          description: `names of the events wanted, with commas between; all when absent: ${TOLD.join(', ')}`,
          example: 'member.joined,member.left',
        }),
    }),
  },
  responses: {
    200: { description: 'the stream', content: { 'text/event-stream': { schema: z.string() } } },
    400: jsonResponse('`only` names an event that there is not', errorSchema),
    503: jsonResponse(`${MAX_READERS} readers are there already`, errorSchema),
  },
});

export function addEventStream(app: OpenAPIHono, bus: EventBus, clock: Clock): void {
  let readers = 0;
  app.openapi(eventsRoute, (context) => {
    const { only } = context.req.valid('query');
    const wanted = only === undefined ? [] : only.split(',');
    const stranger = wanted.find((name) => !TOLD.some((told) => told === name));
    if (stranger !== undefined) {
      return sendError(context, 'bad-request', `only: there is no event ${stranger}`);
    }
    if (readers >= MAX_READERS) {
      return sendError(context, 'too-many-readers', `${MAX_READERS} readers are there already`);
    }
    const names = only === undefined ? TOLD : TOLD.filter((name) => wanted.includes(name));
    const stream = streamOf(() => {
      readers += 1;
      return new Inbox(bus, clock, names, () => {
        readers -= 1;
      });
    });
    return context.body(stream, 200, { 'Content-Type': 'text/event-stream' });
  });
}

/** Opens the inbox with the first read: an answer that is never read (to HEAD, say) costs nothing. */
function streamOf(openInbox: () => Inbox): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let inbox: Inbox | undefined;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (inbox === undefined) {
          inbox = openInbox();
          controller.enqueue(encoder.encode(HELLO));
          return;
        }
        const message = await inbox.next();
        if (message === undefined) controller.close();
        else controller.enqueue(encoder.encode(message));
      },
      cancel: () => inbox?.close(),
    },
    { highWaterMark: 0 },
  );
}

/** What one reader has still to be told. Owns its subscriptions and one timer. */
class Inbox {
  readonly #clock: Clock;
  readonly #onClose: () => void;
  readonly #subscriptions: readonly Disposable[];
  #pending: string[] = [];
  #heartbeat: Disposable;
  #wake: (() => void) | undefined;
  #closed = false;

  constructor(bus: EventBus, clock: Clock, names: readonly EventName[], onClose: () => void) {
    this.#clock = clock;
    this.#onClose = onClose;
    this.#subscriptions = names.map((name) =>
      bus.on(name, (event) => this.#add(`event: ${name}\ndata: ${JSON.stringify(event)}\n\n`)),
    );
    this.#heartbeat = this.#armHeartbeat();
  }

  /** All that is there to tell, waited for; undefined when the reader left or did not keep up. */
  async next(): Promise<string | undefined> {
    while (!this.#closed && this.#pending.length === 0) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#closed) return undefined;
    const text = this.#pending.join('');
    this.#pending = [];
    return text;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    this.#heartbeat[Symbol.dispose]();
    this.#onClose();
    this.#wake?.();
  }

  #add(message: string): void {
    if (this.#pending.length >= MAX_PENDING) this.close();
    else this.#pending.push(message);
    this.#wake?.();
  }

  #armHeartbeat(): Disposable {
    return this.#clock.after(HEARTBEAT_MS, () => {
      this.#heartbeat = this.#armHeartbeat();
      this.#add(HEARTBEAT);
    });
  }
}
