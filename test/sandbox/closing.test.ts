/** Closing a sandbox leaves no socket, server or timer, whatever is in progress, and is idempotent. */
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { openSandbox } from '../../src/sandbox/sandbox.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { call, connectThrough, draw, type Entry, getThrough, socksThrough } from './client.ts';

/** Sockets and servers of this process. Those that an earlier test file has left may close at any time. */
const openHandles = () => process.getActiveResourcesInfo().filter((name) => name.startsWith('TCP')).length;
const openServers = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPServerWrap').length;
const ignore = () => {}; // ignored: clients fail in different ways when the sandbox closes

test('close: leaves nothing open, whatever is in progress', async () => {
  const before = openHandles();
  const clock = new ManualClock();
  const sandbox = await openSandbox({ clock, paceMs: 0, graceMs: 60_000 });
  const target = `127.0.0.1:${sandbox.target.port}`;
  const [http, slow, draining] = await draw(sandbox, 'short-classic');
  const [socks] = await draw(sandbox, 'short-socks5', { count: '1' });
  if (!http || !slow || !draining || !socks) throw new Error('too few were drawn');
  const idOf = (entry: Entry) => sandbox.members().find(({ host }) => host === entry.ip)?.id ?? '';

  const pending: Promise<unknown>[] = [];
  await connectThrough(http, target);
  await socksThrough(socks, target, 5);
  pending.push(getThrough(http, `${sandbox.targetUrl}/delay/60000`).catch(ignore));
  await sandbox.setBehaviour(idOf(slow), { how: 'slow', ms: 60_000 });
  pending.push(getThrough(slow, `${sandbox.targetUrl}/ip`).catch(ignore));
  sandbox.rules.add({ times: 1, answer: { fault: 'hang' } });
  pending.push(call(sandbox, 'shared').catch(ignore));
  sandbox.rules.add({ operation: 'free', answer: { fault: 'delay', ms: 60_000 } });
  pending.push(call(sandbox, 'free').catch(ignore));
  sandbox.rules.add({ operation: 'short-pure', answer: { fault: 'refuse', forMs: 60_000 } });
  pending.push(call(sandbox, 'short-pure').catch(ignore));
  await until(
    'everything is in progress',
    () => sandbox.stats().calls === 5 && sandbox.target.requests === 1,
  );
  expect(clock.armedCount, 'timers that close disposes of').toBeGreaterThan(5);

  await Promise.all([sandbox.close(), sandbox.close()]);
  expect(clock.armedCount).toBe(0);
  await Promise.all(pending);
  await until('no handle is left', () => openHandles() <= before);
  await sandbox.close();
  expect(sandbox.members()).toEqual([]);
});

test('close: closes a member in its grace period', async () => {
  const before = openHandles();
  const clock = new ManualClock();
  const sandbox = await openSandbox({ clock, lifetimeMs: 5_000, graceMs: 60_000 });
  const [entry] = await draw(sandbox, 'short-socks5', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  const tunnel = connect({ host: entry.ip, port: entry.port });
  await until('it is connected', () => sandbox.members()[0]?.connections === 1);
  clock.advance(5_000);
  expect(sandbox.members()).toEqual([]);
  expect([tunnel.destroyed, clock.armedCount]).toEqual([false, 1]);
  await sandbox.close();
  expect(clock.armedCount).toBe(0);
  await until('no handle is left', () => openHandles() <= before);
});

test('open: fails if a port is taken, and closes what it had opened', async () => {
  const before = openHandles();
  const first = await openSandbox();
  const port = Number(new URL(first.url).port);
  await expect(openSandbox({ port })).rejects.toMatchObject({ code: 'listen-failed' });
  await expect(openSandbox({ extractPort: port })).rejects.toMatchObject({ code: 'listen-failed' });
  await expect(openSandbox({ targetPort: port })).rejects.toMatchObject({ code: 'listen-failed' });
  await first.close();
  await until('no handle is left', () => openHandles() <= before);
});

test('open: starts four servers, and no member before it is drawn', async () => {
  const before = openServers();
  const sandbox = await openSandbox({ members: 1_000 });
  // the base address, the extraction host, the target and the gateway
  await until('four servers listen', () => openServers() - before === 4);
  await sandbox.close();
});
