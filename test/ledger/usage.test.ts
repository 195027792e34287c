/** Usage and the recent requests, from the events of requests. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';
import { createLog } from '../../src/core/log.ts';
import { OpenRequest } from '../../src/core/request-record.ts';
import { MAX_REQUESTS, openLedger } from '../../src/ledger/ledger.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

/** Noon on this machine, so that no test crosses a midnight without wanting to. */
const NOON = new Date(2030, 0, 1, 12).getTime();

async function open(price = 0) {
  const dir = await mkdtemp(join(tmpdir(), 'noria-usage-'));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const clock = new ManualClock(NOON);
  const bus = new EventBus((name, error) => {
    throw new Error(`an observer of ${name} failed`, { cause: error });
  });
  const log = createLog({ level: 'silent', format: 'json' });
  const options = { bus, clock, log, access: 'off', dir, siteOf: (host: string) => host };
  const start = () => openLedger({ ...options, pricesOf: () => ({ perMember: price, perGb: 0 }) });
  const ledger = await start();
  onTestFinished(() => ledger.close());
  const request = (user: string, member = 'm1') => {
    const record = new OpenRequest(clock, '192.0.2.1');
    record.user = user;
    record.target = 'shop.example:443';
    record.addAttempt({
      member,
      source: 'city',
      exit: null,
      ms: 1,
      code: null,
      startedAt: clock.monotonic(),
    });
    return record;
  };
  const end = (record: OpenRequest, code: 'deadline' | null = null) => {
    record.end(code);
    bus.emit('request.ended', record);
  };
  const grow = (record: OpenRequest, up: number, down: number) => {
    record.countedUp += up;
    record.countedDown += down;
    const { id, source } = record;
    const target = record.target ?? '';
    bus.emit('request.grew', { request: id, user: record.user ?? '', target, source, up, down });
  };
  return { dir, clock, bus, ledger, start, request, end, grow };
}

test('usage: bytes that a tunnel has reported while open count once', async () => {
  const { ledger, request, end, grow } = await open();
  const record = request('ann');
  grow(record, 100, 1_000);
  grow(record, 1, 10);
  expect(ledger.usage.todayOf('ann')).toEqual({ bytes: 1_111, members: 0 });
  [record.bytesUp, record.bytesDown] = [105, 1_050];
  end(record);
  for (const kind of ['user', 'site', 'source'] as const) {
    expect(await ledger.usage.read(kind)).toMatchObject([
      { requests: 1, failed: 0, bytesUp: 105, bytesDown: 1_050, members: 1 },
    ]);
  }
  end(request('ann', 'm2'), 'deadline');
  expect(await ledger.usage.read('user')).toMatchObject([{ requests: 2, failed: 1, members: 2 }]);
});

test('usage: a kill loses at most what the last five seconds added, and an idle noria writes nothing', async () => {
  const { dir, clock, ledger, start, request, end } = await open();
  const record = request('ann');
  record.bytesDown = 1_000;
  end(record);
  clock.advance(5_000);
  await until('the file', async () => (await readdir(dir)).includes('usage.2030-01-01.json'));
  const path = join(dir, 'usage.2030-01-01.json');
  const written = await readFile(path, 'utf8');
  // another noria starts with what a kill would have left
  const again = await start();
  onTestFinished(() => again.close());
  expect(again.usage.todayOf('ann')).toEqual({ bytes: 1_000, members: 1 });
  await rm(path);
  clock.advance(60_000);
  await ledger.close();
  expect(await readdir(dir)).toEqual([]);
  expect(written).toContain('"bytesDown":1000');
});

test('usage: a member is paid by those who used it, by their uses, once', async () => {
  const { bus, ledger, request, end } = await open(0.6);
  bus.emit('draw.done', {
    ...{ source: 'city', code: '10001', asked: 1, received: 1, joined: 1 },
    ...{ renewed: 0, rejected: 0, forbidden: 0, ms: 1 },
  });
  for (const user of ['ann', 'ann', 'ben']) end(request(user));
  const spent = async () =>
    Object.fromEntries((await ledger.usage.read('user'))?.map(({ name, spend }) => [name, spend]) ?? []);
  expect(await spent()).toEqual({ ann: 0.4, ben: 0.2 });
  bus.emit('member.left', {
    ...{ source: 'city', member: 'm1', protocol: 'http', reason: 'expired', uses: 3 },
  });
  expect(await spent()).toEqual({ ann: 0.4, ben: 0.2 });
  expect(await ledger.usage.read('source')).toMatchObject([{ name: 'city', spend: 0.6 }]);
});

test('usage: a new day begins at midnight and keeps the last one, for 32 days', async () => {
  const { dir, clock, ledger, request, end } = await open();
  for (let day = 1; day <= 31; day += 1) {
    const name = `usage.2029-12-${String(day).padStart(2, '0')}.json`;
    await writeFile(join(dir, name), '{"user":{},"site":{},"source":{}}');
  }
  await writeFile(join(dir, 'usage.2029-11-30.json'), '{"user":{},"site":{},"source":{}}');
  end(request('ann'));
  clock.advance(12 * 3_600_000 - 1);
  expect(ledger.usage.todayOf('ann').members).toBe(1);
  clock.advance(1);
  expect(ledger.usage.todayOf('ann')).toEqual({ bytes: 0, members: 0 });
  await until('the last day was written', async () => (await ledger.usage.days()).includes('2030-01-01'));
  await ledger.close();
  expect(await ledger.usage.read('user', '2030-01-01')).toMatchObject([{ name: 'ann', requests: 1 }]);
  expect(await ledger.usage.read('user', '2029-11-30')).toBeUndefined();
  const days = await ledger.usage.days();
  expect([days.length, days.at(0), days.at(-1)]).toEqual([32, '2030-01-02', '2029-12-02']);
});

test('requests: the latest ones are remembered, the newest first', async () => {
  const { ledger, request, end } = await open();
  for (let n = 0; n < MAX_REQUESTS + 5; n += 1) {
    const record = request('ann');
    record.tag = String(n);
    end(record);
  }
  const tags = ledger.requests.find({}).map(({ tag }) => Number(tag));
  expect(tags.length).toBe(MAX_REQUESTS);
  expect([tags[0], tags[1], tags.at(-1)]).toEqual([MAX_REQUESTS + 4, MAX_REQUESTS + 3, 5]);
  expect(ledger.requests.find({ limit: 2 }).length).toBe(2);
});

test('request record: attempts are in the order in which they started', () => {
  const record = new OpenRequest(new ManualClock(), '');
  const attempt = { source: 'city', exit: null, ms: 1, code: null };
  for (const [member, startedAt] of [
    ['m2', 20],
    ['m3', 30],
    ['m1', 10],
  ] as const)
    record.addAttempt({ ...attempt, member, startedAt });
  expect(record.attempts.map(({ member }) => member)).toEqual(['m1', 'm2', 'm3']);
  expect(record.client).toBeNull();
});
