/**
 * The local ports that proxyPool hands out to one user, the one handed out longest ago first.
 *
 * A port is handed out with a member of its own: it keeps its member while that works, and a port without one gets a member that
 * no other port has. Owns a timer for each popped port.
 */
import type { Clock } from '../../core/clock.ts';

/** What the client wants to know about the member of a port. */
export interface PortMember {
  readonly id: string;
  readonly source: string;
  readonly location: string;
  /** It accepts CONNECT. */
  readonly https: boolean;
  readonly uses: number;
  readonly faults: number;
  /** Undefined when unknown. */
  readonly remainingMs: number | undefined;
  readonly sinceSuccessMs: number;
}

export interface PortFilter {
  /** Only members of this source. */
  readonly source?: string;
  /** Only members that accept CONNECT. */
  readonly https: boolean;
}

/** Asks for a member for a port. */
export interface PortPin {
  readonly port: number;
  readonly source?: string;
  /** The keys are the ids of members that other ports have. */
  readonly taken: ReadonlyMap<string, unknown>;
  /** `keep`: only its own. `fill`: another one if its own does not work. `move`: also if its own is of another source. */
  readonly mode: 'keep' | 'fill' | 'move';
}

/** The ports of one user, as the pool knows them. */
export interface PortBackend {
  /** Id of the member that the port has. */
  memberOf(port: number): string | undefined;
  /** Gives the port a member that can serve it now; undefined when there is none. */
  pin(pin: PortPin): PortMember | undefined;
  /** The member of the port is bad: it is not used for a while, and the port gets another one. */
  reject(port: number): void;
  /** The port gets another member. */
  move(port: number): void;
}

export interface HandedOut {
  readonly port: number;
  readonly member: PortMember;
}

interface RingPort {
  readonly port: number;
  /** The number of the request that got it last. */
  turn: number;
  /** A client has it and has not deleted it. */
  isOut: boolean;
  /** Set from `pop` until the port moves. */
  moving: Disposable | undefined;
}

/** How long the client that popped a port has its member for itself. */
export const POP_MS = 60_000;

export class PortRing {
  readonly #clock: Clock;
  readonly #backend: PortBackend;
  readonly #ports: ReadonlyMap<number, RingPort>;
  #turn = 0;

  constructor(clock: Clock, backend: PortBackend, ports: readonly number[]) {
    this.#clock = clock;
    this.#backend = backend;
    this.#ports = new Map(
      ports.map((port) => [port, { port, turn: 0, isOut: false, moving: undefined } satisfies RingPort]),
    );
  }

  /** The next port; undefined when no member can serve one. */
  next(filter: PortFilter): HandedOut | undefined {
    const found = this.#first(filter, 'fill') ?? this.#firstMoved(filter);
    if (found === undefined) return undefined;
    const { ringPort, member } = found;
    this.#turn += 1;
    ringPort.turn = this.#turn;
    ringPort.isOut = true;
    return { port: ringPort.port, member };
  }

  /** The same. When `POP_MS` have passed, the port moves to another member. */
  pop(filter: PortFilter): HandedOut | undefined {
    const found = this.next(filter);
    const ringPort = found && this.#ports.get(found.port);
    if (ringPort === undefined) return found;
    ringPort.moving ??= this.#clock.after(POP_MS, () => {
      ringPort.moving = undefined;
      this.#backend.move(ringPort.port);
    });
    return found;
  }

  /** Every port that has a member, or can get one, in the order of their numbers. */
  all(filter: PortFilter): HandedOut[] {
    const found = [...this.#serving(filter, 'fill')].map(({ ringPort, member }) => {
      ringPort.isOut = true;
      return { port: ringPort.port, member };
    });
    return found.sort((one, other) => one.port - other.port);
  }

  /**
   * The client found the member of the port bad. Clients that share a port may all report the same failure, so only the first
   * report since the port was handed out counts.
   *
   * @returns whether it counts.
   */
  reject(port: number): boolean {
    const ringPort = this.#ports.get(port);
    if (ringPort?.isOut !== true) return false;
    ringPort.isOut = false;
    ringPort.moving?.[Symbol.dispose]();
    ringPort.moving = undefined;
    this.#backend.reject(port);
    return true;
  }

  /** Stops the timers. */
  close(): void {
    for (const { moving } of this.#ports.values()) moving?.[Symbol.dispose]();
  }

  #firstMoved(filter: PortFilter) {
    return filter.source === undefined ? undefined : this.#first(filter, 'move');
  }

  #first(filter: PortFilter, mode: 'fill' | 'move') {
    for (const found of this.#serving(filter, mode)) return found;
    return undefined;
  }

  /** The ports that a member can serve, as they are asked for. */
  *#serving(filter: PortFilter, mode: PortPin['mode']) {
    const source = filter.source === undefined ? {} : { source: filter.source };
    const taken = new Map<string, number>();
    const take = (id: string | undefined, change: 1 | -1): void => {
      if (id === undefined) return;
      const count = (taken.get(id) ?? 0) + change;
      if (count === 0) taken.delete(id);
      else taken.set(id, count);
    };
    for (const port of this.#ports.keys()) take(this.#backend.memberOf(port), 1);
    let nextMode = mode;
    for (const ringPort of this.#inOrder()) {
      const { port } = ringPort;
      const before = this.#backend.memberOf(port);
      take(before, -1);
      const member = this.#backend.pin({ port, ...source, taken, mode: nextMode });
      take(this.#backend.memberOf(port), 1);
      if (member !== undefined && (member.https || !filter.https)) yield { ringPort, member };
      if (member === undefined && before === undefined) nextMode = 'keep'; // no member is free, so do not search again
    }
  }

  /** Popped ports last, since their clients want to have them for themselves. */
  #inOrder(): RingPort[] {
    const isPopped = ({ moving }: RingPort) => (moving === undefined ? 0 : 1);
    return [...this.#ports.values()].sort(
      (one, other) => isPopped(one) - isPopped(other) || one.turn - other.turn || one.port - other.port,
    );
  }
}
