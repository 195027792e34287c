import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import type { ConnectionLimit } from '../../src/listener/connection-limit.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, RawClient } from './harness.ts';

/** A room that answers when it is told to. */
class SlowRoom implements ConnectionLimit {
  readonly asked: ((permitted: boolean) => void)[] = [];
  left = 0;

  acquire(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.asked.push(resolve);
    return promise;
  }

  release(): void {
    this.left += 1;
  }
}

const REQUEST = 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n';

test('listener: where others share the limit, a client waits for its place, and what it sent is not lost', async () => {
  const room = new SlowRoom();
  const { port, listener } = await listen(directDialer(), { sharedLimit: room });
  const client = (await RawClient.open(port)).send(REQUEST);
  await until('the room is asked', () => room.asked.length === 1);
  expect([listener.connectionCount, client.received]).toEqual([0, '']);
  room.asked[0]?.(true);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 400 /);
  client.socket.destroy();
  await until('its place is given back', () => room.left === 1);
});

test('listener: where others share the limit, a client without a place is told so, and gives none back', async () => {
  const room = new SlowRoom();
  const { port, listener } = await listen(directDialer(), { sharedLimit: room });
  const client = (await RawClient.open(port)).send(REQUEST);
  await until('the room is asked', () => room.asked.length === 1);
  room.asked[0]?.(false);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  client.socket.destroy();
  await until('it is gone', () => listener.connectionCount === 0);
  expect(room.left).toBe(0);
});

test('listener: a place that comes when the client or the listener has gone is given back', async () => {
  const room = new SlowRoom();
  const { port, listener } = await listen(directDialer(), { sharedLimit: room });
  const client = await RawClient.open(port);
  await until('the room is asked', () => room.asked.length === 1);
  await listener.close();
  await until('the client is closed', () => client.ended || client.closed);
  room.asked[0]?.(true);
  await until('its place is given back', () => room.left === 1);
  expect(listener.connectionCount).toBe(0);
});

test('listener: a client that is not allowed takes no place', async () => {
  const room = new SlowRoom();
  const { port } = await listen(directDialer(), { sharedLimit: room }, { allow: ['192.0.2.0/24'] });
  const client = (await RawClient.open(port)).send(REQUEST);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 403 /);
  expect(room.asked).toEqual([]);
});

test('listener: a client that has left while it waited for its place takes none', async () => {
  const room = new SlowRoom();
  const { port, listener } = await listen(directDialer(), { sharedLimit: room });
  const client = await RawClient.open(port);
  await until('the room is asked', () => room.asked.length === 1);
  client.socket.end();
  await RawClient.open(port);
  await until('who came after its end is there', () => room.asked.length === 2);
  room.asked[0]?.(true);
  await until('its place is given back', () => room.left === 1);
  expect(listener.connectionCount).toBe(0);
});

test('listener: a place that nobody gives is waited for 2 s, then given back when it comes', async () => {
  const clock = new ManualClock();
  const deadlines = new Deadlines(clock, 5);
  const room = new SlowRoom();
  const { port } = await listen(directDialer(), { sharedLimit: room, deadlines });
  const client = (await RawClient.open(port)).send(REQUEST);
  await until('the room is asked', () => room.asked.length === 1);
  clock.advance(1_995);
  expect(client.received).toBe('');
  clock.advance(15);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  client.socket.destroy();
  room.asked[0]?.(true);
  await until('its place is given back', () => room.left === 1);
  await until('nothing is left', () => deadlines.size === 0);
});

test('listener: no more clients wait for a place than a burst brings; the others are refused at once', async () => {
  const room = new SlowRoom();
  const { port } = await listen(directDialer(), { sharedLimit: room });
  for (let n = 0; n < 512; n += 1) await RawClient.open(port);
  await until('the room is asked', () => room.asked.length === 512);
  const late = (await RawClient.open(port)).send(REQUEST);
  expect(await late.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  expect(room.asked.length).toBe(512);
  for (const answer of room.asked) answer(true);
  const next = (await RawClient.open(port)).send(REQUEST);
  await until('the room is asked again', () => room.asked.length === 513);
  room.asked[512]?.(true);
  expect(await next.whole()).toMatch(/^HTTP\/1\.1 400 /);
});
