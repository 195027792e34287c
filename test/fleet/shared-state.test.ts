/** What a list of facts makes of the shared state, without a shared pool. */
import { expect, test } from 'vitest';
import type { Fact } from '../../src/fleet/schemas.ts';
import { SharedPoolState } from '../../src/fleet/shared-state.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { EMPTY_STATE, sharedMember, siteBan } from './shared-pool-contract.ts';

const LIFE_MS = 60_000;

function openState() {
  const clock = new ManualClock();
  const state = new SharedPoolState();
  const apply = (fact: Fact, by = 'a') => state.apply({ by, fact }, clock.monotonic());
  const join = (id: string, changes: Partial<ReturnType<typeof sharedMember>> = {}, by = 'a') =>
    apply({ kind: 'member.joined', member: { ...sharedMember({ clock }, id, LIFE_MS), ...changes } }, by);
  const leave = (id: string, reason: 'failed' | 'evicted', by: string) =>
    apply({ kind: 'member.left', source: 'city', member: id, reason }, by);
  const read = () => state.read(clock.monotonic());
  return { clock, state, apply, join, leave, read, first: () => read().members[0] };
}

const about = { source: 'city', member: 'm1' };
const quarantine = { untilAt: 5_000, fault: 'member-closed', health: { inRow: 1, rests: 1 } } as const;
const session = (name: string, usedAt = 0) => ({
  ...{ name, owner: { user: '', address: '' }, member: 'm1', ttlMs: 1_000, usedAt, uses: 1 },
});

test('shared state: a quarantine ends with the next success, which also proves the member', () => {
  const { join, apply, first } = openState();
  join('m1', { unproven: true });
  apply({ kind: 'member.quarantined', ...about, quarantine });
  expect(first()).toMatchObject({ quarantine, member: { unproven: true } });
  apply({ kind: 'member.restored', ...about });
  expect(first()?.quarantine).toBeUndefined();
  expect(first()?.member.unproven).toBe(false);
});

test('shared state: nothing is known of a member that never joined, and a removed one does not change', () => {
  const { join, apply, leave, read, first, state } = openState();
  for (const kind of ['member.restored', 'member.suspected'] as const) apply({ kind, ...about });
  apply({ kind: 'member.quarantined', ...about, quarantine });
  leave('m1', 'failed', 'a');
  expect(state.addUse({ member: 'm1', uses: 1, openLeases: 0 })).toBeUndefined();
  expect(state.setUses('m1', 1, 0)).toBeUndefined();
  expect(read()).toEqual(EMPTY_STATE);
  join('m1');
  leave('m1', 'evicted', 'a');
  leave('m1', 'failed', 'b');
  apply({ kind: 'member.quarantined', ...about, quarantine });
  expect(first()).toMatchObject({ left: { reason: 'evicted' }, votes: [] });
  expect(first()?.quarantine).toBeUndefined();
});

test('shared state: each replica has one vote to remove a member, and the drawer stays the first', () => {
  const { join, leave, first, state } = openState();
  join('m1', {}, 'drawer');
  join('m1', { exitIp: '203.0.113.9' }, 'other');
  for (const by of ['a', 'b', 'a']) leave('m1', 'failed', by);
  expect(first()).toMatchObject({ votes: ['a', 'b'], drawnBy: 'drawer', member: { exitIp: '203.0.113.9' } });
  join('m1', {}, 'other');
  expect(first()?.member, 'a draw without these data').toMatchObject({
    ...{ exitIp: '203.0.113.9', facts: { carrier: 'one' } },
  });
  join('m2', { drawnBy: 'named' });
  expect([state.drawnBy('m1'), state.drawnBy('m2'), state.drawnBy('m3')]).toEqual([
    'drawer',
    'named',
    undefined,
  ]);
});

test('shared state: uses add up, and only an assumed end of life moves with them, and only later', () => {
  const { join, state, first } = openState();
  join('m1', { endIsAssumed: true });
  expect(state.addUse({ member: 'm1', uses: 2, openLeases: 0, endsAt: 70_000 })).toBe(2);
  expect(state.addUse({ member: 'm1', uses: 1, openLeases: 0 })).toBe(3);
  expect(first()).toMatchObject({ uses: 3, member: { endsAt: 70_000, endIsAssumed: true } });
  expect(state.setUses('m1', 2, 10)?.uses, 'an older count').toBe(3);
  expect(state.setUses('m1', 7, 80_000)).toMatchObject({ uses: 7, member: { endsAt: 80_000 } });
  join('m1', { endIsAssumed: false, endsAt: 40_000 });
  state.setUses('m1', 7, 90_000);
  expect(first()?.member, 'told by the service').toMatchObject({ endsAt: 40_000, endIsAssumed: false });
});

