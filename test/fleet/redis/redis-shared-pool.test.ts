import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import type { SharedState } from '../../../src/fleet/schemas.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, openStore, TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember, testSharedPool } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  beforeAll(async () => {
    server = new TestStore(await freePort(), {});
    await server.start();
  });
  afterAll(() => server.close());

  testSharedPool('redis', () => {
    const stage = openStoreStage(server);
    onTestFinished(() => expect(stage.lost, 'lost connections').toEqual([]));
    return stage;
  });

  test('redis: the name of a client does not reach the store', async () => {
    const stage = openStoreStage(server);
    const pool = stage.connect('a');
    await pool.follow(new Recorder());
    pool.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01') }]);
    const member = { member: 'member01', uses: 1, openLeases: 0, answeredTo: 'client-of-a' };
    pool.beat({ waiting: 0, demand: {}, members: [member], sessions: [] });
    const { prefix } = fleetKeys(stage.name);
    const stored = async () => {
      const hashes = [await server.command('KEYS', `${prefix}:*`)].flat().map(String);
      const all = hashes.map((key) => server.command('HGETALL', key).catch(() => ''));
      return JSON.stringify(await Promise.all(all));
    };
    await until('the store has the beat', async () => (await stored()).includes('member01'));
    expect(await stored()).not.toContain('client-of-a');
  });

  test('redis: a replica adds the members that the loaded state lacks, also after the store was emptied', async () => {
    const stage = openStoreStage(server);
    const pool = stage.connect('a');
    const member = sharedMember(stage, 'member01');
    class Rememberer extends Recorder {
      override receiveState(state: SharedState): void {
        super.receiveState(state);
        if (state.members.length === 0)
          queueMicrotask(() => pool.publish([{ kind: 'member.joined', member }]));
      }
    }
    const seen = new Rememberer();
    await pool.follow(seen);
    await until('the member came back from the log', () => seen.facts.length === 1);
    await server.command('FLUSHALL');
    await until('the store has the member again', () => seen.facts.length === 2);
    expect(seen.loads.map(({ members }) => members.length)).toEqual([0, 0]);
  });

  test('redis: loading the state again is no loss of the store', async () => {
    const stage = openStoreStage(server);
    const pool = stage.connect('a');
    const seen = new Recorder();
    await pool.follow(seen);
    pool.reload();
    await until('it is connected again', () => seen.loads.length === 2 && pool.fault === undefined);
    expect(stage.lost).toEqual([]);
  });

  test('redis: each of two replicas with one name reports the other process once', async () => {
    const stage = openStoreStage(server);
    const connect = () => {
      const counts = { beats: 0, warnings: 0 };
      const pool = stage.connect('a', {
        beatEveryMs: 5,
        onTiming: (operation) => {
          if (operation === 'beat') counts.beats += 1;
        },
        observer: {
          ...{ connected() {}, lost() {}, claimed() {}, lagged() {}, unagreed() {}, warned() {} },
          nameTaken() {
            counts.warnings += 1;
          },
        },
      });
      return { pool, counts };
    };
    const both = [connect(), connect()];
    await Promise.all(both.map(({ pool }) => pool.follow(new Recorder())));
    for (const { counts } of both) {
      await until('the replica reports the other process', () => counts.warnings > 0);
      const before = counts.beats;
      await until('the replica has sent 20 more beats', () => counts.beats >= before + 20);
    }
    expect(both.map(({ counts }) => counts.warnings)).toEqual([1, 1]);
  });

  test('redis: warns once of a store that deletes data when its memory is full', async () => {
    const store = await openStore({ args: ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'] });
    const stage = openStoreStage(store);
    const warnings: string[] = [];
    const connect = (replica: string) => {
      const counts = { connected: 0, beats: 0 };
      const pool = stage.connect(replica, {
        beatEveryMs: 5,
        onTiming(operation) {
          if (operation === 'beat') counts.beats += 1;
        },
        observer: {
          ...{ lost() {}, claimed() {}, lagged() {}, nameTaken() {}, unagreed() {} },
          connected() {
            counts.connected += 1;
            counts.beats = 0;
          },
          warned: (message) => void warnings.push(`${replica}: ${message}`),
        },
      });
      return { pool, counts };
    };
    /** The store answers INFO before the beats that follow it. */
    const untilChecked = ({ counts }: ReturnType<typeof connect>) =>
      until('the replica has sent beats', () => counts.beats >= 3);
    const first = connect('a');
    await first.pool.follow(new Recorder());
    await until('the replica warns', () => warnings.length > 0);
    expect(warnings).toEqual([
      expect.stringMatching(
        /^a: the store has maxmemory-policy allkeys-lru.*; set maxmemory-policy to noeviction$/,
      ),
    ]);
    const before = first.counts.connected;
    first.pool.reload();
    await until('the replica is connected again', () => first.counts.connected > before);
    await untilChecked(first);
    await store.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    const second = connect('b');
    await second.pool.follow(new Recorder());
    await untilChecked(second);
    expect(warnings).toHaveLength(1);
  });
});
