/** Replicas agree on the member of each session, also while it moves and when the store is far. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemBoot, systemClock } from '../../../src/core/clock.ts';
import { inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import type { SharedSession } from '../../../src/fleet/schemas.ts';
import type { Lease } from '../../../src/pool/lease.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import { openFarProxy } from '../../chaos/delaying-proxy.ts';
import { addMembers, close, fail, request } from '../../pool/pool-kit.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { openMachine } from '../machine-kit.ts';
import { acquireAt } from '../replica-kit.ts';
import { Recorder } from '../shared-pool-contract.ts';
import { instance, openStoreStage } from './store-stage.ts';

const LIFE_MS = 600_000;
const MOVES = 1_000;
const timekeeper = createTimekeeper(systemClock, systemBoot());

const sessionOn = (name: string, member: string): SharedSession => ({
  ...{ name, member, owner: { user: '', address: '' }, ttlMs: LIFE_MS },
  ...{ usedAt: systemClock.monotonic(), uses: 0 },
});

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  beforeAll(async () => {
    server = new TestStore(await freePort(), {});
    await server.start();
  });
  afterAll(() => server.close());

  test(`sessions: in ${MOVES} moves that two replicas make at once, both get the same new member`, async () => {
    const stage = openStoreStage(server);
    const pools = [stage.connect('a'), stage.connect('b')] as const;
    for (const pool of pools) await pool.follow(new Recorder());
    let differing = 0;
    for (let first = 0; first < MOVES; first += 100) {
      const names = Array.from({ length: 100 }, (_, n) => `s${first + n}`);
      await Promise.all(names.map((name) => pools[0].bindSession(sessionOn(name, 'member01'), undefined)));
      const moved = await Promise.all(
        names.map((name) =>
          Promise.all([
            pools[0].bindSession(sessionOn(name, 'member02'), 'member01'),
            pools[1].bindSession(sessionOn(name, 'member03'), 'member01'),
          ]),
        ),
      );
      for (const [one, other] of moved)
        if (one?.member === undefined || one.member !== other?.member) differing += 1;
    }
    expect(differing).toBe(0);
  });

  test('sessions: when the member of a session fails for two machines at once, their next leases have one member', async () => {
    const stage = openStoreStage(server);
    const open = (name: string) =>
      openMachine({ name, clock: stage.clock, shared: stage.connect(name), workers: 1 });
    const machines = [await open('a'), await open('b')] as const;
    addMembers(machines[0].primary, 60, LIFE_MS);
    const workers = machines.map(({ workers: [worker] }) => {
      if (worker === undefined) throw new TypeError('no worker');
      return worker;
    });
    for (const kit of workers) await until('it has the members', () => kit.pool.members().length === 60);
    for (let round = 0; round < 20; round += 1) {
      const session = `round-${round}`;
      const leases: Lease[] = [];
      for (const kit of workers) leases.push(await acquireAt(kit, { session }));
      const [one, other] = leases;
      expect(one?.member).toBe(other?.member);
      const avoid = [one?.member ?? ''];
      const next = await Promise.all(
        workers.map(async (kit, index) => {
          const lease = leases[index];
          if (lease === undefined) throw new TypeError('no lease');
          fail(kit, lease);
          const again = await kit.replica.acquire(request({ session }, { avoid }));
          if (!('member' in again)) throw new Error(again.reason);
          close(kit, again);
          return again.member;
        }),
      );
      expect(next[0], session).toBe(next[1]);
    }
  });

  test('sessions: with a store 60 ms away, replicas agree soon after the first use, and nothing undoes a newer move', async () => {
    const stage = openStoreStage(server);
    const port = await openFarProxy(server.port, 30);
    let unagreed = 0;
    const observer = {
      ...{ connected() {}, lost() {}, claimed() {}, lagged() {}, nameTaken() {}, warned() {} },
      unagreed: () => {
        unagreed += 1;
      },
    };
    const far = { address: server.address(port), bindDeadlineMs: 30, observer };
    const open = (name: string) =>
      openMachine({ name, clock: stage.clock, shared: stage.connect(name, far), workers: 1 });
    const [a, b] = [await open('a'), await open('b')];
    addMembers(a.primary, 8, LIFE_MS);
    const kits = [a, b].map(({ workers: [worker] }) => {
      if (worker === undefined) throw new TypeError('no worker');
      return worker;
    });
    for (const kit of kits) await until('it has the members', () => kit.pool.members().length === 8);
    const names = Array.from({ length: 20 }, (_, n) => `far-${n}`);
    for (const session of names) {
      const leases = await Promise.all(kits.map((kit) => acquireAt(kit, { session })));
      for (const [index, kit] of kits.entries()) {
        const lease = leases[index];
        if (lease !== undefined) close(kit, lease);
      }
    }
    expect(unagreed, 'noria did not wait').toBeGreaterThan(0);
    const memberAt = (kit: (typeof kits)[0], session: string) => kit.pool.memberOfSession(session);
    await until('all sessions agree', () =>
      names.every((session) => new Set(kits.map((kit) => memberAt(kit, session))).size === 1),
    );
    kits[0]?.pool.rotateSession('far-0');
    const moved = kits[0]?.pool.memberOfSession('far-0');
    await until('both have moved', () => kits.every((kit) => memberAt(kit, 'far-0') === moved));
  });

  test('sessions: two teams with one fleet name and other instances do not move each other', async () => {
    const stage = openStoreStage(server);
    const warnings: string[] = [];
    const observer = {
      ...{ connected() {}, lost() {}, claimed() {}, lagged() {}, nameTaken() {}, unagreed() {} },
      warned: (message: string) => void warnings.push(message),
    };
    const one = stage.connect('one', { instances: () => [instance('city')], observer });
    const other = stage.connect('other', { instances: () => [instance('harbor')] });
    for (const pool of [one, other]) await pool.follow(new Recorder());
    expect((await one.bindSession(sessionOn('s1', 'member01'), undefined))?.member).toBe('member01');
    expect((await other.bindSession(sessionOn('s1', 'member02'), undefined))?.member).toBe('member02');
    expect((await one.bindSession(sessionOn('s1', 'member03'), undefined))?.member).toBe('member01');
    await until('the first one warns', () => warnings.length > 0);
    expect(warnings).toEqual([
      'this noria shares no instance with another noria of the fleet (other), so they share no members and no sessions; set another fleet.name',
    ]);
  });

  test('sessions: a noria learns a session that only another one has used', async () => {
    const stage = openStoreStage(server);
    const [a, b] = await Promise.all(
      ['a', 'b'].map((name) => openMachine({ name, clock: stage.clock, shared: stage.connect(name) })),
    );
    const [first, other] = [a?.workers[0], b?.workers[0]];
    if (a === undefined || first === undefined || other === undefined) throw new TypeError('both are open');
    addMembers(a.primary, 3, LIFE_MS);
    await until('both have the members', () => other.pool.members().length === 3);
    const { member } = await acquireAt(first, { session: 's1' });
    expect(other.pool.memberOfSession('s1')).toBeUndefined();
    expect(await other.replica.findSession('s1')).toMatchObject({ name: 's1', member });
    expect(other.pool.memberOfSession('s1')).toBe(member);
    expect(await other.replica.findSession('s2')).toBeUndefined();
  });

  test('peers: a configuration that differs for one instance is named once', async () => {
    const stage = openStoreStage(server);
    const warnings: string[] = [];
    const observer = {
      ...{ connected() {}, lost() {}, claimed() {}, lagged() {}, nameTaken() {}, unagreed() {} },
      warned: (message: string) => void warnings.push(message),
    };
    const slow = { ...instance('city'), settings: { intervalMs: 5_000, size: 20, params: 'x' } };
    const one = stage.connect('one', { instances: () => [instance('city')], observer });
    await one.follow(new Recorder());
    const other = stage.connect('other', { instances: () => [slow] });
    await other.follow(new Recorder());
    await until('it warns', () => warnings.length > 0);
    expect(warnings).toEqual([
      'noria other has interval 5000 ms instead of 1000 ms and size 20 instead of 10 and other params for the instance city; give all norias of the fleet the same configuration',
    ]);
    const own = { replica: 'three', instances: [instance('city')], refuses: () => undefined, timekeeper };
    expect((await inspectStore(server.address(), stage.name, systemClock, own)).warnings).toContainEqual(
      expect.stringMatching(/^noria other has interval 5000 ms instead of 1000 ms /),
    );
  });
});
