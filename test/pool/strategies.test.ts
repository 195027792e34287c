import { expect, test } from 'vitest';
import { STRATEGIES, type Strategy } from '../../src/pool/options.ts';
import { accept, acquire, addMembers, close, drawn, openKit, type PoolKit, use } from './pool-kit.ts';

function openWith(strategy: Strategy, count: number): PoolKit {
  const kit = openKit({ rotation: { strategy } });
  addMembers(kit, count);
  return kit;
}

function uses(kit: PoolKit, count: number): string[] {
  return Array.from({ length: count }, () => use(kit).member);
}

test('strategies: there are six', () => {
  expect(STRATEGIES).toHaveLength(6);
});

test.each(STRATEGIES)('%s: never picks a member to avoid', (strategy) => {
  const kit = openWith(strategy, 50);
  const ids = kit.pool.members().map(({ id }) => id);
  for (let round = 0; round < 200; round += 1) {
    const chosen = ids[round % ids.length];
    const lease = acquire(kit, {}, { avoid: ids.filter((id) => id !== chosen) });
    expect(lease.member).toBe(chosen);
    close(kit, lease);
  }
});

test.each(STRATEGIES)('%s: never picks the same exit twice in a row while there is another', (strategy) => {
  const kit = openKit({ rotation: { strategy } });
  for (let number = 0; number < 4; number += 1) {
    const exitIp = number < 2 ? '198.51.100.1' : '198.51.100.2';
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { exitIp })]);
  }
  const exits = Array.from({ length: 40 }, () => use(kit).exitIp);
  const repeats = exits.filter((exit, index) => exit === exits[index - 1]);
  expect(repeats).toEqual([]);
});

test.each(STRATEGIES)('%s: serves every client when all members share one exit', (strategy) => {
  const kit = openKit({ rotation: { strategy } });
  for (let number = 0; number < 30; number += 1) {
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { exitIp: '198.51.100.1' })]);
  }
  expect(uses(kit, 60)).toHaveLength(60);
});

test.each(STRATEGIES)('%s: finds the few members with enough life, every time', (strategy) => {
  const kit = openKit({ rotation: { strategy } });
  for (let number = 0; number < 200; number += 1) {
    kit.pool.addMembers('city', [drawn(kit, number, number % 50 === 0 ? 900_000 : 180_000)]);
  }
  for (let round = 0; round < 100; round += 1) {
    const lease = use(kit, { minLifeMs: 600_000 });
    expect(lease.remainingMs).toBe(900_000);
  }
});

test('round-robin: the member whose last use is longest ago is next, also after joins and removals', () => {
  const kit = openWith('round-robin', 3);
  const [first, second, third] = uses(kit, 3);
  kit.pool.evict(second ?? '');
  expect(uses(kit, 3)).toEqual([first, third, first]);
  kit.pool.addMembers('city', [drawn(kit, 9)]);
  const newcomer = kit.pool.members().at(-1)?.id;
  expect(uses(kit, 3)).toEqual([third, newcomer, first]);
});

test('round-robin: members that share one exit take turns', () => {
  const kit = openKit();
  for (let port = 1; port <= 30; port += 1) {
    kit.pool.addMembers('city', [drawn(kit, 0, 180_000, { port })]);
  }
  expect(new Set(uses(kit, 30)).size).toBe(30);
});

test('random: every member gets a share', () => {
  const kit = openWith('random', 10);
  const counts = new Map<string, number>();
  for (const id of uses(kit, 2_000)) counts.set(id, (counts.get(id) ?? 0) + 1);
  expect(counts.size).toBe(10);
  for (const count of counts.values()) expect(count).toBeGreaterThan(120);
});

test('shuffle: each member has one turn per round, in another order each time', () => {
  const kit = openWith('shuffle', 20);
  const rounds = Array.from({ length: 10 }, () => uses(kit, 20));
  for (const round of rounds) expect(new Set(round).size).toBe(20);
  expect(new Set(rounds.map((round) => round.join())).size).toBe(10);
});

test('shuffle: a member that was full for a while gets no second turn in the round', () => {
  const kit = openKit({ rotation: { strategy: 'shuffle', maxTunnelsPerMember: 1 } });
  addMembers(kit, 8);
  const round: string[] = [];
  for (let turn = 0; turn < 8; turn += 1) {
    const lease = acquire(kit); // the member leaves the rotation until the lease ends
    round.push(lease.member);
    accept(kit, lease);
    close(kit, lease);
  }
  expect(new Set(round).size).toBe(8);
});

test('shuffle: a member that joins during a round gets a turn in it', () => {
  const kit = openWith('shuffle', 4);
  const first = uses(kit, 2);
  kit.pool.addMembers('city', [drawn(kit, 9)]);
  const rest = uses(kit, 3);
  expect(new Set([...first, ...rest]).size).toBe(5);
});

test('least-connections: the member with the fewest open leases is next, in turn among equals', () => {
  const kit = openWith('least-connections', 3);
  const open = Array.from({ length: 6 }, () => acquire(kit));
  expect(new Set(open.slice(0, 3).map(({ member }) => member)).size).toBe(3);
  const [, freed] = open;
  if (freed === undefined) throw new Error('no lease');
  close(kit, freed);
  expect(acquire(kit).member).toBe(freed.member);
});

test('longest-lived: the member with the most life left is next, with an assumed end when it is unknown', () => {
  const kit = openKit({ rotation: { strategy: 'longest-lived' } });
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000), drawn(kit, 2, 120_000), drawn(kit, 3, 90_000)]);
  const longest = acquire(kit);
  expect(longest.remainingMs).toBe(120_000);
  const avoid = [longest.member];
  expect(acquire(kit, {}, { avoid }).remainingMs).toBe(90_000);
  kit.pool.addMembers('city', [drawn(kit, 4, 0, { endsAt: undefined })]);
  expect(acquire(kit).remainingMs).toBeUndefined();
});

test('fastest: the slow half of the members gets few picks, but some', () => {
  const kit = openWith('fastest', 10);
  const slow = new Set(
    kit.pool
      .members()
      .slice(0, 5)
      .map(({ id }) => id),
  );
  let slowUses = 0;
  for (let round = 0; round < 1_000; round += 1) {
    const lease = acquire(kit);
    const isSlow = slow.has(lease.member);
    accept(kit, lease, isSlow ? 2_000 : 20);
    close(kit, lease);
    if (isSlow) slowUses += 1;
  }
  expect(slowUses).toBeGreaterThan(0);
  expect(slowUses).toBeLessThan(300);
});
