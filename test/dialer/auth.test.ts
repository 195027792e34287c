/** Credentials over real sockets: who gets them, when, and whose fault a refusal is. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { askingManner, httpManner, openMember, socks5Manner } from '../support/bad-members.ts';
import { collect, echo, failureOf, makeDialer, wayOf } from './make-dialer.ts';

const CITY: SourceSettings = {
  auth: 'auto',
  instance: '202611210001',
  password: new Secret('12345678'),
  neverInstance: false,
  forwardMode: 'direct',
};

function sources(city: Partial<SourceSettings> = {}) {
  return { sources: new Map([['city', { ...CITY, ...city }]]) };
}

const authorizations = (heard: readonly Buffer[]) =>
  heard.map((head) => /^proxy-authorization: (.*)$/im.exec(head.toString('latin1'))?.[1] ?? 'none');
const BASIC = `Basic ${btoa('202611210001:12345678')}`;

test('auth: auto asks without, then with, on a new connection to the same member; the next dial starts with', async () => {
  const at = await openMember('http', askingManner('202611210001', '12345678'));
  const { dial, pool, bus } = makeDialer([{ id: 'm1', at }], sources());
  const attempts = collect(bus, 'dial.attempted');
  const way = wayOf(await dial('target.example:443'));
  expect(way.attempts).toBe(1);
  await echo(way, 'hello');
  wayOf(await dial('target.example:443'));
  expect([at.taken, authorizations(at.heard)]).toEqual([3, ['none', BASIC, BASIC]]);
  expect([attempts.length, pool.verdicts()]).toEqual([2, []]);
});

test('auth: auto does the same in SOCKS5, offering one method at a time', async () => {
  const login = { username: '202611210001', password: '12345678' };
  const at = await openMember('socks5', socks5Manner({ login }));
  const { dial } = makeDialer([{ id: 'm1', at }], sources());
  await echo(wayOf(await dial('target.example:443')), 'hello');
  await echo(wayOf(await dial('target.example:443')), 'hello');
  expect(
    at.heard.filter(([version]) => version === 5).map((bytes) => bytes.subarray(0, 3).toString('hex')),
  ).toEqual([
    '050100',
    '050102',
    '050100', // the request
    '050102',
    '050100',
  ]);
});

test('auth: credentials never enter the tunnel', async () => {
  const at = await openMember('http', askingManner('202611210001', '12345678'));
  const { dial } = makeDialer([{ id: 'm1', at }], sources({ auth: 'instance' }));
  await echo(wayOf(await dial('target.example:443')), 'GET / HTTP/1.1\r\n\r\n');
  expect(authorizations(at.heard)).toEqual([BASIC]);
});

test.each<[string, Partial<SourceSettings>]>([
  ['none', { auth: 'none' }],
  ['auto, for the free product', { neverInstance: true }],
  ['instance, for the free product', { auth: 'instance', neverInstance: true }],
])('auth: with %s a member that asks gets nothing', async (_, settings) => {
  const at = await openMember('http', askingManner('202611210001', '12345678'));
  const { dial, pool } = makeDialer([{ id: 'm1', at }], { ...sources(settings), waitForMemberMs: 0 });
  expect(failureOf(await dial('target.example:443')).code).toBe('members-failed');
  expect([authorizations(at.heard), pool.verdicts()]).toEqual([['none'], ['m1 member-auth member']]);
});

test('auth: members of an unknown source get nothing', async () => {
  const at = await openMember('http', askingManner('202611210001', '12345678'));
  const { dial } = makeDialer([{ id: 'm1', at, source: 'elsewhere' }], { ...sources(), waitForMemberMs: 0 });
  await dial('target.example:443');
  expect(authorizations(at.heard)).toEqual(['none']);
});

test('auth: refused by one of two members, it is that member', async () => {
  const { dial, pool, sourceFaults } = makeDialer(
    [
      { id: 'picky', at: await openMember('http', askingManner('someone', 'else')) },
      { id: 'good', at: await openMember('http', httpManner()) },
    ],
    sources(),
  );
  expect(wayOf(await dial('target.example:443')).member).toBe('good');
  expect([pool.verdicts(), sourceFaults]).toEqual([['picky member-auth member'], []]);
});

test('auth: refused by all, it is the source, told once, and no further member pays for it', async () => {
  const at = await openMember('http', askingManner('someone', 'else'));
  const members = ['m1', 'm2', 'm3', 'm4'].map((id) => ({ id, at }));
  const { dial, pool, sourceFaults } = makeDialer(members, {
    ...sources({ auth: 'instance' }),
    waitForMemberMs: 0,
  });
  await dial('target.example:443');
  await dial('target.example:443');
  expect(new Set(pool.verdicts().map((verdict) => verdict.split(' ').at(-1)))).toEqual(new Set(['source']));
  expect(sourceFaults).toMatchObject([{ source: 'city', active: true }]);
});

test('auth: a source that is accepted again is told, too', async () => {
  const at = await openMember('http', askingManner('someone', 'else'));
  const members = ['m1', 'm2'].map((id) => ({ id, at }));
  const { dial, pool, sourceFaults } = makeDialer(members, { ...sources(), waitForMemberMs: 0 });
  await dial('target.example:443');
  pool.members = [{ id: 'm3', at: await openMember('http', httpManner()) }];
  wayOf(await dial('target.example:443'));
  expect(sourceFaults.map(({ active }) => active)).toEqual([true, false]);
});

test('auth: a reload that changes the password forgets what was learned, one that changes nothing does not', async () => {
  const at = await openMember('http', askingManner('202611210001', '12345678'));
  const { dial, dialer } = makeDialer([{ id: 'm1', at }], sources());
  wayOf(await dial('target.example:443'));
  const settings = {
    attempts: 3,
    attemptTimeoutMs: 2_000,
    hedgeAfter: 'off',
    deadlineMs: 5_000,
    waitForMemberMs: 0,
  } as const;
  dialer.configure({ ...settings, ...sources({ password: new Secret('12345678') }) });
  wayOf(await dial('target.example:443'));
  dialer.configure({ ...settings, ...sources({ password: new Secret('changed!') }) });
  failureOf(await dial('target.example:443'));
  const changed = `Basic ${btoa('202611210001:changed!')}`;
  expect(authorizations(at.heard)).toEqual(['none', BASIC, BASIC, 'none', changed]);
});
