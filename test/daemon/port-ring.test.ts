/** The ports of proxyPool as sessions of a pool, on a manual clock. */
import { expect, onTestFinished, test } from 'vitest';
import { POP_MS, PortRing } from '../../src/admin/proxy-pool.ts';
import { portsOf } from '../../src/daemon/apis.ts';
import { STRATEGIES } from '../../src/pool/options.ts';
import { accept, acquire, addMembers, drawn, openKit, type PoolKit, stateOf, use } from '../pool/pool-kit.ts';
import { CITY } from '../support/pool-settings.ts';

const PORTS = [24_000, 24_001, 24_002, 24_003];
const ANY = { https: false } as const;
const TOWN = { ...CITY, name: 'town', priority: 2 };

interface RingOptions {
  /** The only source of the listener that has the ports. */
  readonly source?: string;
  readonly free?: readonly string[];
  readonly ports?: readonly number[];
}

function openRing(kit: PoolKit, { source, free = [], ports = PORTS }: RingOptions = {}) {
  const ring = new PortRing(kit.clock, portsOf('', { source, withoutConnect: free }, kit.pool), ports);
  onTestFinished(() => ring.close());
  return ring;
}

/** The routing of a client that connects to the port. */
const at = (port: number) => ({ session: `port=${port}` });

test('proxyPool: each port has a member of its own, and the one handed out longest ago comes first', () => {
  const kit = openKit();
  addMembers(kit, 4);
  const ring = openRing(kit);
  const found = Array.from({ length: 8 }, () => ring.next(ANY));
  expect(found.map((one) => one?.port)).toEqual([...PORTS, ...PORTS]);
  expect(new Set(found.map((one) => one?.member.id)).size).toBe(4);
  for (const one of found) expect(use(kit, at(one?.port ?? 0)).member).toBe(one?.member.id);
});

test.each(STRATEGIES)('proxyPool: by %s, a hundred ports get a hundred members', (strategy) => {
  const kit = openKit({ rotation: { strategy } });
  addMembers(kit, 100);
  const ports = Array.from({ length: 100 }, (_, index) => 30_000 + index);
  const ring = openRing(kit, { ports });
  expect(new Set(ports.map(() => ring.next(ANY)?.member.id)).size).toBe(100);
  expect(ring.all(ANY)).toHaveLength(100);
});

test('proxyPool: ports use no member of a later priority while an earlier source can serve', () => {
  const kit = openKit({ sources: [CITY, TOWN] });
  addMembers(kit, 2);
  kit.pool.addMembers('town', [drawn(kit, 7), drawn(kit, 8)]);
  const ring = openRing(kit);
  expect(ring.all(ANY).map(({ member }) => member.source)).toEqual(['city', 'city']);
});

test('proxyPool: with fewer members than ports, only as many ports are handed out', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const ring = openRing(kit);
  expect(ring.all(ANY).map(({ port }) => port)).toEqual([24_000, 24_001]);
  expect([1, 2, 3].map(() => ring.next(ANY)?.port)).toEqual([24_000, 24_001, 24_000]);
  kit.pool.addMembers('city', [drawn(kit, 7)]);
  expect(ring.next(ANY)?.port).toBe(24_002);
  expect(kit.pool.parts.sessions.byName.size).toBe(3);
});

test('proxyPool: without a member nothing is handed out, and the request counts as demand', () => {
  const kit = openKit();
  const ring = openRing(kit);
  expect(ring.next(ANY)).toBeUndefined();
  expect(ring.all(ANY)).toEqual([]);
  expect(kit.events('demand.rose')).toEqual([{ sources: ['city'] }]);
  expect(kit.pool.demand('city').lastWantedAt).toBe(kit.clock.monotonic());
});

test('proxyPool: a port whose member has left gets another one, and the others keep theirs', () => {
  const kit = openKit();
  addMembers(kit, 5);
  const ring = openRing(kit);
  const before = ring.all(ANY);
  kit.pool.evict(before[1]?.member.id ?? '');
  const after = ring.all(ANY);
  expect(after.map(({ port }) => port)).toEqual(PORTS);
  expect(after.map(({ member }, index) => member.id === before[index]?.member.id)).toEqual([
    true,
    false,
    true,
    true,
  ]);
  expect(new Set(after.map(({ member }) => member.id)).size).toBe(4);
});

test('proxyPool: two ports that share a member get different ones when another member joins', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const ring = openRing(kit);
  const [first, second] = ring.all(ANY);
  kit.pool.evict(second?.member.id ?? '');
  expect(use(kit, at(24_001)).member).toBe(first?.member.id); // a client connects to this port, and the pool moves the port to the only member
  expect(ring.all(ANY).map(({ member }) => member.id)).toEqual([first?.member.id, first?.member.id]);
  kit.pool.addMembers('city', [drawn(kit, 7)]);
  expect(new Set(ring.all(ANY).map(({ member }) => member.id)).size).toBe(2);
});

