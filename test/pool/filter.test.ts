import { expect, test } from 'vitest';
import type { PoolSourceOptions } from '../../src/pool/options.ts';
import { CITY } from '../support/pool-settings.ts';
import { acquire, addMembers, drawn, openKit, type PoolKit, refusal, request, use } from './pool-kit.ts';

const BACKUP: PoolSourceOptions = { ...CITY, name: 'backup', priority: 2 };
const LOCATIONS = ['广东 深圳 电信', '广东 广州 联通', '江苏 南京 电信', 'Shanghai Telecom'];

function addLocations(kit: PoolKit): void {
  for (const [number, location] of LOCATIONS.entries()) {
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { location })]);
  }
}

function usedLocations(kit: PoolKit, location: string): Set<string | null | undefined> {
  const members = new Map(kit.pool.members().map(({ id, location }) => [id, location]));
  return new Set(Array.from({ length: 8 }, () => members.get(use(kit, { location }).member)));
}

test('filter: a location keyword matches any part of a member’s location, case-insensitive', () => {
  const kit = openKit();
  addLocations(kit);
  expect(usedLocations(kit, '广东')).toEqual(new Set(LOCATIONS.slice(0, 2)));
  expect(usedLocations(kit, '电信')).toEqual(new Set([LOCATIONS[0], LOCATIONS[2]]));
  expect(usedLocations(kit, 'shanghai')).toEqual(new Set([LOCATIONS[3]]));
  expect(usedLocations(kit, 'TELE')).toEqual(new Set([LOCATIONS[3]]));
  expect(usedLocations(kit, '')).toEqual(new Set(LOCATIONS));
});

test('filter: members that join later are found', () => {
  const kit = openKit();
  addLocations(kit);
  use(kit, { location: '江苏' });
  kit.pool.addMembers('city', [drawn(kit, 9, 180_000, { location: '江苏 苏州' })]);
  expect(usedLocations(kit, '江苏').size).toBe(2);
});

test('filter: a country code that no location contains is refused at once, with advice', () => {
  const kit = openKit();
  addLocations(kit);
  const refused = refusal(kit, { location: 'US' }, { waitMs: 15_000 });
  expect(refused.code).toBe('bad-routing');
  expect(refused.reason).toContain('country code');
  expect(refused.reason).not.toContain('US');
  expect(use(kit, { location: 'sha' }).source).toBe('city');
});

test('filter: a client waits for a country code that a source could have', () => {
  const kit = openKit({ sources: [{ ...CITY, locationParams: { adr: 'jp' } }, BACKUP] });
  expect(kit.pool.acquire(request({ location: 'jp' }, { waitMs: 1_000 }))).toBeInstanceOf(Promise);
  expect(refusal(kit, { location: 'jp', source: 'backup' }).code).toBe('bad-routing');
  expect(refusal(kit, { location: 'us' }).code).toBe('bad-routing');
  expect(refusal(kit, { location: '日本' }).code, 'not a code').toBe('pool-empty');
});

test('filter: a source that is not configured is refused at once', () => {
  const kit = openKit();
  addMembers(kit, 1);
  expect(refusal(kit, { source: 'nowhere' }, { waitMs: 15_000 }).code).toBe('bad-routing');
});

test('filter: source, protocol and minimum life apply together', () => {
  const kit = openKit({ sources: [CITY, { ...BACKUP, priority: 1 }] });
  for (const source of ['city', 'backup']) {
    for (const [number, protocol] of (['http', 'socks5'] as const).entries()) {
      kit.pool.addMembers(source, [
        drawn(kit, number, 60_000, { protocol }),
        drawn(kit, number + 2, 600_000, { protocol }),
      ]);
    }
  }
  for (let round = 0; round < 5; round += 1) {
    const lease = use(kit, { source: 'backup', protocol: 'socks5', minLifeMs: 100_000 });
    expect(lease).toMatchObject({ source: 'backup', protocol: 'socks5', remainingMs: 600_000 });
  }
});

test('filter: members are still found after thousands of different filters', () => {
  const kit = openKit();
  addLocations(kit);
  for (let number = 0; number < 3_000; number += 1) refusal(kit, { location: `nowhere ${number}` });
  expect(usedLocations(kit, '广东').size).toBe(2);
  expect(acquire(kit).source).toBe('city');
});

test('priority: a later source is used only while no earlier one can serve', () => {
  const kit = openKit({ sources: [BACKUP, CITY] });
  kit.pool.addMembers('backup', [drawn(kit, 1), drawn(kit, 2)]);
  expect(use(kit).source).toBe('backup');
  kit.pool.addMembers('city', [drawn(kit, 3, 60_000)]);
  for (let round = 0; round < 4; round += 1) expect(use(kit).source).toBe('city');
  expect(use(kit, { source: 'backup' }).source).toBe('backup');
  kit.clock.advance(55_000);
  expect(use(kit).source, 'expiring, but of the first priority').toBe('city');
  kit.clock.advance(2_000);
  expect(use(kit).source).toBe('backup');
});

test('priority: members of a later source come before quarantined members of an earlier one', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  addMembers(kit, 1);
  const only = acquire(kit);
  kit.pool.report({ lease: only.id, kind: 'failed', blame: 'member', fault: 'member-silent' });
  kit.pool.addMembers('backup', [drawn(kit, 9)]);
  expect(use(kit).source).toBe('backup');
  expect(acquire(kit, { source: 'city' }).member).toBe(only.member);
});

test('priority: sources of one priority take turns', () => {
  const kit = openKit({ sources: [CITY, { ...BACKUP, priority: 1 }] });
  addMembers(kit, 2);
  kit.pool.addMembers('backup', [drawn(kit, 8), drawn(kit, 9)]);
  const sources = Array.from({ length: 4 }, () => use(kit).source).sort();
  expect(sources).toEqual(['backup', 'backup', 'city', 'city']);
});
