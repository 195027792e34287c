/**
 * A target that reports the exit to each client in a form that the client can show: a page, the name of a git branch,
 * the version of a Python package, the description of an npm package. It serves HTTP, and TLS as `target.example`.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { echoMessages } from '../../src/sandbox/target.ts';

/** Self-signed, for the name `target.example`. */
export const TARGET_CERTIFICATE = 'test/fixtures/tls/target.cert.pem';

export interface ExitOrigin {
  readonly port: number;
  /** The remote addresses of all connections so far. */
  readonly seen: ReadonlySet<string>;
  close(): Promise<void>;
}

/** The number of images on the page `/page`. */
export const PAGE_RESOURCES = 100;

const PAGE = `<!doctype html><title>loading</title>
${Array.from({ length: PAGE_RESOURCES }, (_, n) => `<img src="/dot/${n}.svg">`).join('')}
<script>
  const images = [...document.images];
  const loaded = Promise.all(images.map((image) => image.decode()));
  const socket = new WebSocket(location.href.replace('http', 'ws').replace('/page', '/ws'));
  const echoed = new Promise((resolve, reject) => {
    socket.onopen = () => socket.send('hello');
    socket.onmessage = ({ data }) => resolve(data);
    socket.onerror = reject;
  });
  Promise.all([loaded, echoed]).then(
    ([images, echo]) => { document.title = images.length + ' images, echo ' + echo; },
    (error) => { document.title = 'failed: ' + error; },
  );
</script>`;
/** The content of `/bytes`: 1 MiB in which neighbouring bytes differ. */
export const BYTES = Buffer.alloc(2 ** 20, Buffer.from(Array.from({ length: 251 }, (_, n) => n)));

const DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>';

export async function openExitOrigin(tls: boolean): Promise<ExitOrigin> {
  const seen = new Set<string>();
  const server: Server = tls
    ? createTlsServer(
        { cert: readFileSync(TARGET_CERTIFICATE), key: readFileSync('test/fixtures/tls/target.key.pem') },
        answer,
      )
    : createServer(answer);
  server.on('connection', ({ remoteAddress }) => seen.add(remoteAddress ?? ''));
  server.on('upgrade', echoMessages);
  server.on('clientError', (_, socket) => socket.destroy()); // a client disconnected during its request
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    seen,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  if (request.url === '/upload') sendDigest(request, response);
  else if (request.url === '/bytes') sendRange(request, response);
  else sendExit(request, response);
}

function sendExit(request: IncomingMessage, response: ServerResponse): void {
  const exit = request.socket.remoteAddress ?? '';
  const { pathname } = new URL(request.url ?? '/', 'http://target.example');
  request.resume();
  const pages: Readonly<Record<string, readonly [type: string, body: string]>> = {
    '/ip': ['text/plain', `${exit}\n`],
    '/repo.git/info/refs': ['text/plain', `${'1'.repeat(40)}\trefs/heads/${exit}\n`],
    '/repo.git/HEAD': ['text/plain', 'ref: refs/heads/main\n'],
    '/simple/exits/': ['text/html', `<a href="exits-${exit}.tar.gz">exits-${exit}.tar.gz</a>`],
    '/exits': ['application/json', npmDocument(exit)],
    '/page': ['text/html', PAGE],
  };
  const [type, body] = pathname.startsWith('/dot/')
    ? (['image/svg+xml', DOT] as const)
    : (pages[pathname] ?? []);
  response.writeHead(body === undefined ? 404 : 200, {
    'Content-Type': type ?? 'text/plain',
    'Cache-Control': 'no-store',
  });
  response.end(body ?? 'no such page\n');
}

/** Answers with the size of the body and its SHA-256. */
function sendDigest(request: IncomingMessage, response: ServerResponse): void {
  const hash = createHash('sha256');
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    hash.update(chunk);
  });
  request.on('end', () => response.end(`${bytes} ${hash.digest('hex')}\n`));
}

/** Sends all of BYTES, or the part from the requested offset on. */
function sendRange(request: IncomingMessage, response: ServerResponse): void {
  const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  const range = { 'Content-Range': `bytes ${from}-${BYTES.length - 1}/${BYTES.length}` };
  response.writeHead(from === 0 ? 200 : 206, {
    'Content-Length': BYTES.length - from,
    'Accept-Ranges': 'bytes',
    ...(from === 0 ? {} : range),
  });
  response.end(BYTES.subarray(from));
}

function npmDocument(exit: string): string {
  const version = { name: 'exits', version: '1.0.0', description: exit };
  return JSON.stringify({ name: 'exits', 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': version } });
}
