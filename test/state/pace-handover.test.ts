import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Claim, claimCall, settleCall, waitBefore } from '../../src/refill/pace-rule.ts';
import { openState } from '../../src/state/folder.ts';
import { createTimekeeper, elapsedBetween } from '../../src/state/moment.ts';
import { createPaceMemory, type PaceStore } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { temporaryFolder } from './temporary-folder.ts';

const RULE = { intervalMs: 10_000, callTimeoutMs: 5_000 };
/** The interval of `RULE` with the slack of every interval. */
const GAP_MS = 10_250;
const DAY_MS = 86_400_000;

function bootOf(clock: ManualClock, id: string) {
  const elapsedMs = () => clock.monotonic();
  return { id, elapsedMs, uptimeMs: elapsedMs };
}

interface Changes {
  readonly fleet?: string;
  readonly daemon?: boolean;
}

/** A state folder, with a clock that all norias of a test share. */
function openStage() {
  const clock = new ManualClock();
  const dir = temporaryFolder();
  const open = async ({ fleet, daemon = true }: Changes = {}) => {
    const warnings: string[] = [];
    const warn = (message: string) => void warnings.push(message);
    const state = await openState({ dir, daemon, fleet, clock, warn, boot: bootOf(clock, 'boot 1') });
    onTestFinished(() => state.close());
    return { ...state, warnings };
  };
  /** The pace store of a fleet, whose clock is a day behind the clock of this machine. */
  const openFleet = () => {
    const now = () => clock.now() - DAY_MS;
    const monotonic = () => clock.monotonic();
    return createPaceMemory(createTimekeeper({ now, monotonic }, bootOf(clock, 'store')));
  };
  return { clock, dir, open, openFleet };
}

const turn = { id: 'turn 1', rule: RULE };
/** Returns the ms until the next call of the instance. */
const waitMs = (store: PaceStore, key = 'city') =>
  store.change(key, (entry, now) => ({ result: entry === undefined ? 0 : waitBefore(entry, now, RULE) }));
const claim = (store: PaceStore, key = 'city'): Promise<Claim> =>
  store.change(key, (entry, now) => claimCall(entry, now, turn));

/** Makes a call that the service answers at once. `holdMs`: the pause that the service requires after it. */
async function call(store: PaceStore, { key = 'city', holdMs = 0 } = {}): Promise<void> {
  expect(await claim(store, key)).toMatchObject({ granted: true });
  const settlement = { kind: 'silence', ms: holdMs } as const;
  await store.change(key, (entry, now) =>
    settleCall(entry, now, { turn, answeredAt: now, settlement, random: () => 0 }),
  );
}

test('pace handover: after noria has left a fleet, every instance counts as called at the start', async () => {
  const { clock, open } = openStage();
  const before = await open();
  await call(before.pace);
  await before.close();
  clock.advance(60_000);
  const joined = await open({ fleet: 'crawl' });
  await joined.close();
  clock.advance(60_000);
  const left = await open();
  expect(await waitMs(left.pace), 'an instance that noria called before it joined').toBe(GAP_MS);
  expect(await waitMs(left.pace, 'another'), 'an instance that noria called only in the fleet').toBe(GAP_MS);
  expect([...joined.warnings, ...left.warnings]).toEqual([
    'noria has left the fleet crawl and now runs without a fleet; noria waits as if it had just called every instance; make sure that no noria of the fleet crawl still uses these instances',
  ]);
  clock.advance(GAP_MS - 1);
  expect(await claim(left.pace)).toEqual({ granted: false, waitMs: 1 });
  clock.advance(1);
  expect(await claim(left.pace)).toMatchObject({ granted: true });
  await left.close();

  const restarted = await open();
  expect(await waitMs(restarted.pace, 'another'), 'the start after that').toBe(0);
  expect(restarted.warnings).toEqual([]);
});

test('pace handover: after noria has left a fleet, a longer pause from before still applies', async () => {
  const { open } = openStage();
  const before = await open();
  await call(before.pace, { holdMs: 600_000 });
  await before.close();
  await (await open({ fleet: 'crawl' })).close();
  expect(await waitMs((await open()).pace)).toBe(600_250);
});

test('pace handover: a command without the fleet waits, and the next daemon still knows the fleet', async () => {
  const { clock, open } = openStage();
  await (await open({ fleet: 'crawl' })).close();
  const command = await open({ daemon: false });
  expect(await waitMs(command.pace)).toBe(GAP_MS);
  expect(command.warnings).toHaveLength(1);
  clock.advance(GAP_MS);
  await call(command.pace);
  clock.advance(60_000);
  const daemon = await open();
  expect(await waitMs(daemon.pace)).toBe(GAP_MS);
});

test('pace handover: a daemon knows the fleet in which a command called', async () => {
  const { open } = openStage();
  await open({ daemon: false, fleet: 'crawl' });
  expect(await waitMs((await open()).pace)).toBe(GAP_MS);
});

test('pace handover: in a fleet, the refusals that belong to the later call count', async () => {
  const { clock, open, openFleet } = openStage();
  const shared = openFleet();
  const refuse = (store: PaceStore, inARow?: number) =>
    store.change('city', (found, now) => ({
      newEntry: {
        ...found,
        queue: [],
        call: { id: 'turn 1', claimedAt: now, arrivedWithinMs: 0, holdMs: 0, fate: 'answered' },
        refusals: inARow === undefined ? undefined : { inARow, widening: 2, lastAt: now },
      },
      result: undefined,
    }));
  const seen = (store: PaceStore) =>
    store.change('city', (entry, now) => ({
      result: entry?.refusals && [entry.refusals.inARow, elapsedBetween(entry.refusals.lastAt, now)],
    }));
  const alone = await open();
  await refuse(alone.pace, 2);
  await alone.close();
  clock.advance(1_000);
  const pace = (await open({ fleet: 'crawl' })).addOwnCalls(shared);
  expect(await seen(pace)).toEqual([2, 1_000]);
  await refuse(shared, 5);
  expect(await seen(pace), 'a later call of the fleet').toEqual([5, 0]);
  await refuse(shared);
  expect(await seen(pace), 'a later call that was not refused').toBeUndefined();
});

