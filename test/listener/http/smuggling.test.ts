/**
 * Requests and responses with ambiguous framing. A member must see exactly the request that noria understood, or none, and a
 * client must never get bytes of one response as the start of another.
 */
import { expect, test } from 'vitest';
import { LoopClock } from '../../support/loop-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';

const SMUGGLED = 'GET http://127.0.0.1:PORT/smuggled HTTP/1.1\r\nHost: x\r\n\r\n';
const post = (fields: string, body: string, version = '1.1') =>
  `POST http://127.0.0.1:PORT/ HTTP/${version}\r\nHost: x\r\n${fields}\r\n${body}`;

/** Sends the request and half-closes. Returns what the target saw and what the client received. */
async function send(request: string): Promise<{ seen: string[]; received: string }> {
  const origin = await rawOrigin((socket) => {
    socket.on('data', () =>
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'),
    );
  });
  const { port, listener } = await listen(directDialer(), {
    clock: new LoopClock(),
    headerTimeoutMs: 2_000,
    idleTimeoutMs: 4_000,
  });
  const client = await RawClient.open(port);
  client.send(request.replaceAll('PORT', `${origin.port}`)).end();
  await client.whole();
  await until('the close', () => listener.connectionCount === 0);
  return {
    seen: origin.seen.map((text) => text.replaceAll(`${origin.port}`, 'PORT')),
    received: client.received,
  };
}