test('shared state: of two bans of an exit the one with the later beginning counts', () => {
  const { apply, read, clock } = openState();
  const ban = (sinceAt: number, untilAt: number) =>
    apply(siteBan({ clock }, 'shop.test', { sinceAt, untilAt }));
  ban(10_000, 50_000);
  ban(8_999, 90_000);
  expect(read().bans).toMatchObject([{ untilAt: 50_000 }]);
  ban(9_000, 80_000);
  expect(read().bans, 'the same moment by another clock').toMatchObject([{ untilAt: 80_000 }]);
  apply(siteBan({ clock }, 'other.test', { untilAt: 1_000 }));
  expect(read().bans).toHaveLength(2);
  clock.advance(1_000);
  expect(read().bans, 'one has ended').toHaveLength(1);
});

test('shared state: a session lives for its TTL after the last use of any replica', () => {
  const { apply, state, read, clock } = openState();
  for (const name of ['s1', 's2']) apply({ kind: 'session.moved', session: session(name), reason: 'new' });
  state.recordSessionUse({ session: 's1', uses: 2, openLeases: 0, usedAt: 500, ttlMs: 2_000 });
  state.recordSessionUse({ session: 's1', uses: 1, openLeases: 0, usedAt: 400, ttlMs: 2_000 });
  state.recordSessionUse({ session: 's9', uses: 1, openLeases: 0, usedAt: 400, ttlMs: 2_000 });
  expect(state.session('s1', 2_499)).toMatchObject({ uses: 4, usedAt: 500 });
  expect([state.session('s1', 2_500), state.session('s9', 0)]).toEqual([undefined, undefined]);
  clock.advance(1_000);
  expect(read().sessions.map(({ name }) => name)).toEqual(['s1']);
  apply({ kind: 'session.ended', name: 's1' });
  expect(read().sessions).toEqual([]);
});

test('shared state: it has the last lasting command, report and restriction of each source', () => {
  const { apply, read } = openState();
  for (const command of ['resume', 'pause', 'refill'] as const)
    apply({ kind: 'source.commanded', source: 'city', command });
  apply({ kind: 'source.commanded', source: 'town', command: 'resume' });
  apply({ kind: 'source.commanded', source: 'new', command: 'refill' });
  for (const remaining of [9, 8]) apply({ kind: 'source.reported', source: 'city', quota: { remaining } });
  for (const leaseLimit of [5, 6]) apply({ kind: 'source.restricted', source: 'city', leaseLimit });
  apply({ kind: 'evictions.frozen', on: true });
  expect(read()).toEqual({
    ...EMPTY_STATE,
    paused: ['city'],
    resumed: ['town'],
    reports: [{ kind: 'source.reported', source: 'city', quota: { remaining: 8 } }],
    restrictions: [
      { kind: 'source.restricted', source: 'city', leaseLimit: 6 },
      { kind: 'evictions.frozen', on: true },
    ],
  });
});

test('shared state: what another replica loads is the same, without what only one machine knows', () => {
  const { apply, join, read, clock } = openState();
  join('m1');
  apply(siteBan({ clock }, 'shop.test'));
  apply({ kind: 'session.moved', session: session('s1'), reason: 'new' });
  for (const command of ['pause', 'resume'] as const)
    apply({ kind: 'source.commanded', source: command, command });
  apply({ kind: 'source.reported', source: 'city', quota: {} });
  apply({ kind: 'evictions.frozen', on: true });
  const loaded = new SharedPoolState();
  loaded.load({});
  expect(loaded.read(0)).toEqual(EMPTY_STATE);
  loaded.load(read());
  expect(loaded.read(0)).toEqual({ ...read(), restrictions: [] });
  expect(loaded.size).toBe(3);
});

test('shared state: what has ended is dropped after a thousand additions', () => {
  const { apply, join, state, clock } = openState();
  for (let number = 0; number < 300; number += 1) {
    join(`m${number}`);
    apply(siteBan({ clock }, `${number}.test`));
    apply({ kind: 'session.moved', session: session(`s${number}`), reason: 'new' });
  }
  join('m1');
  apply(siteBan({ clock }, '1.test'));
  apply({ kind: 'session.moved', session: session('s1'), reason: 'new' });
  expect(state.size, 'repetitions are no additions').toBe(900);
  clock.advance(LIFE_MS);
  for (let number = 0; number < 99; number += 1) join(`n${number}`, { endsAt: 2 * LIFE_MS });
  expect(state.size).toBe(999);
  join('last', { endsAt: 2 * LIFE_MS });
  expect(state.size).toBe(100);
});
