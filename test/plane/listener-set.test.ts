import { Server } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { ListenerSet } from '../../src/plane/listener-set.ts';
import { directDialer } from '../listener/direct-dialer.ts';
import { NO_DESK, RawClient } from '../listener/harness.ts';
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
    desk: NO_DESK,
    context: { sourceNames: ['city'], apiAddresses: [] },
    inheritedFds: new Set(),
    mark: 'noria-0',
  });
  onTestFinished(() => set.close());
  return set;
}

const portOf = (set: ListenerSet) => set.status()[0]?.addresses[0]?.port ?? 0;

const clientOf = async (set: ListenerSet) => {
  const client = await RawClient.open(portOf(set));
  await until('it is accepted', () => (set.status()[0]?.connections ?? 0) > 0);
  return client;
};

test('listener set: before a commit, going back restores the removed listeners with their connections', async () => {
  const set = openSet();
  await set.update(at('0"'), 0);
  const port = portOf(set);
  const client = await clientOf(set);
  await set.update(at(`${await freePort()}"`), 0);
  await expect(RawClient.open(port)).rejects.toThrow(/ECONNREFUSED/);
  const between = await clientOf(set);
  await set.update(at('0"'), 0);
  expect(portOf(set), 'clients know the port').toBe(port);
  await between.until('the end', () => between.ended || between.closed);
  await clientOf(set);
  client.send('GET / HTTP/1.1\r\n\r\n');
  expect(await client.until('the answer', (text) => text.includes('\r\n\r\n'))).toMatch(/^HTTP\/1\.1 400 /);
});

test('listener set: a commit drains and closes the removed listeners', async () => {
  const set = openSet();
  const port = await freePort();
  await set.update(at(`${port}"`), 0);
  const client = await clientOf(set);
  await set.update(at(`${port}", idleTimeout: 7s`), 60_000);
  const count = () => set.status().map(({ connections }) => connections);
  expect([client.ended, count()]).toEqual([false, [1]]);
  set.commit();
  await client.until('the end', () => client.ended || client.closed);
  await until('nothing is counted', () => count()[0] === 0);
});

test('listener set: a listener that cannot be restored is reported, and opened by the next update', async () => {
  const set = openSet();
  const [port, taken] = [await freePort(), await freePort()];
  await set.update(at(`${port}"`), 0);
  const client = await clientOf(set);
  const other = openSet();
  await other.update(at(`${taken}"`), 0);

  const { listen } = Server.prototype;
  const listening = vi.spyOn(Server.prototype, 'listen');
  onTestFinished(() => listening.mockRestore());
  // The changed listener and the one on the taken port call the real `listen`; the third call, which restores the first
  // listener, fails.
  for (const _ of [1, 2]) listening.mockImplementationOnce(listen);
  listening.mockImplementationOnce(function (this: Server) {
    const error = Object.assign(new Error('listen EADDRINUSE'), { code: 'EADDRINUSE' });
    queueMicrotask(() => this.emit('error', error));
    return this;
  });
  const lost = `could not restore the previous listeners: cannot listen on 127.0.0.1:${port}: another program listens there (address in use); stop it, or choose another port`;
  await expect(set.update(at(`${port}", idleTimeout: 7s`, `${taken}"`), 0)).rejects.toThrow(lost);
  expect(set.status()).toEqual([]);
  await client.until('the end', () => client.ended || client.closed);
  await set.update(at(`${port}"`), 0);
  await clientOf(set);
});
