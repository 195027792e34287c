/**
 * Translates the names of sources. A shared pool names a source by its instance, because norias may use different names
 * for the same instance. `withSourceKeys` returns the shared pool with the names of one configuration. It omits facts
 * about an instance from which no local source draws.
 */
import type { Demand } from '../pool/drawn-member.ts';
import type { Beat, Fact, FactFollower, LoggedFact, SharedPool, SharedState } from './shared-pool.ts';

/**
 * Translates the name of a source to the key of its instance, and back. Called for each fact, because a reload may
 * change the names.
 */
export interface SourceKeys {
  keyOf(source: string): string;
  /** Returns undefined if no local source draws from the instance. */
  sourceOf(key: string): string | undefined;
}

export function withSourceKeys(shared: SharedPool, keys: SourceKeys): SharedPool {
  const { keyOf } = keys;
  return {
    follow: (follower) => shared.follow(translateFor(follower, keys)),
    publish: (facts) => shared.publish(facts.flatMap((fact) => renameFact(fact, keyOf))),
    beat: (beat) => shared.beat(renameBeat(beat, keyOf)),
    bindSession: (proposed) => shared.bindSession(proposed),
    close: () => shared.close(),
  };
}

type Rename = (source: string) => string | undefined;

function translateFor(follower: FactFollower, { sourceOf }: SourceKeys): FactFollower {
  return {
    receiveState: (state) => follower.receiveState(renameState(state, sourceOf)),
    receiveFacts(facts) {
      const known = facts.flatMap(({ by, fact }): LoggedFact[] =>
        renameFact(fact, sourceOf).map((renamed) => ({ by, fact: renamed })),
      );
      if (known.length > 0) follower.receiveFacts(known);
    },
    receiveActivity(activity) {
      const beats = activity.beats.map(({ by, beat }) => ({ by, beat: renameBeat(beat, sourceOf) }));
      follower.receiveActivity({ ...activity, beats });
    },
  };
}

/** Returns an empty list if no local source draws from the fact's instance. */
function renameFact(fact: Fact, rename: Rename): Fact[] {
  switch (fact.kind) {
    case 'member.joined': {
      const source = rename(fact.member.source);
      return source === undefined ? [] : [{ ...fact, member: { ...fact.member, source } }];
    }
    case 'source.commanded':
    case 'source.reported': {
      const source = rename(fact.source);
      return source === undefined ? [] : [{ ...fact, source }];
    }
    case 'source.restricted':
    case 'evictions.frozen':
    case 'member.suspected':
      return []; // these facts stay on their machine: the service and the network may treat each machine differently
    case 'member.quarantined':
    case 'member.restored':
    case 'member.left':
    case 'member.banned':
    case 'session.moved':
    case 'session.ended':
      return [fact];
  }
}

function renameState(
  { members, sessions, paused, resumed = [], reports = [] }: SharedState,
  rename: Rename,
): SharedState {
  return {
    members: members.flatMap((record) => {
      const source = rename(record.member.source);
      return source === undefined ? [] : [{ ...record, member: { ...record.member, source } }];
    }),
    sessions,
    paused: paused.flatMap((key) => rename(key) ?? []),
    resumed: resumed.flatMap((key) => rename(key) ?? []),
    reports: reports.flatMap((report) => {
      const source = rename(report.source);
      return source === undefined ? [] : [{ ...report, source }];
    }),
  };
}

function renameBeat(beat: Beat, rename: Rename): Beat {
  const demand: Record<string, Demand> = {};
  for (const [name, each] of Object.entries(beat.demand)) {
    const source = rename(name);
    if (source !== undefined) demand[source] = each;
  }
  return { ...beat, demand };
}
