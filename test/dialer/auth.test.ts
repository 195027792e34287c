/** Credentials over real sockets: who gets them, when, and who is blamed for a refusal. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { authBehavior, httpBehavior, openMember, socks5Behavior } from '../support/bad-members.ts';
import { collect, connectionOf, echo, failureOf, makeDialer } from './make-dialer.ts';

const CITY: SourceSettings = {
  auth: 'auto',
  instance: '202611210001',
  password: new Secret('12345678'),
  neverInstance: false,
  forwardMode: 'direct',
  handshake: 'auto',
};

function sources(city: Partial<SourceSettings> = {}) {
  return { sources: new Map([['city', { ...CITY, ...city }]]) };
}

const authorizations = (received: readonly Buffer[]) =>
  received.map((head) => /^proxy-authorization: (.*)$/im.exec(head.toString('latin1'))?.[1] ?? 'none');
const BASIC = `Basic ${btoa('202611210001:12345678')}`;

test('auth: auto asks a lone member twice before it sends credentials, and the next dial starts with them', async () => {
  const at = await openMember('http', authBehavior('202611210001', '12345678'));
  const { dial, pool, bus } = makeDialer([{ id: 'm1', at }], sources());
  const attempts = collect(bus, 'dial.attempted');
  const connection = connectionOf(await dial('target.example:443'));
  expect(connection.attempts).toBe(2);
  await echo(connection, 'hello');
  connectionOf(await dial('target.example:443'));
  expect([at.accepted, authorizations(at.received)]).toEqual([4, ['none', 'none', BASIC, BASIC]]);
  expect([attempts.length, pool.blames()]).toEqual([3, ['m1 member-auth nobody']]);
});

test('auth: auto sends credentials to the third of three members that ask, and blames none of them', async () => {
  const at = await openMember('http', authBehavior('202611210001', '12345678'));
  const members = ['m1', 'm2', 'm3', 'm4'].map((id) => ({ id, at }));
  const { dial, pool } = makeDialer(members, sources());
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'm3' },
    attempts: 3,
  });
  expect(authorizations(at.received)).toEqual(['none', 'none', 'none', BASIC]);
  expect(pool.blames()).toEqual(['m1 member-auth nobody', 'm2 member-auth nobody']);
});

test('auth: three members of twenty that ask get no password, and the others keep serving', async () => {
  const asking = await openMember('http', authBehavior('202611210001', '12345678'));
  const good = await openMember('http', httpBehavior());
  const members = Array.from({ length: 20 }, (_, index) => ({
    id: `m${index}`,
    at: index % 7 === 1 ? asking : good,
  }));
  const { dial, pool, sourceFaults } = makeDialer(members, sources());
  for (let time = 0; time < 40; time += 1) connectionOf(await dial('target.example:443'));
  expect(new Set(authorizations([...asking.received, ...good.received]))).toEqual(new Set(['none']));
  expect(sourceFaults).toEqual([]);
  expect(new Set(pool.blames())).toEqual(
    new Set(['m1 member-auth member', 'm8 member-auth member', 'm15 member-auth member']),
  );
});

test('auth: auto does the same in SOCKS5, and offers one method at a time', async () => {
  const login = { username: '202611210001', password: '12345678' };
  const at = await openMember('socks5', socks5Behavior({ login }));
  const { dial } = makeDialer([{ id: 'm1', at }], sources());
  await echo(connectionOf(await dial('target.example:443')), 'hello');
  await echo(connectionOf(await dial('target.example:443')), 'hello');
  expect(
    at.received.filter(([version]) => version === 5).map((bytes) => bytes.subarray(0, 3).toString('hex')),
  ).toEqual([
    '050100',
    '050100',
    '050102',
    '050100', // the CONNECT request
    '050102',
    '050100',
  ]);
});

test('auth: credentials never enter the tunnel', async () => {
  const at = await openMember('http', authBehavior('202611210001', '12345678'));
  const { dial } = makeDialer([{ id: 'm1', at }], sources({ auth: 'instance' }));
  await echo(connectionOf(await dial('target.example:443')), 'GET / HTTP/1.1\r\n\r\n');
  expect(authorizations(at.received)).toEqual([BASIC]);
});

test.each<[string, Partial<SourceSettings>, string]>([
  ['none', { auth: 'none' }, 'nobody'],
  ['auto, for the free product', { neverInstance: true }, 'member'],
  ['instance, for the free product', { auth: 'instance', neverInstance: true }, 'member'],
])('auth: with %s a member that requires credentials gets none', async (_, settings, blame) => {
  const at = await openMember('http', authBehavior('202611210001', '12345678'));
  const { dial, pool } = makeDialer([{ id: 'm1', at }], { ...sources(settings), waitForMemberMs: 0 });
  expect(failureOf(await dial('target.example:443')).code).toBe('members-failed');
  expect([authorizations(at.received), pool.blames()]).toEqual([['none'], [`m1 member-auth ${blame}`]]);
});

test('auth: members of an unknown source get no credentials', async () => {
  const at = await openMember('http', authBehavior('202611210001', '12345678'));
  const { dial } = makeDialer([{ id: 'm1', at, source: 'elsewhere' }], { ...sources(), waitForMemberMs: 0 });
  await dial('target.example:443');
  expect(authorizations(at.received)).toEqual(['none']);
});

test('auth: a refusal by one of two members is the fault of that member', async () => {
  const { dial, pool, sourceFaults } = makeDialer(
    [
      { id: 'picky', at: await openMember('http', authBehavior('someone', 'else')) },
      { id: 'good', at: await openMember('http', httpBehavior()) },
    ],
    sources(),
  );
  expect(connectionOf(await dial('target.example:443')).lease.member).toBe('good');
  expect([pool.blames(), sourceFaults]).toEqual([['picky member-auth member'], []]);
});

test('auth: refusals by all members are the fault of the source, reported once', async () => {
  const at = await openMember('http', authBehavior('someone', 'else'));
  const members = ['m1', 'm2', 'm3', 'm4'].map((id) => ({ id, at }));
  const { dial, pool, sourceFaults } = makeDialer(members, {
    ...sources({ auth: 'instance' }),
    waitForMemberMs: 0,
  });
  await dial('target.example:443');
  await dial('target.example:443');
  expect(new Set(pool.blames().map((verdict) => verdict.split(' ').at(-1)))).toEqual(new Set(['source']));
  expect(sourceFaults).toMatchObject([{ source: 'city', active: true }]);
});

test('auth: an acceptance after a source fault is reported', async () => {
  const at = await openMember('http', authBehavior('someone', 'else'));
  const members = ['m1', 'm2', 'm3'].map((id) => ({ id, at }));
  const settings = { ...sources({ auth: 'instance' }), waitForMemberMs: 0 };
  const { dial, pool, sourceFaults } = makeDialer(members, settings);
  await dial('target.example:443');
  pool.members = [{ id: 'm4', at: await openMember('http', httpBehavior()) }];
  connectionOf(await dial('target.example:443'));
  expect(sourceFaults.map(({ active }) => active)).toEqual([true, false]);
});

test('auth: only a reload that changes the password resets what was learned', async () => {
  const at = await openMember('http', authBehavior('202611210001', '12345678'));
  const { dial, dialer } = makeDialer([{ id: 'm1', at }], sources());
  connectionOf(await dial('target.example:443'));
  const settings = {
    attempts: 3,
    attemptTimeoutMs: 2_000,
    hedgeAfter: 'off',
    warm: 'off',
    deadlineMs: 5_000,
    waitForMemberMs: 0,
  } as const;
  dialer.configure({ ...settings, ...sources({ password: new Secret('12345678') }) });
  connectionOf(await dial('target.example:443'));
  dialer.configure({ ...settings, ...sources({ password: new Secret('changed!') }) });
  failureOf(await dial('target.example:443'));
  const changed = `Basic ${btoa('202611210001:changed!')}`;
  expect(authorizations(at.received)).toEqual(['none', 'none', BASIC, BASIC, 'none', 'none', changed]);
});
