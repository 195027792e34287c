/**
 * Carries over the times of the last calls when noria joins, changes or leaves a fleet, so that its first call is not
 * too early.
 *
 * In a fleet, noria records its calls in the fleet's store, and only the name of the fleet in the pace file. If noria
 * later starts without this fleet, it does not know the latest calls, so every instance counts as called at that start.
 * If noria starts in a fleet, its earlier calls delay its first calls in the fleet.
 */
import { elapsedBetween, type Moment, type Timekeeper } from './moment.ts';
import {
  combineCalls,
  type FleetChange,
  type PaceEntries,
  type PaceEntry,
  type PaceStore,
  recordFleet,
} from './pace-file.ts';

interface HandoverOptions extends FleetChange {
  readonly folder: string;
  readonly timekeeper: Timekeeper;
  readonly warn: (message: string) => void;
}

/** Returns a pace store that counts both the calls in `shared`, the store of a fleet, and those in the pace file. */
export type AddOwnCalls = (shared: PaceStore) => PaceStore;

/** @throws NoriaError state-unwritable */
export async function handOverPace(options: HandoverOptions): Promise<AddOwnCalls> {
  const { fleet, timekeeper, warn } = options;
  const { left, entries, at } = await recordFleet(options, options);
  const sinceReadMs = timekeeper.stopwatch();
  if (left !== undefined) warn(leftText(left, fleet));
  return (shared) => addCalls(shared, { entries, at, sinceReadMs });
}

function leftText(left: string, fleet: string | undefined): string {
  const where = fleet === undefined ? 'without a fleet' : `in the fleet ${fleet}`;
  return `noria has left the fleet ${left} and now runs ${where}; noria waits as if it had just called every instance; make sure that no noria of the fleet ${left} still uses these instances`;
}

interface OwnCalls {
  readonly entries: PaceEntries;
  /** The moment at which noria read `entries`. */
  readonly at: Moment;
  /** Returns the time in ms since `at`. It may be slightly too short, but never too long. */
  readonly sinceReadMs: () => number;
}

function addCalls(shared: PaceStore, { entries, at, sinceReadMs }: OwnCalls): PaceStore {
  const { floor, paces } = entries;
  const own = new Map(Object.entries(paces));
  return {
    now: () => shared.now(),
    stopwatch: () => shared.stopwatch(),
    change(key, decide) {
      const entry = own.get(key) ?? floor;
      if (entry?.call === undefined) return shared.change(key, decide);
      // This time is read before the change. So after a slow change, the next call is later than necessary, never too
      // early.
      const passedMs = sinceReadMs();
      return shared.change(key, (found, now) => {
        const moved = moveEntry(entry, (moment) => {
          const ageMs = Math.max(0, elapsedBetween(moment, at)) + passedMs;
          return { ...now, wallAt: now.wallAt - ageMs, elapsedMs: now.elapsedMs - ageMs };
        });
        return decide(combineEntries(found, moved, now), now);
      });
    },
  };
}

/** Returns the entry for another store: without its queue, and with moments that `move` converts. */
function moveEntry({ call, refusals }: PaceEntry, move: (moment: Moment) => Moment): PaceEntry {
  return {
    // Not `pending`, because no process of the fleet will record an answer to this call.
    call: call && { ...call, id: '', claimedAt: move(call.claimedAt), fate: 'unanswered' },
    queue: [],
    refusals: refusals && { ...refusals, lastAt: move(refusals.lastAt) },
  };
}

function combineEntries(found: PaceEntry | undefined, own: PaceEntry, now: Moment): PaceEntry | undefined {
  if (own.call === undefined) return found;
  const call = combineCalls(found?.call, own.call, now);
  const isOwn = call.claimedAt === own.call.claimedAt;
  const refusals = (isOwn ? own.refusals : undefined) ?? found?.refusals;
  return { queue: found?.queue ?? [], call, refusals };
}
