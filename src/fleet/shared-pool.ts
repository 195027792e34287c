/**
 * What the replicas of one pool share: a log of facts, beats, sessions, and the pace of each instance.
 *
 * A replica is a process with a complete copy of the members, so its clients never wait for shared data. A fact is a
 * change of the pool, an operator's command or an answer of the service. A beat is a replica's report of its demand, uses
 * and open leases. An instance is what a source draws from at the service.
 *
 * Moments are monotonic ms of the replica that sends or receives them; the implementation converts them. If a conversion
 * is inexact, a member expires too early, never too late.
 */
import type { NoriaError } from '../core/faults.ts';
import type { Demand } from '../pool/drawn-member.ts';
import type { LimitPart } from '../pool/options.ts';
import type { PaceStore } from '../state/pace-file.ts';
import type { Beat, Fact, LoggedFact, SharedSession, SharedState } from './schemas.ts';

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
  /** The demand of all other replicas together, if the shared pool adds it up. `beats` then contain none. */
  readonly demand?: Readonly<Record<string, Demand>> | undefined;
  /** The assumed ends of life that have changed, by member id, if the shared pool adds up the beats. */
  readonly ends?: Readonly<Record<string, number>> | undefined;
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
  /** Returns the names of the sessions whose state this replica needs: those that it has, and those it has ended. */
  heldSessions(): readonly string[];
}

export interface SharedPool {
  /**
   * Starts to pass the shared state and its changes to `follower`; call it once. Resolves when the first members have
   * come, or when the first attempt to connect to the store has failed.
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
   * and never throws. Call it only after changes. The other replicas receive the beat within about a second. Without a
   * connection, keeps the demand and the uses of members until the connection is back.
   */
  beat(beat: Beat): void;
  /**
   * Opens or moves a session in one atomic step. If the session of the state still has the member `from` (undefined:
   * none), `proposed` becomes part of the state. Otherwise the state does not change. Never rejects.
   * @returns the session in the state; undefined if the shared pool does not answer in time. A late answer arrives as a
   * fact `session.moved`.
   */
  bindSession(proposed: SharedSession, from: string | undefined): Promise<SharedSession | undefined>;
  /** Returns a session that other replicas may have; undefined if there is none, or no answer in time. Never rejects. */
  findSession(name: string): Promise<SharedSession | undefined>;
  close(): Promise<void>;
}

export interface ReplicaStatus {
  readonly name: string;
  readonly version: string;
  readonly clients: number;
  readonly lastSeenSeconds: number;
}

/** The shared pool of a fleet, and what a noria shows its operator about the fleet. */
export interface FleetPool extends SharedPool {
  /**
   * The pace of all instances. A replica appends its own facts to the log before it changes the pace. To draw, it
   * reserves a call to the service. The reservation succeeds only if this replica has received the whole log;
   * otherwise it could draw members that another replica has just drawn. Without a connection, a change is rejected
   * with `fleet-store-lost`.
   */
  readonly pace: PaceStore;
  readonly fault: NoriaError | undefined;
  readonly lostMs: number;
  readonly replicas: readonly ReplicaStatus[];
  /**
   * The id of the store's epoch. The store gets another epoch when it may have lost data. Empty before the first answer
   * of the store, and in a fleet without a store.
   */
  readonly epochId: string;
  readonly dayCounts: {
    add(key: string, ips: readonly string[]): void;
    used(key: string): number;
  };
  drawnBy(member: string): string | undefined;
  reload(): void;
}
