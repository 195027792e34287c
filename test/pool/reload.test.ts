import { expect, test } from 'vitest';
import type { PoolSourceOptions } from '../../src/pool/options.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
import { acquire, addMembers, drawn, openKit, refusal, request, use } from './pool-kit.ts';

const BACKUP: PoolSourceOptions = { ...CITY, name: 'backup', priority: 2 };

test('reload: remaining sources keep their members, and sessions and waiting clients stay', async () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  addMembers(kit, 2);
  kit.pool.addMembers('backup', [drawn(kit, 9)]);
  const own = use(kit, { session: 'abc' });
  const town = { ...CITY, name: 'town' };
  const client = kit.pool.acquire(request({ protocol: 'socks5' }, { waitMs: 15_000 }));
  kit.pool.reconfigure(poolSettings({ sources: [{ ...CITY, priority: 3 }, town] }));
  expect(kit.pool.members().map(({ source }) => source)).toEqual(['city', 'city']);
  expect(kit.events('member.left')).toMatchObject([{ source: 'backup', reason: 'removed' }]);
  expect(use(kit, { session: 'abc' }).member).toBe(own.member);
  kit.pool.addMembers('town', [drawn(kit, 20, 180_000, { protocol: 'socks5' })]);
  await expect(client).resolves.toMatchObject({ source: 'town' });
  expect(use(kit).source).toBe('town');
  expect(kit.pool.addMembers('backup', [drawn(kit, 9)])).toEqual({ joined: 0, renewed: 0, rejected: 1 });
});

test('reload: the demand before it is kept', () => {
  const kit = openKit({ clock: new ManualClock() });
  addMembers(kit, 1);
  kit.clock.advance(7_000);
  use(kit);
  kit.clock.advance(1_000);
  kit.pool.reconfigure(poolSettings());
  expect(kit.pool.demand('city').lastWantedAt).toBe(7_000);
});

test('reload: a client that waits for a removed source is refused', async () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  const client = kit.pool.acquire(request({ source: 'backup' }, { waitMs: 15_000 }));
  kit.pool.reconfigure(poolSettings({ sources: [CITY] }));
  await expect(client).resolves.toMatchObject({ code: 'bad-routing' });
});

test('reload: a new strategy, limits and margins apply to existing members', () => {
  const kit = openKit();
  addMembers(kit, 3, 60_000);
  kit.pool.addMembers('city', [drawn(kit, 9, 90_000)]);
  kit.pool.reconfigure(poolSettings({ rotation: { strategy: 'longest-lived', maxTunnelsPerMember: 1 } }));
  expect(acquire(kit).remainingMs).toBe(90_000);
  expect(acquire(kit).remainingMs).toBe(60_000);
  kit.pool.reconfigure(poolSettings({ safetyMarginMs: 60_000 }));
  expect(kit.pool.members().map(({ remainingSeconds }) => remainingSeconds)).toContain(90);
  expect(kit.events('member.left').length + kit.events('member.drained').length).toBe(3);
});

test('reload: a removed source that is configured again can get the same members', () => {
  const kit = openKit();
  addMembers(kit, 2);
  kit.pool.reconfigure(poolSettings({ sources: [BACKUP] }));
  kit.pool.reconfigure(poolSettings({ sources: [CITY] }));
  expect(refusal(kit).code).toBe('pool-empty');
  expect(kit.pool.addMembers('city', [drawn(kit, 0)]).joined).toBe(1);
});

test('reload: a client for which no remaining source may have a member is refused at once', async () => {
  const halted = { name: 'backup', state: 'halted', reason: 'key', suspendedMs: Number.POSITIVE_INFINITY };
  const kit = openKit({ sources: [CITY, BACKUP], forecasts: () => [halted] });
  const client = kit.pool.acquire(request({}, { waitMs: 15_000 }));
  kit.pool.waitingElsewhere = 2;
  expect(kit.pool.waitingCount).toBe(3);
  kit.pool.reconfigure(poolSettings({ sources: [BACKUP] }));
  await expect(client).resolves.toMatchObject({ code: 'pool-empty', sources: [{ name: 'backup' }] });
  expect(kit.pool.waitingCount).toBe(2);
});
