/**
 * A shared pool in memory. Tests use it as the reference model. A noria with workers uses it in its primary process.
 * Every replica receives every fact, in the same order, in the microtask after the publication.
 *
 * In a fleet, the whole machine is one replica of the fleet's shared pool. The pool of the primary process passes data
 * between the machine's shared pool and the fleet's shared pool.
 */
import type { Clock } from '../core/clock.ts';
import type { LimitPart } from '../pool/options.ts';
import type { Replica } from './replica.ts';
import type { Beat, Fact, FactOf, LoggedFact, SharedSession } from './schemas.ts';
import type { FactFollower, FleetActivity, SharedPool } from './shared-pool.ts';
import { SharedPoolState } from './shared-state.ts';

/** The replica that represents this machine in the fleet. */
type MachineReplica = Pick<Replica, 'findSession' | 'bindSession' | 'delegateLimits'>;

export class MemorySharedPool {
  readonly #clock: Clock;
  readonly #machine: MachineReplica | undefined;
  readonly #state = new SharedPoolState();
  /** The connections by replica name, in the order in which the replicas started to follow. */
  readonly #connections = new Map<string, ReplicaConnection>();
  /** This machine's part of the limits that the whole fleet shares; undefined without a fleet. */
  #part: LimitPart | undefined;

  constructor({ clock, machine }: { readonly clock: Clock; readonly machine?: MachineReplica | undefined }) {
    this.#clock = clock;
    this.#machine = machine;
    machine?.delegateLimits((part) => {
      this.#part = part;
      this.#membershipChanged();
    });
  }

  /** @param servesClients - if false, `FleetActivity.replicas` does not contain the replica. */
  connect(replica: string, { servesClients = true } = {}): SharedPool {
    const connection = new ReplicaConnection(servesClients);
    const follows = () => this.#connections.get(replica) === connection;
    return {
      follow: async (follower) => {
        if (this.#connections.has(replica))
          throw new TypeError(`replica ${replica} already receives the log; call follow() once`);
        this.#connections.set(replica, connection);
        connection.follower = follower;
        this.reload(replica);
        this.#membershipChanged();
        await connection.delivery;
      },
      publish: (facts) => {
        if (follows()) this.#append(replica, facts);
      },
      beat: (beat) => {
        if (follows()) this.#recordBeat(replica, beat);
      },
      findSession: async (name) =>
        follows()
          ? (this.#state.session(name, this.#clock.monotonic()) ?? this.#machine?.findSession(name))
          : undefined,
      bindSession: async (proposed, from) => (follows() ? this.#bind(replica, proposed, from) : undefined),
      close: async () => {
        if (!follows()) return;
        this.#connections.delete(replica);
        connection.follower = undefined;
        this.#membershipChanged();
      },
    };
  }

  drawnBy(member: string): string | undefined {
    return this.#state.drawnBy(member);
  }

  reload(replica: string): void {
    const state = this.#state.read(this.#clock.monotonic());
    this.#connections.get(replica)?.deliver((follower) => follower.receiveState(state));
  }

  #append(by: string, facts: readonly Fact[]): void {
    const now = this.#clock.monotonic();
    const logged: LoggedFact[] = [];
    for (const fact of facts) {
      const current = fact.kind === 'session.moved' ? this.#otherBinding(fact, now) : undefined;
      if (current === undefined) {
        this.#state.apply({ by, fact }, now);
        logged.push({ by, fact });
      } else {
        const answer: Fact = { kind: 'session.moved', session: current, reason: 'bound' };
        const answered = [
          { by, fact },
          { by: '', fact: answer },
        ];
        this.#connections.get(by)?.deliver((follower) => follower.receiveFacts(answered));
      }
    }
    if (logged.length > 0) this.#deliverToAll((follower) => follower.receiveFacts(logged));
  }

  /** Returns the session of the state if another replica has moved it since the publisher of the fact last saw it. */
  #otherBinding({ session, from }: FactOf<'session.moved'>, now: number): SharedSession | undefined {
    const known = this.#state.session(session.name, now);
    return known?.member === undefined || known.member === from ? undefined : known;
  }

  #recordBeat(by: string, beat: Beat): void {
    const uses: Record<string, number> = {};
    for (const use of beat.members) {
      const sum = this.#state.addUse(use);
      if (sum !== undefined && use.uses > 0) uses[use.member] = sum;
    }
    for (const use of beat.sessions) this.#state.recordSessionUse(use);
    const own = this.#activity([], uses);
    const others = this.#activity([{ by, beat }], uses);
    for (const [name, connection] of this.#connections) {
      if (name !== by) connection.deliver((follower) => follower.receiveActivity(others));
      else if (Object.keys(uses).length > 0) connection.deliver((follower) => follower.receiveActivity(own));
    }
  }

  async #bind(
    by: string,
    proposed: SharedSession,
    from: string | undefined,
  ): Promise<SharedSession | undefined> {
    const known = this.#state.session(proposed.name, this.#clock.monotonic());
    if (known?.member !== undefined && known.member !== from) return known;
    // The fleet opens the session. The pool of the primary process then publishes it in this shared pool, so this method
    // appends no fact.
    if (this.#machine !== undefined) return this.#machine.bindSession(proposed, from);
    this.#append(by, [{ kind: 'session.moved', session: proposed, from, reason: 'new' }]);
    return proposed;
  }

  #membershipChanged(): void {
    const activity = this.#activity([], {});
    this.#deliverToAll((follower) => follower.receiveActivity(activity));
  }

  #activity(beats: FleetActivity['beats'], uses: FleetActivity['uses']): FleetActivity {
    const serving = [...this.#connections].filter(([, { servesClients }]) => servesClients);
    return { replicas: serving.map(([name]) => name), beats, uses, machine: this.#part };
  }

  #deliverToAll(call: (follower: FactFollower) => void): void {
    for (const connection of this.#connections.values()) connection.deliver(call);
  }
}

/** Calls the follower of one replica in a microtask, so never while a method of the shared pool runs. */
class ReplicaConnection {
  readonly servesClients: boolean;
  follower: FactFollower | undefined;
  delivery: Promise<void> | undefined;
  #calls: ((follower: FactFollower) => void)[] = [];

  constructor(servesClients: boolean) {
    this.servesClients = servesClients;
  }

  deliver(call: (follower: FactFollower) => void): void {
    this.#calls.push(call);
    this.delivery ??= Promise.resolve().then(() => {
      this.delivery = undefined;
      const calls = this.#calls;
      this.#calls = [];
      for (const each of calls) if (this.follower !== undefined) each(this.follower);
    });
  }
}
