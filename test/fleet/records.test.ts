/** What replicas exchange: moments, what stays on a machine, the names of sources, and what is decoded of a store. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { banKey, shiftMoments, sourceOf, staysOnMachine } from '../../src/fleet/records.ts';
import {
  decodeFacts,
  decodeRecords,
  decodeReplica,
  decodeSession,
  decodeSourceState,
  type Fact,
  type SharedState,
} from '../../src/fleet/schemas.ts';
import type { SharedPool } from '../../src/fleet/shared-pool.ts';
import { withSourceKeys } from '../../src/fleet/source-keys.ts';
import { NO_DEMAND } from '../../src/pool/drawn-member.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { EMPTY_STATE, Recorder, sharedMember, siteBan } from './shared-pool-contract.ts';

const clock = new ManualClock();
const member = (changes: object = {}) => ({ ...sharedMember({ clock }, 'member01'), ...changes });
const joined = (changes: object = {}): Fact => ({ kind: 'member.joined', member: member(changes) });
const login = { username: 'me', password: new Secret('x') };

test('records: only the moments of a value are shifted, at any depth, and no field of the service', () => {
  const secret = new Secret('startedAt');
  const value = {
    usedAt: 1,
    uses: 1,
    at: 1,
    textAt: 'At',
    noneAt: null,
    facts: { lastAt: 1 },
    login: { passwordAt: secret },
    list: [{ untilAt: Infinity, deep: Object.assign(Object.create(null), { sinceAt: 2 }) }],
  };
  const shifted = shiftMoments(value, (moment) => moment + 10);
  expect(shifted).toEqual({
    ...value,
    usedAt: 11,
    list: [{ untilAt: Infinity, deep: { sinceAt: 12 } }],
  });
  expect(shifted.login.passwordAt).toBe(secret);
  expect(value.usedAt).toBe(1);
});

test('records: a ban is known by source, site, exit and user, whatever characters they have', () => {
  const key = (site: string, exit: string, user?: string) =>
    banKey(siteBan({ clock }, site, { exit, ...(user !== undefined && { user }) }));
  const keys = [key('a', 'b'), key('a","b', ''), key('', 'a","b'), key('a', 'b', 'u'), key('a', 'b', 'u2')];
  expect(new Set(keys).size).toBe(keys.length);
  expect(key('a', 'b', '')).toBe(key('a', 'b'));
});

const restricted: Fact = { kind: 'source.restricted', source: 'city', leaseLimit: 1 };
const frozen: Fact = { kind: 'evictions.frozen', on: true };
const suspected: Fact = { kind: 'member.suspected', source: 'city', member: 'member01' };
const ended: Fact = { kind: 'session.ended', name: 's1' };
const restored: Fact = { kind: 'member.restored', source: 'city', member: 'member01' };

test('records: what only this machine knows, and a login, stays on it', () => {
  const all = [joined(), restored, ended, joined({ login }), restricted, frozen, suspected];
  expect(all.map(staysOnMachine)).toEqual([false, false, false, true, true, true, true]);
  expect([joined(), restored, ended].map(sourceOf)).toEqual(['city', 'city', undefined]);
});

/** A noria that calls the instances `key 1` and `key 2` city and town; no source draws from `key 3`. */
function openKeys() {
  const sent: unknown[] = [];
  const seen = new Recorder();
  let follower: Parameters<SharedPool['follow']>[0] | undefined;
  const shared: SharedPool = {
    follow: async (given) => {
      follower = given;
    },
    publish: (facts) => void sent.push(...facts),
    beat: (beat) => void sent.push(beat),
    bindSession: async (proposed) => proposed,
    findSession: async () => undefined,
    close: async () => void sent.push('closed'),
  };
  const names = new Map([
    ['city', 'key 1'],
    ['town', 'key 2'],
  ]);
  const keyed = withSourceKeys(shared, {
    keyOf: (source) => names.get(source) ?? source,
    sourceOf: (key) => [...names].find(([, each]) => each === key)?.[0],
  });
  return { keyed, sent, seen, receive: () => follower ?? seen };
}

const demand = { ...NO_DEMAND, waiting: 1 };
const activity = { replicas: ['a'], beats: [], uses: {} };

test('source keys: what noria sends names the instances, and what stays on the machine is not sent', () => {
  const { keyed, sent } = openKeys();
  keyed.publish([joined(), joined({ login }), restored, ended, restricted, suspected]);
  expect(sent).toEqual([joined({ source: 'key 1' }), { ...restored, source: 'key 1' }, ended]);
  keyed.beat({ waiting: 1, demand: { town: demand }, members: [], sessions: [] });
  expect(sent.at(-1)).toEqual({ waiting: 1, demand: { 'key 2': demand }, members: [], sessions: [] });
});

