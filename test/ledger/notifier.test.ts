import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import type { NoriaEvents } from '../../src/core/events.ts';
import { createLog } from '../../src/core/log.ts';
import { Secret } from '../../src/core/secret.ts';
import { Notifier } from '../../src/ledger/notifier.ts';

type NotifySettings = ReturnType<ConstructorParameters<typeof Notifier>[0]['settings']>[number];

import { strictBus } from '../admin/open-test-admin.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

async function start(more: Partial<NotifySettings> = {}, statuses: number[] = []) {
  const received: { type: string | undefined; body: string }[] = [];
  const server = createServer(async (request, response) => {
    received.push({ type: request.headers['content-type'], body: await text(request) });
    response.writeHead(statuses.shift() ?? 200).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  const lines: string[] = [];
  const clock = new ManualClock();
  const bus = strictBus();
  const url = new Secret(`http://127.0.0.1:${port}/robot/send?access_token=hidden-token`);
  const settings: NotifySettings[] = [
    { url, on: ['not-ready', 'source-halted', 'budget-used', 'site-banned'], ...more },
  ];
  const notifier = new Notifier({
    ...{ bus, clock, settings: () => settings, instance: 'host-1', isBudgetUsed: () => false },
    siteOf: (host) => host,
    log: createLog({
      level: 'info',
      format: 'json',
      destination: { write: (line) => void lines.push(line) },
    }),
  });
  onTestFinished(async () => {
    await notifier.close();
    await new Promise((resolve) => server.close(resolve));
  });
  const ready = (isReady: boolean, reason = 'the key is wrong') =>
    bus.emit('readiness.changed', {
      ...{ from: 'serving', to: 'not-serving', ready: isReady, reason, advice: 'Set "password".' },
      ...{ problems: [], shuttingDown: false, cleared: false },
    });
  const got = (count: number) => until(`${count} notices`, () => received.length === count);
  return { received, lines, clock, bus, ready, got };
}

test('notify: tells once when a condition begins and once when it ends, and nothing at the start', async () => {
  const { received, clock, ready, got } = await start();
  ready(false, 'starting');
  ready(true);
  clock.advance(10_000);
  ready(false);
  ready(false);
  await got(1);
  expect(received[0]?.type).toBe('application/json');
  expect(JSON.parse(received[0]?.body ?? '')).toEqual({
    ...{ event: 'not-ready', state: 'begun', at: new Date(clock.now()).toISOString(), instance: 'host-1' },
    ...{ reason: 'the key is wrong', advice: 'Set "password".' },
  });
  clock.advance(60_000);
  ready(true, '5 members are usable');
  await got(2);
  expect(JSON.parse(received[1]?.body ?? '')).toMatchObject({
    state: 'ended',
    reason: '5 members are usable',
  });
});

test('notify: a condition that comes and goes makes no storm', async () => {
  const { received, clock, ready, got } = await start();
  clock.advance(10_000);
  for (let times = 0; times < 50; times += 1) {
    ready(false);
    ready(true);
  }
  await got(1);
  clock.advance(60_000);
  await got(2);
  clock.advance(600_000);
  expect(received.map(({ body }) => JSON.parse(body).state)).toEqual(['begun', 'ended']);
});

test('notify: a template gets the values, escaped in JSON', async () => {
  const { received, clock, ready, got } = await start({
    body: '{"msgtype":"text","text":{"content":"noria {event} {state}: {reason}. {advice}"}}',
  });
  clock.advance(10_000);
  ready(false);
  await got(1);
  expect(JSON.parse(received[0]?.body ?? '')).toEqual({
    msgtype: 'text',
    text: { content: 'noria not-ready begun: the key is wrong. Set "password".' },
  });
});

test('notify: an endpoint that fails is tried again three times, and its token is never logged', async () => {
  const { lines, clock, ready, got } = await start({}, [500, 500, 500, 500]);
  clock.advance(10_000);
  ready(false);
  for (const [at, waitMs] of [2_000, 15_000, 60_000].entries()) {
    await got(at + 1);
    await until('the retry is planned', () => clock.armedCount > 0);
    clock.advance(waitMs);
  }
  await got(4);
  await until('the log line', () => lines.some((line) => line.includes('notice not delivered')));
  expect(lines.join('')).toContain('status 500');
  expect(lines.join('')).not.toContain('hidden-token');
});

test('notify: a halted source and a banned site are conditions of their own', async () => {
  const { received, clock, bus, got } = await start({ on: ['source-halted', 'site-banned'] });
  clock.advance(10_000);
  const moved = { source: 'city', from: 'waiting', to: 'halted', reason: '12001: The key is wrong.' };
  bus.emit('source.moved', moved);
  await got(1);
  const record = { target: 'shop.example:443', outcome: 'failed', code: 'site-banned', attempts: [] };
  const ended = (more: object) =>
    bus.emit('request.ended', { ...record, ...more } as unknown as NoriaEvents['request.ended']);
  ended({});
  await got(2);
  clock.advance(60_000);
  ended({ code: 'deadline' });
  ended({ code: null, outcome: 'served' });
  await got(3);
  expect(received.map(({ body }) => JSON.parse(body)).map(({ event, state }) => [event, state])).toEqual([
    ['source-halted', 'begun'],
    ['site-banned', 'begun'],
    ['site-banned', 'ended'],
  ]);
});
