/** What a session promises beyond one member: `fixed` never moves, `exclusive` shares its exit with nobody, `life` counts once. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isLease } from '../../src/pool/lease.ts';
import { runsOf } from '../support/properties.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  openKit,
  refusal,
  request,
  use,
} from './pool-kit.ts';

const FIXED = { session: 'f', fixed: true };
const ALONE = { session: 'x', exclusive: true };

test('fixed: keeps its member while it lives, and is refused when it has ended', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, FIXED);
  for (let round = 0; round < 5; round += 1) expect(use(kit, FIXED).member).toBe(own.member);
  kit.pool.evict(own.member);
  expect(refusal(kit, FIXED)).toMatchObject({
    code: 'session-ended',
    reason: expect.stringMatching(/ended/),
  });
  expect(refusal(kit, FIXED).code).toBe('session-ended');
  expect(use(kit, { session: 'g', fixed: true }).member).not.toBe(own.member);
  expect(kit.events('session.moved')).toEqual([]);
});

test('fixed: neither a failed attempt nor a hedge nor a rotation moves it', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const { member } = use(kit, FIXED);
  expect(acquire(kit, FIXED, { avoid: [member] }).member).toBe(member);
  expect(refusal(kit, FIXED, { avoid: [member], hedge: true }).code).toBe('pool-empty');
  expect(kit.pool.rotateSession('f')).toBeUndefined();
  expect(kit.events('session.moved')).toEqual([]);
});

test('fixed: waits for a quarantined member', async () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = acquire(kit, FIXED);
  fail(kit, own);
  expect(kit.events('member.quarantined').length + kit.events('member.left').length).toBeGreaterThan(0);
  const waiting = kit.pool.acquire(request(FIXED, { waitMs: 60_000 }));
  expect(waiting).toBeInstanceOf(Promise);
  kit.clock.advance(30_000);
  const answer = await waiting;
  expect(isLease(answer) && answer.member).toBe(own.member);
  expect(kit.events('session.moved')).toEqual([]);
});

test('fixed: has ended for a host that has banned it, and serves other hosts', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const { member } = use(kit, FIXED);
  kit.pool.ban({ holder: { member }, host: 'shop.example', verdict: 'banned' });
  expect(refusal(kit, FIXED, { targetHost: 'shop.example' })).toMatchObject({ code: 'session-ended' });
  expect(use(kit, FIXED, { targetHost: 'other.example' }).member).toBe(member);
});

test('exclusive: nobody else gets its exit while it lives', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, ALONE);
  const others = Array.from({ length: 12 }, (_, index) =>
    use(kit, index % 2 === 0 ? {} : { session: `s${index}` }),
  );
  expect(others.map(({ member }) => member)).not.toContain(own.member);
  kit.pool.parts.sessions.forget('x');
  expect(Array.from({ length: 3 }, () => use(kit).member)).toContain(own.member);
});

test('exclusive: gets no exit that a session or an open tunnel uses, also of another member', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [
    drawn(kit, 1, 180_000, { exitIp: '198.51.100.1' }),
    drawn(kit, 2, 180_000, { exitIp: '198.51.100.1' }),
    drawn(kit, 3, 180_000, { exitIp: '198.51.100.2' }),
  ]);
  const tunnel = acquire(kit, { source: 'city' });
  accept(kit, tunnel);
  const session = use(kit, { session: 's' });
  const taken = new Set([tunnel.exitIp, session.exitIp]);
  const answer = kit.pool.acquire(request(ALONE));
  if (answer instanceof Promise) throw new Error('the request waits');
  if (isLease(answer)) expect(taken).not.toContain(answer.exitIp);
  else expect(taken.size).toBe(2);
});

test('life: a session that must move takes a member of the longer-lived half, too', () => {
  const kit = openKit();
  for (const [number, lifeMs] of [180_000, 60_000, 61_000, 165_000, 170_000, 160_000].entries())
    kit.pool.addMembers('city', [drawn(kit, number, lifeMs)]);
  for (let turn = 0; turn < 2; turn += 1) {
    const own = use(kit, { session: 'moved' });
    expect(own.remainingMs, `turn ${turn}`).toBeGreaterThan(100_000);
    kit.pool.evict(own.member);
  }
});

test('life: a session prefers a member that it need not leave within its life', () => {
  const kit = openKit();
  for (const [number, lifeMs] of [60_000, 60_000, 60_000, 70_000].entries())
    kit.pool.addMembers('city', [drawn(kit, number, lifeMs)]);
  const moves = { session: 'a', minLifeMs: 55_000 }; // it leaves a member ten seconds before the end
  expect(use(kit, moves).remainingMs).toBe(70_000);
  expect(use(kit, { session: 'b', minLifeMs: 61_000 }).remainingMs).toBe(70_000);
});

test('life: a new session takes a member of the longer-lived half, and keeps it however little remains', () => {
  const kit = openKit();
  for (let number = 0; number < 8; number += 1) {
    kit.pool.addMembers('city', [drawn(kit, number, number % 2 === 0 ? 60_000 : 600_000)]);
  }
  const remaining = ['a', 'b', 'c', 'd'].map((session) => use(kit, { session }).remainingMs ?? 0);
  for (const ms of remaining) expect(ms).toBeGreaterThan(100_000);
  const own = use(kit, { session: 'e', minLifeMs: 300_000 });
  kit.clock.advance(400_000);
  kit.pool.addMembers('city', [drawn(kit, 20, 900_000)]);
  expect(use(kit, { session: 'e', minLifeMs: 300_000 }).member).toBe(own.member);
});

const few = fc.nat({ max: 5 });
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('use' as const), who: few, holds: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('end' as const), which: few }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('draw' as const), number: fc.nat({ max: 9 }) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('evict' as const), which: few }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('fail' as const), who: few }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('forget' as const), who: few }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('rotate' as const), who: few }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(500, 20_000, 90_000) }),
  },
);
const CLIENTS = [
  {},
  { session: 's1' },
  { session: 's2', minLifeMs: 20_000 },
  { session: 'f', fixed: true },
  { session: 'x', exclusive: true },
  { session: 'xf', exclusive: true, fixed: true },
];

test('sessions: in random histories, no exclusive exit is shared and no fixed session moves', {
  timeout: 120_000,
}, () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const kit = openKit();
      const open: { lease: ReturnType<typeof acquire>; who: number }[] = [];
      const fixed = new Map<string, string>();
      const holders = () => new Map(kit.pool.sessions().map(({ id, member }) => [id, member]));
      for (const each of steps) {
        switch (each.do) {
          case 'use': {
            const routing = CLIENTS[each.who] ?? {};
            const answer = kit.pool.acquire(request(routing));
            if (answer instanceof Promise || !isLease(answer)) break;
            accept(kit, answer);
            if (each.holds) open.push({ lease: answer, who: each.who });
            else close(kit, answer);
            break;
          }
          case 'end': {
            const ended = open.splice(each.which % Math.max(1, open.length), 1)[0];
            if (ended !== undefined) close(kit, ended.lease);
            break;
          }
          case 'draw':
            kit.pool.addMembers('city', [
              drawn(kit, each.number, 60_000, { exitIp: `198.51.100.${each.number % 6}` }),
            ]);
            break;
          case 'evict': {
            const member = kit.pool.members()[each.which];
            if (member !== undefined) kit.pool.evict(member.id);
            break;
          }
          case 'fail': {
            const answer = kit.pool.acquire(request(CLIENTS[each.who] ?? {}));
            if (!(answer instanceof Promise) && isLease(answer)) fail(kit, answer, 'member');
            break;
          }
          case 'forget': {
            const name = CLIENTS[each.who]?.session;
            if (name !== undefined && kit.pool.parts.sessions.forget(name)) fixed.delete(name);
            break;
          }
          case 'rotate':
            kit.pool.rotateSession(CLIENTS[each.who]?.session ?? '');
            break;
          case 'pass':
            kit.clock.advance(each.ms);
        }
        const exitOf = new Map(kit.pool.members().map(({ id, exitIp }) => [id, exitIp]));
        const now = holders();
        for (const name of ['f', 'xf']) {
          const member = now.get(name);
          if (!now.has(name)) fixed.delete(name);
          else if (member !== undefined && member !== null) {
            expect(fixed.get(name) ?? member, `${name} moved`).toBe(member);
            fixed.set(name, member);
          }
        }
        for (const name of ['x', 'xf']) {
          const exit = exitOf.get(now.get(name) ?? '');
          if (exit === undefined) continue;
          const sharing = [...now].filter(([id, member]) => id !== name && exitOf.get(member ?? '') === exit);
          expect(sharing, `sessions on the exit of ${name}`).toEqual([]);
          const tunnels = open.filter(
            ({ lease, who }) =>
              lease.exitIp === exit && CLIENTS[who]?.session !== name && exitOf.has(lease.member),
          );
          expect(
            tunnels.map(({ who }) => who),
            `tunnels on the exit of ${name}`,
          ).toEqual([]);
        }
      }
      for (const { lease } of open) close(kit, lease);
      kit.pool.close();
    }),
    { numRuns: runsOf(10_000) },
  );
});
