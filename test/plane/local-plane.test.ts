import { Server } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { dialerSettings } from '../../src/daemon/part-options.ts';
import { LocalPlane } from '../../src/plane/local-plane.ts';
import { RawClient } from '../listener/harness.ts';
import { openKit } from '../pool/pool-kit.ts';
import { freePort } from '../support/free-port.ts';
import { testConfig } from '../support/noria.ts';
import { until } from '../support/until.ts';

const SOURCE =
  '  - { name: city, product: free, instance: "1", akey: "0123456789abcdef", baseUrl: "http://127.0.0.1:9" }';

const configWith = (...listeners: string[]) =>
  testConfig({
    sources: [SOURCE],
    listeners: `listeners: [${listeners.map((each) => `{ address: "127.0.0.1:${each} }`).join(', ')}]`,
  });
const at = (...listeners: string[]) => configWith(...listeners).listeners;
const SETTINGS = { dialer: dialerSettings(configWith('0"')) };

function openPlane(): LocalPlane {
  const plane = new LocalPlane({
    ...SETTINGS,
    pool: openKit().pool,
    onSourceFault: () => {},
    onNetwork: () => {},
    clock: systemClock,
    bus: new EventBus((name, error) => {
      throw new Error(`an observer of ${name} failed`, { cause: error });
    }),
    context: { sourceNames: ['city'], apiAddresses: [] },
    inheritedFds: new Set(),
    mark: 'noria-0',
  });
  onTestFinished(() => plane.close());
  return plane;
}

const portOf = (plane: LocalPlane) => plane.listeners[0]?.addresses[0]?.port ?? 0;

const clientOf = async (plane: LocalPlane) => {
  const client = await RawClient.open(portOf(plane));
  await until('it is accepted', () => (plane.listeners[0]?.connections ?? 0) > 0);
  return client;
};

test('local plane: before a commit, going back restores the removed listeners with their connections', async () => {
  const plane = openPlane();
  await plane.update(at('0"'), 0);
  const port = portOf(plane);
  const client = await clientOf(plane);
  await plane.update(at(`${await freePort()}"`), 0);
  await expect(RawClient.open(port)).rejects.toThrow(/ECONNREFUSED/);
  const between = await clientOf(plane);
  await plane.update(at('0"'), 0);
  expect(portOf(plane), 'clients know the port').toBe(port);
  await between.until('the end', () => between.ended || between.closed);
  await clientOf(plane);
  client.send('GET / HTTP/1.1\r\n\r\n');
  expect(await client.until('the answer', (text) => text.includes('\r\n\r\n'))).toMatch(/^HTTP\/1\.1 400 /);
});

test('local plane: a commit drains and closes the removed listeners', async () => {
  const plane = openPlane();
  const port = await freePort();
  await plane.update(at(`${port}"`), 0);
  const client = await clientOf(plane);
  await plane.update(at(`${port}", idleTimeout: 7s`), 60_000);
  const count = () => plane.listeners.map(({ connections }) => connections);
  expect([client.ended, count()]).toEqual([false, [1]]);
  plane.commit(SETTINGS);
  await client.until('the end', () => client.ended || client.closed);
  await until('nothing is counted', () => count()[0] === 0);
});

test('local plane: a listener that cannot be restored is reported, and opened by the next update', async () => {
  const plane = openPlane();
  const [port, taken] = [await freePort(), await freePort()];
  await plane.update(at(`${port}"`), 0);
  const client = await clientOf(plane);
  const other = openPlane();
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
  await expect(plane.update(at(`${port}", idleTimeout: 7s`, `${taken}"`), 0)).rejects.toThrow(lost);
  expect(plane.listeners).toEqual([]);
  await client.until('the end', () => client.ended || client.closed);
  await plane.update(at(`${port}"`), 0);
  await clientOf(plane);
});
