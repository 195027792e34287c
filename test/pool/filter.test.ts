import { expect, test } from 'vitest';
import type { PoolSourceOptions } from '../../src/pool/options.ts';
import {
  CITY,
  lend,
  offer,
  openKit,
  type PoolKit,
  poolSettings,
  pourMembers,
  refusal,
  request,
  use,
} from './pool-kit.ts';

const BACKUP: PoolSourceOptions = { ...CITY, name: 'backup', priority: 2 };
const PLACES = ['广东 深圳 电信', '广东 广州 联通', '江苏 南京 电信', 'Shanghai Telecom'];

function pourPlaces(kit: PoolKit): void {
  for (const [number, location] of PLACES.entries()) {
    kit.pool.addMembers('city', [offer(kit, number, 180_000, { location })]);
  }
}

function placesOf(kit: PoolKit, location: string): Set<string | null | undefined> {
  const members = new Map(kit.pool.members().map(({ id, location: place }) => [id, place]));
  return new Set(Array.from({ length: 8 }, () => members.get(use(kit, { location }).member)));
}

test('wishes: a location is any part of a member’s, letter case aside', () => {
  const kit = openKit();
  pourPlaces(kit);
  expect(placesOf(kit, '广东')).toEqual(new Set(PLACES.slice(0, 2)));
  expect(placesOf(kit, '电信')).toEqual(new Set([PLACES[0], PLACES[2]]));
  expect(placesOf(kit, 'shanghai')).toEqual(new Set([PLACES[3]]));
  expect(placesOf(kit, 'TELE')).toEqual(new Set([PLACES[3]]));
  expect(placesOf(kit, '')).toEqual(new Set(PLACES));
});

test('wishes: members that join later are found by a wish made before', () => {
  const kit = openKit();
  pourPlaces(kit);
  use(kit, { location: '江苏' });
  kit.pool.addMembers('city', [offer(kit, 9, 180_000, { location: '江苏 苏州' })]);
  expect(placesOf(kit, '江苏').size).toBe(2);
});

test('wishes: what looks like a country code and is in no location is refused at once, with advice', () => {
  const kit = openKit();
  pourPlaces(kit);
  const refused = refusal(kit, { location: 'US' }, { waitMs: 15_000 });
  expect(refused.refused).toBe('bad-routing');
  expect(refused.reason).toContain('country code');
  expect(refused.reason).not.toContain('US');
  expect(use(kit, { location: 'sha' }).source).toBe('city');
});

test('wishes: a code that a source could have is waited for', () => {
  const could = (keyword: string) => keyword === 'jp';
  const kit = openKit({ sources: [{ ...CITY, couldHaveLocation: could }, BACKUP] });
  expect(kit.pool.acquire(request({ location: 'jp' }, { waitMs: 1_000 }))).toBeInstanceOf(Promise);
  expect(refusal(kit, { location: 'jp', source: 'backup' }).refused).toBe('bad-routing');
  expect(refusal(kit, { location: 'us' }).refused).toBe('bad-routing');
  expect(refusal(kit, { location: '日本' }).refused, 'a word may come').toBe('pool-empty');
});

test('wishes: a source that is not configured is refused at once', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  expect(refusal(kit, { source: 'nowhere' }, { waitMs: 15_000 }).refused).toBe('bad-routing');
});

test('wishes: a protocol, a source and a life are met together', () => {
  const kit = openKit({ sources: [CITY, { ...BACKUP, priority: 1 }] });
  for (const source of ['city', 'backup']) {
    for (const [number, protocol] of (['http', 'socks5'] as const).entries()) {
      kit.pool.addMembers(source, [
        offer(kit, number, 60_000, { protocol }),
        offer(kit, number + 2, 600_000, { protocol }),
      ]);
    }
  }
  for (let round = 0; round < 5; round += 1) {
    const lease = use(kit, { source: 'backup', protocol: 'socks5', minLifeMs: 100_000 });
    expect(lease).toMatchObject({ source: 'backup', protocol: 'socks5', remainingMs: 600_000 });
  }
});

test('wishes: thousands of different ones leave no more than a bounded number of lanes, and still find members', () => {
  const kit = openKit();
  pourPlaces(kit);
  for (let number = 0; number < 3_000; number += 1) refusal(kit, { location: `nowhere ${number}` });
  expect(placesOf(kit, '广东').size).toBe(2);
  expect(lend(kit).source).toBe('city');
});

