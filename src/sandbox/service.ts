/**
 * The extraction service's HTTP side: takes calls by GET and POST, has them decided, prints the answer.
 *
 * Owns two servers: one for the base address, one for the extraction host of the pure edition.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { extract, layoutOf } from './extraction.ts';
import type { Instance } from './instance.ts';
import { print } from './layouts.ts';
import { OPERATIONS, type Operation } from './operations.ts';

export interface ServiceOptions {
  readonly host: string;
  readonly port: number;
  readonly extractPort: number;
  readonly instances: ReadonlyMap<string, Instance>;
}

export interface Service {
  /** The base address, without a slash at its end. */
  readonly url: string;
  /** `host:port` of the pure edition's extraction server. */
  readonly extractHost: string;
  close(): Promise<void>;
}

const MAX_BODY_BYTES = 65_536;
const NOT_FOUND =
  '<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1></body></html>\r\n';

export async function openService(options: ServiceOptions): Promise<Service> {
  const pure = OPERATIONS.filter(({ product }) => product === 'short-pure');
  const others = OPERATIONS.filter(({ product }) => product !== 'short-pure');
  const base = await listen(options.host, options.port, (...exchange) => take(others, options, ...exchange));
  const extraction = await listen(options.host, options.extractPort, (...exchange) =>
    take(pure, options, ...exchange),
  );
  return {
    url: `http://${base.address}`,
    extractHost: extraction.address,
    close: async () => {
      await Promise.all([base.close(), extraction.close()]);
    },
  };
}

type Handler = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

async function take(
  operations: readonly Operation[],
  { instances }: ServiceOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const url = URL.parse(request.url ?? '', 'http://service.example');
  const operation = operations.find(({ path }) => path === url?.pathname);
  if (url === null || operation === undefined) return send(response, 404, 'text/html', NOT_FOUND);
  if (request.method !== 'GET' && request.method !== 'POST')
    return send(response, 405, 'text/html', NOT_FOUND);
  const params = url.searchParams;
  if (request.method === 'POST') {
    const body = await readBody(request);
    for (const [name, value] of new URLSearchParams(body)) params.set(name, value);
  }
  const instance = instances.get(params.get(operation.idName) ?? '');
  const known = instance?.operation === operation ? instance : undefined;
  const call = { operation, params, client: request.socket.remoteAddress ?? '' };
  const answer = await extract(call, known);
  if (known !== undefined) known.counts.codes[answer.code] = (known.counts.codes[answer.code] ?? 0) + 1;
  const { body, contentType } = print(answer, layoutOf(call, known));
  send(response, 200, contentType, body);
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw Object.assign(new Error('body too large'), { code: 'EMSGSIZE' });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function send(response: ServerResponse, status: number, contentType: string, body: string): void {
  response.writeHead(status, { 'Content-Type': contentType, 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
}

async function listen(host: string, port: number, handler: Handler) {
  const sockets = new Set<Socket>();
  const server: Server = createServer((request, response) => {
    handler(request, response).catch((error: unknown) => {
      response.destroy(); // the caller left, or sent too much
      if (!(error instanceof Error && 'code' in error)) throw error;
    });
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address();
  const taken = typeof address === 'object' && address !== null ? address.port : port;
  return {
    address: `${host}:${taken}`,
    close: async () => {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
