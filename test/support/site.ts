/** A site whose answers a test chooses by host, exit and path, over plain HTTP and TLS. */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { TARGET_CERTIFICATE } from './exit-origin.ts';

export interface Visit {
  readonly host: string;
  readonly exit: string;
  readonly path: string;
}

/** A status, with its Retry-After in seconds if it has one; or the site resets or ends the connection without an answer. */
export type SiteAnswer = number | readonly [status: number, retryAfter: number] | 'reset' | 'end';

export class TestSite {
  readonly visits: Visit[] = [];
  /** Chooses the answer to each visit. */
  answer: (visit: Visit) => SiteAnswer = () => 200;
  readonly #servers: Server[];
  readonly #sockets = new WeakMap<Socket, Socket>();

  constructor() {
    const tls = {
      cert: readFileSync(TARGET_CERTIFICATE),
      key: readFileSync('test/fixtures/tls/target.key.pem'),
    };
    const serve = (request: IncomingMessage, response: ServerResponse) => this.#serve(request, response);
    const overTls = createTlsServer(tls, serve);
    // Only the socket below TLS can be reset.
    const accepted: Socket[] = [];
    overTls.on('connection', (socket: Socket) => accepted.push(socket));
    overTls.on('secureConnection', (secure) => {
      const below = accepted.find(({ remotePort }) => remotePort === secure.remotePort);
      if (below !== undefined) this.#sockets.set(secure, below);
    });
    this.#servers = [createServer(serve), overTls];
  }

  async listen(): Promise<void> {
    for (const server of this.#servers) {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      onTestFinished(() => {
        server.closeAllConnections();
        server.close();
      });
    }
  }

  get port(): number {
    return portOf(this.#servers[0]);
  }

  get tlsPort(): number {
    return portOf(this.#servers[1]);
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const exit = request.socket.remoteAddress ?? '';
    const visit = { host: (request.headers.host ?? '').replace(/:\d+$/, ''), exit, path: request.url ?? '' };
    this.visits.push(visit);
    const answer = this.answer(visit);
    const socket = this.#sockets.get(request.socket) ?? request.socket;
    if (answer === 'reset') socket.resetAndDestroy();
    else if (answer === 'end') socket.end();
    else {
      const [status, retryAfter] = typeof answer === 'number' ? [answer] : answer;
      response.writeHead(status, retryAfter === undefined ? {} : { 'Retry-After': retryAfter });
      response.end(exit);
    }
  }
}

function portOf(server: Server | undefined): number {
  const address = server?.address();
  if (typeof address !== 'object' || address === null) throw new TypeError('the site does not listen');
  return address.port;
}

export async function openSite(): Promise<TestSite> {
  const site = new TestSite();
  await site.listen();
  return site;
}
