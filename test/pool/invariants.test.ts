/** Invariants of a pool under random steps; `PoolModel` checks them after each step. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { seededRandom } from '../../src/core/random.ts';
import { isLease, type Lease } from '../../src/pool/lease.ts';
import { DEFAULT_SITE_RULE, STRATEGIES } from '../../src/pool/options.ts';
import { decodeSnapshot } from '../../src/pool/stored-state.ts';
import { runsOf } from '../support/properties.ts';
import { accept, addMembers, close, openKit, request, use } from './pool-kit.ts';
import { PoolModel, type Step } from './pool-model.ts';

const few = fc.nat({ max: 7 });
const source = fc.constantFrom('city' as const, 'backup' as const);

const routing = fc.record(
  {
    session: fc.constantFrom('s1', 's2', 's3'),
    source,
    protocol: fc.constantFrom('http' as const, 'socks5' as const),
    location: fc.constantFrom('east', 'west'),
    minLifeMs: fc.constantFrom(10_000, 60_000),
  },
  { requiredKeys: [] },
);

/** The weight of a step is its frequency. */
const step: fc.Arbitrary<Step> = fc.oneof(
  often(6, {
    do: is('acquire'),
    routing,
    host: few,
    avoid: fc.option(few, { nil: undefined, freq: 3 }),
    waits: fc.boolean(),
  }),
  often(3, { do: is('accept'), which: few }),
  often(3, {
    do: is('close'),
    which: few,
    cut: fc.constantFrom(false as const, 'member-for-target' as const, 'unclear' as const),
  }),
  often(3, {
    do: is('fail'),
    which: few,
    blame: fc.constantFrom('member', 'member-for-target', 'unclear', 'target', 'nobody'),
  }),
  often(4, {
    do: is('add'),
    source,
    numbers: fc.array(few, { maxLength: 4 }),
    lifeMs: fc.constantFrom(2_000, 8_000, 30_000, 120_000, undefined),
    unproven: fc.boolean(),
  }),
  often(4, { do: is('pass'), ms: fc.constantFrom(1, 900, 7_000, 61_000) }),
  often(1, { do: is('cancel'), which: few }),
  often(1, { do: is('evict'), which: few }),
  often(1, { do: is('probe'), limit: few }),
  often(1, { do: is('ban'), which: few, host: few }),
  often(1, { do: is('rotate'), session: fc.constantFrom('s1', 's2') }),
  often(1, { do: is('block'), source, on: fc.boolean() }),
  often(1, { do: is('limit'), source, on: fc.boolean() }),
  often(1, { do: is('freeze'), on: fc.boolean() }),
  often(1, { do: is('reload'), both: fc.boolean() }),
);

const rotation = fc.record({
  strategy: fc.constantFrom(...STRATEGIES),
  maxTunnelsPerMember: fc.constantFrom(0, 0, 1, 2),
  maxUsesPerMember: fc.constantFrom(0, 0, 3),
  perHostSpacingMs: fc.constantFrom(0, 0, 5_000),
});

test('pool: the invariants hold after every random step', async () => {
  await fc.assert(
    fc.asyncProperty(rotation, fc.array(step, { minLength: 20, maxLength: 120 }), async (options, steps) => {
      const model = new PoolModel(options);
      for (const one of steps) await model.run(one);
      const text = JSON.stringify(model.kit.pool.snapshot());
      expect(decodeSnapshot(JSON.parse(text)), 'the snapshot can be read').toBeDefined();
      await model.end();
    }),
    { numRuns: runsOf(1_000) },
  );
});

test('pool: after a thousand requests, every lease has ended and no session has moved', () => {
  const kit = openKit();
  addMembers(kit, 5);
  for (let round = 0; round < 1_000; round += 1) {
    use(kit, round % 2 === 0 ? { session: `s${round % 7}` } : {});
    kit.clock.advance(100);
  }
  expect(kit.events('session.moved')).toEqual([]);
  const open = kit.pool.members().flatMap(({ id }) => kit.pool.leases.of({ member: id }));
  expect(open, 'open leases').toEqual([]);
});

/** Of each exit and site, in ms. */
const BAN_MS = 9_000;

test.each([1, 2, 3, 4, 5, 6, 7, 8])(
  'pool: the invariants hold in a long history of leases and bans, seed %s',
  (seed) => {
    const sites = ['site0.example', 'site1.example'];
    const kit = openKit({
      targets: sites.map((name) => ({ ...DEFAULT_SITE_RULE, match: [name], spacing: 0 })),
    });
    addMembers(kit, 4, 1e9);
    const random = seededRandom(seed);
    const below = (count: number) => Math.floor(random() * count);
    const exits = kit.pool.members().map(({ host }) => host);
    const open: Lease[] = [];
    const leases = new Map<string, number>();
    const bans = new Map<string, { untilAt: number; count: number }>();
    const homes = new Map<string, string>();
    const isBanned = (host: string, site: string) =>
      (bans.get(`${host} ${site}`)?.untilAt ?? 0) > kit.clock.monotonic() + 1;
    for (let turn = 0; turn < 1_500; turn += 1) {
      const site = sites[below(2)] ?? '';
      const action = below(10);
      if (action < 5) {
        const session = below(2) === 0 ? `s${below(3)}` : undefined;
        const answer = kit.pool.acquire(
          request(session === undefined ? {} : { session }, { targetHost: site }),
        );
        if (answer instanceof Promise || !isLease(answer)) {
          for (const host of exits) expect(isBanned(host, site), `${turn}: ${host} is free`).toBe(true);
          continue;
        }
        expect(isBanned(answer.host, site), `${turn}: banned`).toBe(false);
        const home = session === undefined ? undefined : homes.get(session);
        if (home !== undefined && !isBanned(home, site))
          expect(answer.host, `${turn}: the session stays`).toBe(home);
        if (session !== undefined) homes.set(session, answer.host);
        accept(kit, answer);
        open.push(answer);
        leases.set(answer.host, (leases.get(answer.host) ?? 0) + 1);
      } else if (action < 9) {
        const [ended] = open.splice(below(open.length), 1);
        if (ended !== undefined) close(kit, ended);
      } else {
        const exit = exits[below(4)] ?? '';
        const known = bans.get(`${exit} ${site}`);
        kit.pool.banExit({ host: site, exit, evidence: 'report', forMs: BAN_MS });
        const untilAt = kit.clock.monotonic() + BAN_MS;
        bans.set(`${exit} ${site}`, { untilAt, count: (known?.count ?? 0) + 1 });
      }
      kit.clock.advance(below(900));
      for (const { id, openTunnels } of kit.pool.members()) {
        const own = open.filter(({ member }) => member === id).map((lease) => lease.id);
        expect(openTunnels, `${turn}: open leases`).toBe(own.length);
        expect(new Set(kit.pool.leases.of({ member: id }))).toEqual(new Set(own));
      }
    }
    expect(Math.min(...exits.map((host) => leases.get(host) ?? 0)), 'leases of each member').toBeGreaterThan(
      100,
    );
    expect(bans.size).toBe(8);
    for (const { count } of bans.values()) expect(count, 'bans of each pair').toBeGreaterThan(3);
  },
);

function often<One extends Step>(weight: number, model: { [Key in keyof One]: fc.Arbitrary<One[Key]> }) {
  return { weight, arbitrary: fc.record(model) };
}

function is<Name extends Step['do']>(name: Name): fc.Arbitrary<Name> {
  return fc.constant(name);
}