test('source keys: what noria receives has its own names, without other instances', async () => {
  const { keyed, seen, receive } = openKeys();
  await keyed.follow(seen);
  const named = (source: string) => [joined({ source }), { ...restored, source }];
  const by = (facts: readonly Fact[]) => facts.map((fact) => ({ by: 'a', fact }));
  receive().receiveFacts(by([...named('key 2'), ...named('key 3'), ended]));
  expect(seen.facts).toEqual(by([...named('town'), ended]));
  const counting = openKeys();
  const calls: unknown[] = [];
  const counter = Object.assign(new Recorder(), { receiveFacts: (facts: unknown) => void calls.push(facts) });
  await counting.keyed.follow(counter);
  counting.receive().receiveFacts(by(named('key 3')));
  expect(calls, 'nothing for this noria').toEqual([]);
  const state = (sources: string[]): SharedState => ({
    ...EMPTY_STATE,
    members: sources.map((source) => ({ member: member({ source }), drawnBy: 'a', uses: 1, votes: [] })),
    bans: sources.map((source) => siteBan({ clock }, 'shop.test', { source })),
    paused: sources,
    resumed: sources,
    reports: sources.map((source) => ({ kind: 'source.reported', source, quota: {} })),
  });
  receive().receiveState(state(['key 1', 'key 3', 'key 2']));
  expect(seen.loads).toEqual([state(['city', 'town'])]);
  const all = { 'key 1': demand, 'key 3': demand };
  const beat = { waiting: 1, demand: all, members: [], sessions: [] };
  receive().receiveActivity({ ...activity, beats: [{ by: 'a', beat }], demand: all });
  receive().receiveActivity(activity);
  const own = { city: demand };
  expect(seen.views).toEqual([
    { ...activity, beats: [{ by: 'a', beat: { ...beat, demand: own } }], demand: own },
    activity,
  ]);
  seen.held.push('s1');
  expect(receive().heldSessions()).toEqual(['s1']);
});

const stored = { member: member(), drawnBy: 'a', uses: 1, votes: [] };

test.each<[what: string, changes: object, isValid: boolean]>([
  ['an address of version 6', { host: '2001:db8::1' }, true],
  ['a name', { host: 'proxy.test' }, false],
  ['an address that is not canonical', { host: '2001:DB8::1' }, false],
  ['port 1', { port: 1 }, true],
  ['port 0', { port: 0 }, false],
  ['port 65,535', { port: 65_535 }, true],
  ['port 65,536', { port: 65_536 }, false],
  ['an unknown protocol', { protocol: 'ftp' }, false],
  ['a negative moment', { joinedAt: -1 }, false],
  ['a moment in 300 years', { joinedAt: 1e13, endsAt: 1e13 }, true],
  ['a moment after 300 years', { joinedAt: 1e13, endsAt: 1e13 + 1 }, false],
  ['a life of 400 days', { joinedAt: 0, endsAt: 400 * 86_400_000 }, true],
  ['a longer life', { joinedAt: 0, endsAt: 400 * 86_400_000 + 1 }, false],
  ['an id of seven characters', { id: 'member1' }, false],
  ['a hundred facts', { facts: Object.fromEntries(Array.from({ length: 100 }, (_, n) => [n, n])) }, true],
  ['a hundred and one', { facts: Object.fromEntries(Array.from({ length: 101 }, (_, n) => [n, n])) }, false],
  ['a location of 500 characters', { location: 'x'.repeat(500) }, true],
  ['a longer one', { location: 'x'.repeat(501) }, false],
  ['a line feed', { location: 'x\n' }, false],
])('stored records: a member with %s', (_what, changes, isValid) => {
  const fact = JSON.stringify([joined(changes)]);
  expect(decodeFacts(fact)?.facts).toHaveLength(isValid ? 1 : 0);
  expect(decodeFacts(fact)?.skipped).toBe(isValid ? 0 : 1);
  const page = JSON.stringify([{ ...stored, member: member(changes) }]);
  expect(decodeRecords(page)).toMatchObject({ skipped: isValid ? 0 : 1, bans: [] });
});

test('stored records: a page has members and bans; what is unreadable is counted', () => {
  const ban = siteBan({ clock }, 'shop.test');
  const page = decodeRecords(JSON.stringify([stored, ban, ban, 7, { ...stored, votes: 'a' }]));
  expect(page).toMatchObject({ members: [stored], bans: [ban, ban], skipped: 2 });
  for (const text of ['{}', 'x', '7']) {
    expect(decodeRecords(text), text).toBeUndefined();
    expect(decodeFacts(text), text).toBeUndefined();
    expect(decodeSession(text), text).toBeUndefined();
    expect(decodeSourceState(text), text).toBeUndefined();
  }
});

test('stored records: an unknown fault or reason of a later version still counts', () => {
  const left = {
    kind: 'member.left',
    source: 'city',
    member: 'member01',
    reason: 'bored',
    fault: 'new-fault',
  };
  expect(decodeFacts(JSON.stringify([left]))?.facts).toEqual([
    { ...left, reason: 'evicted', fault: 'internal' },
  ]);
  const known = { ...left, reason: 'failed', fault: 'member-closed' };
  expect(decodeFacts(JSON.stringify([known, { ...left, fault: 'toString' }]))?.facts).toEqual([
    known,
    { ...left, reason: 'evicted', fault: 'internal' },
  ]);
  const replica = { process: 'p', version: '1', refusals: 'x', instances: [{}] };
  expect(decodeReplica(JSON.stringify(replica)), 'what only explains').toEqual({
    process: 'p',
    version: '1',
  });
});

test('stored records: what a replica tells of itself is bounded, and what only explains may be missing', () => {
  const refusal = { source: 'city', reason: 'no', advice: 'do' };
  const settings = { source: 'city', intervalMs: 1_000, size: 5, params: '' };
  const decoded = (count: number) =>
    decodeReplica(
      JSON.stringify({
        ...{ process: 'p', version: '1' },
        refusals: Array.from({ length: count }, () => refusal),
        instances: Array.from({ length: count }, () => settings),
      }),
    );
  expect(decoded(1)).toEqual({ process: 'p', version: '1', refusals: [refusal], instances: [settings] });
  expect([decoded(1_000)?.refusals?.length, decoded(1_000)?.instances?.length]).toEqual([1_000, 1_000]);
  expect(decoded(1_001)).toEqual({ process: 'p', version: '1' });
});
