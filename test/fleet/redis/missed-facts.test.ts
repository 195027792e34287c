/** What a replica loads after it was silent or cut off: only what the store no longer has in a log makes it load all again. */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import type { SharedSession } from '../../../src/fleet/schemas.ts';
import { openCuttingProxy } from '../../support/cutting-proxy.ts';
import { NO_STORE, openStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

const LIFE_MS = 600_000;
/** Beats do not trim the news of a replica with this time between them. */
const NEVER_MS = 3_600_000;

const sessionOn = (member: string): SharedSession => ({
  ...{ name: 's1', member, owner: { user: '', address: '' }, ttlMs: LIFE_MS },
  ...{ usedAt: systemClock.monotonic(), uses: 0 },
});

async function openPair({ beatEveryMs = 20 } = {}) {
  const store = await openStore();
  const stage = openStoreStage(store);
  const proxy = await openCuttingProxy(store.port);
  const operations: string[] = [];
  const onTiming = (operation: string) => void operations.push(operation);
  const a = stage.connect('a', { address: store.address(proxy.port), onTiming, beatEveryMs });
  const b = stage.connect('b', { beatEveryMs: 20, minEntries: 1 });
  const [seen, other] = [new Recorder(), new Recorder()];
  await a.follow(seen);
  await b.follow(other);
  const publish = (id: string) =>
    b.publish([{ kind: 'member.joined', member: sharedMember(stage, id, LIFE_MS) }]);
  const keys = fleetKeys(stage.name);
  const untilLoaded = (loads: number) =>
    until('a has loaded', () => seen.loads.length === loads && a.fault === undefined);
  return { store, stage, proxy, operations, a, b, seen, other, publish, keys, untilLoaded };
}

describe.skipIf(NO_STORE)('with a store', () => {
  test('missed facts: a replica that the others had removed from their list continues with the log', async () => {
    const { store, stage, seen, other, publish, keys } = await openPair();
    await until('b knows both', () => other.replicas.length === 2);
    const before = other.views.length;
    // as if a had sent no beat for long: the next beat of b removes it, unless a beats first
    await until('b has removed a', async () => {
      await store.command('ZADD', `${keys.prefix}:seen`, '0', 'a');
      return other.views.slice(before).some(({ replicas }) => replicas.join() === 'b');
    });
    await until('a is back', () => other.replicas.join() === 'a,b');
    publish('member01');
    await until('a follows', () => seen.facts.length === 1);
    expect(seen.loads).toHaveLength(1);
    expect(stage.lost).toEqual([]);
  });

  test('missed facts: after a lost connection, a replica reads only the entries that it missed', async () => {
    const { stage, proxy, operations, seen, a, other, publish, untilLoaded } = await openPair();
    publish('member01');
    await until('a follows', () => seen.facts.length === 1);
    proxy.cut();
    await until('a has lost the store', () => a.fault !== undefined);
    const before = operations.length;
    publish('member02');
    await until('the log has the member', () => other.facts.length === 2);
    proxy.heal();
    await untilLoaded(2);
    expect(seen.loads[1]?.members.map(({ member }) => member.id)).toEqual(['member01', 'member02']);
    expect(operations.slice(before)).toContain('load-log');
    expect(operations.slice(before)).not.toContain('load-page');
    expect(operations.slice(before)).not.toContain('load-uses');
    publish('member03');
    await until('a follows', () => seen.facts.at(-1)?.fact.kind === 'member.joined');
    expect(stage.lost.length).toBeGreaterThan(0);
  });

  test('missed facts: a replica loads the snapshot if the store has trimmed an entry that it missed', async () => {
    const { store, proxy, operations, seen, a, publish, keys, untilLoaded } = await openPair();
    publish('member01');
    await until('a follows', () => seen.facts.length === 1);
    proxy.cut();
    await until('a has lost the store', () => a.fault !== undefined);
    const before = operations.length;
    for (let entries = 0; entries < 4; entries += 1) publish('member02');
    const base = keys.instance('city');
    const covered = async () => Number(await store.command('HGET', `${base}:state`, 'covers'));
    await until('a snapshot has both', async () => (await covered()) >= 2);
    await store.command('XTRIM', `${base}:log`, 'MINID', `${(await covered()) + 1}-0`);
    proxy.heal();
    await untilLoaded(2);
    expect(seen.loads[1]?.members.map(({ member }) => member.id)).toEqual(['member01', 'member02']);
    expect(operations.slice(before)).toContain('load-page');
  });

  test('missed facts: a replica whose unread news of sessions the store has dropped loads its sessions again', async () => {
    const { store, a, b, seen, keys, untilLoaded } = await openPair();
    await a.bindSession(sessionOn('member01'), undefined);
    seen.held.push('s1');
    await store.command('DEL', keys.moved('a'));
    await b.bindSession(sessionOn('member02'), 'member01');
    await untilLoaded(2);
    expect(seen.loads[1]?.sessions.map(({ member }) => member)).toEqual(['member02']);
  });

  test('missed facts: beats drop the news that a replica has read, and only those', async () => {
    const { store, a, b, seen, keys } = await openPair();
    const length = () => store.command('XLEN', keys.moved('a'));
    await a.bindSession(sessionOn('member01'), undefined);
    for (let move = 2; move < 10; move += 1) {
      await b.bindSession(sessionOn(`member0${move}`), `member0${move - 1}`);
    }
    await until('a has read all', () => seen.facts.length === 8);
    await until('the last one is left', async () => (await length()) === 1);
    expect(seen.loads).toHaveLength(1);
  });

  test('missed facts: the news of a replica that has not sent a beat for long expire', async () => {
    const { store, a, keys } = await openPair({ beatEveryMs: NEVER_MS });
    await a.bindSession(sessionOn('member01'), undefined);
    const left = Number(await store.command('PTTL', keys.moved('a')));
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(60_000);
  });
});
