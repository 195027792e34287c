/**
 * What the replicas of one pool share: an ordered log of facts, beats, sessions, and the pace of each instance.
 *
 * A replica is a process that serves clients, or draws members for others. It has a complete pool of its own and picks from
 * that, so a client never waits for what is shared. Several implementations keep the same contract
 * (test/fleet/shared-pool-contract.ts): in memory, which is the reference model, between the processes of one machine, and
 * through a store between machines.
 *
 * Everything here is plain data that survives JSON. Moments are monotonic ms of the replica that passes or receives them:
 * an implementation converts them between processes, and errs towards earlier ends of life. `source` is the name under
 * which the replicas file a source, not always its name in one configuration (source-keys.ts).
 *
 * The state is the result of all facts in the order of the log (shared-state.ts). The last fact about the same thing decides.
 * Every fact is idempotent: applied again, it changes nothing.
 */
import type {
  MemberQuarantine,
  PoolActivity,
  PoolChange,
  Restriction,
  SharedMember,
  SharedSession,
} from '../pool/shared-member.ts';
import type { PaceStore } from '../state/pace-file.ts';

/** What a replica publishes for the others. */
export type Fact = Exclude<PoolChange, { kind: 'member.left' }> | MemberLeft | SourceCommand;

/**
 * A replica found the member to have failed. The member is removed everywhere once `votesNeeded` different replicas have
 * published this.
 */
export type MemberLeft = Extract<PoolChange, { kind: 'member.left' }> & { readonly votesNeeded: number };

/** The operator's command for a source. Every replica executes it. The last `pause` or `resume` is part of the state. */
export interface SourceCommand {
  readonly kind: 'source.commanded';
  readonly source: string;
  readonly command: 'pause' | 'resume' | 'refill';
}

/** A fact in the log. */
export interface LoggedFact {
  /** The replica that published it. */
  readonly by: string;
  readonly fact: Fact;
}

/** A member in the state that a new follower loads. */
export interface MemberRecord {
  readonly member: SharedMember;
  /** The replica that published it first. */
  readonly drawnBy: string;
  readonly quarantine?: MemberQuarantine | undefined;
  /** Hosts. */
  readonly bans: readonly string[];
  /** Accepted leases of clients in all replicas, according to their beats. */
  readonly uses: number;
  /** Replicas that voted for its removal. */
  readonly votes: readonly string[];
  /**
   * Why it was removed; absent: it is a member. A removed member is kept until its end of life, so that a late fact cannot bring
   * it back.
   */
  readonly left?: Pick<MemberLeft, 'reason' | 'fault'> | undefined;
}

/** The complete shared state, without the beats. Members and sessions that have ended may be missing. */
export interface SharedState {
  readonly members: readonly MemberRecord[];
  readonly sessions: readonly SharedSession[];
  /** Sources that the operator has paused. */
  readonly paused: readonly string[];
  /** Restrictions. Absent if the replicas are on different machines, since those publish none. */
  readonly restrictions?: readonly Restriction[] | undefined;
}

/** The activity of one replica. Unlike with facts, only the latest numbers count; `uses` are added up. */
export type Beat = PoolActivity;

/** The activity of the other replicas. */
export interface FleetView {
  /** Names of the replicas that serve clients at present, this one included, in the same order for all replicas. */
  readonly replicas: readonly string[];
  /**
   * New beats of other replicas, in order. Several beats of one replica may be merged: the latest numbers of each member, and the
   * latest demand. A replica that is not in `replicas` has no demand and no open leases.
   */
  readonly beats: readonly { readonly by: string; readonly beat: Beat }[];
  /** Accepted leases in all replicas, by member, for the members where beats have changed this sum. */
  readonly uses: Readonly<Record<string, number>>;
}

/**
 * Receives the shared state and its changes. The methods are called one at a time, and never during a call of a method of
 * `SharedPool`.
 */
export interface Follower {
  /**
   * The state just before the first fact that `followed` will receive. Called once at the start, and again whenever facts were
   * lost, for example with the connection. The follower then publishes again what the state lacks.
   */
  loaded(state: SharedState): void;
  /**
   * Facts in the order of the log, without gaps or repetitions since `loaded`. A replica also gets its own facts: their position
   * shows which facts of other replicas came before and after them.
   */
  followed(facts: readonly LoggedFact[]): void;
  heard(view: FleetView): void;
}

/** The shared pool as one replica uses it. */
export interface SharedPool {
  /**
   * Begins to follow; call it once. Resolves after the first `loaded` and `heard`, when the other replicas see this one.
   * @throws NoriaError if the shared state is unreachable.
   */
  follow(follower: Follower): Promise<void>;
  /**
   * Appends facts to the log in this order. Returns at once and never throws. Without a connection, facts are dropped; the next
   * `loaded` shows what is missing.
   */
  publish(facts: readonly Fact[]): void;
  /**
   * Replaces the demand of this replica and adds its uses to the state. Otherwise like `publish`. The others receive it within
   * about a second, and a rise in demand at once. Call it only after changes.
   */
  beat(beat: Beat): void;
  /**
   * Opens a session that this replica does not know, in one atomic step. If no replica has the session, or the session has no
   * member, the proposal becomes part of the state and a `session.moved` of this replica is appended. Otherwise the state does
   * not change.
   * @returns the session in the state, which another replica may have opened or moved. Returns the proposal if the connection is
   * lost or too slow. Never rejects.
   */
  bindSession(proposed: SharedSession): Promise<SharedSession>;
  /** Ends the connection: the other replicas no longer see this one. Its facts remain. Idempotent. */
  close(): Promise<void>;
}

/** For replicas that draw members. */
export interface PacedSharedPool extends SharedPool {
  /**
   * The pace of all instances, shared by all replicas. A change is decided only after all facts that this replica published
   * earlier are in the log. A claim also requires that this replica has received the whole log; otherwise it could repeat the
   * draw of another replica. Without a connection, changes are rejected with `fleet-store-lost`.
   */
  readonly pace: PaceStore;
}
