/** A store whose data somebody else has written: no record of it breaks a noria, and none without a right signature counts. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemBoot } from '../../../src/core/clock.ts';
import { inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import { Seal } from '../../../src/fleet/redis/seal.ts';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import type { Fact } from '../../../src/fleet/schemas.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember } from '../shared-pool-contract.ts';
import { instance, openStoreStage } from './store-stage.ts';

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  beforeAll(async () => {
    server = new TestStore(await freePort(), {});
    await server.start();
  });
  afterAll(() => server.close());

  async function openVictim() {
    const stage = openStoreStage(server);
    const warnings: string[] = [];
    const refuses = (host: string) => (host.startsWith('10.') ? 'private' : undefined);
    const observer = {
      ...{ connected() {}, lost() {}, claimed() {}, lagged() {}, nameTaken() {}, unagreed() {} },
      warned: (message: string) => void warnings.push(message),
    };
    const pool = stage.connect('a', { refuses, observer });
    const seen = new Recorder();
    await pool.follow(seen);
    await until('the state is loaded', () => seen.loads.length > 0);
    const base = fleetKeys(stage.name).instance('city');
    const seal = new Seal(stage.name, [instance('city')]);
    /** Appends an entry to the log. @param mac - absent: the right signature. */
    const append = async (text: string, mac = seal.sign('log', 'forger', text)) => {
      const number = await server.command('HINCRBY', `${base}:state`, 'number', '1');
      const fields = ['at', '0', 'by', 'forger', 'mac', mac, 'facts', text];
      await server.command('XADD', `${base}:log`, `${String(number)}-0`, ...fields);
    };
    let marks = 0;
    /** Waits until the replica has read all entries so far. Returns the members of the facts before. */
    const received = async (): Promise<string[]> => {
      const mark: Fact = { kind: 'source.commanded', source: 'city', command: 'refill' };
      pool.publish([mark]);
      marks += 1;
      const come = () => seen.facts.filter(({ fact }) => fact.kind === 'source.commanded').length;
      await until('the mark has come', () => come() === marks);
      return seen.facts.flatMap(({ fact }) => (fact.kind === 'member.joined' ? [fact.member.id] : []));
    };
    return { stage, pool, seen, warnings, base, append, received };
  }

  test('untrusted store: a member without a right signature does not join, and the entry is named once', async () => {
    const { stage, append, received, warnings } = await openVictim();
    const member = { ...sharedMember(stage, 'forged01'), joinedAt: Date.now(), endsAt: Date.now() + 60_000 };
    const text = JSON.stringify([{ kind: 'member.joined', member }]);
    await append(text, '');
    await append(
      text,
      new Seal(stage.name, [instance('city', 'another secret')]).sign('log', 'forger', text),
    );
    await append(text, new Seal('other', [instance('city')]).sign('log', 'forger', text));
    await append(text, new Seal(stage.name, [instance('backup')]).sign('log', 'forger', text));
    expect(await received()).toEqual([]);
    expect(warnings).toHaveLength(4);
    expect(warnings[0]).toBe(
      'noria ignores entry 1 of the log in the store of the fleet: noria forger did not sign it with the secret of this instance',
    );
    await append(text);
    expect(await received(), 'the same member, signed').toEqual(['forged01']);
  });

  test('untrusted store: signed records still pass the checks of a draw', async () => {
    const { stage, append, received, warnings } = await openVictim();
    const now = Date.now();
    const good = { ...sharedMember(stage, 'member01'), joinedAt: now, endsAt: now + 60_000 };
    const wrong = [
      { port: -1 },
      { port: 70_000 },
      { port: 1.5 },
      { host: '10.0.0.1' },
      { host: 'proxy.example' },
      { host: '203.0.113.007' },
      { id: 'a\r\nX: 1' },
      { id: 'UPPER001' },
      { exitIp: '1.1.1.1\r\nSet-Cookie: a' },
      { endsAt: 1e300 },
      { endsAt: now + 500 * 86_400_000 },
      { source: 'backup' },
      { location: 'x\r\ny' },
      { location: 'x'.repeat(1_000) },
    ];
    for (const [number, change] of wrong.entries()) {
      const member = { ...good, id: `wrong${String(number).padStart(3, '0')}`, ...change };
      await append(JSON.stringify([{ kind: 'member.joined', member }]));
    }
    await append(JSON.stringify([{ kind: 'member.joined', member: good }]));
    expect(await received()).toEqual(['member01']);
    expect(warnings.length).toBeGreaterThanOrEqual(wrong.length - 1);
  });

  test('untrusted store: entries that are not readable stop nothing, and noria check names them', async () => {
    const { stage, pool, append, received } = await openVictim();
    for (const text of ['no JSON', '{}', '[1, null, {}]', '[{"kind":"unknown"}]']) await append(text);
    await append('[', '');
    const member = sharedMember(stage, 'member01');
    pool.publish([{ kind: 'member.joined', member }]);
    expect(await received()).toEqual(['member01']);
    const claimed = await pool.pace.change('city', (_, now) => ({
      newEntry: {
        queue: [],
        call: { id: 'x', claimedAt: now, arrivedWithinMs: 0, holdMs: 0, fate: 'pending' },
      },
      result: true,
    }));
    expect(claimed, 'the fleet still draws').toBe(true);
    const { warnings, errors } = await inspectStore(server.address(), stage.name, stage.clock, {
      instances: [instance('city')],
      refuses: () => undefined,
      timekeeper: createTimekeeper(stage.clock, systemBoot()),
    });
    expect(errors).toEqual([]);
    const named = warnings.filter((warning) => /^noria ignores entry \d of the log/.test(warning));
    expect(named).toHaveLength(5);
  });

  test('untrusted store: forged sessions and pages of a snapshot do not count', async () => {
    const { stage, pool, base } = await openVictim();
    const keys = fleetKeys(stage.name);
    const session = {
      name: 's1',
      owner: { user: '', address: '' },
      member: 'member01',
      ttlMs: 60_000,
      usedAt: stage.clock.monotonic(),
      uses: 0,
    };
    await pool.bindSession(session, undefined);
    const text = JSON.stringify({ ...session, member: 'forged01', usedAt: Date.now() });
    await server.command('HSET', keys.session('backup\ncity', 's1'), 'text', text, 'member', 'forged01');
    expect((await pool.bindSession(session, undefined))?.member).toBe('member01');
    const state = `${base}:state`;
    await server.command(
      'HSET',
      `${base}:pages`,
      'x 0',
      '{"paused":["city"],"resumed":[],"reports":[]}',
      'x 0 mac',
      'x',
    );
    await server.command('HSET', state, 'snapshot', 'x', 'pages', '1', 'covers', '0');
    const late = new Recorder();
    await stage.connect('late').follow(late);
    await until('the state is loaded', () => late.loads.length > 0);
    expect(late.loads[0]?.paused).toEqual([]);
  });
});
