/**
 * Translates the names of sources. A shared pool names a source by its instance, because norias may use different names
 * for the same instance. `withSourceKeys` returns the shared pool with the names of one configuration. It omits facts
 * about an instance from which no local source draws.
 */
import type { Demand } from '../pool/drawn-member.ts';
import { staysOnMachine } from './records.ts';
import type { Fact, SharedState } from './schemas.ts';
import type { FactFollower, SharedPool } from './shared-pool.ts';

/** Called for each fact, because a reload may change the names. */
export interface SourceKeys {
  keyOf(source: string): string;
  /** Returns undefined if no local source draws from the instance. */
  sourceOf(key: string): string | undefined;
}

type Rename = (source: string) => string | undefined;

export function withSourceKeys(shared: SharedPool, keys: SourceKeys): SharedPool {
  const { keyOf } = keys;
  return {
    follow: (follower) => shared.follow(translateFor(follower, keys)),
    publish: (facts) =>
      shared.publish(facts.flatMap((fact) => (staysOnMachine(fact) ? [] : renameFact(fact, keyOf)))),
    beat: (beat) => shared.beat({ ...beat, demand: renameDemand(beat.demand, keyOf) }),
    bindSession: (proposed, from) => shared.bindSession(proposed, from),
    findSession: (name) => shared.findSession(name),
    close: () => shared.close(),
  };
}

function translateFor(follower: FactFollower, { sourceOf: rename }: SourceKeys): FactFollower {
  return {
    receiveState: (state) => follower.receiveState(renameState(state, rename)),
    receiveFacts(facts) {
      const known = facts.flatMap(({ by, fact }) =>
        renameFact(fact, rename).map((renamed) => ({ by, fact: renamed })),
      );
      if (known.length > 0) follower.receiveFacts(known);
    },
    receiveActivity({ beats, demand, ...activity }) {
      follower.receiveActivity({
        ...activity,
        beats: beats.map(({ by, beat }) => ({
          by,
          beat: { ...beat, demand: renameDemand(beat.demand, rename) },
        })),
        ...(demand !== undefined && { demand: renameDemand(demand, rename) }),
      });
    },
    heldSessions: () => follower.heldSessions(),
  };
}

function renameFact(fact: Fact, rename: Rename): Fact[] {
  if (fact.kind === 'member.joined')
    return renamed([fact.member], rename).map((member) => ({ ...fact, member }));
  return 'source' in fact ? renamed([fact], rename) : [fact];
}

function renameState(
  { members, bans, paused, resumed, reports, ...state }: SharedState,
  rename: Rename,
): SharedState {
  return {
    members: members.flatMap((record) =>
      renamed([record.member], rename).map((member) => ({ ...record, member })),
    ),
    ...state,
    bans: renamed(bans, rename),
    paused: paused.flatMap((key) => rename(key) ?? []),
    resumed: resumed.flatMap((key) => rename(key) ?? []),
    reports: renamed(reports, rename),
  };
}

function renamed<Each extends { readonly source: string }>(all: readonly Each[], rename: Rename): Each[] {
  return all.flatMap((each) => {
    const source = rename(each.source);
    return source === undefined ? [] : [{ ...each, source }];
  });
}

function renameDemand(demand: Readonly<Record<string, Demand>>, rename: Rename) {
  return Object.fromEntries(
    Object.entries(demand).flatMap(([name, each]) => {
      const source = rename(name);
      return source === undefined ? [] : [[source, each] as const];
    }),
  );
}
