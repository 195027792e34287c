/**
 * Sends each request directly and through noria. Target and client must see the same messages, except for hop-by-hop fields and
 * noria's X-Noria fields.
 */
import {
  Agent,
  createServer,
  type IncomingMessage,
  type RequestOptions,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { directDialer } from './direct-dialer.ts';
import { listen } from './harness.ts';

const OWN_CONNECTION = /^(?:connection|keep-alive|transfer-encoding|x-noria-.*)$/i;

type Fields = readonly string[];

interface Seen {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly fields: Fields;
  readonly body: string;
  readonly trailers: Fields;
}

interface Got {
  readonly interim: readonly string[];
  readonly status: number | undefined;
  readonly reason: string | undefined;
  readonly fields: Fields;
  readonly body: string;
  readonly trailers: Fields;
}

interface Case {
  readonly name: string;
  readonly send: RequestOptions & {
    readonly body?: readonly string[];
    readonly trailers?: Record<string, string>;
  };
  readonly respond: (response: ServerResponse, seen: Seen) => void;
}

const payload = 'x'.repeat(300_000);

const CASES: readonly Case[] = [
  { name: 'a small GET', send: { path: '/a?b=c&d=%20' }, respond: (response) => response.end('hi') },
  {
    name: 'chunks',
    send: {},
    respond(response) {
      response.write('a');
      response.write('b');
      response.end('c');
    },
  },
  { name: 'a large body', send: {}, respond: (response) => response.end(payload) },
  {
    name: 'a large body by length',
    send: {},
    respond: (response) => response.writeHead(200, { 'Content-Length': payload.length }).end(payload),
  },
  {
    name: 'HEAD',
    send: { method: 'HEAD' },
    respond: (response) => response.setHeader('Content-Length', 5).end(),
  },
  { name: '204', send: {}, respond: (response) => response.writeHead(204).end() },
  {
    name: '304',
    send: {},
    respond: (response) => response.writeHead(304, { ETag: '"x"', 'Content-Length': '12' }).end(),
  },
  {
    name: 'a redirect',
    send: {},
    respond: (response) => response.writeHead(302, 'Look There', { Location: '/b' }).end(),
  },
  { name: 'an unassigned status', send: {}, respond: (response) => response.writeHead(799, 'Odd').end() },
  {
    name: 'repeated fields, in order and letter case',
    send: {
      headers: [
        'X-b',
        '1',
        'x-A',
        '2',
        'X-B',
        '3',
        'Host',
        'HOST',
        'COOKIE',
        'a=b',
        'cookie',
        'c=d',
      ] as unknown as RequestOptions['headers'],
    },
    respond: (response) =>
      response.writeHead(200, ['set-cookie', 'a', 'X-z', '1', 'Set-Cookie', 'b', 'x-Z', '2']).end(),
  },
  {
    name: 'a gzip body',
    send: { headers: { 'Accept-Encoding': 'gzip' } },
    respond: (response) => response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync(payload)),
  },
  {
    name: 'trailers both ways',
    send: { method: 'POST', headers: { Trailer: 'X-Up' }, body: ['a', 'b'], trailers: { 'X-Up': 'u' } },
    respond(response) {
      response.writeHead(200, { Trailer: 'X-Down' });
      response.write('x');
      response.addTrailers({ 'X-Down': 'd' });
      response.end();
    },
  },
  {
    name: 'interim answers',
    send: {},
    respond(response) {
      response.writeProcessing();
      response.writeEarlyHints({ link: '</a.css>; rel=preload; as=style', 'x-hint': '1' });
      response.end('late');
    },
  },
  {
    name: 'a POST by length',
    send: { method: 'POST', headers: { 'Content-Length': '3' }, body: ['abc'] },
    respond: (response, seen) => response.end(seen.body),
  },
  {
    name: 'a large upload in chunks',
    send: { method: 'PUT', body: [payload, payload] },
    respond: (response, seen) => response.end(String(seen.body.length)),
  },
  {
    name: 'DELETE with a body',
    send: { method: 'DELETE', headers: { 'Content-Length': '2' }, body: ['hi'] },
    respond: (response) => response.end(),
  },
  {
    name: 'a range',
    send: { headers: { Range: 'bytes=2-' } },
    respond: (response) => response.writeHead(206, { 'Content-Range': 'bytes 2-3/4' }).end('cd'),
  },
  {
    name: 'another method',
    send: { method: 'PROPFIND', headers: { Depth: '1' } },
    respond: (response) => response.writeHead(207).end('<a/>'),
  },
  {
    name: 'OPTIONS',
    send: { method: 'OPTIONS', path: '/x' },
    respond: (response) => response.writeHead(200, { Allow: 'GET' }).end(),
  },
  {
    name: 'an error',
    send: {},
    respond: (response) => response.writeHead(503, { 'Retry-After': '3' }).end('no'),
  },
  {
    name: 'credentials for the target',
    send: { headers: { Authorization: 'Bearer x' } },
    respond: (response) => response.writeHead(401, { 'WWW-Authenticate': 'Basic' }).end(),
  },
];

