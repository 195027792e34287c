/**
 * GET /api/events: the events of noria as server-sent events. A client that reads too slowly is disconnected. A
 * browser's EventSource then reconnects by itself.
 */
import { getConnInfo } from '@hono/node-server/conninfo';
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import type { Clock } from '../core/clock.ts';
import type { EventBus, EventName } from '../core/events.ts';
import { clientNetwork } from '../core/networks.ts';
import { jsonResponse, sendError } from './openapi.ts';
import { errorSchema } from './schemas.ts';

/** Without those of single attempts, tunnels and connections: they are too frequent, and /metrics counts them. */
const STREAMED_EVENTS = [
  'member.joined',
  'member.quarantined',
  'member.restored',
  'member.drained',
  'member.left',
  'site.banned',
  'session.bound',
  'session.moved',
  'session.ended',
  'draw.started',
  'draw.done',
  'source.moved',
  'source.warned',
  'readiness.changed',
  'dial.ended',
  'network.judged',
  'client.refused',
] as const satisfies readonly EventName[];

const MAX_READERS = 64;
const MAX_READERS_PER_CLIENT = 16;
const MAX_PENDING_EVENTS = 1_000;
const HEARTBEAT_MS = 5_000;
const RETRY_MS = 2_000;

const HELLO = `retry: ${RETRY_MS}\nevent: hello\ndata: {}\n\n`;
const HEARTBEAT = ': heartbeat\n\n';

const eventsRoute = createRoute({
  method: 'get',
  path: '/api/events',
  summary: 'Events, as server-sent events',
  description: `The first event is \`hello\`; a comment line follows every 5 seconds. A client that falls ${MAX_PENDING_EVENTS} events behind is disconnected.`,
  request: {
    query: z.object({
      only: z
        .string()
        .optional()
        .openapi({
          description: `The names of the wanted events, separated by commas; without it, all events: ${STREAMED_EVENTS.join(', ')}`,
          example: 'member.joined,member.left',
        }),
    }),
  },
  responses: {
    200: { description: 'The stream', content: { 'text/event-stream': { schema: z.string() } } },
    400: jsonResponse('`only` names an unknown event', errorSchema),
    503: jsonResponse(
      `${MAX_READERS} clients already read the stream, or ${MAX_READERS_PER_CLIENT} clients from this address do`,
      errorSchema,
    ),
  },
});

export function addEventStream(app: OpenAPIHono, bus: EventBus, clock: Clock): void {
  const readers = new Map<string, number>();
  const reasonToRefuse = (client: string): string | undefined => {
    const all = [...readers.values()].reduce((sum, count) => sum + count, 0);
    if (all >= MAX_READERS) return `${MAX_READERS} clients already read the stream: try again later`;
    return (readers.get(client) ?? 0) >= MAX_READERS_PER_CLIENT
      ? `${MAX_READERS_PER_CLIENT} clients at this address already read the stream: close one of them`
      : undefined;
  };
  const change = (client: string, by: 1 | -1) => {
    const count = (readers.get(client) ?? 0) + by;
    if (count > 0) readers.set(client, count);
    else readers.delete(client);
  };
  app.openapi(eventsRoute, (context) => {
    const { only } = context.req.valid('query');
    const wanted = only === undefined ? STREAMED_EVENTS : only.split(',');
    const unknown = wanted.find((name) => !STREAMED_EVENTS.some((streamed) => streamed === name));
    if (unknown !== undefined) {
      return sendError(context, 'bad-request', `the parameter "only" contains an unknown event: ${unknown}`);
    }
    const client = clientNetwork(getConnInfo(context).remote.address ?? '');
    const reason = reasonToRefuse(client);
    if (reason !== undefined) return sendError(context, 'too-many-readers', reason);
    const names = STREAMED_EVENTS.filter((name) => wanted.includes(name));
    const stream = streamOf(() => {
      // Checks again whether the client may read: other clients may have opened streams since the first check.
      if (reasonToRefuse(client) !== undefined) return undefined;
      change(client, 1);
      return new EventQueue(names, bus, clock, () => change(client, -1));
    });
    return context.body(stream, 200, { 'Content-Type': 'text/event-stream' });
  });
}

function streamOf(openQueue: () => EventQueue | undefined): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let queue: EventQueue | undefined;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (queue === undefined) {
          queue = openQueue();
          if (queue === undefined) controller.close();
          else controller.enqueue(encoder.encode(HELLO));
          return;
        }
        const text = await queue.next();
        if (text === undefined) controller.close();
        else controller.enqueue(encoder.encode(text));
      },
      cancel: () => queue?.close(),
    },
    { highWaterMark: 0 },
  );
}

/** The events that one client has not read yet. Owns the subscriptions and the heartbeat timer. */
class EventQueue {
  readonly #clock: Clock;
  readonly #onClose: () => void;
  readonly #subscriptions: readonly Disposable[];
  #pending: string[] = [];
  #heartbeat: Disposable;
  #wake: (() => void) | undefined;
  #closed = false;

  constructor(names: readonly EventName[], bus: EventBus, clock: Clock, onClose: () => void) {
    this.#clock = clock;
    this.#onClose = onClose;
    this.#subscriptions = names.map((name) =>
      bus.on(name, (event) => this.#add(`event: ${name}\ndata: ${JSON.stringify(event)}\n\n`)),
    );
    this.#heartbeat = this.#armHeartbeat();
  }

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
    if (this.#pending.length >= MAX_PENDING_EVENTS) this.close();
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