test('proxyPool: a popped port moves to another member after 60 s, and is handed out last until then', () => {
  const kit = openKit();
  addMembers(kit, 5, 600_000);
  const ring = openRing(kit);
  const popped = ring.pop(ANY);
  expect(popped?.port).toBe(24_000);
  expect([1, 2, 3, 4].map(() => ring.next(ANY)?.port)).toEqual([24_001, 24_002, 24_003, 24_001]);
  kit.clock.advance(POP_MS - 1);
  expect(use(kit, at(24_000)).member).toBe(popped?.member.id);
  kit.clock.advance(1);
  expect(use(kit, at(24_000)).member).not.toBe(popped?.member.id);
  expect(ring.next(ANY)?.port).toBe(24_000);
});

test('proxyPool: a deleted port moves, and its member is quarantined', () => {
  const kit = openKit();
  addMembers(kit, 5);
  const ring = openRing(kit);
  const bad = ring.next(ANY);
  expect(ring.reject(24_000)).toBe(true);
  expect(kit.events('member.quarantined')).toMatchObject([
    { member: bad?.member.id, fault: 'member-rejected' },
  ]);
  expect(use(kit, at(24_000)).member).not.toBe(bad?.member.id);
  expect(ring.all(ANY).map(({ member }) => member.id)).not.toContain(bad?.member.id);
});

test('proxyPool: of several clients that delete the same port, only the first counts', () => {
  const kit = openKit();
  addMembers(kit, 5);
  const ring = openRing(kit);
  ring.next(ANY);
  expect([24_000, 24_000, 24_000].map((port) => ring.reject(port))).toEqual([true, false, false]);
  expect(kit.events('member.quarantined')).toHaveLength(1);
  expect(ring.reject(24_003), 'never handed out').toBe(false);
  expect(ring.reject(80), 'not a port of the ring').toBe(false);
});

test('proxyPool: a deleted member comes back after its quarantine, and a success clears its fault', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const ring = openRing(kit);
  const member = ring.next(ANY)?.member.id ?? '';
  ring.reject(24_000);
  expect(ring.next(ANY), 'quarantined').toBeUndefined();
  kit.clock.advance(10_000);
  expect(ring.next(ANY)).toMatchObject({ port: 24_001, member: { id: member, faults: 1 } });
  use(kit, at(24_001));
  expect(stateOf(kit, member)).toBe('ready');
  expect(ring.next(ANY)).toMatchObject({ port: 24_001, member: { id: member, faults: 0 } });
});

test('proxyPool: source selects ports by their member, and moves an unused port if none has one', () => {
  const kit = openKit({ sources: [CITY, TOWN] });
  addMembers(kit, 4);
  kit.pool.addMembers('town', [drawn(kit, 7)]);
  const ring = openRing(kit);
  for (const { member } of ring.all(ANY)) expect(member.source).toBe('city');
  const busy = acquire(kit, at(24_000));
  accept(kit, busy);
  const town = ring.next({ https: false, source: 'town' });
  expect(town).toMatchObject({ port: 24_001, member: { source: 'town' } });
  expect(ring.all({ https: false, source: 'town' }).map(({ port }) => port)).toEqual([24_001]);
  expect(ring.next({ https: false, source: 'nowhere' })).toBeUndefined();
  kit.pool.report({ lease: busy.id, kind: 'closed', cut: false, answered: true });
});

test('proxyPool: a listener with one source hands out no member of another', () => {
  const kit = openKit({ sources: [CITY, { ...TOWN, priority: 1 }] });
  addMembers(kit, 2);
  kit.pool.addMembers('town', [drawn(kit, 7)]);
  const ring = openRing(kit, { source: 'town' });
  expect(ring.all(ANY).map(({ member }) => member.source)).toEqual(['town']);
  expect(ring.next({ https: false, source: 'city' })).toBeUndefined();
});

test('proxyPool: type=https leaves out HTTP members that may refuse CONNECT', () => {
  const kit = openKit({ sources: [CITY, { ...TOWN, priority: 1 }] });
  addMembers(kit, 2);
  kit.pool.addMembers('town', [drawn(kit, 7), drawn(kit, 8, 180_000, { protocol: 'socks5' })]);
  const ring = openRing(kit, { free: ['town'] });
  expect(
    ring
      .all(ANY)
      .map(({ member }) => member.https)
      .sort(),
  ).toEqual([false, true, true, true]);
  expect(ring.all({ https: true })).toHaveLength(3);
  for (let n = 0; n < 6; n += 1) expect(ring.next({ https: true })?.member.https).toBe(true);
});
