import { expect, test } from 'vitest';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { ask, connectThrough, draw, getOver, getThrough, open, passThrough, socksThrough } from './client.ts';

test('sandbox: every member has its own exit, whatever its protocol', async () => {
  const sandbox = await open({ members: 3 });
  const target = `target.example:${sandbox.target.port}`;
  const exits: string[] = [];
  for (const entry of await draw(sandbox, 'short-classic')) {
    exits.push((await getThrough(entry, `${sandbox.targetUrl}/ip`)).body);
    const { socket } = await connectThrough(entry, target);
    expect(await getOver(socket, '/ip')).toBe(exits.at(-1));
  }
  for (const entry of await draw(sandbox, 'short-socks5')) {
    exits.push(await getOver(await socksThrough(entry, target, 5), '/ip'));
  }
  for (const entry of await draw(sandbox, 'long-residential')) {
    exits.push((await getThrough(entry, `${sandbox.targetUrl}/ip`)).body);
    expect(exits.at(-1)).toBe(`${entry['outip']}\n`);
  }
  expect(new Set(exits).size).toBe(9);
  expect(sandbox.strangers()).toEqual([]);
});

test('sandbox: refuses and counts a call that comes too early, without delaying the next one', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, paceMs: 200 });
  const codes: string[] = [];
  for (const waitMs of [0, 199, 1]) {
    clock.advance(waitMs);
    codes.push((await ask(sandbox, 'short-classic')).code);
  }
  expect(codes).toEqual(['10001', '12002', '10001']);
  expect(sandbox.stats().paceBreaks).toBe(1);
});

test('sandbox: an expired member closes its port and its tunnels', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, lifetimeMs: 300 });
  const [entry] = await draw(sandbox, 'short-socks5', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  const tunnel = await socksThrough(entry, `127.0.0.1:${sandbox.target.port}`, 5);
  clock.advance(299);
  expect(sandbox.members().length).toBe(1);
  clock.advance(1);
  await until('the tunnel is cut', () => tunnel.destroyed || tunnel.readableEnded);
  expect(sandbox.members()).toEqual([]);
  await expect(socksThrough(entry, `127.0.0.1:${sandbox.target.port}`, 5)).rejects.toThrow(/ECONNREFUSED/);
});

test('sandbox: dead members have a closed port, slow ones answer after a delay', async () => {
  const clock = new ManualClock();
  const sandbox = await open({
    clock,
    members: 2,
    behaviour: (n) => (n === 0 ? { how: 'refuse' } : undefined),
    slow: 1,
    slowMs: 150,
  });
  await draw(sandbox, 'short-classic', { count: '2' });
  const [dead, slow] = sandbox.members();
  if (dead === undefined || slow === undefined) throw new Error('two members were drawn');
  const url = `${sandbox.targetUrl}/ip`;
  await expect(getThrough({ ip: dead.host, port: dead.port }, url)).rejects.toThrow(/ECONNREFUSED/);
  const answer = getThrough({ ip: slow.host, port: slow.port }, url);
  await passThrough(clock, 150);
  expect((await answer).body).toBe(`${slow.exit}\n`);
});
