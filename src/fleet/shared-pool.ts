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

/** What a replica tells the others. */
export type Fact = Exclude<PoolChange, { kind: 'member.left' }> | MemberLeft | SourceCommand;

/** The member is removed everywhere when `votesNeeded` different replicas have published this fact, itself included. */
export type MemberLeft = Extract<PoolChange, { kind: 'member.left' }> & { readonly votesNeeded: number };

/** The operator's command for a source, which every replica executes. The last `pause` or `resume` is part of the state. */
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

/** A member as a replica finds it when it starts to follow. */
export interface MemberRecord {
  readonly member: SharedMember;
  /** The replica that published it first. */
  readonly drawnBy: string;
  readonly quarantine?: MemberQuarantine | undefined;
  /** Hosts. */
  readonly bans: readonly string[];
  /** Accepted leases of clients in all replicas so far, by their beats. */
  readonly uses: number;
  /** Replicas that voted for its removal. */
  readonly votes: readonly string[];
  /** Why it was removed; absent: it is a member. A removed one is kept until its end of life, so that no late fact brings it back. */
  readonly left?: Pick<MemberLeft, 'reason' | 'fault'> | undefined;
}

/** All that is shared, without the beats. Members and sessions that have ended may be missing. */
export interface SharedState {
  readonly members: readonly MemberRecord[];
  readonly sessions: readonly SharedSession[];
  /** Sources that the operator has paused. */
  readonly paused: readonly string[];
  /** Absent where replicas of different machines share the state: those publish no restrictions. */
  readonly restrictions?: readonly Restriction[] | undefined;
}

/** What one replica does. Unlike facts, only the last numbers matter, and the sum of `uses`. */
export type Beat = PoolActivity;

/** What the other replicas do. */
export interface FleetView {
  /** Names of the replicas that follow now and serve clients, in an order that is the same for all, this one included. */
  readonly replicas: readonly string[];
  /**
   * New beats of other replicas, in order. Beats of one replica may be merged: the last numbers of each member, and the last
   * demand. A replica that is no longer in `replicas` has no demand and no open leases.
   */
  readonly beats: readonly { readonly by: string; readonly beat: Beat }[];
  /** Accepted leases in all replicas so far, for members where beats have changed this sum. By member. */
  readonly uses: Readonly<Record<string, number>>;
}

/** Receives what is shared. The methods are called one at a time, never from within a method of `SharedPool`. */
export interface Follower {
  /**
   * The state up to the first fact that `followed` will get. Called once at the start, and again whenever facts were lost,
   * for example after the connection was. The follower then publishes again what it knows and the state lacks.
   */
  loaded(state: SharedState): void;
  /**
   * Facts in the order of the log, without gap or repetition since `loaded`. A replica gets its own facts, too: their
   * position shows which facts of others came before and after them.
   */
  followed(facts: readonly LoggedFact[]): void;
  heard(view: FleetView): void;
}

/** The shared pool as one replica uses it. */
export interface SharedPool {
  /**
   * Begins to follow; call it once. Resolves after the first `loaded` and `heard`, when the others see this replica.
   *
   * @throws NoriaError when the shared state cannot be reached at all.
   */
  follow(follower: Follower): Promise<void>;
  /**
   * Appends facts to the log, in this order. Returns at once and never throws. While the connection is lost, facts are
   * dropped: the next `loaded` shows what is missing.
   */
  publish(facts: readonly Fact[]): void;
  /**
   * Replaces the demand of this replica, and adds its uses to the state. Like `publish` otherwise. Others hear it within about
   * a second, and more demand at once. A replica calls it only when something has changed.
   */
  beat(beat: Beat): void;
  /**
   * Opens a session that this replica does not know, in one atomic step. If no replica has it, or the one in the state has
   * no member, the proposal becomes part of the state, and a `session.moved` by this replica is appended. Otherwise the state
   * stays as it is.
   *
   * @returns the session in the state, which another replica may have opened or moved; the proposal when the connection is
   *   lost or too slow. Never rejects.
   */
  bindSession(proposed: SharedSession): Promise<SharedSession>;
  /** Ends the connection: the others no longer see this replica. Its facts stay. Idempotent. */
  close(): Promise<void>;
}

/** For replicas that draw. */
export interface PacedSharedPool extends SharedPool {
  /**
   * The pace of all instances, one for all replicas. A change is decided after all facts that this replica published before
   * it are in the log, and a claim only after this replica has received the whole log; otherwise another replica would draw
   * what has just been drawn. While the connection is lost, changes are rejected with `fleet-store-lost`.
   */
  readonly pace: PaceStore;
}
