/** A tunnel from its dial to its record: what the dialer, the events and the client's outcome say about it. */
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { hostPort } from '../../src/core/host-port.ts';
import type { Dialer, DialResult } from '../../src/dialer/contract.ts';
import { ClientConnection } from '../../src/listener/client-connection.ts';
import { openTunnel } from '../../src/listener/relay.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { type DirectDialerOptions, directDialer } from './direct-dialer.ts';
import { connectTo, listen, listenerOptions, RawClient } from './harness.ts';
import { rawOrigin } from './origin.ts';
import { record, type SocketPair, socketPair } from './socket-pair.ts';

/** A tunnel that is open, and the records of the requests. */
async function open(options: DirectDialerOptions = {}) {
  const clock = ManualClock.dayOld();
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const records: NoriaEvents['request.ended'][] = [];
  bus.on('request.ended', (each) => records.push(each));
  const origin = await rawOrigin((socket) => socket.on('end', () => socket.end()));
  const dialer = directDialer(options);
  const kit = await listen(dialer, { clock, bus });
  const client = (await RawClient.open(kit.port)).send(connectTo(origin.port));
  await client.until('the tunnel', (text) => text.endsWith('\r\n\r\n'));
  return { ...kit, clock, records, origin, dialer, client };
}

test('tunnel: the record and the event have its bytes, its times and its outcome', async () => {
  const { clock, client, origin, dialer, events, records } = await open();
  clock.advance(50);
  client.send('hello');
  await until('what the client sent', () => origin.seen[0] === 'hello');
  clock.advance(20);
  origin.sockets[0]?.write('hi!');
  await client.until('the answer', (text) => text.endsWith('hi!'));
  clock.advance(130);
  client.end();
  await until('the record', () => records.length === 1);
  const request = records[0]?.id;
  expect(events('tunnel.closed')).toEqual([
    { source: 'city', member: 'm1', kind: 'tunnel', bytesUp: 5, bytesDown: 3, ms: 200, request },
  ]);
  expect(records).toMatchObject([
    {
      ...{ bytesUp: 5, bytesDown: 3, firstByteMs: 70, ms: 200, protocol: 'connect', outcome: 'served' },
      ...{ code: null, target: `127.0.0.1:${origin.port}`, user: null, session: null, tag: null },
    },
  ]);
  await until('the close', () => events('connection.closed').length === 1);
  expect(events('connection.closed')).toEqual([
    { listener: 'here', protocol: 'connect', outcome: 'ok', ms: 200 },
  ]);
  expect([dialer.ended, dialer.cancelled]).toEqual([[{ cut: false, member: 'm1' }], 0]);
});

test.each<[string, string, string, number, boolean]>([
  ['after 3 s without an answer', 'hello', '', 3_000, true],
  ['before', 'hello', '', 2_999, false],
  ['that has sent nothing', '', '', 60_000, false],
  ['that got an answer', 'hello', 'hi!', 60_000, false],
])('tunnel: whether the member of a client that leaves is mute: %s', async (_, up, down, ms, isMute) => {
  const { clock, client, origin, dialer, events, records } = await open();
  client.send(up);
  await until('what the client sent', () => origin.seen[0] === up);
  origin.sockets[0]?.write(down);
  await client.until('the answer', (text) => text.endsWith(`\r\n\r\n${down}`));
  clock.advance(ms);
  client.socket.resetAndDestroy();
  await until('the record', () => records.length === 1);
  const end = { cut: false, member: 'm1' };
  expect(dialer.ended).toEqual(isMute ? [{ ...end, mute: true }, end] : [end]);
  expect(dialer.answered).toEqual(isMute ? [false, false] : [down !== '']);
  const code = isMute ? 'member-mute' : null;
  expect(records).toMatchObject([{ code, outcome: isMute ? 'failed' : 'served' }]);
  expect(events('connection.closed')).toMatchObject([{ outcome: code ?? 'ok' }]);
});

test('tunnel: if the dialer takes the member not for mute, the client was served', async () => {
  const { clock, client, origin, events, records } = await open({ trusting: true });
  client.send('hello');
  await until('what the client sent', () => origin.seen[0] === 'hello');
  clock.advance(3_000);
  client.socket.resetAndDestroy();
  await until('the record', () => records.length === 1);
  expect(records).toMatchObject([{ code: null, outcome: 'served' }]);
  expect(events('connection.closed')).toMatchObject([{ outcome: 'ok' }]);
});

