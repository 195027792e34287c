import { expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { Deadlines } from '../../../src/core/deadlines.ts';
import { Secret } from '../../../src/core/secret.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { connectTo, listen, RawClient, untilStill } from '../harness.ts';
import { answering, OK, rawOrigin } from '../origin.ts';

const users = [{ username: 'ann', password: new Secret('right') }];
const basic = (text: string) => `Proxy-Authorization: Basic ${Buffer.from(text).toString('base64')}\r\n`;
const echo = () => rawOrigin((socket) => socket.pipe(socket));

const FRAMING_FIELDS = [
  ['without a framing field', ''],
  ['with a harmless framing field', 'Content-Length: 0\r\n'],
] as const;

test.each(FRAMING_FIELDS)(
  'CONNECT %s: early bytes reach the target, and its reply follows the response',
  async (_how, odd) => {
    const origin = await echo();
    const { port, events } = await listen(directDialer());
    const client = await RawClient.open(port);
    client.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nHost: x\r\n${odd}\r\nearly`);
    const received = await client.until('the echo', (text) => text.endsWith('early'));
    expect(received).toBe(
      'HTTP/1.1 200 Connection established\r\nX-Noria-Member: m1\r\nX-Noria-Attempts: 1\r\n\r\nearly',
    );
    expect(origin.seen[0]).toBe('early');
    client.end();
    await client.whole();
    await until('the event', () => events('connection.closed').length === 1);
    expect(events('tunnel.closed')).toMatchObject([
      { kind: 'tunnel', member: 'm1', bytesUp: 5, bytesDown: 5 },
    ]);
    expect(events('connection.closed')).toMatchObject([{ protocol: 'connect', outcome: 'ok' }]);
  },
);

test.each(FRAMING_FIELDS)(
  'CONNECT %s: after a 407 the client may retry on the same connection',
  async (_how, odd) => {
    const origin = await echo();
    const { port, events } = await listen(directDialer(), {}, { users });
    const client = await RawClient.open(port);
    client.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nHost: x\r\n${odd}\r\n`);
    const challenge = await client.until(
      'the challenge',
      (text) => text.endsWith('\n') && text.includes('\r\n\r\n'),
    );
    expect(challenge).toMatch(/^HTTP\/1\.1 407 /);
    expect(challenge).toContain('Proxy-Authenticate: Basic realm="noria", charset="UTF-8"\r\n');
    expect(challenge).toContain('Connection: keep-alive\r\n');
    client.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nHost: x\r\n${odd}${basic('ann:right')}\r\n`);
    await client.until('the response', (text) => text.includes('HTTP/1.1 200 '));
    client.send('ping');
    await client.until('the echo', (text) => text.endsWith('ping'));
    client.end();
    await client.whole();
    await until('the event', () => events('connection.closed').length === 1);
    expect(events('connection.closed')[0]?.outcome).toBe('ok');
  },
);

test.each(FRAMING_FIELDS)(
  'CONNECT %s: bytes after a refused request are never parsed as a request',
  async (_how, odd) => {
    const origin = await echo();
    const dialer = directDialer();
    const { port } = await listen(dialer, {}, { users });
    const client = await RawClient.open(port);
    const smuggled = `CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nHost: x\r\n${basic('ann:right')}\r\n`;
    client.send(`CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n${odd}\r\n${smuggled}`);
    const received = await client.whole();
    expect(received.match(/HTTP\/1\.1 /g)?.length).toBe(1);
    expect(received).toContain('Connection: close\r\n');
    expect(dialer.requests).toEqual([]);
  },
);

const CONNECT = (fields = '', target = 'a.example:443') =>
  `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;

test.each<[string, string, number, string, object?]>([
  ['no credentials', CONNECT(), 407, 'auth-required', { users }],
  ['wrong credentials', CONNECT(basic('ann:wrong')), 407, 'auth-required', { users }],
  ['two credentials', CONNECT(basic('ann:right') + basic('ann:right')), 400, 'bad-request', { users }],
  ['no port', CONNECT('', 'a.example'), 400, 'bad-request'],
  ['user info', CONNECT('', 'a.example:80@b.example:443'), 400, 'bad-request'],
  ['a URL', CONNECT('', 'http://a.example/'), 400, 'bad-request'],
  ['an encoded host', CONNECT('', 'a%2eexample:443'), 400, 'bad-request'],
  ['a body', CONNECT('Content-Length: 3\r\n'), 400, 'bad-request'],
  ['a chunked body', CONNECT('Transfer-Encoding: chunked\r\n'), 400, 'bad-request'],
  ['two Host fields', CONNECT('Host: y\r\n'), 400, 'bad-request'],
  ['invalid routing options', CONNECT('X-Noria-Nonsense: 1\r\n'), 400, 'bad-routing'],
  ['a denied target', CONNECT('', '127.0.0.1:443'), 403, 'forbidden', { denyTargets: ['private'] }],
  [
    'a denied target in another notation',
    CONNECT('', '2130706433:443'),
    403,
    'forbidden',
    { denyTargets: ['private'] },
  ],
  ['a client that is not allowed', CONNECT(), 403, 'forbidden', { allow: ['192.0.2.0/24'] }],
])('CONNECT: %s is refused without a dial', async (_what, request, status, code, access = {}) => {
  const dialer = directDialer();
  const { port, events } = await listen(dialer, {}, { clock: systemClock, ...access });
  const client = await RawClient.open(port);
  client.send(request);
  const received = await client.until('the response', (text) => /\r\n\r\n.*\n$/s.test(text));
  expect(received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(received).toContain(`X-Noria-Error: ${code}\r\n`);
  expect(received).toContain('Proxy-Status: noria; error=');
  const length = Number(/Content-Length: (\d+)/.exec(received)?.[1]);
  expect(received.split('\r\n\r\n')[1]?.length).toBe(length);
  expect(events('client.refused').map((event) => event.code)).toEqual([code]);
  expect(dialer.requests).toEqual([]);
  if (status !== 407) await client.whole();
});

test.each<[string, string, string, object?]>([
  [
    'an unknown key',
    CONNECT('X-Noria-Secret-Word: hush\r\n'),
    'An X-Noria header has an unknown key; the keys are session, ttl, source, adr, life, protocol, rotate, tag, exclusive, fixed.',
  ],
  [
    'an invalid value',
    CONNECT(basic('me-life-hush:')),
    'Invalid value for key life in the user name: expected a duration.',
  ],
  [
    'an unknown source',
    CONNECT(basic('me-source-hush:')),
    'The value of the key source is not the name of a configured source.',
  ],
  [
    'a denied target',
    CONNECT('', 'hush.example:25'),
    'The port of the target is in denyTargets.',
    { denyTargets: ['smtp'] },
  ],
  [
    'a client that is not allowed',
    CONNECT(),
    'The allow list of the listener does not contain the address of this client.',
    { allow: ['192.0.2.0/24'] },
  ],
])(
  'CONNECT: the reply to %s states the reason without quoting the client',
  async (_what, request, reason, access = {}) => {
    const { port } = await listen(directDialer(), {}, access);
    const client = (await RawClient.open(port)).send(request);
    const received = await client.whole();
    expect(received.split('\r\n\r\n')[1]).toContain(` ${reason} `);
    expect(received.toLowerCase()).not.toMatch(/hush|secret/);
  },
);

test.each([
  ['the user', users, basic('ann-session-x:right'), 'ann'],
  ['`local` without users', [], '', 'local'],
])(
  'CONNECT: the dialer gets %s as the client, and whether the target answered',
  async (_, own, field, client) => {
    for (const [origin, answered] of [
      [await echo(), true],
      [await rawOrigin((socket) => void socket.resume().end()), false],
    ] as const) {
      const dialer = directDialer();
      const { port } = await listen(dialer, {}, { users: own });
      const raw = await RawClient.open(port);
      raw.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nHost: x\r\n${field}\r\nearly`);
      if (answered) await raw.until('the echo', (text) => text.endsWith('early'));
      raw.end();
      await raw.whole();
      await until('the lease ended', () => dialer.answered.length === 1);
      expect([dialer.clients, dialer.answered]).toEqual([[client], [answered]]);
    }
  },
);

test('CONNECT: routing options of user name and headers reach the dialer, but not the target', async () => {
  const origin = await echo();
  const dialer = directDialer();
  const { port } = await listen(dialer, {}, { users });
  const client = await RawClient.open(port);
  client.send(
    `CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\n${basic('ann-life-30s-source-city:right')}X-Noria-Source: other\r\n\r\n`,
  );
  await client.until('the response', (text) => text.includes('200'));
  expect(dialer.requests[0]).toMatchObject({
    routing: { minLifeMs: 30_000, source: 'other' },
    use: 'tunnel',
  });
  expect(origin.seen[0]).toBe('');
});

test.each([
  [
    { code: 'pool-empty' as const, reason: 'No member.', attempts: 0, retryAfterMs: 4_200 },
    503,
    /Retry-After: 5\r\n/,
  ],
  [{ code: 'members-failed' as const, reason: 'All failed.', attempts: 3 }, 502, /X-Noria-Attempts: 3\r\n/],
  [
    { code: 'target-unreachable' as const, reason: '', attempts: 2, targetRefused: true },
    502,
    /error=connection_refused/,
  ],
  [{ code: 'deadline' as const, reason: '', attempts: 2 }, 504, /error=connection_timeout/],
])(
  'CONNECT: a failed dial is answered and the connection closed: $0.code',
  async (failure, status, pattern) => {
    const dialer = directDialer();
    dialer.failures.push(failure);
    const { port, events } = await listen(dialer);
    const client = await RawClient.open(port);
    client.send(CONNECT());
    const received = await client.whole();
    expect(received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(received).toMatch(pattern);
    client.end();
    await until('the event', () => events('connection.closed').length === 1);
    expect(events('connection.closed')[0]).toMatchObject({ protocol: 'connect', outcome: failure.code });
    expect(events('client.refused')).toMatchObject([{ code: failure.code, dialFailed: true }]);
  },
);

test.each<[string, (client: RawClient) => void]>([
  ['resets', (client) => client.socket.resetAndDestroy()],
  ['closes', (client) => client.socket.destroy()],
  ['half-closes without sending anything', (client) => client.end()],
])('CONNECT: a client that %s during the dial cancels it', async (_how, leave) => {
  const dialer = directDialer();
  const release = dialer.hold();
  const { port, listener, events } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(CONNECT());
  await until('a dial', () => dialer.requests.length === 1);
  leave(client);
  await until('the dial was cancelled', () => dialer.cancelled === 1);
  release();
  await until('the close', () => listener.connectionCount === 0);
  expect(events('connection.closed')[0]?.outcome).toBe('client-gone');
});

test('CONNECT: a client that half-closes after its early bytes still gets the reply', async () => {
  const origin = await rawOrigin((socket) => {
    let all = '';
    socket.on('data', (chunk: Buffer) => {
      all += chunk.toString();
    });
    socket.on('end', () => socket.end(`heard ${all}`));
  });
  const dialer = directDialer();
  const release = dialer.hold();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\n\r\nall of it`).end();
  await until('a dial', () => dialer.requests.length === 1);
  release();
  expect(await client.whole()).toMatch(/heard all of it$/);
});

test('CONNECT: bytes sent during the dial are buffered up to a limit, and none is lost', async () => {
  const size = 64 * 1024 * 1024;
  let bytes = 0;
  const origin = await rawOrigin((socket) =>
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    }),
  );
  const dialer = directDialer();
  const release = dialer.hold();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\n\r\n`);
  const sent = client.sendBytes(size);
  await untilStill('back-pressure', () => sent.bytes);
  expect(sent.bytes).toBeLessThan(size);
  release();
  await until('all of it arrived', () => bytes === size);
});

test('CONNECT: a paused client still gets its refusal and can close cleanly', async () => {
  const dialer = directDialer();
  dialer.failures.push({ code: 'members-failed', reason: 'All failed.', attempts: 3 });
  const release = dialer.hold();
  // The clock stays still, so the connection must end without a timeout.
  const { port, listener } = await listen(dialer, { deadlines: new Deadlines(ManualClock.dayOld(), 5) });
  const client = await RawClient.open(port);
  const size = 256 * 1024;
  client.send(`CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n`);
  client.sendBytes(size);
  await until('a dial', () => dialer.requests.length === 1);
  release();
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 502 /);
  client.end();
  await until('the close', () => listener.connectionCount === 0);
});

test('CONNECT: an unexpected error ends only its own connection', async () => {
  const origin = await echo();
  const dialer = directDialer();
  const dial = dialer.dial.bind(dialer);
  dialer.dial = (request, done) => {
    if (request.target.host === 'a.example') throw new TypeError('a mistake');
    return dial(request, done);
  };
  const { port, events } = await listen(dialer);
  const unlucky = (await RawClient.open(port)).send(CONNECT());
  await unlucky.whole();
  expect(events('client.refused')).toMatchObject([{ code: 'internal', detail: 'a mistake' }]);
  const other = (await RawClient.open(port)).send(CONNECT('', `127.0.0.1:${origin.port}`));
  await other.until('the response', (text) => text.startsWith('HTTP/1.1 200 '));
});

test.each(['Content-Length: 1', 'Transfer-Encoding: chunked'])(
  'CONNECT: one that announces a body by %s is refused, and nothing is dialed',
  async (field) => {
    const dialer = directDialer();
    const { port, events } = await listen(dialer);
    const client = await RawClient.open(port);
    client.send(`CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n${field}\r\n\r\nx`);
    expect(await client.whole()).toMatch(/^HTTP\/1\.1 400 [\s\S]*The CONNECT request announces a body/);
    expect(dialer.requests).toEqual([]);
    expect(events('client.refused')).toMatchObject([{ code: 'bad-request' }]);
  },
);

test('CONNECT: also in two pieces, and after another request of its connection', async () => {
  const origin = await rawOrigin(answering(OK));
  const tunneled = await echo();
  const { port } = await listen(directDialer());
  for (const first of ['', `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`]) {
    const client = await RawClient.open(port);
    if (first !== '') await client.send(first).until('the first answer', (text) => text.endsWith('hi'));
    client.send(connectTo(tunneled.port).slice(0, 9));
    await new Promise((resolve) => setImmediate(resolve));
    client.send(connectTo(tunneled.port).slice(9));
    await client.until('the tunnel', (text) => text.includes(' 200 Connection established\r\n'));
    await client.send('both ways').until('the echo', (text) => text.endsWith('\r\n\r\nboth ways'));
  }
});

test('CONNECT: one that has passed this noria is refused as a loop, and the marks of others are kept', async () => {
  const [own, other] = ['0123456789abcdef', 'fedcba9876543210'].map((word) => `noria-${word}`);
  const guard = { mark: own ?? '', ownAddresses: () => [] };
  const dialer = directDialer();
  const { port, events } = await listen(dialer, {}, { guard });
  const via = (...marks: (string | undefined)[]) => marks.map((mark) => `Via: 1.1 ${mark}\r\n`).join('');
  const client = (await RawClient.open(port)).send(CONNECT(via(other, own)));
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 502 [\s\S]*X-Noria-Error: proxy-loop\r\n/);
  expect(events('client.refused')).toMatchObject([{ code: 'proxy-loop' }]);
  for (const [fields, marks] of [
    [via(other), [other]],
    [via('squid'), undefined],
    ['', undefined],
  ] as const) {
    const before = dialer.requests.length;
    (await RawClient.open(port)).send(CONNECT(fields));
    await until('the dial', () => dialer.requests.length === before + 1);
    expect(dialer.requests.at(-1)?.marks).toEqual(marks);
  }
});

test.each<[string, string, boolean]>([
  ['a keep-alive of HTTP/1.1', CONNECT(), true],
  ['Connection: close', CONNECT('Connection: close\r\n'), false],
  ['HTTP/1.0', 'CONNECT a.example:443 HTTP/1.0\r\n\r\n', false],
  ['early bytes', `${CONNECT()}x`, false],
])('CONNECT: whether the connection stays open after a 407: %s', async (_what, request, isOpen) => {
  const { port, events } = await listen(directDialer(), {}, { users });
  const client = (await RawClient.open(port)).send(request);
  const received = await client.until('the challenge', (text) => /\r\n\r\n.*\n$/s.test(text));
  expect(received).toContain(`Connection: ${isOpen ? 'keep-alive' : 'close'}\r\n`);
  if (!isOpen) await client.whole();
  client.send(CONNECT(basic('ann:right'))).end();
  await until('the end', () => events('connection.closed').length === 1);
  expect(events('client.refused')).toHaveLength(1);
});
