import { Server } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { ListenerSet } from '../../src/plane/listener-set.ts';
import { directDialer } from '../listener/direct-dialer.ts';
import { RawClient } from '../listener/harness.ts';
import { freePort } from '../support/free-port.ts';
import { testConfig } from '../support/noria.ts';
import { until } from '../support/until.ts';

const SOURCE =
  '  - { name: city, product: free, instance: "1", akey: "0123456789abcdef", baseUrl: "http://127.0.0.1:9" }';

const at = (...listeners: string[]) =>
  testConfig({
    sources: [SOURCE],
    listeners: `listeners: [${listeners.map((each) => `{ address: "127.0.0.1:${each} }`).join(', ')}]`,
  }).listeners;

function openSet(): ListenerSet {
  const set = new ListenerSet({
    clock: systemClock,
    bus: new EventBus((name, error) => {
      throw new Error(`an observer of ${name} failed`, { cause: error });
    }),
    dialer: directDialer(),
    sources: () => ['city'],
    ownAddresses: () => [],
    handedOver: new Set(),
  });
  onTestFinished(() => set.close());
  return set;
}

const clientOf = async (set: ListenerSet) => {
  const client = await RawClient.open(set.addresses[0]?.port ?? 0);
  await until('it is accepted', () => (set.opened[0]?.listener.connectionCount ?? 0) > 0);
  return client;
};

test('listeners: until a change is settled, going back takes in again what it took out of service', async () => {
  const set = openSet();
  await set.update(at('0"'), 0);
  const { addresses } = set;
  const client = await clientOf(set);
  await set.update(at(`${await freePort()}"`), 0);
  await expect(RawClient.open(addresses[0]?.port ?? 0)).rejects.toThrow(/ECONNREFUSED/);
  const between = await clientOf(set);
  await set.update(at('0"'), 0);
  expect(set.addresses, 'clients know the port').toEqual(addresses);
  await between.until('its listener is wanted by nobody', () => between.ended || between.closed);
  await clientOf(set);
  client.send('GET / HTTP/1.1\r\n\r\n');
  expect(await client.until('the answer', (text) => text.includes('\r\n\r\n'))).toMatch(/^HTTP\/1\.1 400 /);
});

test('listeners: once a change is settled, what it took out of service ends', async () => {
  const set = openSet();
  const port = await freePort();
  await set.update(at(`${port}"`), 0);
  const client = await clientOf(set);
  await set.update(at(`${port}", idleTimeout: 7s`), 60_000);
  const count = () => set.opened.map((opened) => set.connectionsOf(opened));
  expect([client.ended, count()]).toEqual([false, [1]]);
  set.settle();
  await client.until('the end', () => client.ended || client.closed);
  await until('nothing is counted', () => count()[0] === 0);
});

test('listeners: one whose address is lost while a change is undone is named, and opened by the next change', async () => {
  const set = openSet();
  const [port, taken] = [await freePort(), await freePort()];
  await set.update(at(`${port}"`), 0);
  const client = await clientOf(set);
  const other = openSet();
  await other.update(at(`${taken}"`), 0);

  const { listen } = Server.prototype;
  const listening = vi.spyOn(Server.prototype, 'listen');
  onTestFinished(() => listening.mockRestore());
  // The changed one, the one that is taken, and then the one that stood before.
  for (const _ of [1, 2]) listening.mockImplementationOnce(listen);
  listening.mockImplementationOnce(function (this: Server) {
    const error = Object.assign(new Error('listen EADDRINUSE'), { code: 'EADDRINUSE' });
    queueMicrotask(() => this.emit('error', error));
    return this;
  });
  const lost = `what stood before is lost: cannot listen on 127.0.0.1:${port}: another program listens there`;
  await expect(set.update(at(`${port}", idleTimeout: 7s`, `${taken}"`), 0)).rejects.toThrow(lost);
  expect(set.opened).toEqual([]);
  await client.until('the end', () => client.ended || client.closed);
  await set.update(at(`${port}"`), 0);
  await clientOf(set);
});
