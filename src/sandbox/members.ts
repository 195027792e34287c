/**
 * The proxies of the sandbox. Each listens on its address, connects from its exit, and closes at the end of its life; a
 * draw from an instance may create some. MemberServer serves their connections.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { HOUR_MS } from '../core/duration.ts';
import { type Random, randomBelow, shuffled } from '../core/random.ts';
import type { Exit, Exits } from './exits.ts';
import type { ProxyProtocol, SandboxLocation } from './operations.ts';
import type { Behaviour } from './scenario.ts';
import { type ClientLogin, type IdentifiedOptions, loginOf } from './settings.ts';

export interface Machine {
  readonly exits: Exits;
  readonly clock: Clock;
  readonly random: Random;
  readonly serve: (socket: Socket, member: RunningMember) => void;
}

export class RunningMember {
  readonly id: string;
  readonly instance: string;
  readonly exit: Exit;
  readonly host: string;
  readonly traits: ReturnType<typeof newTraits>;
  readonly login: ClientLogin | undefined;
  port = 0;
  behaviour: Behaviour;
  accepted = 0;
  readonly #machine: Pick<Machine, 'clock' | 'serve'>;
  readonly #lifeMs: number;
  readonly #graceMs: number;
  readonly #onClosed: (member: RunningMember) => void;
  readonly #sockets = new Set<Socket>();
  readonly #createdAt: number;
  #server: Server | undefined;
  #endsAt: number;
  #timer: Disposable | undefined;
  #phase: 'opening' | 'alive' | 'draining' | 'closed' = 'opening';
  #closedBytes = 0;

  constructor(
    machine: Pick<Machine, 'clock' | 'serve'>,
    instance: IdentifiedOptions,
    own: Pick<RunningMember, 'id' | 'exit' | 'traits' | 'behaviour'> & { readonly lifeMs: number },
    onClosed: (member: RunningMember) => void,
  ) {
    this.id = own.id;
    this.instance = instance.id;
    this.exit = own.exit;
    this.host = own.exit.listenHost;
    this.traits = own.traits;
    this.login = loginOf(instance);
    this.behaviour = own.behaviour;
    this.#machine = machine;
    this.#lifeMs = own.lifeMs;
    this.#graceMs = instance.graceMs ?? 0;
    this.#onClosed = onClosed;
    this.#createdAt = machine.clock.monotonic();
    this.#endsAt = this.#createdAt + own.lifeMs;
  }

  get countsAsProxy(): boolean {
    return this.#phase === 'opening' || this.#phase === 'alive';
  }

  get isAlive(): boolean {
    return this.#phase === 'alive';
  }

  get connections(): number {
    return this.#sockets.size;
  }

  get bytes(): number {
    let sum = this.#closedBytes;
    for (const socket of this.#sockets) sum += socket.bytesRead + socket.bytesWritten;
    return sum;
  }

  /** The actual remaining life, even if the service reports it as unknown. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAt - this.#machine.clock.monotonic());
  }

  get onlineMs(): number {
    return this.traits.onlineMs + this.#machine.clock.monotonic() - this.#createdAt;
  }

  async open(): Promise<void> {
    const { clock } = this.#machine;
    try {
      await this.#listen(0);
    } catch (error) {
      this.#end(0);
      throw error;
    }
    if (!this.countsAsProxy) return this.#stopListening(); // the member was closed while it opened
    this.#phase = 'alive';
    if (this.behaviour.how === 'refuse') this.#stopListening();
    this.#endsAt = clock.monotonic() + this.#lifeMs;
    this.#timer = clock.after(this.#lifeMs, () => this.#end(this.#graceMs));
  }

  async setBehaviour(behaviour: Behaviour): Promise<void> {
    const refused = this.behaviour.how === 'refuse';
    this.behaviour = behaviour;
    if (!this.isAlive || refused === (behaviour.how === 'refuse')) return;
    if (refused) await this.#listen(this.port);
    else this.#stopListening();
  }

  async close(): Promise<void> {
    const server = this.#server;
    const closing = [...this.#sockets].map(closed);
    if (server?.listening) closing.push(closed(server));
    this.#end(0);
    this.#closeSockets();
    await Promise.all(closing);
  }

  #end(graceMs: number): void {
    if (!this.countsAsProxy) return;
    this.#phase = 'draining';
    this.#timer?.[Symbol.dispose]();
    this.#stopListening();
    if (graceMs === 0) this.#closeSockets();
    else this.#timer = this.#machine.clock.after(graceMs, () => this.#closeSockets());
  }

  #closeSockets(): void {
    if (this.#phase === 'closed') return;
    this.#phase = 'closed';
    this.#timer?.[Symbol.dispose]();
    for (const socket of this.#sockets) socket.destroy();
    this.#onClosed(this);
  }

  #listen(port: number): Promise<void> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    this.#server = server;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.once('close', () => resolve()); // closing the member before it listens also ends this wait
      server.listen(port, this.host, () => {
        const address = server.address();
        if (typeof address === 'object' && address !== null) this.port = address.port;
        resolve();
      });
    });
  }

  #stopListening(): void {
    this.#server?.close();
    this.#server = undefined;
  }

  #accept(socket: Socket): void {
    socket.on('error', () => {}); // ignored: the error ends only this connection
    if (!this.isAlive) {
      socket.destroy(); // this connection was already in the kernel's queue when the member's life ended
      return;
    }
    this.accepted += 1;
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#closedBytes += socket.bytesRead + socket.bytesWritten;
    });
    this.#machine.serve(socket, this);
  }
}

/** `events.once` would reject on an error. */
function closed(emitter: Server | Socket): Promise<void> {
  return new Promise((resolve) => emitter.once('close', () => resolve()));
}

