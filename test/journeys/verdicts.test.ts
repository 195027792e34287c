/** What clients ask of their exits, in `npm run test:all` also over two processes: verdicts, `exclusive`, `fixed` and `life`. */
import { expect, test } from 'vitest';
import { getThrough } from '../support/exit-through.ts';
import { NO_HEDGE, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

const USERS = 'users: [{ username: ann, password: x }, { username: ben, password: x }]';
const MEMBERS = 4;
/** So many connections reach each of two processes, except once in a million runs. */
const MANY = 20;

async function start(lifetimeMs = 600_000) {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-classic', members: MEMBERS, lifetimeMs }],
  });
  const noria = await startNoria({
    sources: [
      sourceLine(sandbox, 'city', 'short-classic', `size: ${MEMBERS}, params: { count: ${MEMBERS} }`),
    ],
    listener: USERS,
    more: `dial: { ${NO_HEDGE}, waitForMember: 1s }\ntargets: [{ match: ["127.0.0.1"], spacing: 0s }]`,
  });
  await untilReady(noria, MEMBERS);
  const url = `${sandbox.targetUrl}/ip`;
  /** Status and exit of a new connection. */
  const get = (username: string) => getThrough(noria.proxy, url, `${username}:x`);
  const exits = async (username: string, count = MANY) => {
    const answers = await Promise.all(Array.from({ length: count }, () => get(username)));
    for (const answer of answers) expect(answer).toMatch(/^200 /);
    return new Set(answers.map((answer) => answer.slice('200 '.length)));
  };
  /** Says something about the session's exit, through the proxy. */
  const say = async (username: string, path: string) => {
    expect(await getThrough(noria.proxy, `http://noria.invalid${path}`, `${username}:x`)).toBe('204 ');
  };
  return { noria, get, exits, say };
}

test('verdicts: a ban counts for its user at once, and for everybody when two users agree', async () => {
  const { exits, say } = await start();
  const [banned = ''] = await exits('ann-session-cart', 1);
  /** The process that heard the verdict tells the other one. */
  const spread = (user: string) =>
    until('all processes know the ban', async () => !(await exits(user)).has(banned));
  await say('ann-session-cart', '/banned?host=127.0.0.1');
  await spread('ann');
  expect(await exits('ann')).not.toContain(banned);
  expect(await exits('ben')).toContain(banned);
  let session = '';
  let sessions = 0;
  await until('a session of ben on the banned exit', async () => {
    sessions += 1;
    session = `ben-session-s${sessions}`;
    return (await exits(session, 1)).has(banned);
  });
  await say(session, '/banned?host=127.0.0.1');
  await spread('ben');
  expect(await exits('ben')).not.toContain(banned);
  expect(await exits('ann')).not.toContain(banned);
});

test('verdicts: an exclusive session shares its exit with nobody, until it is forgotten', async () => {
  const { noria, exits } = await start();
  const own = await exits('ann-session-only-exclusive');
  expect(own.size).toBe(1);
  const [exit = ''] = own;
  const others = new Set([
    ...(await exits('ann')),
    ...(await exits('ben')),
    ...(await exits('ben-session-a', 3)),
    ...(await exits('ann-session-b', 3)),
  ]);
  expect(others.size).toBeGreaterThan(1);
  expect(others).not.toContain(exit);
  expect(await exits('ann-session-only-exclusive')).toEqual(own);
  expect(noria.control.forgetSession('ann:only')).toBe(true);
  expect(await exits('ben')).toContain(exit);
});

test('verdicts: a fixed session never moves: it ends with its member, until the client takes another name', async () => {
  const { noria, exits, get } = await start();
  const before = await exits('ann-session-login-fixed');
  expect(before.size).toBe(1);
  const { member } = noria.control.sessions().find(({ id }) => id === 'ann:login') ?? {};
  expect(noria.control.evictMember(member ?? '')).toBe(true);
  for (let n = 0; n < MANY; n += 1) {
    expect(await get('ann-session-login-fixed')).toMatch(/^503 [\s\S]*session/);
  }
  const after = await exits('ann-session-login2-fixed');
  expect(after.size).toBe(1);
  expect(after).not.toEqual(before);
});

test('verdicts: life counts when a session begins, and at each request without a session', async () => {
  const { exits, get } = await start(60_000);
  expect((await exits('ann-session-cart-life-20s')).size).toBe(1);
  expect(await get('ann-life-20s')).toMatch(/^200 /);
  expect(await get('ann-life-10m')).toMatch(/^400 /);
  expect(await get('ann-session-other-life-10m')).toMatch(/^400 /);
  expect((await exits('ann-session-cart-life-50s')).size).toBe(1);
});