test('priority: a later source is used only while no earlier one can serve', () => {
  const kit = openKit({ sources: [BACKUP, CITY] });
  kit.pool.addMembers('backup', [offer(kit, 1), offer(kit, 2)]);
  expect(use(kit).source).toBe('backup');
  kit.pool.addMembers('city', [offer(kit, 3, 60_000)]);
  for (let round = 0; round < 4; round += 1) expect(use(kit).source).toBe('city');
  expect(use(kit, { source: 'backup' }).source).toBe('backup');
  kit.clock.advance(55_000);
  expect(use(kit).source, 'about to end, but there').toBe('city');
  kit.clock.advance(2_000);
  expect(use(kit).source).toBe('backup');
});

test('priority: members of a later source come before those of an earlier one that rest', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  pourMembers(kit, 1);
  const only = lend(kit);
  kit.pool.report({ lease: only.id, kind: 'failed', blame: 'member', fault: 'member-silent' });
  kit.pool.addMembers('backup', [offer(kit, 9)]);
  expect(use(kit).source).toBe('backup');
  expect(lend(kit, { source: 'city' }).member).toBe(only.member);
});

test('priority: sources of one priority take turns', () => {
  const kit = openKit({ sources: [CITY, { ...BACKUP, priority: 1 }] });
  pourMembers(kit, 2);
  kit.pool.addMembers('backup', [offer(kit, 8), offer(kit, 9)]);
  const sources = Array.from({ length: 4 }, () => use(kit).source).sort();
  expect(sources).toEqual(['backup', 'backup', 'city', 'city']);
});

test('reload: sources that stay keep their members, sessions and waiting clients, those that go lose them', async () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  pourMembers(kit, 2);
  kit.pool.addMembers('backup', [offer(kit, 9)]);
  const own = use(kit, { session: 'abc' });
  const town = { ...CITY, name: 'town' };
  const asked = kit.pool.acquire(request({ protocol: 'socks5' }, { waitMs: 15_000 }));
  kit.pool.reconfigure(poolSettings({ sources: [{ ...CITY, priority: 3 }, town] }));
  expect(kit.pool.members().map(({ source }) => source)).toEqual(['city', 'city']);
  expect(kit.events('member.left')).toMatchObject([{ source: 'backup', reason: 'removed' }]);
  expect(use(kit, { session: 'abc' }).member).toBe(own.member);
  kit.pool.addMembers('town', [offer(kit, 20, 180_000, { protocol: 'socks5' })]);
  await expect(asked).resolves.toMatchObject({ source: 'town' });
  expect(use(kit).source).toBe('town');
  expect(kit.pool.addMembers('backup', [offer(kit, 9)])).toEqual({ joined: 0, renewed: 0, rejected: 1 });
});

test('reload: that clients came before it is not forgotten', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  kit.clock.advance(7_000);
  use(kit);
  kit.clock.advance(1_000);
  kit.pool.reconfigure(poolSettings());
  expect(kit.pool.demand('city').lastWantedAt).toBe(7_000);
});

test('reload: a client that waits for a source that goes is told so', async () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  const asked = kit.pool.acquire(request({ source: 'backup' }, { waitMs: 15_000 }));
  kit.pool.reconfigure(poolSettings({ sources: [CITY] }));
  await expect(asked).resolves.toMatchObject({ refused: 'bad-routing' });
});

test('reload: another strategy, limits and margins take hold of the members that are there', () => {
  const kit = openKit();
  pourMembers(kit, 3, 60_000);
  kit.pool.addMembers('city', [offer(kit, 9, 90_000)]);
  kit.pool.reconfigure(poolSettings({ rotation: { strategy: 'longest-lived', maxTunnelsPerMember: 1 } }));
  expect(lend(kit).remainingMs).toBe(90_000);
  expect(lend(kit).remainingMs).toBe(60_000);
  kit.pool.reconfigure(poolSettings({ safetyMarginMs: 60_000 }));
  expect(kit.pool.members().map(({ remainingSeconds }) => remainingSeconds)).toContain(90);
  expect(kit.events('member.left').length + kit.events('member.drained').length).toBe(3);
});

test('reload: a removed source that is configured again can get the same members', () => {
  const kit = openKit();
  pourMembers(kit, 2);
  kit.pool.reconfigure(poolSettings({ sources: [BACKUP] }));
  kit.pool.reconfigure(poolSettings({ sources: [CITY] }));
  expect(refusal(kit).refused).toBe('pool-empty');
  expect(kit.pool.addMembers('city', [offer(kit, 0)]).joined).toBe(1);
});
