/** The recent requests that `noria why` finds, and the lines of the access log. */
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';
import type { Log } from '../../src/core/log.ts';
import { OpenRequest } from '../../src/core/request-record.ts';
import { openLedger, type RequestFilter } from '../../src/ledger/ledger.ts';
import { ManualClock } from '../support/manual-clock.ts';

async function open(access: (dir: string) => string = () => 'off') {
  const dir = await mkdtemp(join(tmpdir(), 'noria-ledger-'));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const clock = new ManualClock();
  const bus = new EventBus((name, error) => {
    throw new Error(`an observer of ${name} failed`, { cause: error });
  });
  const logged: string[] = [];
  const note = (_: object, message: string) => logged.push(message);
  const log: Log = { level: 'info', trace: note, debug: note, info: note, warn: note, error: note };
  const ledger = await openLedger({
    ...{ bus, clock, log, access: access(dir), dir: undefined, siteOf: (host) => host },
    pricesOf: () => ({ perMember: 0, perGb: 0 }),
  });
  onTestFinished(() => ledger.close());
  const end = (target: string, changes: Partial<OpenRequest> = {}, member = 'm1') => {
    const record = Object.assign(new OpenRequest(clock, '192.0.2.1'), { target, ...changes });
    const startedAt = clock.monotonic();
    record.addAttempt({ member, source: 'city', exit: null, ms: 1, code: null, startedAt });
    record.end(changes.code ?? null);
    bus.emit('request.ended', record);
  };
  return { dir, clock, ledger, end, logged };
}

const linesOf = async (path: string): Promise<string[]> =>
  (await readFile(path, 'utf8'))
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line).target);

test('requests: are found by target, user, session, tag, member, outcome and time, the newest first', async () => {
  const { ledger, end, clock } = await open();
  const noon = clock.now();
  end('a.shop.example:443', { user: 'ann', session: 's', tag: 't' });
  clock.advance(1_000);
  end('shop.example:80', { user: 'bob' }, 'm2');
  clock.advance(1_000);
  end('bookshop.example:443', { code: 'deadline' });
  end('[2001:db8::1]:443', {});
  const found = (filter: RequestFilter) => ledger.requests.find(filter).map(({ target }) => target);
  const [a, shop, book, v6] = [
    'a.shop.example:443',
    'shop.example:80',
    'bookshop.example:443',
    '[2001:db8::1]:443',
  ];
  const cases: [RequestFilter, (string | undefined)[]][] = [
    [{}, [v6, book, shop, a]],
    [{ limit: 2 }, [v6, book]],
    [{ target: 'shop.example' }, [shop, a]],
    [{ target: 'Shop.Example:80' }, [shop]],
    [{ target: 'https://a.shop.example/x' }, [a]],
    [{ target: 'a.shop.example:80' }, []],
    [{ target: '[2001:db8::1]' }, [v6]],
    [{ user: 'ann' }, [a]],
    [{ session: 's' }, [a]],
    [{ tag: 't' }, [a]],
    [{ tag: 'u' }, []],
    [{ member: 'm2' }, [shop]],
    [{ failed: true }, [book]],
    [{ failed: false, limit: 1 }, [v6]],
    [{ since: noon + 1_000 }, [v6, book, shop]],
    [{ since: noon + 1_001, target: 'shop.example' }, []],
  ];
  for (const [filter, expected] of cases) expect(found(filter), JSON.stringify(filter)).toEqual(expected);
  await ledger.close();
  end('late.example:443');
  expect(found({ target: 'late.example' })).toEqual([]);
});

test('access log: has the lines of one tick in order, follows logrotate and a new path, and ends complete', async () => {
  const { dir, ledger, end, logged } = await open((folder) => join(folder, 'a.log'));
  const [path, moved, other] = ['a.log', 'a.log.1', 'b.log'].map((name) => join(dir, name)) as [
    string,
    string,
    string,
  ];
  end('one:1');
  end('two:2');
  await rename(path, moved);
  await ledger.reload(path);
  end('three:3');
  await ledger.reload(other);
  end('four:4');
  await ledger.close();
  end('five:5');
  // The lines of the first tick were not written yet when the file moved.
  expect([...(await linesOf(moved)), ...(await linesOf(path))]).toEqual(['one:1', 'two:2', 'three:3']);
  expect(await linesOf(other)).toEqual(['four:4']);
  expect(logged).toEqual([]);
});

test('access log: a path that cannot be written fails at the start, and at a reload leaves the log as it is', async () => {
  await expect(open((dir) => join(dir, 'no folder', 'a.log'))).rejects.toMatchObject({
    code: 'state-unwritable',
  });
  const { dir, ledger, end, logged } = await open((folder) => join(folder, 'a.log'));
  await expect(ledger.reload(join(dir, 'no folder', 'a.log'))).rejects.toMatchObject({
    code: 'state-unwritable',
  });
  end('one:1');
  await ledger.reload('off');
  end('two:2');
  await ledger.reload(join(dir, 'a.log'));
  end('three:3');
  await ledger.close();
  expect(await linesOf(join(dir, 'a.log'))).toEqual(['one:1', 'three:3']);
  expect(logged).toEqual([]);
});

test('access log: when its folder has gone, the open file stays in use, and the log says so', async () => {
  const { dir, ledger, end, logged } = await open((folder) => join(folder, 'a.log'));
  await rm(dir, { recursive: true });
  await ledger.reload(join(dir, 'a.log'));
  end('one:1');
  await ledger.close();
  expect(logged).toEqual(['access log not reopened']);
});

test('access log: lines beyond 16 million waiting characters are dropped, and counted once', async () => {
  const { dir, ledger, end, logged } = await open((folder) => join(folder, 'a.log'));
  const user = 'u'.repeat(4_000_000);
  for (let number = 0; number < 6; number += 1) end(`big-${number}:1`, { user });
  end('small:1');
  await ledger.reload('off');
  expect(await linesOf(join(dir, 'a.log'))).toEqual(['big-0:1', 'big-1:1', 'big-2:1', 'big-3:1', 'small:1']);
  expect(logged).toEqual(['access log lines dropped']);
});
