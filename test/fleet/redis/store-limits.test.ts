/** A store that refuses writes, many replicas, and a large state. */

import { describe, expect, test } from 'vitest';
import { systemBoot } from '../../../src/core/clock.ts';
import { inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import type { Fact } from '../../../src/fleet/schemas.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import { NO_STORE, openStore, type TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

const MANY = 20_000;
const LIFE_MS = 3_600_000;

async function statOf(store: TestStore, field: string): Promise<number> {
  const info = String(await store.command('INFO', 'stats'));
  return Number(new RegExp(`${field}:(\\d+)`).exec(info)?.[1]);
}

describe.skipIf(NO_STORE)('with a store', () => {
  test('store limits: a store that refuses writes is a lost store, and noria check says why', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const pool = stage.connect('a');
    await pool.follow(new Recorder());
    await store.command('CONFIG', 'SET', 'maxmemory', '1mb');
    await until('the store is lost', () => pool.fault !== undefined);
    await until('the reason is known', () => /OOM/.test(pool.fault?.message ?? ''));
    expect(pool.fault?.code).toBe('fleet-store-lost');
    const attempts = () => stage.lost.length;
    const before = attempts();
    await until('it has tried again', () => attempts() >= before + 3);
    const loads = Number(
      /cmdstat_hscan:calls=(\d+)/.exec(String(await store.command('INFO', 'commandstats')))?.[1],
    );
    const late = attempts();
    await until('it has tried again', () => attempts() >= late + 3);
    const loadsAfter = Number(
      /cmdstat_hscan:calls=(\d+)/.exec(String(await store.command('INFO', 'commandstats')))?.[1],
    );
    expect(loadsAfter, 'it loads nothing before a write is accepted').toBe(loads);
    const own = {
      instances: [],
      refuses: () => undefined,
      timekeeper: createTimekeeper(stage.clock, systemBoot()),
    };
    const report = await inspectStore(store.address(), stage.name, stage.clock, own);
    expect(report.errors).toEqual([
      expect.stringMatching(/^the store does not accept what noria writes: OOM/),
    ]);
    await store.command('CONFIG', 'SET', 'maxmemory', '0');
    await until('it is connected again', () => pool.fault === undefined);
  });

  test('store limits: the bytes of an idle replica do not grow with the number of replicas', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const bytes = async () =>
      (await statOf(store, 'total_net_output_bytes')) + (await statOf(store, 'total_net_input_bytes'));
    let open = 0;
    const perBeat = async (count: number): Promise<number> => {
      let beats = 0;
      const onTiming = (operation: string) => {
        if (operation === 'beat') beats += 1;
      };
      for (; open < count; open += 1) {
        await stage
          .connect(`replica-${String(open).padStart(3, '0')}`, { beatEveryMs: 200, onTiming })
          .follow(new Recorder());
      }
      const settled = beats;
      await until('all know all', () => beats > settled + 4 * count);
      const [startBeats, startBytes] = [beats, await bytes()];
      await until('they have beaten', () => beats > startBeats + 10 * count);
      return ((await bytes()) - startBytes) / (beats - startBeats);
    };
    const few = await perBeat(5);
    const countOfFew = open;
    const many = await perBeat(40);
    expect(countOfFew).toBe(5);
    console.log(`bytes per beat: ${few.toFixed(0)} of 5 replicas, ${many.toFixed(0)} of 40`);
    expect(many / few).toBeLessThan(1.2);
  });

  test(`store limits: ${MANY} members load in pages, and no script blocks the store for long`, async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const pool = stage.connect('a', { beatEveryMs: 20, minEntries: 1 });
    const seen = new Recorder();
    await pool.follow(seen);
    await store.command('CONFIG', 'RESETSTAT');
    const facts = Array.from({ length: MANY }, (_, n): Fact => {
      const number = n.toString(36).padStart(8, '0');
      return {
        kind: 'member.joined',
        member: { ...sharedMember(stage, number, LIFE_MS), host: `20.1.${n >> 8}.${n & 255}` },
      };
    });
    pool.publish(facts);
    await until('all facts are in the log', () => seen.facts.length === MANY);
    const started = performance.now();
    const late = new Recorder();
    const joining = stage.connect('b');
    await joining.follow(late);
    await until('the state is loaded', () => late.loads.length > 0);
    expect(late.loads[0]?.members).toHaveLength(MANY);
    const slow = await store.command('SLOWLOG', 'GET', '128');
    const worstUs = Math.max(0, ...(slow as readonly (readonly number[])[]).map(([, , us = 0]) => us));
    console.log(
      `${MANY} members: joined in ${Math.round(performance.now() - started)} ms; slowest command ${worstUs} us`,
    );
    expect(worstUs).toBeLessThan(500_000);
    expect(stage.lost).toEqual([]);
  });

  test('store limits: a replica publishes what it knows in one turn, however much that is', async () => {
    const stage = openStoreStage(await openStore());
    const pool = stage.connect('a');
    await pool.follow(new Recorder());
    const fact: Fact = { kind: 'member.restored', source: 'main', member: 'member01' };
    pool.publish(Array.from({ length: 200_000 }, () => fact));
    await pool.close();
  });
});
