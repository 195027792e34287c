/** What the dialer, the events and the record learn from one forwarded request, and when its connection is kept. */
import { expect, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../../src/core/events.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { type DirectDialerOptions, directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, OK, rawOrigin } from '../origin.ts';

/** A client, a target that answers only when the test says so, and the records of the requests. */
async function stage(options: DirectDialerOptions = {}) {
  const clock = ManualClock.dayOld();
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const records: NoriaEvents['request.ended'][] = [];
  bus.on('request.ended', (record) => records.push(record));
  const origin = await rawOrigin();
  const dialer = directDialer({ to: origin, ...options });
  const kit = await listen(dialer, { clock, bus });
  const client = await RawClient.open(kit.port);
  const heads = (count: number) =>
    until('the request', () => origin.seen.filter((text) => text.includes('\r\n\r\n')).length === count);
  return { ...kit, clock, records, origin, dialer, client, heads };
}

const GET = 'GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n';
const SENT = 'GET / HTTP/1.1\r\nHost: a.example\r\n\r\n';
const HINTS = 'HTTP/1.1 103 Early Hints\r\n\r\n';

test('exchange: bytes, times and the record of a request that a second member answers', async () => {
  const { clock, origin, dialer, client, heads, events, records } = await stage();
  client.send(GET);
  await heads(1);
  clock.advance(300);
  origin.sockets[0]?.resetAndDestroy();
  await heads(2);
  clock.advance(40);
  origin.sockets[1]?.write(HINTS);
  await client.until('the hints', (text) => text.includes('103'));
  clock.advance(500);
  origin.sockets[1]?.write(OK);
  await client.until('the response', (text) => text.endsWith('hi'));
  const [bytesUp, bytesDown] = [SENT.length, HINTS.length + OK.length];
  const request = records[0]?.id;
  expect(request).toBeTypeOf('string');
  expect(events('tunnel.closed')).toEqual([
    { source: 'city', member: 'm1', kind: 'forward', bytesUp, bytesDown: 0, ms: 300, request },
    { source: 'city', member: 'm2', kind: 'forward', bytesUp, bytesDown, ms: 540, request },
  ]);
  expect(records).toMatchObject([
    {
      ...{ bytesUp: 2 * bytesUp, bytesDown, firstByteMs: 840, ms: 840, client: '127.0.0.1', user: null },
      ...{
        session: null,
        tag: null,
        protocol: 'forward',
        target: 'a.example:80',
        outcome: 'served',
        code: null,
      },
    },
  ]);
  expect(dialer.answered).toEqual([false, true]);
  expect(dialer.firstByteMs).toEqual([undefined, 40]);
  expect(dialer.responses).toEqual([{ status: 200, path: '/', retryAfterMs: undefined }]);
});

test('exchange: a request that noria answers itself has a record without bytes', async () => {
  const { client, records, dialer } = await stage();
  dialer.failures.push({ code: 'members-failed', reason: 'All failed.', attempts: 3 });
  client.send('GET http://a.example/ HTTP/1.1\r\nHost: x\r\nX-Noria-Tag: t\r\nX-Noria-Session: s\r\n\r\n');
  await client.until('the refusal', (text) => text.includes(' 502 '));
  expect(records).toMatchObject([
    {
      ...{ bytesUp: 0, bytesDown: 0, firstByteMs: null, outcome: 'failed', code: 'members-failed' },
      ...{ session: 's', tag: 't', target: 'a.example:80' },
    },
  ]);
});

test.each([
  ['403', 'Retry-After: 30\r\n', 30_000],
  ['429', 'retry-after: 0\r\n', 0],
  ['503', 'Retry-After: Tue, 01 Jan 2030 23:59:50 GMT\r\n', 0],
  ['503', 'Retry-After: Wed, 02 Jan 2030 00:00:10 GMT\r\n', 10_000],
  ['503', 'Retry-After: soon\r\n', undefined],
  ['503', 'Retry-After: 123456789\r\n', undefined],
  ['503', 'Retry-After: 1e3\r\n', undefined],
  ['503', '', undefined],
  ['302', 'Retry-After: 30\r\n', undefined],
])(
  'exchange: of a response with status %s and %j the dialer learns when to retry',
  async (status, field, ms) => {
    const { client, origin, dialer, heads } = await stage();
    client.send(GET.replace('/ ', `/${'p'.repeat(400)} `));
    await heads(1);
    origin.sockets[0]?.write(`HTTP/1.1 ${status} x\r\n${field}Content-Length: 0\r\n\r\n`);
    await client.until('the response', (text) => text.includes('\r\n\r\n'));
    expect(dialer.responses).toEqual([
      { status: Number(status), path: `/${'p'.repeat(255)}`, retryAfterMs: ms },
    ]);
  },
);

test('exchange: a member that sends bytes before the request is tried no more than the others', async () => {
  const { client, dialer, events } = await stage({ overrides: { early: Buffer.from('x') } });
  client.send(GET);
  const received = await client.until('the refusal', (text) => /\r\n\r\n.*\n$/s.test(text));
  expect(received).toContain('X-Noria-Error: bad-answer\r\n');
  expect(received).toContain('X-Noria-Attempts: 3\r\n');
  expect(received).toContain('The member sent bytes before the request.');
  expect(events('client.refused')).toMatchObject([{ code: 'bad-answer' }]);
  expect(dialer.ended.map(({ cut }) => cut)).toEqual([true, true, true]);
});

test.each([
  ['a response with a length', OK, false, true],
  ['chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n', false, true],
  ['no body', 'HTTP/1.1 204 hi\r\n\r\n', false, true],
  ['a body up to the end', 'HTTP/1.1 200 OK\r\n\r\nhi', true, false],
  ['Connection: close among others', `${OK.replace('\r\n', '\r\nConnection: x, CLOSE\r\n')}`, false, false],
  ['HTTP/1.0', OK.replace('1.1', '1.0'), false, false],
])('exchange: whether the connection is kept after %s', async (_what, response, end, keep) => {
  const origin = await rawOrigin(answering(response, end));
  const dialer = directDialer({ to: origin });
  const { port } = await listen(dialer);
  const client = (await RawClient.open(port)).send(GET);
  await client.until('the response', (text) => text.includes('hi'));
  await until('the end of the lease', () => dialer.ended.length === 1);
  expect(dialer.ended).toEqual([{ cut: false, member: 'm1', ...(keep && { keep }) }]);
  expect(dialer.sockets[0]?.isPaused() === true || dialer.sockets[0]?.destroyed === true).toBe(true);
});

test('exchange: a pinned connection is kept after a whole body, and not after half of one', async () => {
  const { client, origin, dialer, heads } = await stage();
  const post =
    'POST http://a.example/ HTTP/1.1\r\nHost: x\r\nAuthorization: NTLM x\r\nContent-Length: 4\r\n\r\n';
  const answer = async (nth: number) => {
    origin.sockets.at(-1)?.write(OK);
    await client.until('the response', (text) => text.split('\r\n\r\nhi').length === nth + 1);
  };
  client.send(`${post}body`);
  await until('the body', () => origin.seen[0]?.endsWith('body') === true);
  await answer(1);
  client.send(`${post}bo`);
  await until('the next request', () => origin.seen[0]?.endsWith('\r\n\r\nbo') === true);
  expect(dialer.requests).toHaveLength(1);
  await answer(2);
  await until('the end of the lease', () => dialer.ended.length === 1);
  expect(dialer.ended).toEqual([{ cut: false, member: 'm1' }]);
  client.send(`dy${GET}`);
  await heads(2);
  expect(dialer.requests).toHaveLength(2);
});

test.each<[string, string, (string | undefined)[]]>([
  ['a 100 that nobody expects', 'HTTP/1.1 100 Continue\r\n\r\n', []],
  ['a 102', 'HTTP/1.1 102 Processing\r\n\r\n', ['102']],
])('exchange: of %s the client gets what it can expect', async (_what, interim, expected) => {
  const { client, origin, heads } = await stage();
  client.send(GET);
  await heads(1);
  origin.sockets[0]?.write(`${interim}${OK}`);
  const received = await client.until('the response', (text) => text.endsWith('hi'));
  expect([...received.matchAll(/HTTP\/1\.1 (1\d\d)/g)].map((match) => match[1])).toEqual(expected);
});
