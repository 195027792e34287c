/** An HTTP server that can refuse connections for a time. When it closes, it also ends its open connections. */
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Socket } from 'node:net';
import { type Clock, pause } from '../core/clock.ts';
import { describeError, hasCode, NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { listenFailure } from '../core/listen-address.ts';

const LISTEN_RETRY_MS = 100;

export class WebServer {
  readonly host: string;
  port: number;
  readonly server: Server;
  readonly #clock: Clock;
  readonly #sockets = new Set<Socket>();
  readonly #closing = new AbortController();
  #reopening: Disposable | undefined;

  constructor(
    host: string,
    port: number,
    clock: Clock,
    answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
  ) {
    this.host = host;
    this.port = port;
    this.#clock = clock;
    // A client may offer another protocol, such as h2c; a server that does not speak it answers as usual (RFC 9110 §7.8).
    const shouldUpgradeCallback = ({ headers }: IncomingMessage) =>
      this.server.listenerCount('upgrade') > 0 && headers.upgrade?.toLowerCase() === 'websocket';
    this.server = createServer({ shouldUpgradeCallback }, (request, response) => {
      answer(request, response).catch((error: unknown) => {
        if (response.destroyed || response.headersSent) return response.destroy();
        const status = hasCode(error, 'bad-request') ? 400 : 500;
        send(response, status, { type: 'text/plain; charset=utf-8', body: `${describeError(error)}\n` });
      });
    });
    this.server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
  }

  get address(): string {
    return formatHostPort(this.host, this.port);
  }

  get url(): string {
    return `http://${this.address}`;
  }

  async open(): Promise<this> {
    this.server.listen(this.port, this.host);
    try {
      await once(this.server, 'listening');
    } catch (cause) {
      throw listenFailure(`${this.address} for the sandbox`, cause);
    }
    const address = this.server.address();
    if (typeof address === 'object' && address !== null) this.port = address.port;
    return this;
  }

  /** Resolves after `ms`, or when the server closes. */
  pause(ms: number): Promise<void> {
    return pause(this.#clock, ms, this.#closing.signal);
  }

  refuseFor(ms: number): void {
    this.server.close();
    this.#destroySockets();
    this.#listenAfter(ms);
  }

  #listenAfter(ms: number): void {
    this.#reopening?.[Symbol.dispose]();
    if (this.#closing.signal.aborted) return;
    this.#reopening = this.#clock.after(ms, () => {
      const retry = () => this.#listenAfter(LISTEN_RETRY_MS);
      this.server.once('error', retry);
      this.server.listen(this.port, this.host, () => this.server.off('error', retry));
    });
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.#reopening?.[Symbol.dispose]();
    const closed = this.server.listening ? once(this.server, 'close') : undefined;
    this.server.close();
    this.#destroySockets();
    await closed;
  }

  #destroySockets(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

export function send(
  response: ServerResponse,
  status: number,
  { type, body }: { readonly type: string; readonly body: string | Buffer },
): void {
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
}

export function htmlPage(status: number): string {
  const title = statusLine(status);
  return `<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\r\n`;
}

export function statusLine(status: number): string {
  return `${status} ${STATUS_CODES[status] ?? 'Unknown'}`;
}

/**
 * Reads the body as text.
 * @throws NoriaError `bad-request` if the body is larger than `limitBytes`.
 */
export async function readBody(request: IncomingMessage, limitBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > limitBytes) throw new NoriaError('bad-request', `the body is larger than ${limitBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