export interface ExtractionQuery {
  readonly count: number;
  readonly newAllowed: number;
  readonly mayRepeat: (exit: string) => boolean;
  readonly kinds: readonly { readonly protocol: ProxyProtocol; readonly label: string }[];
  readonly locations: readonly SandboxLocation[];
  readonly reverse: boolean | 'either';
  /** The minimum remaining life of an existing proxy that is handed out again. It does not apply to reverse proxies. */
  readonly minRemainingMs: number;
  readonly lifeMs: readonly [min: number, max: number];
  readonly order: 'longest' | 'random';
  readonly levels: readonly number[];
  readonly checkedMinutes: readonly number[];
  readonly responseSeconds: readonly number[];
  readonly minAliveHours: number;
}

const DEFAULT_MEMBERS = 20;
const DEFAULT_SLOW_MS = 2000;
const REVERSE_SHARE = 0.25;
const MAX_ALIVE_HOURS = 96;

export class InstanceMembers {
  readonly #machine: Machine;
  readonly #instance: IdentifiedOptions;
  readonly #series: number;
  readonly #behaviourOf: (n: number) => Behaviour | undefined;
  /** All members that are not yet closed, in the order of their creation. */
  readonly #members = new Set<RunningMember>();
  #created = 0;
  #closedBytes = 0;
  #closed = false;

  /** @param behaviourOf - the behaviour that the scenario gives the member with this number. */
  constructor(
    machine: Machine,
    instance: IdentifiedOptions,
    series: number,
    behaviourOf: (n: number) => Behaviour | undefined,
  ) {
    this.#machine = machine;
    this.#instance = instance;
    this.#series = series;
    this.#behaviourOf = behaviourOf;
  }

