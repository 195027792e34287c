/**
 * What the replicas of one pool share: an ordered log of facts, beats, sessions, and the pace of each instance.
 *
 * A replica is a process that serves clients, or that draws members for such processes. A replica picks from a complete pool of
 * its own, so a client never waits for shared data. A fact is a change of the pool, an operator's command or an answer of the
 * service. A beat is a replica's report of its current activity: demand, uses and open leases. An instance is the service product
 * from which a source draws.
 *
 * Three implementations pass the same tests (test/fleet/shared-pool-contract.ts): the reference model in memory, one for the
 * processes of one machine, and one for machines that share a store.
 *
 * Everything here is plain data that can be sent as JSON. Moments are monotonic ms of the replica that passes or receives them.
 * An implementation converts them between processes. If it cannot convert an end of life exactly, it chooses an earlier moment,
 * not a later one. `source` is the name that all replicas use for a source. It may differ from the name in one configuration
 * (source-keys.ts).
 *
 * The state is the result of all facts in the order of the log (shared-state.ts). Of two facts about the same subject, the later
 * one decides. Every fact is idempotent.
 */
import type { LimitPart } from '../pool/options.ts';
import type {
  MemberQuarantine,
  PoolActivity,
  PoolChange,
  Restriction,
  SharedMember,
  SharedSession,
} from '../pool/shared-member.ts';
import type { InstanceReport } from '../refill/instance-report.ts';
import type { PaceStore } from '../state/pace-file.ts';

export type Fact = Exclude<PoolChange, { kind: 'member.left' }> | MemberLeft | SourceCommand | SourceReport;

/**
 * A replica has removed the member. The other replicas remove it as well, after `votesNeeded` different replicas have published
 * this fact.
 */
export type MemberLeft = Extract<PoolChange, { kind: 'member.left' }> & { readonly votesNeeded: number };

/** The operator's command for a source. Every replica executes it. The last `pause` or `resume` is part of the state. */
export interface SourceCommand {
  readonly kind: 'source.commanded';
  readonly source: string;
  readonly command: 'pause' | 'resume' | 'refill';
}

/** A replica got an answer of the service about the source's instance. The last report about each source is part of the state. */
export interface SourceReport extends InstanceReport {
  readonly kind: 'source.reported';
  readonly source: string;
}

/** A fact in the log, with the name of the replica that published it. */
export interface LoggedFact {
  readonly by: string;
  readonly fact: Fact;
}

/** A member in the state that a new follower loads. */
export interface MemberRecord {
  readonly member: SharedMember;
  /** The name of the replica that drew the member. */
  readonly drawnBy: string;
  readonly quarantine?: MemberQuarantine | undefined;
  /** The hosts for which clients banned the member. */
  readonly bans: readonly string[];
  /** The number of client leases that the member accepted in all replicas, according to their beats. */
  readonly uses: number;
  /** The names of the replicas that voted for the member's removal. */
  readonly votes: readonly string[];
  /**
   * Why the member was removed; absent while it is a member. The record stays until the member's end of life, so that a late fact
   * cannot bring the member back.
   */
  readonly left?: Pick<MemberLeft, 'reason' | 'fault'> | undefined;
}

/** The complete shared state, without beats. Members and sessions that have ended may be missing. */
export interface SharedState {
  readonly members: readonly MemberRecord[];
  readonly sessions: readonly SharedSession[];
  /** Names of the sources whose last command was `pause`. */
  readonly paused: readonly string[];
  /** Names of the sources whose last command was `resume`. */
  readonly resumed?: readonly string[] | undefined;
  readonly reports?: readonly SourceReport[] | undefined;
  /**
   * What this machine has learned about its sources and its network (see `Restriction`). Absent if the replicas run on different
   * machines, because such replicas do not publish it.
   */
  readonly restrictions?: readonly Restriction[] | undefined;
}

/**
 * The activity of one replica. Only the latest beat of a replica counts, except for `uses`: the uses of all its beats are added
 * up.
 */
export type Beat = PoolActivity;

export interface FleetView {
  /** The names of the replicas that serve clients now, including this replica, in the same order for all replicas. */
  readonly replicas: readonly string[];
  /**
   * New beats of other replicas, in order. Several beats of one replica may be merged into one beat, which has the latest demand
   * and the latest numbers of each member. A replica that is not in `replicas` has no demand and no open leases.
   */
  readonly beats: readonly { readonly by: string; readonly beat: Beat }[];
  /** For members whose uses have changed: the number of accepted leases in all replicas, by member id. */
  readonly uses: Readonly<Record<string, number>>;
  /**
   * This machine's part of the limits. Present if several machines share the pool and the replicas are processes of this machine.
   */
  readonly machine?: LimitPart | undefined;
}

/**
 * Receives the shared state and its changes. The methods are never called at the same time, nor during a call of a `SharedPool`
 * method.
 */
export interface Follower {
  /**
   * Receives the shared state as it was before the first fact that `followed` will receive. Called once at the start, and again
   * after facts were lost, for example with the connection. The follower then publishes what it knows and what `state` lacks.
   */
  loaded(state: SharedState): void;
  /**
   * Receives facts in the order of the log, without gaps or repetitions since `loaded`. A replica also receives its own facts. So
   * it learns which facts of other replicas precede its own fact.
   */
  followed(facts: readonly LoggedFact[]): void;
  heard(view: FleetView): void;
}

export interface SharedPool {
  /**
   * Begins to follow. Call it once. Resolves after the first `loaded` and `heard`; then the other replicas see this replica.
   * @throws NoriaError if the shared state is unreachable.
   */
  follow(follower: Follower): Promise<void>;
  /**
   * Appends facts to the log in this order. Returns at once and never throws. Without a connection, drops the facts. After
   * the next `loaded`, the caller compares the state with its own and publishes what is missing.
   */
  publish(facts: readonly Fact[]): void;
  /**
   * Replaces the demand of this replica and adds its uses to the state. Returns at once and never throws. The other replicas
   * receive the beat within about a second, and a rise in demand at once. Call it only after changes. Without a connection, it
   * keeps the demand and the uses of members until the connection is back.
   */
  beat(beat: Beat): void;
  /**
   * Opens a session that this replica does not know, in one atomic step. If no replica has the session, or if the session has no
   * member, the proposal becomes part of the state, and a fact `session.moved` of this replica is appended. Otherwise the state
   * does not change.
   * @returns the session in the state, which another replica may have opened or moved. Returns the proposal if the connection is
   * lost or too slow. Never rejects.
   */
  bindSession(proposed: SharedSession): Promise<SharedSession>;
  /** Ends the connection. The other replicas no longer see this replica, but its facts remain. Idempotent. */
  close(): Promise<void>;
}

/** A shared pool whose replicas also draw members, so that they share the pace of their calls. */
export interface PacedSharedPool extends SharedPool {
  /**
   * The pace of all instances, which all replicas share. The store accepts or rejects a change only after the log contains
   * all earlier facts of this replica. A claim reserves a call to the service. The store grants a claim only if this replica has
   * received the whole log; otherwise the replica could draw again what another replica has just drawn. Without a connection, a
   * change is rejected with `fleet-store-lost`.
   */
  readonly pace: PaceStore;
}