test('tunnel: a member that closes before its first byte is not mute but cut', async () => {
  const { clock, client, origin, dialer, records } = await open();
  client.send('hello');
  await until('what the client sent', () => origin.seen[0] === 'hello');
  clock.advance(60_000);
  origin.sockets[0]?.end();
  await client.whole();
  client.socket.resetAndDestroy();
  await until('the record', () => records.length === 1);
  expect(dialer.ended).toEqual([{ cut: true, member: 'm1' }]);
  expect(dialer.answered).toEqual([false]);
});

const TARGET = hostPort('a.example', 443);

/** Calls `openTunnel` for a client connection whose dials the test decides, after `before`. */
async function dial(received: string, before: (pair: SocketPair) => Promise<unknown>, result?: DialResult) {
  if (TARGET === undefined) throw new Error('no target');
  const cancelled: number[] = [];
  const dialer: Dialer = {
    dial: (_request, done) => {
      if (result !== undefined) done(result);
      return { cancel: () => void cancelled.push(1) };
    },
  };
  const options = listenerOptions(dialer);
  const pair = await socketPair();
  const connection = new ClientConnection(pair.near, 1, options);
  await before(pair);
  const replies: DialResult[] = [];
  const request = { target: TARGET, routing: { client: 'local' }, use: 'tunnel' } as const;
  openTunnel(connection, request, Buffer.from(received), (reply) => replies.push(reply));
  onTestFinished(async () => {
    pair.near.destroy();
    await until('no deadline', () => options.deadlines.size === 0, 30_000);
  });
  return { ...pair, cancelled, replies, connection };
}

test.each<[string, string, (pair: SocketPair) => Promise<unknown>, number]>([
  ['is there', '', async () => {}, 0],
  ['has closed', '', ({ near }) => once(near.destroy(), 'close'), 1],
  [
    'has ended its side',
    '',
    ({ near, far }) => {
      far.end();
      return once(near.resume(), 'end');
    },
    1,
  ],
  [
    'has ended its side after early bytes',
    'early',
    ({ near, far }) => {
      far.end();
      return once(near.resume(), 'end');
    },
    0,
  ],
])('tunnel: a dial for a client that %s', async (_what, received, before, count) => {
  const { cancelled } = await dial(received, before);
  expect(cancelled.length).toBe(count);
});

test('tunnel: a dial that is over at once is not cancelled when its client leaves', async () => {
  const failure = { code: 'members-failed', reason: 'All failed.', attempts: 1 } as const;
  const { near, cancelled, replies, connection } = await dial('', async () => {}, { ok: false, failure });
  expect(replies).toEqual([{ ok: false, failure }]);
  expect(connection.outcome).toBe('members-failed');
  await once(near.destroy(), 'close');
  expect(cancelled).toEqual([]);
});

test('tunnel: a dial that ends because its client has gone gets no reply', async () => {
  const failure = { code: 'client-gone', reason: 'The client left.', attempts: 0 } as const;
  const { near, replies, connection } = await dial('', async () => {}, { ok: false, failure });
  expect([replies, near.destroyed, connection.outcome]).toEqual([[], true, 'ok']);
});

test('tunnel: noria stops reading after 64 KiB of early bytes, and relays them when the member is there', async () => {
  const { near, far } = await dial('x'.repeat(65_530), async () => {});
  far.write('12345');
  await until('the bytes', () => near.bytesRead === 5);
  expect(near.isPaused()).toBe(false);
  far.write('6');
  await until('the pause', () => near.isPaused());
});

test('tunnel: bytes that come while the reply is written reach the member in order', async () => {
  const origin = await rawOrigin();
  const dialer = directDialer();
  const release = dialer.hold();
  const { port } = await listen(dialer);
  const client = (await RawClient.open(port)).send(`${connectTo(origin.port)}1`);
  await until('the dial', () => dialer.requests.length === 1);
  for (const part of ['2', '3', '4']) {
    client.send(part);
    await new Promise((resolve) => setImmediate(resolve));
  }
  release();
  client.send('5');
  await until('all of it', () => origin.seen[0] === '12345');
  const received = record(client.socket);
  origin.sockets[0]?.write('end');
  await until('the answer', () => received.text === 'end');
});