test.each([
  [
    'CL.TE',
    post(`Content-Length: ${SMUGGLED.length + 5}\r\nTransfer-Encoding: chunked\r\n`, `0\r\n\r\n${SMUGGLED}`),
  ],
  ['TE.CL', post('Transfer-Encoding: chunked\r\nContent-Length: 4\r\n', `5c\r\n${SMUGGLED}\r\n0\r\n\r\n`)],
  [
    'TE.TE: two transfer codings',
    post('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', `0\r\n\r\n${SMUGGLED}`),
  ],
  [
    'TE.TE: chunked twice',
    post('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`),
  ],
  ['TE.TE: a list', post('Transfer-Encoding: gzip, chunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE.TE: chunked first', post('Transfer-Encoding: chunked, identity\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: xchunked', post('Transfer-Encoding: xchunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: quoted', post('Transfer-Encoding: "chunked"\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: a vertical tab', post('Transfer-Encoding: \x0bchunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: a space before the colon', post('Transfer-Encoding : chunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: a tab before the name', post('X: y\r\n\tTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: after a bare LF', post('X: y\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: after a bare CR', post('X: y\rTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE: folded', post('Transfer-Encoding:\r\n chunked\r\n', `0\r\n\r\n${SMUGGLED}`)],
  ['TE in HTTP/1.0', post('Transfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`, '1.0')],
  ['two lengths', post(`Content-Length: 0\r\nContent-Length: ${SMUGGLED.length}\r\n`, SMUGGLED)],
  ['one length twice', post('Content-Length: 0\r\nContent-Length: 0\r\n', SMUGGLED)],
  ['a list of lengths', post(`Content-Length: 0, ${SMUGGLED.length}\r\n`, SMUGGLED)],
  ['a signed length', post('Content-Length: +0\r\n', SMUGGLED)],
  ['a negative length', post('Content-Length: -1\r\n', SMUGGLED)],
  ['a length in hex', post('Content-Length: 0x0\r\n', SMUGGLED)],
  ['a length with an inner space', post('Content-Length: 0 0\r\n', SMUGGLED)],
  ['a length with a NUL', post('Content-Length: 0\0\r\n', SMUGGLED)],
  ['a length above 64 bits', post('Content-Length: 18446744073709551616\r\n', SMUGGLED)],
  ['a length in a folded line', post('X: y\r\n Content-Length: 5\r\n', SMUGGLED)],
  ['a head that ends in bare LF', `GET http://127.0.0.1:PORT/ HTTP/1.1\nHost: x\n\n${SMUGGLED}`],
  ['a request line without a version', `GET http://127.0.0.1:PORT/\r\nHost: x\r\n\r\n`],
  ['HTTP/0.9', `GET http://127.0.0.1:PORT/ HTTP/0.9\r\nHost: x\r\n\r\n`],
  ['HTTP/2.0', `GET http://127.0.0.1:PORT/ HTTP/2.0\r\nHost: x\r\n\r\n`],
  ['a CONNECT without a version', `CONNECT 127.0.0.1:PORT\r\n\r\n`],
  ['a CONNECT in HTTP/2.0', `CONNECT 127.0.0.1:PORT HTTP/2.0\r\nHost: x\r\n\r\n`],
  ['two Host fields', `GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n`],
  [
    'a CONNECT with a body',
    `CONNECT 127.0.0.1:PORT HTTP/1.1\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n${SMUGGLED}`,
  ],
  ['a chunk size with a sign', post('Transfer-Encoding: chunked\r\n', `+0\r\n\r\n${SMUGGLED}`)],
  [
    'a head without a line end before the body',
    `GET http://127.0.0.1:PORT/ HTTP/1.1\r\nX: y\r\r\n\r\n${SMUGGLED}`,
  ],
])('smuggling: %s is refused, and the member gets no byte of it', async (_what, request) => {
  const { seen, received } = await send(request);
  expect(seen.filter((text) => text !== '')).toEqual([]);
  expect(received).toMatch(/^HTTP\/1\.1 (?:400|501) /);
  expect(received.match(/HTTP\/1\.1 \d{3} /g)?.length).toBe(1);
});

const NEXT = 'GET http://127.0.0.1:PORT/next HTTP/1.1\r\nHost: x\r\n\r\n';

test.each([
  ['two transfer codings', post('Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n')],
  ['another transfer coding', post('Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n')],
  [
    'a transfer coding in HTTP/1.0',
    post('Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n', '1.0'),
  ],
])('smuggling: no request is served after one with %s', async (_what, request) => {
  const { seen, received } = await send(request + NEXT);
  expect(seen).toEqual([]);
  expect(received).toMatch(/^HTTP\/1\.1 (?:400|501) .*\r\nConnection: close\r\n/s);
  expect(received.match(/HTTP\/1\.1 \d{3} /g)?.length).toBe(1);
});

const INNER = 'GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n';

test('smuggling: a malformed body cancels the dial of its request', async () => {
  const dialer = directDialer();
  dialer.hold();
  const { port } = await listen(dialer);
  const client = (await RawClient.open(port)).send(
    'POST http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n',
  );
  await client.until('the refusal', (text) => text.startsWith('HTTP/1.1 400 '));
  expect(dialer.cancelled).toBe(1);
});

/** Unambiguous requests, and the only text in which the member gets each of them. */
test.each([
  [
    'a chunked body of a GET',
    `GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2b\r\n${INNER}\r\n0\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\n\r\n2b\r\n${INNER}\r\n0\r\n\r\n`,
  ],
  // RFC 9112 §3 allows a recipient to split the request line at any white space. noria sends single spaces.
  [
    'a request line with two spaces',
    `GET  http://127.0.0.1:PORT/x  HTTP/1.1\r\nHost: x\r\n\r\n`,
    `GET /x HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n`,
  ],
  [
    'a GET with Content-Length and a body',
    `GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nGET /x HTTP`,
    `GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 11\r\n\r\nGET /x HTTP`,
  ],
  [
    'chunk extensions',
    post('Transfer-Encoding: chunked\r\n', '3;a="b;\\"\\\\";c\r\nabc\r\n0;d\r\n\r\n'),
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  ],
  [
    'a chunk size with leading zeros',
    post('Transfer-Encoding: chunked\r\n', '0003\r\nabc\r\n000\r\n\r\n'),
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  ],
  [
    'a length with leading zeros',
    post('Content-Length: 0003\r\n', 'abc'),
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 3\r\n\r\nabc',
  ],
  [
    'a transfer coding in another letter case',
    post('TRANSFER-encoding:\tChUnKeD\r\n', '3\r\nabc\r\n0\r\n\r\n'),
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTRANSFER-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  ],
  [
    'an unknown method',
    'FROB http://127.0.0.1:PORT/x HTTP/1.1\r\nHost: x\r\n\r\n',
    'FROB /x HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n',
  ],
  [
    'a path in UTF-8',
    'GET http://127.0.0.1:PORT/\xc3\xbc?\xe6\x97\xa5 HTTP/1.1\r\nHost: x\r\n\r\n',
    'GET /%C3%BC?%E6%97%A5 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n',
  ],
  [
    'a Connection field that nominates framing fields',
    post('Connection: Content-Length, Host\r\nContent-Length: 3\r\n', 'abc'),
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 3\r\n\r\nabc',
  ],
  [
    'trailers that are only allowed as header fields',
    post('Transfer-Encoding: chunked\r\n', '0\r\nAuthorization: z\r\nX-T: 1\r\nHost: y\r\n\r\n'),
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: 1\r\n\r\n',
  ],
])('smuggling: the member gets %s as noria understood it', async (_what, request, expected) => {
  const origin = await rawOrigin((socket, index) => {
    socket.on('data', () => {
      if (origin.seen[index]?.replaceAll(`${origin.port}`, 'PORT') === expected) {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      }
    });
  });
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(request.replaceAll('PORT', `${origin.port}`));
  await client.until('a response', (text) => text.includes('\r\n\r\n'));
  expect(origin.seen.map((text) => text.replaceAll(`${origin.port}`, 'PORT'))).toEqual([expected]);
  expect(client.received).toMatch(/^HTTP\/1\.1 200 /);
});

const SECOND = 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled';

test.each([
  ['two lengths', `Content-Length: 0\r\nContent-Length: ${SECOND.length}\r\n\r\n${SECOND}`],
  [
    'a length and a transfer coding',
    `Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${SECOND}`,
  ],
  ['another transfer coding', `Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${SECOND}`],
  ['a folded line', `X: y\r\n Content-Length: 0\r\n\r\n${SECOND}`],
  ['a bare LF', `X: y\nContent-Length: 0\r\n\r\n${SECOND}`],
])(
  'smuggling: a response with %s becomes a 502, and the client gets no byte of it',
  async (_what, response) => {
    const origin = await rawOrigin((socket) =>
      socket.on('data', () => socket.write(`HTTP/1.1 200 OK\r\n${response}`)),
    );
    const dialer = directDialer({ reuse: true });
    const { port } = await listen(dialer);
    const client = await RawClient.open(port);
    client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    const received = await client.until(
      'a response',
      (text) => text.endsWith('\n') && text.includes('\r\n\r\n'),
    );
    expect(received).toMatch(/^HTTP\/1\.1 502 /);
    expect(received).not.toContain('smuggled');
    expect(dialer.ended.every((end) => end.keep !== true)).toBe(true);
  },
);

test('smuggling: a response with a space before a colon reaches the client without it, and nothing after its end', async () => {
  const origin = await rawOrigin((socket) =>
    socket.on('data', () =>
      socket.write(`HTTP/1.1 200 OK\r\nX : y\r\nContent-Length : 0004\r\n\r\nreal${SECOND}`),
    ),
  );
  const dialer = directDialer({ reuse: true });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the response', (text) => text.includes('real'));
  client.send('GET / HTTP/1.1\r\n\r\n');
  await client.until('the next response', (text) => text.includes('HTTP/1.1 400 '));
  expect(client.received).toMatch(/^HTTP\/1\.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n/);
  expect(client.received).toMatch(/\r\n\r\nrealHTTP\/1\.1 400 /);
  expect(dialer.ended.every((end) => end.keep !== true)).toBe(true);
});

test('smuggling: bytes after a response never become the next response', async () => {
  const origin = await rawOrigin((socket, index) =>
    socket.on('data', () =>
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal${index === 0 ? SECOND : ''}`),
    ),
  );
  const { port } = await listen(directDialer({ reuse: true }));
  const client = await RawClient.open(port);
  for (const nth of [1, 2]) {
    client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await client.until('a response', (text) => text.split('real').length === nth + 1);
  }
  expect(client.received).not.toContain('smuggled');
  expect(origin.sockets.length).toBe(2);
});

test('smuggling: bytes received before the request are not its response', async () => {
  const origin = await rawOrigin((socket) => {
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal'));
  });
  const dialer = directDialer({ overrides: { early: Buffer.from(SECOND) } });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  const received = await client.until('a response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(received).not.toContain('smuggled');
});

test('smuggling: a connection that carried a body is not used again', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
  const dialer = directDialer({ reuse: true });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  // A target that ignores the body of a PUT to a static file reads the body as a request, and answers that request,
  // too.
  const requests = [
    `PUT / HTTP/1.1\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n${SMUGGLED}`,
    'GET / HTTP/1.1\r\n\r\n',
  ];
  for (const [nth, request] of [...requests, ...requests].entries()) {
    client.send(request.replace(' /', ` http://127.0.0.1:${origin.port}/`));
    await client.until('the response', (text) => text.split('\r\n\r\nhi').length === nth + 2);
  }
  expect(dialer.ended.map(({ keep }) => keep === true)).toEqual([false, true, false, true]);
  expect(dialer.requests.map(({ noReuse: fresh }) => fresh)).toEqual([true, false, true, false]);
});

test.each([
  ['two lengths', 'POST http://127.0.0.1:9/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n'],
  ['another version', 'PRI * HTTP/2.0\r\n\r\n'],
  ['a URL in origin form and a malformed body', 'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n'],
])(
  'smuggling: the refusal of a request with %s is not lost while the client still sends',
  async (_what, head) => {
    const { port } = await listen(directDialer());
    const client = (await RawClient.open(port)).send(head);
    const size = 4 * 1024 * 1024;
    const sent = client.sendBytes(size);
    await until('all bytes are sent, or the connection is reset', () => sent.bytes === size || client.closed);
    expect(sent.bytes).toBe(size);
    expect(client.end().received).toMatch(/^HTTP\/1\.1 400 /);
    await client.whole();
  },
);
