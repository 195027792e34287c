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
import type { Beat, Fact, FactOf, LoggedFact, SharedSession, SharedState } from './schemas.ts';
import type { FactFollower, SharedPool } from './shared-pool.ts';
import { SharedPoolState } from './shared-state.ts';

interface MemorySharedPoolOptions {
  readonly clock: Clock;
  /**
   * The replica that represents this machine in the fleet. It opens the sessions of the machine, and receives the
   * machine's part of the fleet's limits.
   */
  readonly machine?: Pick<Replica, 'findSession' | 'bindSession' | 'delegateLimits'> | undefined;
}

export class MemorySharedPool {
  readonly #clock: Clock;
  readonly #machine: MemorySharedPoolOptions['machine'];
  readonly #state = new SharedPoolState();
  /** The connections by replica name, in the order in which the replicas started to follow. */
  readonly #connections = new Map<string, ReplicaConnection>();
  /**
   * This machine's part of the limits that the whole fleet shares, such as `maxTunnelsPerMember`; undefined without a
   * fleet.
   */
  #part: LimitPart | undefined;

  constructor({ clock, machine }: MemorySharedPoolOptions) {
    this.#clock = clock;
    this.#machine = machine;
    machine?.delegateLimits((part) => {
      this.#part = part;
      this.#membershipChanged();
    });
  }

  /**
   * Returns the shared pool as one replica sees it.
   * @param replica - the name of the replica; unique among the connected replicas.
   * @param servesClients - if false, `FleetActivity.replicas` does not contain the replica.
   */
  connect(replica: string, { servesClients = true } = {}): SharedPool {
    const connection = new ReplicaConnection(servesClients);
    return {
      follow: async (follower) => {
        if (this.#connections.has(replica))
          throw new TypeError(`replica ${replica} already receives the log; call follow() once`);
        this.#connections.set(replica, connection);
        connection.start(follower, this.#state.read(this.#clock.monotonic()));
        this.#membershipChanged();
        await connection.delivered();
      },
      publish: (facts) => {
        if (this.#follows(replica, connection)) this.#append(replica, facts);
      },
      beat: (beat) => {
        if (this.#follows(replica, connection)) this.#recordBeat(replica, beat);
      },
      findSession: async (name) =>
        this.#follows(replica, connection)
          ? (this.#state.session(name, this.#clock.monotonic()) ?? this.#machine?.findSession(name))
          : undefined,
      bindSession: async (proposed, from) => this.#bind(replica, connection, { proposed, from }),
      close: async () => {
        if (!this.#follows(replica, connection)) return;
        this.#connections.delete(replica);
        connection.stop();
        this.#membershipChanged();
      },
    };
  }

  drawnBy(member: string): string | undefined {
    return this.#state.drawnBy(member);
  }

  reload(replica: string): void {
    this.#connections.get(replica)?.load(this.#state.read(this.#clock.monotonic()));
  }

  #follows(replica: string, connection: ReplicaConnection): boolean {
    return this.#connections.get(replica) === connection;
  }

  #append(by: string, facts: readonly Fact[]): void {
    if (facts.length === 0) return;
    const now = this.#clock.monotonic();
    const logged: LoggedFact[] = [];
    for (const fact of facts) {
      const current = fact.kind === 'session.moved' ? this.#otherBinding(fact, now) : undefined;
      if (current === undefined) {
        this.#state.apply({ by, fact }, now);
        logged.push({ by, fact });
      } else {
        const answer: Fact = { kind: 'session.moved', session: current, reason: 'bound' };
        this.#connections.get(by)?.addFacts([
          { by, fact },
          { by: '', fact: answer },
        ]);
      }
    }
    if (logged.length === 0) return;
    for (const connection of this.#connections.values()) connection.addFacts(logged);
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
    for (const [name, connection] of this.#connections) {
      connection.addUses(uses);
      if (name !== by) connection.addBeat(by, beat);
    }
  }

  async #bind(
    by: string,
    connection: ReplicaConnection,
    { proposed, from }: { readonly proposed: SharedSession; readonly from: string | undefined },
  ): Promise<SharedSession | undefined> {
    if (!this.#follows(by, connection)) return undefined;
    const known = this.#state.session(proposed.name, this.#clock.monotonic());
    if (known?.member !== undefined && known.member !== from) return known;
    // The fleet opens the session. The pool of the primary process then publishes it in this shared pool, so this method
    // appends no fact.
    if (this.#machine !== undefined) return this.#machine.bindSession(proposed, from);
    this.#append(by, [{ kind: 'session.moved', session: proposed, from, reason: 'new' }]);
    return proposed;
  }

  #membershipChanged(): void {
    const serving = [...this.#connections].filter(([, { servesClients }]) => servesClients);
    const replicas = serving.map(([name]) => name);
    for (const connection of this.#connections.values()) connection.setReplicas(replicas, this.#part);
  }
}

/**
 * Queues the facts and beats for one replica, and delivers them in a microtask. So the shared pool never calls a
 * follower while a method of the shared pool runs.
 */
class ReplicaConnection {
  readonly servesClients: boolean;
  #follower: FactFollower | undefined;
  #unloaded: SharedState | undefined;
  #facts: LoggedFact[] = [];
  #beats: { readonly by: string; readonly beat: Beat }[] = [];
  #uses: Record<string, number> = {};
  #replicas: readonly string[] = [];
  #part: LimitPart | undefined;
  #hasNews = false;
  #delivery: Promise<void> | undefined;

  constructor(servesClients: boolean) {
    this.servesClients = servesClients;
  }

  start(follower: FactFollower, state: SharedState): void {
    this.#follower = follower;
    this.load(state);
  }

  /** @param state - includes all facts published so far. */
  load(state: SharedState): void {
    this.#unloaded = state;
    this.#facts = [];
    this.#schedule();
  }

  stop(): void {
    this.#follower = undefined;
  }

  addFacts(facts: readonly LoggedFact[]): void {
    this.#facts.push(...facts);
    this.#schedule();
  }

  addBeat(by: string, beat: Beat): void {
    this.#beats.push({ by, beat });
    this.#hasNews = true;
    this.#schedule();
  }

  addUses(uses: Readonly<Record<string, number>>): void {
    Object.assign(this.#uses, uses);
    if (Object.keys(uses).length === 0) return;
    this.#hasNews = true;
    this.#schedule();
  }

  setReplicas(replicas: readonly string[], part: LimitPart | undefined): void {
    this.#replicas = replicas;
    this.#part = part;
    this.#hasNews = true;
    this.#schedule();
  }

  async delivered(): Promise<void> {
    await this.#delivery;
  }

  #schedule(): void {
    this.#delivery ??= Promise.resolve().then(() => {
      this.#delivery = undefined;
      this.#deliver();
    });
  }

  #deliver(): void {
    const state = this.#unloaded;
    this.#unloaded = undefined;
    if (state !== undefined) this.#follower?.receiveState(state);
    if (this.#facts.length > 0) {
      const facts = this.#facts;
      this.#facts = [];
      this.#follower?.receiveFacts(facts);
    }
    if (!this.#hasNews) return;
    const activity = { replicas: this.#replicas, beats: this.#beats, uses: this.#uses, machine: this.#part };
    this.#beats = [];
    this.#uses = {};
    this.#hasNews = false;
    this.#follower?.receiveActivity(activity);
  }
}