test('pace handover: a restart with the same fleet, or with none, writes nothing', async () => {
  const { dir, open } = openStage();
  for (const changes of [{}, { fleet: 'crawl' }]) {
    await (await open(changes)).close();
    const versions = () =>
      readdirSync(dir)
        .filter((name) => name.startsWith('pace.'))
        .sort();
    const before = versions();
    await (await open(changes)).close();
    expect(versions()).toEqual(before);
  }
});

test('pace handover: without a fleet, an unreadable file causes one warning', async () => {
  const { dir, open } = openStage();
  writeFileSync(join(dir, 'pace.3.json'), 'not json');
  const { pace, warnings } = await open();
  expect(await waitMs(pace)).toBe(GAP_MS);
  expect(warnings).toHaveLength(1);
});

test('pace handover: an unreadable file counts as a call just now, with one warning, also in a fleet', async () => {
  const { dir, open, openFleet } = openStage();
  writeFileSync(join(dir, 'pace.3.json'), 'not json');
  const joined = await open({ fleet: 'crawl' });
  expect(joined.warnings).toEqual([expect.stringContaining(`the pace file in ${dir} is unreadable`)]);
  expect(await waitMs(joined.addOwnCalls(openFleet()))).toBe(GAP_MS);
});

test('pace handover: a daemon that cannot lock the folder changes no pace', async () => {
  const { clock, open } = openStage();
  const running = await open({ fleet: 'crawl' });
  await expect(open()).rejects.toMatchObject({ code: 'state-locked' });
  await running.close();
  clock.advance(60_000);
  expect(await waitMs((await open()).pace)).toBe(GAP_MS);
});

test('pace handover: in a fleet, the own last call delays the next call of the whole fleet', async () => {
  const { clock, open, openFleet } = openStage();
  const shared = openFleet();
  const before = await open();
  await call(before.pace);
  await before.close();
  clock.advance(2_000);
  const joined = await open({ fleet: 'crawl' });
  const pace = joined.addOwnCalls(shared);
  expect(await waitMs(pace)).toBe(GAP_MS - 2_000);
  expect(await waitMs(pace, 'another')).toBe(0);
  expect(pace.now()).toEqual(shared.now());
  const watch = pace.stopwatch();
  const age = await pace.change('city', (entry, now) => ({
    result: [now.wallAt - Number(entry?.call?.claimedAt.wallAt), entry?.call?.fate, entry?.call?.id],
  }));
  expect(age).toEqual([2_000, 'unanswered', '']);
  clock.advance(1_000);
  expect(watch()).toBe(1_000);
  expect(await claim(pace)).toEqual({ granted: false, waitMs: GAP_MS - 3_000 });
  expect(joined.warnings).toEqual([]);
  await joined.close();

  const again = await open({ fleet: 'crawl' });
  const paceAgain = again.addOwnCalls(shared);
  expect(await waitMs(paceAgain), 'after a restart in the fleet').toBe(GAP_MS - 3_000);
  clock.advance(GAP_MS - 3_000);
  await call(paceAgain);
  clock.advance(4_000);
  expect(await waitMs(paceAgain), 'after a call of the fleet').toBe(GAP_MS - 4_000);
  expect(await waitMs(shared), 'for the other norias of the fleet').toBe(GAP_MS - 4_000);
});

test('pace handover: in a fleet, the longer of an own pause and the pause of the fleet applies', async () => {
  const { clock, open, openFleet } = openStage();
  const shared = openFleet();
  const before = await open();
  await call(before.pace, { holdMs: 15_000 });
  await before.close();
  clock.advance(3_000);
  await call(shared);
  const pace = (await open({ fleet: 'crawl' })).addOwnCalls(shared);
  expect(await waitMs(pace)).toBe(12_250);
  clock.advance(1_000);
  expect(await waitMs(pace)).toBe(11_250);
  clock.advance(11_250);
  await call(pace, { holdMs: 60_000 });
  expect(await waitMs(pace)).toBe(60_250);
});

test('pace handover: a call of a killed process delays the fleet for as long as it may last', async () => {
  const { clock, open, openFleet } = openStage();
  const killed = await open();
  await claim(killed.pace);
  await killed.close();
  clock.advance(1_000);
  const pace = (await open({ fleet: 'crawl' })).addOwnCalls(openFleet());
  expect(await waitMs(pace)).toBe(GAP_MS + 2_000 + RULE.callTimeoutMs - 1_000);
});

test('pace handover: a change to another fleet delays the first call there', async () => {
  const { clock, open, openFleet } = openStage();
  await (await open({ fleet: 'crawl' })).close();
  const moved = await open({ fleet: 'search' });
  const pace = moved.addOwnCalls(openFleet());
  expect(moved.warnings).toEqual([
    expect.stringMatching(/^noria has left the fleet crawl and now runs in the fleet search;/),
  ]);
  clock.advance(4_000);
  expect(await waitMs(pace)).toBe(GAP_MS - 4_000);
});