/** What target and client see of one exchange. `through`: the port of noria; undefined for a direct request. */
async function exchange(
  { send, respond }: Case,
  through: number | undefined,
): Promise<{ seen: Seen; got: Got }> {
  let seen: Seen | undefined;
  const server = createServer((incoming, response) => {
    response.sendDate = false;
    void read(incoming).then((message) => {
      seen = message;
      respond(response, message);
    });
  });
  const port = await listenOn(server);
  const agent = new Agent({ keepAlive: true });
  onTestFinished(() => {
    agent.destroy();
    server.close();
    server.closeAllConnections();
  });
  const { path = '/', body = [], trailers, ...rest } = send;
  const got = await ask(
    {
      ...rest,
      agent,
      host: '127.0.0.1',
      port: through ?? port,
      path: through === undefined ? path : `http://127.0.0.1:${port}${path}`,
    },
    body,
    trailers,
  );
  if (seen === undefined) throw new Error('the origin saw nothing');
  return { seen: { ...seen, fields: withoutHost(seen.fields) }, got };
}

function ask(
  options: RequestOptions,
  body: readonly string[],
  trailers?: Record<string, string>,
): Promise<Got> {
  return new Promise((resolve, reject) => {
    const interim: string[] = [];
    const outgoing = request(options, (response) => {
      buffer(response).then((content) => {
        const { statusCode: status, statusMessage: reason, rawHeaders, rawTrailers } = response;
        const fields = endToEnd(rawHeaders);
        resolve({
          interim,
          status,
          reason,
          fields,
          body: content.toString('latin1'),
          trailers: rawTrailers,
        });
      }, reject);
    });
    outgoing.on('information', ({ statusCode, rawHeaders }) =>
      interim.push(`${statusCode} ${rawHeaders.join()}`),
    );
    outgoing.on('error', reject);
    for (const part of body) outgoing.write(part);
    if (trailers !== undefined) outgoing.addTrailers(trailers);
    outgoing.end();
  });
}

async function read(incoming: IncomingMessage): Promise<Seen> {
  const body = (await buffer(incoming)).toString('latin1');
  const { method, url, rawHeaders, rawTrailers } = incoming;
  return { method, url, fields: endToEnd(rawHeaders), body, trailers: rawTrailers };
}

function endToEnd(raw: Fields): Fields {
  const kept: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const [name = '', value = ''] = raw.slice(at, at + 2);
    if (!OWN_CONNECTION.test(name)) kept.push(`${name}: ${value}`);
  }
  return kept;
}

/** noria replaces the value of Host by the URL's authority, but keeps its place and letter case. */
const withoutHost = (fields: Fields): Fields => fields.map((field) => field.replace(/^(host): .*/i, '$1'));

function listenOn(server: Server): Promise<number> {
  return new Promise((resolve) =>
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)),
  );
}

test.each(CASES)('differential: through noria as directly: $name', async (given) => {
  const { port } = await listen(directDialer());
  const direct = await exchange(given, undefined);
  const through = await exchange(given, port);
  expect(through.got).toEqual(direct.got);
  expect(through.seen).toEqual(direct.seen);
});
