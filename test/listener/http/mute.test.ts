/** A read whose member relays nothing is tried through further members beside it; the first response wins. */
import { expect, test } from 'vitest';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { OK, rawOrigin } from '../origin.ts';

const MUTE_MS = 1_000;

/** A client that has sent this request, and a target that answers only when the test says so. */
async function ask(method = 'GET', fields = '') {
  const clock = ManualClock.dayOld();
  const origin = await rawOrigin();
  const dialer = directDialer({ overrides: { muteAfterMs: MUTE_MS } });
  const kit = await listen(dialer, { clock });
  const client = await RawClient.open(kit.port);
  client.send(`${method} http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n${fields}\r\n`);
  const asked = (count: number) =>
    until(
      `${count} members were asked`,
      () => origin.seen.filter((text) => text.includes('\r\n\r\n')).length === count,
    );
  await asked(1);
  return {
    ...kit,
    ...{ clock, origin, dialer, client, asked },
    /** Lets the time of the newest member pass. */
    async another(count: number) {
      clock.advance(MUTE_MS + 10);
      await asked(count);
    },
    answer: (index: number) => origin.sockets[index]?.write(OK),
    response: () => client.until('the response', (text) => text.endsWith('hi')),
    ends: () =>
      dialer.ended.map(
        ({ member, cut, mute, keep }) =>
          `${member} ${[cut && 'cut', mute && 'mute', keep && 'kept'].filter(Boolean).join()}`,
      ),
  };
}

test('mute: the third member answers, the two before it are mute, and there is no fourth', async () => {
  const { clock, dialer, another, answer, response, ends, deadlines, client } = await ask();
  clock.advance(MUTE_MS - 10);
  expect(dialer.requests).toHaveLength(1);
  await another(2);
  await another(3);
  clock.advance(MUTE_MS + 10);
  expect(dialer.requests.map(({ noReuse, avoid }) => [noReuse, avoid])).toEqual([
    [false, []],
    [true, ['m1']],
    [true, ['m1', 'm2']],
  ]);
  answer(2);
  expect(await response()).toContain('X-Noria-Member: m3\r\nX-Noria-Attempts: 3\r\n');
  expect(ends()).toEqual(['m1 mute', 'm2 mute', 'm3 kept']);
  client.end();
  await until('no deadline', () => deadlines.size === 0);
});

test.each([
  [0, ['m2 ', 'm3 ', 'm1 kept']],
  [1, ['m1 mute', 'm3 ', 'm2 kept']],
])('mute: of three members the one at %i answers, and later ones are not mute', async (index, expected) => {
  const { another, answer, response, ends } = await ask();
  await another(2);
  await another(3);
  answer(index);
  expect(await response()).toContain(`X-Noria-Member: m${index + 1}\r\n`);
  expect(ends()).toEqual(expected);
});

test('mute: a member that answers ends the dial for another one, and no later one begins', async () => {
  const { clock, dialer, answer, response, client, origin } = await ask();
  const release = dialer.hold();
  clock.advance(MUTE_MS + 10);
  expect(dialer.requests).toHaveLength(2);
  origin.sockets[0]?.write('HTTP/1.1 103 Early Hints\r\n\r\n');
  await client.until('the hints', (text) => text.includes('103'));
  expect(dialer.cancelled).toBe(1);
  release();
  clock.advance(MUTE_MS + 10);
  answer(0);
  expect(await response()).toContain('X-Noria-Attempts: 1\r\n');
  expect(dialer.requests).toHaveLength(2);
});

test.each<[string, (kit: Awaited<ReturnType<typeof ask>>) => unknown, winner: number]>([
  ['the second fails', ({ origin }) => origin.sockets[1]?.resetAndDestroy(), 0],
  ['the first fails', ({ origin }) => origin.sockets[0]?.resetAndDestroy(), 1],
])('mute: if %s, the other one still answers', async (_, fail, winner) => {
  const kit = await ask();
  await kit.another(2);
  fail(kit);
  await until('it has failed', () => kit.dialer.ended.length === 1);
  expect(kit.ends()).toEqual([`m${2 - winner} cut`]);
  kit.answer(winner);
  expect(await kit.response()).toContain(`X-Noria-Member: m${winner + 1}\r\n`);
  expect(kit.dialer.requests).toHaveLength(2);
});

test('mute: if the dial for another member fails, the first one still answers', async () => {
  const { clock, dialer, answer, response } = await ask();
  dialer.failures.push({ code: 'pool-empty', reason: 'no member', attempts: 0 });
  clock.advance(MUTE_MS + 10);
  await until('the dial has failed', () => dialer.failures.length === 0);
  answer(0);
  expect(await response()).toMatch(/^HTTP\/1\.1 200 /);
});

test.each(['answers', 'is left by the client'])(
  'mute: if the first member fails while noria dials another one, that one %s',
  async (end) => {
    const { clock, dialer, origin, asked, answer, response, client, listener } = await ask();
    const release = dialer.hold();
    clock.advance(MUTE_MS + 10);
    origin.sockets[0]?.resetAndDestroy();
    await until('it has failed', () => dialer.ended.length === 1);
    if (end === 'answers') {
      release();
      await asked(2);
      answer(1);
      expect(await response()).toContain('X-Noria-Member: m2\r\nX-Noria-Attempts: 2\r\n');
    } else {
      client.socket.destroy();
      await until('the close', () => listener.connectionCount === 0);
      expect(dialer.cancelled).toBe(1);
      release();
    }
  },
);

test('mute: a client that leaves ends all of them, and none is mute', async () => {
  const { clock, dialer, another, ends, client, listener, deadlines } = await ask();
  await another(2);
  const release = dialer.hold();
  clock.advance(MUTE_MS + 10);
  client.socket.destroy();
  await until('the close', () => listener.connectionCount === 0);
  expect([ends().sort(), deadlines.size]).toEqual([['m1 ', 'm2 '], 0]);
  expect(dialer.cancelled, 'the dial of m2, which is over, and that of m3').toBe(2);
  release();
});

test.each([
  ['HEAD', '', 2],
  ['POST', '', 1],
  ['GET', 'Content-Length: 0\r\n', 1],
  ['GET', 'Connection: Upgrade\r\nUpgrade: websocket\r\n', 1],
  ['GET', 'Authorization: NTLM x\r\n', 1],
])('mute: %s with the fields %j is sent to %i members', async (method, fields, count) => {
  const { clock, dialer, asked } = await ask(method, fields);
  clock.advance(MUTE_MS + 10);
  await asked(count);
  expect(dialer.requests).toHaveLength(count);
});
