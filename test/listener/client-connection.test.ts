/** One client connection: its last reply, its limits of time, and what a listener decides about it. */
import { expect, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { Secret } from '../../src/core/secret.ts';
import { ClientConnection } from '../../src/listener/client-connection.ts';
import { UserLimits } from '../../src/listener/user-limits.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { connectTo, listen, listenerOptions, RawClient, socks4To, socks5To } from './harness.ts';
import { answering, echo, OK, rawOrigin } from './origin.ts';
import { record, socketPair } from './socket-pair.ts';

/** A client connection without a listener. */
async function connected() {
  const clock = ManualClock.dayOld();
  const options = listenerOptions(directDialer(), { clock });
  const { near, far } = await socketPair();
  const connection = new ClientConnection(near, 1, options);
  return { near, far, client: record(far), clock, connection, deadlines: options.deadlines };
}

test('client connection: after its last reply a client has 2 s to end its side', async () => {
  const { near, client, clock, connection, deadlines } = await connected();
  connection.sendAndClose('bye');
  await until('the end', () => client.ended);
  expect(client.text).toBe('bye');
  clock.advance(1_990);
  expect(near.destroyed).toBe(false);
  clock.advance(30);
  expect([near.destroyed, deadlines.size]).toEqual([true, 0]);
});

test('client connection: a last reply that nobody reads waits for idleTimeoutMs, and what comes is discarded', async () => {
  const { near, far, client, clock, connection } = await connected();
  far.pause();
  connection.sendAndClose('x'.repeat(16 * 1024 * 1024));
  far.write('x'.repeat(100_000));
  await until('it was read', () => near.bytesRead === 100_000);
  expect([near.readableLength, client.ended]).toEqual([0, false]);
  clock.advance(599_900);
  expect(near.destroyed).toBe(false);
  clock.advance(200);
  expect(near.destroyed).toBe(true);
});

test('client connection: the reply to a client that has ended its side closes the connection', async () => {
  const { near, far, client, connection, deadlines } = await connected();
  far.end();
  near.resume();
  await until('the end', () => near.readableEnded);
  connection.sendAndClose('bye');
  await until('the close', () => near.destroyed && client.ended);
  expect([client.text, deadlines.size]).toEqual(['bye', 0]);
});

test('client connection: a client that ends its side after the last reply closes the connection', async () => {
  const { near, far, client, connection, deadlines } = await connected();
  connection.sendAndClose('bye');
  await until('the reply', () => client.ended);
  far.end();
  await until('the close', () => near.destroyed);
  expect(deadlines.size).toBe(0);
});

test('client connection: each request of a connection has its own outcome', async () => {
  const origin = await rawOrigin(answering(OK));
  const good = `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
  const bad = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
  for (const [requests, outcome] of [
    [[bad, good], 'ok'],
    [[good, bad], 'bad-request'],
    [[good, good], 'ok'],
  ] as const) {
    const { port, events } = await listen(directDialer());
    const client = await RawClient.open(port);
    for (const [nth, request] of requests.entries())
      await client.send(request).until('an answer', (text) => text.split('HTTP/1.1 ').length === nth + 2);
    await client.until('the bodies', (text) => /(hi|\n)$/.test(text));
    client.end();
    await until('the event', () => events('connection.closed').length === 1);
    expect(events('connection.closed')).toMatchObject([{ outcome, protocol: 'http', ms: 0 }]);
  }
});

test.each([
  ['connect', 'CONNECT a.example:443 HTTP/1.1\r\nX-Noria-Odd: 1\r\n\r\n', 'bad-routing', 'a.example:443'],
  ['forward', 'GET http://a.example/ HTTP/1.1\r\nX-Noria-Odd: 1\r\n\r\n', 'bad-routing', 'a.example:80'],
  ['forward', 'GET / HTTP/1.1\r\n\r\n', 'bad-request', null],
  ['forward', '\x16\x03\x01', 'bad-request', null],
  ['socks5', `${socks5To(25)}`, 'forbidden', '127.0.0.1:25'],
  ['socks4', `${socks4To(25)}`, 'forbidden', '127.0.0.1:25'],
])('client connection: a refused request has a record: %s %j', async (protocol, request, code, target) => {
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const records: NoriaEvents['request.ended'][] = [];
  bus.on('request.ended', (each) => records.push(each));
  const { port, events } = await listen(directDialer(), { bus }, { denyTargets: ['smtp'] });
  const client = (await RawClient.open(port)).send(request);
  await client.until('the reply', (text) => text !== '');
  client.end();
  await until('the close', () => events('connection.closed').length === 1);
  const facts = { outcome: 'failed', code, target, user: null, client: '127.0.0.1' };
  expect(records).toMatchObject([{ ...facts, bytesUp: 0, bytesDown: 0 }]);
  expect(records[0]?.protocol).toBe(protocol);
  expect(events('client.refused')).toMatchObject([
    { listener: 'here', client: '127.0.0.1', code, request: records[0]?.id },
  ]);
});

test('client connection: without a reader of records, a refusal names no request', async () => {
  const { port, events } = await listen(directDialer());
  const client = (await RawClient.open(port)).send('GET / HTTP/1.1\r\n\r\n');
  await client.until('the reply', (text) => text !== '');
  expect(events('client.refused')[0]).toEqual({
    ...{ listener: 'here', client: '127.0.0.1', protocol: 'http', code: 'bad-request', request: undefined },
    detail: 'the request is in origin form',
  });
});

test('client connection: without users, a client is its network if the listener has an allow list', async () => {
  const dialer = directDialer();
  const { port } = await listen(dialer, {}, { allow: ['127.0.0.0/8'] });
  (await RawClient.open(port)).send(connectTo(9));
  await until('the dial', () => dialer.clients.length === 1);
  expect(dialer.clients).toEqual(['127.0.0.1']);
});

/** Asks as the user `ann`, who has these limits; returns the heads of the answers. */
async function asAnn(limits: object, requests: readonly string[]) {
  const users = [{ username: 'ann', password: new Secret('x'), limits }];
  const counted = new UserLimits(ManualClock.dayOld());
  counted.configure(users);
  const dialer = directDialer({ to: await rawOrigin(answering(OK)) });
  const { port } = await listen(dialer, { limits: counted }, { users });
  const client = await RawClient.open(port);
  for (const [nth, fields] of requests.entries()) {
    const login = `Proxy-Authorization: Basic ${btoa('ann:x')}\r\n`;
    client.send(`GET http://a.example/ HTTP/1.1\r\nHost: x\r\n${login}${fields}\r\n`);
    await client.until('an answer', (text) => text.split('HTTP/1.1 ').length === nth + 2);
    await client.until('its end', (text) => /(hi|\n)$/.test(text));
  }
  const answers = client.received.split('HTTP/1.1 ').slice(1);
  return { dialer, answers, counted };
}

test('client connection: a user with a source gets members of no other one', async () => {
  const { dialer, answers } = await asAnn({ source: 'city' }, [
    '',
    'X-Noria-Source: city\r\n',
    'X-Noria-Source: other\r\n',
  ]);
  expect(dialer.requests.map(({ routing }) => routing.source)).toEqual(['city', 'city']);
  expect(answers.map((answer) => answer.slice(0, 3))).toEqual(['200', '200', '429']);
  expect(answers[2]).toContain('Retry-After: 3600\r\n');
  expect(answers[2]).toContain('The user may only use source city.');
});

test('client connection: a request that has ended, or was refused, counts no longer as open', async () => {
  const { answers } = await asAnn({ tunnels: 1 }, ['', 'X-Noria-Odd: 1\r\n', '', '']);
  expect(answers.map((answer) => answer.slice(0, 3))).toEqual(['200', '400', '200', '200']);
});

test('client connection: a client that is not allowed is refused as such, also in a protocol that is disabled', async () => {
  const { port } = await listen(directDialer(), { protocols: ['socks5'] }, { allow: ['192.0.2.0/24'] });
  for (const request of [connectTo(80), 'GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n'])
    expect(await (await RawClient.open(port)).send(request).whole()).toMatch(
      /^HTTP\/1\.1 403 [\s\S]*Connection: close\r\n/,
    );
});

test('client connection: growth is reported while a reader of it is there, for each open tunnel', async () => {
  const clock = ManualClock.dayOld();
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const grew: NoriaEvents['request.grew'][] = [];
  bus.on('request.grew', (event) => grew.push(event));
  bus.on('request.ended', () => {});
  const { port, listener } = await listen(directDialer(), { clock, bus });
  const origin = await echo();
  const open = async (text: string) => {
    const client = (await RawClient.open(port)).send(`${connectTo(origin.port)}${text}`);
    await client.until('the echo', (received) => received.endsWith(`\r\n\r\n${text}`));
    return client;
  };
  const [first, second] = [await open('one'), await open('three')];
  await RawClient.open(port);
  clock.advance(1_000);
  const target = `127.0.0.1:${origin.port}`;
  expect(grew).toMatchObject([
    { user: '', target, up: 3, down: 3 },
    { user: '', target, up: 5, down: 5 },
  ]);
  clock.advance(1_000);
  expect(grew).toHaveLength(2);
  first.send('!');
  await first.until('the echo', (text) => text.endsWith('one!'));
  clock.advance(1_000);
  expect(grew.slice(2)).toMatchObject([{ request: grew[0]?.request, up: 1, down: 1 }]);
  second.socket.destroy();
  await until('the close', () => listener.connectionCount === 2);
  clock.advance(1_000);
  expect(grew).toHaveLength(3);
});