  get alive(): readonly RunningMember[] {
    return [...this.#members].filter((member) => member.isAlive);
  }

  get max(): number {
    return this.#instance.members ?? DEFAULT_MEMBERS;
  }

  get connections(): number {
    return [...this.#members].reduce((sum, member) => sum + member.connections, 0);
  }

  get bytes(): number {
    return [...this.#members].reduce((sum, member) => sum + member.bytes, this.#closedBytes);
  }

  async draw(query: ExtractionQuery): Promise<readonly RunningMember[]> {
    if (this.#closed) return [];
    const { random } = this.#machine;
    const repeats =
      this.#instance.repeats !== false ? this.alive.filter((member) => mayRepeat(member, query)) : [];
    const created = this.#create(query);
    await Promise.all(created.map((member) => member.open()));
    const drawn = [...created, ...shuffled(random, repeats)]
      .filter((member) => member.isAlive) // a member may have expired while other members opened
      .slice(0, query.count);
    if (query.order === 'random') return shuffled(random, drawn);
    return drawn.sort((a, b) => b.remainingMs - a.remainingMs);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#members].map((member) => member.close()));
  }

  #create(query: ExtractionQuery): RunningMember[] {
    if (query.locations.length === 0 || query.kinds.length === 0) return [];
    const protocols = new Set(query.kinds.map(({ protocol }) => protocol));
    const counted = [...this.#members].filter(
      (member) => member.countsAsProxy && protocols.has(member.traits.protocol),
    );
    const free = this.#instance.repeats !== false ? this.max - counted.length : Number.POSITIVE_INFINITY;
    const room = Math.max(0, Math.min(query.count, query.newAllowed, free));
    return Array.from({ length: room }, () => this.#add(query));
  }

  #add(query: ExtractionQuery): RunningMember {
    const { exits, random } = this.#machine;
    const instance = this.#instance;
    const [min, max] = query.lifeMs;
    const n = this.#created;
    this.#created += 1;
    const traits = newTraits(query, n, random);
    const own = {
      id: `${instance.product}-${this.#series}-${n}`,
      // All reverse proxies share one address, on different ports. So do all proxies of `short-pure`.
      exit: exits.next(this.#series, instance.product === 'short-pure' || traits.reverse),
      traits,
      lifeMs: min + random() * (max - min),
      behaviour: this.#choose(n),
    };
    const member = new RunningMember(this.#machine, instance, own, (closed) => {
      this.#members.delete(closed);
      this.#closedBytes += closed.bytes;
    });
    this.#members.add(member);
    return member;
  }

  #choose(n: number): Behaviour {
    const { dead = 0, slow = 0, slowMs = DEFAULT_SLOW_MS, behaviour } = this.#instance;
    const chosen = this.#behaviourOf(n) ?? behaviour?.(n);
    if (chosen !== undefined) return chosen;
    const drawn = this.#machine.random();
    if (drawn < dead) return { how: 'refuse' };
    return drawn < dead + slow ? { how: 'slow', ms: slowMs } : { how: 'good' };
  }
}

function mayRepeat({ traits, remainingMs, exit }: RunningMember, query: ExtractionQuery): boolean {
  return (
    query.mayRepeat(exit.address) &&
    query.kinds.some(({ protocol, label }) => protocol === traits.protocol && label === traits.label) &&
    query.locations.includes(traits.location) &&
    (query.reverse === 'either' || query.reverse === traits.reverse) &&
    (traits.reverse || remainingMs >= query.minRemainingMs) &&
    query.levels.includes(traits.level) &&
    query.checkedMinutes.includes(traits.checkedMinutes) &&
    query.responseSeconds.includes(traits.responseSeconds) &&
    traits.aliveHours >= query.minAliveHours
  );
}

function newTraits(query: ExtractionQuery, n: number, random: Random) {
  const score = () => (random() < 0.1 ? -1 : 60 + randomBelow(random, 41));
  const { protocol, label } = oneOf(query.kinds, random);
  return {
    protocol,
    label,
    location: oneOf(query.locations, random),
    reverse: query.reverse === 'either' ? random() < REVERSE_SHARE : query.reverse,
    onlineMs: random() * HOUR_MS,
    level: oneOf(query.levels, random),
    checkedMinutes: oneOf(query.checkedMinutes, random),
    responseSeconds: oneOf(query.responseSeconds, random),
    aliveHours: query.minAliveHours + random() * (MAX_ALIVE_HOURS - query.minAliveHours),
    serverId: `s${100 + n}`,
    lastScore: score(),
    yesterdayScore: score(),
  };
}

function oneOf<T>(items: readonly T[], random: Random): T {
  const item = items[randomBelow(random, items.length)];
  if (item === undefined) throw new TypeError('cannot choose from an empty list');
  return item;
}
