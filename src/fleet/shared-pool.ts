/**
 * What the replicas of one pool share: a log of facts, beats, sessions, and the pace of each instance.
 *
 * A replica is a process with a complete copy of the pool, so its clients never wait for shared data. A fact is a change
 * of the pool, an operator's command or an answer of the service. A beat is a replica's report of its demand, uses and
 * open leases. An instance is what a source draws from at the service.
 *
 * The state is the result of all facts in the order of the log (shared-state.ts). Of two facts about the same subject,
 * for example the same session, the later one decides. Every fact is idempotent.
 *
 * All data can be sent as JSON. Moments are monotonic ms of the replica that sends or receives them; the implementation
 * converts them. If a conversion is inexact, a member expires too early, never too late. `source` is a name that all
 * replicas use (source-keys.ts).
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
import type { InstanceReport } from '../refill/reaction.ts';
import type { PaceStore } from '../state/pace-file.ts';

export type Fact = Exclude<PoolChange, { kind: 'member.left' }> | MemberLeft | SourceCommand | SourceReport;

/**
 * A replica has removed the member. When `votesNeeded` replicas have published this fact, the other replicas remove the
 * member too.
 */
export type MemberLeft = Extract<PoolChange, { kind: 'member.left' }> & { readonly votesNeeded: number };

/**
 * An operator's command for a source. Every replica executes it. The state contains each source's last `pause` or
 * `resume`.
 */
export interface SourceCommand {
  readonly kind: 'source.commanded';
  readonly source: string;
  readonly command: 'pause' | 'resume' | 'refill';
}

/**
 * An answer that a replica got from the service about the instance of a source. The state contains the last answer
 * about each source.
 */
export interface SourceReport extends InstanceReport {
  readonly kind: 'source.reported';
  readonly source: string;
}

export interface LoggedFact {
  readonly by: string;
  readonly fact: Fact;
}

/** A member in the loaded state. */
export interface MemberRecord {
  readonly member: SharedMember;
  readonly drawnBy: string;
  readonly quarantine?: MemberQuarantine | undefined;
  /** The target hosts for which clients banned the member. */
  readonly bans: readonly string[];
  /** The number of client leases that used the member, in all replicas together, according to their beats. */
  readonly uses: number;
  /** The names of the replicas that voted to remove the member. */
  readonly votes: readonly string[];
  /**
   * Why the member was removed; absent while it is in the pool. The state contains a removed member until its end of
   * life, so that a late fact cannot add it again.
   */
  readonly left?: Pick<MemberLeft, 'reason' | 'fault'> | undefined;
}

/** The complete shared state. Beats are not part of it. Members and sessions that have ended may be missing. */
export interface SharedState {
  readonly members: readonly MemberRecord[];
  readonly sessions: readonly SharedSession[];
  /** Names of the sources whose last command was `pause`. */
  readonly paused: readonly string[];
  /** Names of the sources whose last command was `resume`. */
  readonly resumed?: readonly string[] | undefined;
  readonly reports?: readonly SourceReport[] | undefined;
  /**
   * What this machine has learned about its sources and its network (see `Restriction`). Absent in a fleet, because
   * such knowledge is valid for one machine only.
   */
  readonly restrictions?: readonly Restriction[] | undefined;
}

/**
 * The activity of one replica. Its `uses` are added to those of earlier beats. All its other numbers replace those of
 * earlier beats.
 */
export type Beat = PoolActivity;

export interface FleetActivity {
  /**
   * The names of the replicas that now serve clients, including this replica. All replicas see them in the same order.
   */
  readonly replicas: readonly string[];
  /**
   * New beats of other replicas, in order. Several beats of one replica may be merged. A replica that is not in
   * `replicas` has no demand and no open leases.
   */
  readonly beats: readonly { readonly by: string; readonly beat: Beat }[];
  /** The uses in all replicas, by member id. Contains only members whose uses have changed. */
  readonly uses: Readonly<Record<string, number>>;
  /**
   * This machine's part of the limits that the whole fleet shares, such as `maxTunnelsPerMember`. Present only if the
   * replicas are the processes of one machine, and this machine belongs to a fleet.
   */
  readonly machine?: LimitPart | undefined;
}

/**
 * Receives the shared state and its changes. The shared pool calls one method of the follower at a time, and
 * never while a method of the shared pool runs.
 */
export interface FactFollower {
  /**
   * Receives the state before the next facts. Called once at the start, and again after facts were lost, for example
   * with the connection. The follower then publishes what it knows and `state` lacks, for example members.
   */
  receiveState(state: SharedState): void;
  /**
   * Receives the next facts, in the order of the log, without gaps or repetitions. They include the replica's own
   * facts, so that the replica learns which facts of other replicas come before them.
   */
  receiveFacts(facts: readonly LoggedFact[]): void;
  receiveActivity(activity: FleetActivity): void;
}

export interface SharedPool {
  /**
   * Starts to pass the shared state and its changes to `follower`; call it once. Resolves after the first
   * `receiveState` and `receiveActivity`, or when the first attempt to connect to the store has failed.
   * @throws NoriaError fleet-store-unusable if this attempt fails and only the operator can fix the problem.
   */
  follow(follower: FactFollower): Promise<void>;
  /**
   * Appends facts to the log, in this order. Returns at once and never throws. Without a connection, drops the facts;
   * after the next `receiveState`, the caller publishes again what the state lacks.
   */
  publish(facts: readonly Fact[]): void;
  /**
   * Replaces the demand of this replica, and adds its new uses of members and sessions to the state. Returns at once
   * and never throws. Call it only after changes. The other replicas receive the beat within about a second, and a rise
   * in demand at once. Without a connection, keeps the demand and the uses of members until the connection is back.
   */
  beat(beat: Beat): void;
  /**
   * Opens a session that this replica does not know, in one atomic step. If no replica has the session with a member,
   * `proposed` becomes part of the state as a fact `session.moved`. Otherwise the state does not change.
   * @returns the session in the state; `proposed` if the connection is lost or too slow. Never rejects.
   */
  bindSession(proposed: SharedSession): Promise<SharedSession>;
  /** Ends the connection. The other replicas no longer see this replica; its facts remain. Idempotent. */
  close(): Promise<void>;
}

/** A shared pool whose replicas draw members themselves, and therefore share the pace of their calls. */
export interface PacedSharedPool extends SharedPool {
  /**
   * The pace of all instances. A replica appends its own facts to the log before it changes the pace. To draw, it
   * reserves a call to the service. The reservation succeeds only if this replica has received the whole log;
   * otherwise it could draw members that another replica has just drawn. Without a connection, a change is rejected
   * with `fleet-store-lost`.
   */
  readonly pace: PaceStore;
}
