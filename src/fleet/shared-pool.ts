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
 * which the replicas file a source (see `ReplicaOptions.sourceKey`), not always its name in one configuration.
 *
 * The state is the result of all facts in the order of the log (shared-state.ts). The last fact about the same thing decides.
 * Every fact is idempotent: applied again, it changes nothing.
 */
import type { FaultCode } from '../core/faults.ts';
import type { Demand } from '../pool/drawn-member.ts';
import type { LeaveReason } from '../pool/member.ts';
import type { MemberQuarantine, SharedMember, SharedSession } from '../pool/shared-member.ts';
import type { PaceStore } from '../state/pace-file.ts';

/** What a replica tells the others. */
export type Fact =
  /** A draw brought the member, or brought it again: the later end of life counts. Ignored for a member that was removed. */
  | { readonly kind: 'member.joined'; readonly member: SharedMember }
  /** The member becomes a last choice. */
  | { readonly kind: 'member.quarantined'; readonly member: string; readonly quarantine: MemberQuarantine }
  /** The member accepted an attempt after a quarantine, or for the first time. */
  | { readonly kind: 'member.restored'; readonly member: string }
  | MemberLeft
  /** A client reported that the member is banned by the host, or (`lifted`) that it works again. */
  | {
      readonly kind: 'member.banned';
      readonly member: string;
      readonly host: string;
      readonly lifted: boolean;
    }
  /** The session is on this member now, for this reason. Creates the session where it is missing. */
  | { readonly kind: 'session.moved'; readonly session: SharedSession; readonly reason: string }
  /** The session was removed before its end, by the operator or for a limit. A session that is idle ends without a fact. */
  | { readonly kind: 'session.ended'; readonly name: string }
  /** The operator's command for a source, which every replica executes. The last `pause` or `resume` is part of the state. */
  | {
      readonly kind: 'source.commanded';
      readonly source: string;
      readonly command: 'pause' | 'resume' | 'refill';
    };

/**
 * A replica removed the member before its end of life. The member is removed everywhere when `votesNeeded` different
 * replicas have published this fact, itself included. A member that ends, or whose source is no longer configured, leaves
 * without a fact.
 */
export interface MemberLeft {
  readonly kind: 'member.left';
  readonly member: string;
  readonly reason: Exclude<LeaveReason, 'expired' | 'removed'>;
  readonly fault?: FaultCode | undefined;
  readonly votesNeeded: number;
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
}

/** The state of one replica now. Unlike facts, only the last one matters. */
export interface Beat {
  /** Clients that wait for a member. */
  readonly waiting: number;
  /** By source; a source without any demand so far may be missing. `lastWantedAt` is finite. */
  readonly demand: Readonly<Record<string, Demand>>;
  /** Members whose numbers changed since the last beat. */
  readonly members: readonly MemberActivity[];
  /** Sessions that were used since the last beat, and those in use from time to time. */
  readonly sessions: readonly SessionActivity[];
}

/** How one replica uses a member. */
export interface MemberActivity {
  readonly member: string;
  /** Accepted leases of clients since the last beat. The shared state has the sum. */
  readonly uses: number;
  /** Open leases of this replica. */
  readonly openLeases: number;
  readonly latencyMs?: number | undefined;
  /** For a member whose end of life is assumed: the end after its last success here. The later end counts everywhere. */
  readonly endsAt?: number | undefined;
}

/** How one replica uses a session. */
export interface SessionActivity {
  readonly session: string;
  /** Leases since the last beat. */
  readonly uses: number;
  /** Open leases of this replica. */
  readonly openLeases: number;
  /** Its last use; now, while it has an open lease. The later one counts everywhere. */
  readonly usedAt: number;
}

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
   * Opens a session that this replica does not know, in one atomic step. If no replica has it, the session becomes part of
   * the state as proposed, and a `session.moved` by this replica is appended. Otherwise the state stays as it is.
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
   * what has just been drawn. While the connection is lost, changes are rejected with `state-unwritable`.
   */
  readonly pace: PaceStore;
}
