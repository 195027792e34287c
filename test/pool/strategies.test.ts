import { expect, test } from 'vitest';
import { STRATEGIES, type Strategy } from '../../src/pool/options.ts';
import { accept, close, lend, offer, openKit, type PoolKit, pourMembers, use } from './pool-kit.ts';

function openWith(strategy: Strategy, count: number): PoolKit {
  const kit = openKit({ rotation: { strategy } });
  pourMembers(kit, count);
  return kit;
}

function uses(kit: PoolKit, count: number): string[] {
  return Array.from({ length: count }, () => use(kit).member);
}

test('strategies: there are six', () => {
  expect(STRATEGIES).toHaveLength(6);
});

test.each(STRATEGIES)('%s: gives only members that fit, whatever they are asked to avoid', (strategy) => {
  const kit = openWith(strategy, 50);
  const ids = kit.pool.members().map(({ id }) => id);
  for (let round = 0; round < 200; round += 1) {
    const chosen = ids[round % ids.length];
    const lease = lend(kit, {}, { avoid: ids.filter((id) => id !== chosen) });
    expect(lease.member).toBe(chosen);
    close(kit, lease);
  }
});

test.each(STRATEGIES)(
  '%s: a client is not given the same exit twice running while there is another',
  (strategy) => {
    const kit = openKit({ rotation: { strategy } });
    for (let number = 0; number < 4; number += 1) {
      const exitIp = number < 2 ? '198.51.100.1' : '198.51.100.2';
      kit.pool.addMembers('city', [offer(kit, number, 180_000, { exitIp })]);
    }
    const exits = Array.from({ length: 40 }, () => use(kit).exitIp);
    const repeats = exits.filter((exit, index) => exit === exits[index - 1]);
    expect(repeats).toEqual([]);
  },
);

test.each(STRATEGIES)('%s: with one exit alone it still gives every client a member', (strategy) => {
  const kit = openKit({ rotation: { strategy } });
  for (let number = 0; number < 30; number += 1) {
    kit.pool.addMembers('city', [offer(kit, number, 180_000, { exitIp: '198.51.100.1' })]);
  }
  expect(uses(kit, 60)).toHaveLength(60);
});

test.each(STRATEGIES)(
  '%s: a wish that most members cannot meet finds the few that can, every time',
  (strategy) => {
    const kit = openKit({ rotation: { strategy } });
    for (let number = 0; number < 200; number += 1) {
      kit.pool.addMembers('city', [offer(kit, number, number % 50 === 0 ? 900_000 : 180_000)]);
    }
    for (let round = 0; round < 100; round += 1) {
      const lease = use(kit, { minLifeMs: 600_000 });
      expect(lease.remainingMs).toBe(900_000);
    }
  },
);

test('round-robin: whoever was used longest ago is next, also after joins and leaves', () => {
  const kit = openWith('round-robin', 3);
  const [first, second, third] = uses(kit, 3);
  kit.pool.evict(second ?? '');
  expect(uses(kit, 3)).toEqual([first, third, first]);
  kit.pool.addMembers('city', [offer(kit, 9)]);
  const newcomer = kit.pool.members().at(-1)?.id;
  expect(uses(kit, 3)).toEqual([third, first, newcomer]);
});

test('round-robin: one exit on many ports is walked through in order, too', () => {
  const kit = openKit();
  for (let port = 1; port <= 30; port += 1) {
    kit.pool.addMembers('city', [offer(kit, 0, 180_000, { port })]);
  }
  expect(new Set(uses(kit, 30)).size).toBe(30);
});

test('random: everyone has a share', () => {
  const kit = openWith('random', 10);
  const counts = new Map<string, number>();
  for (const id of uses(kit, 2_000)) counts.set(id, (counts.get(id) ?? 0) + 1);
  expect(counts.size).toBe(10);
  for (const count of counts.values()) expect(count).toBeGreaterThan(120);
});

test('shuffle: nobody comes twice before all had a turn, in another order each time', () => {
  const kit = openWith('shuffle', 20);
  const rounds = Array.from({ length: 10 }, () => uses(kit, 20));
  for (const round of rounds) expect(new Set(round).size).toBe(20);
  expect(new Set(rounds.map((round) => round.join())).size).toBe(10);
});

test('shuffle: who leaves for a while and comes back has no second turn in the round', () => {
  const kit = openKit({ rotation: { strategy: 'shuffle', maxTunnelsPerMember: 1 } });
  pourMembers(kit, 8);
  const round: string[] = [];
  for (let turn = 0; turn < 8; turn += 1) {
    const lease = lend(kit); // full, so out of the rotation, until it is closed
    round.push(lease.member);
    accept(kit, lease);
    close(kit, lease);
  }
  expect(new Set(round).size).toBe(8);
});

test('shuffle: who joins in the middle of a round has a turn in it', () => {
  const kit = openWith('shuffle', 4);
  const first = uses(kit, 2);
  kit.pool.addMembers('city', [offer(kit, 9)]);
  const rest = uses(kit, 3);
  expect(new Set([...first, ...rest]).size).toBe(5);
});

test('least-connections: the least used at the moment is next, in turn among equals', () => {
  const kit = openWith('least-connections', 3);
  const open = Array.from({ length: 6 }, () => lend(kit));
  expect(new Set(open.slice(0, 3).map(({ member }) => member)).size).toBe(3);
  const [, freed] = open;
  if (freed === undefined) throw new Error('no lease');
  close(kit, freed);
  expect(lend(kit).member).toBe(freed.member);
});

test('longest-lived: the one with the most life left is next, unknown ones by what is assumed', () => {
  const kit = openKit({ rotation: { strategy: 'longest-lived' } });
  kit.pool.addMembers('city', [offer(kit, 1, 60_000), offer(kit, 2, 120_000), offer(kit, 3, 90_000)]);
  const longest = lend(kit);
  expect(longest.remainingMs).toBe(120_000);
  const avoid = [longest.member];
  expect(lend(kit, {}, { avoid }).remainingMs).toBe(90_000);
  kit.pool.addMembers('city', [offer(kit, 4, 0, { endsAt: undefined })]);
  expect(lend(kit).remainingMs).toBeUndefined();
});

test('fastest: the slow half gets little, and not nothing', () => {
  const kit = openWith('fastest', 10);
  const slow = new Set(
    kit.pool
      .members()
      .slice(0, 5)
      .map(({ id }) => id),
  );
  let slowUses = 0;
  for (let round = 0; round < 1_000; round += 1) {
    const lease = lend(kit);
    const isSlow = slow.has(lease.member);
    accept(kit, lease, isSlow ? 2_000 : 20);
    close(kit, lease);
    if (isSlow) slowUses += 1;
  }
  expect(slowUses).toBeGreaterThan(0);
  expect(slowUses).toBeLessThan(300);
});
