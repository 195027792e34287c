/** Two machines with two workers each, as replicas of one fleet on a real store. */
import { expect, test } from 'vitest';
import type { RedisSharedPool } from '../../../src/fleet/redis/redis-shared-pool.ts';
import { accept, addMembers, close, type PoolKit } from '../../pool/pool-kit.ts';
import { NO_STORE, openStore, type TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { type Machine, openMachine } from '../machine-kit.ts';
import { acquireAt, type ReplicaKit, viewOf } from '../replica-kit.ts';
import { sharedMember } from '../shared-pool-contract.ts';
import { openStoreStage, type StoreStage } from './store-stage.ts';

interface Stage {
  readonly stage: StoreStage;
  readonly links: readonly RedisSharedPool[];
  readonly a: Machine;
  readonly b: Machine;
  readonly workers: readonly ReplicaKit[];
  /** The pools of all processes. */
  readonly all: readonly PoolKit[];
}

async function openStage(store: TestStore): Promise<Stage> {
  const stage = openStoreStage(store);
  const { clock } = stage;
  const links = [stage.connect('a'), stage.connect('b')] as const;
  const a = await openMachine({ name: 'a', clock, shared: links[0] });
  const b = await openMachine({ name: 'b', clock, shared: links[1] });
  const workers = [...a.workers, ...b.workers];
  return { stage, links, a, b, workers, all: [a.primary, b.primary, ...workers] };
}

const ids = ({ pool }: PoolKit) =>
  pool
    .members()
    .map(({ id }) => id)
    .sort()
    .join();

const LIFE_MS = 600_000;

test.skipIf(NO_STORE)(
  'machines on a store: four workers share members, sessions, bans and uses',
  async () => {
    const { a, b, workers, all } = await openStage(await openStore());
    addMembers(a.primary, 3, LIFE_MS);
    await until('all have the members', () => all.every((kit) => ids(kit) === ids(a.primary)));

    const leases = await Promise.all(workers.map((kit) => acquireAt(kit, { session: 's1' })));
    const [{ member } = { member: '' }] = leases;
    expect(leases.map((lease) => lease.member)).toEqual(workers.map(() => member));
    for (const [index, kit] of workers.entries()) {
      const lease = leases[index];
      if (lease === undefined) continue;
      accept(kit, lease);
      close(kit, lease);
    }
    await until('all know all uses', () => all.every((kit) => viewOf(kit, member)?.uses === workers.length));

    const [, , b1] = workers;
    b1?.pool.rotateSession('s1');
    const moved = b1?.pool.memberOfSession('s1');
    expect(moved).not.toBe(member);
    await until('it has moved for all', () => all.every(({ pool }) => pool.memberOfSession('s1') === moved));
    b.primary.pool.evict(member);
    await until('it has left all', () => all.every((kit) => viewOf(kit, member) === undefined));
  },
);

test.skipIf(NO_STORE)(
  'machines on a store: a success on one machine renews an assumed end of life on all',
  async () => {
    const { stage, links, workers, all } = await openStage(await openStore());
    const member = { ...sharedMember(stage, 'member01', 60_000), endIsAssumed: true };
    links[0]?.publish([{ kind: 'member.joined', member }]);
    // Machine a skips its own fact, so it learns the member from another replica.
    links[1]?.publish([{ kind: 'member.joined', member }]);
    await until('the workers have the member', () => workers.every((kit) => ids(kit) === 'member01'));
    const leftMs = ({ pool }: PoolKit) => (pool.snapshot().members[0]?.endsAt ?? 0) - stage.clock.now();
    expect(workers.map((kit) => Math.round(leftMs(kit) / 60_000))).toEqual(workers.map(() => 1));
    const [first] = workers as [ReplicaKit];
    const lease = await acquireAt(first);
    accept(first, lease);
    close(first, lease);
    await until('all know the new end', () => all.every((kit) => leftMs(kit) > 100_000));
  },
);

test.skipIf(NO_STORE)(
  'machines on a store: the workers share what they learn without it, and later with all',
  async () => {
    const store = await openStore();
    const { stage, links, a, workers, all } = await openStage(store);
    const [a1, a2] = workers as [ReplicaKit, ReplicaKit];
    addMembers(a.primary, 3, LIFE_MS);
    await until('all have the members', () => all.every((kit) => ids(kit) === ids(a.primary)));
    await store.kill();
    await until('both have lost it', () => links.every(({ fault }) => fault !== undefined));
    const leases = await Promise.all([a1, a2].map((kit) => acquireAt(kit, { session: 's1' })));
    const [{ member } = { member: '' }] = leases;
    expect(leases.map((lease) => lease.member)).toEqual([member, member]);
    await store.start({ empty: true });
    const [, , b1] = workers as [ReplicaKit, ReplicaKit, ReplicaKit];
    await until('the machine is connected', () => links.every(({ fault }) => fault === undefined));
    // Whoever asks the empty store first decides, so the session of machine a may move.
    await until('both machines have one exit for the session', async () => {
      const found = await Promise.all([a1, b1].map((kit) => acquireAt(kit, { session: 's1' })));
      for (const [at, kit] of [a1, b1].entries()) close(kit, found[at] as (typeof found)[number]);
      return found[0]?.member === found[1]?.member;
    });
    const late = await openMachine({ name: 'c', clock: stage.clock, shared: stage.connect('c') });
    for (const kit of late.workers) await until('a new machine has all', () => ids(kit) === ids(a.primary));
  },
);
