/**
 * The local ports that proxyPool hands out to one user. The port that was handed out longest ago comes first.
 *
 * No two ports share a member. A port keeps its member while the member works; a port without a member gets one that no
 * other port has. Owns a timer for each popped port.
 */
import type { Clock } from '../../core/clock.ts';

/** Facts about the member of a port, for the client. */
export interface PortMember {
  readonly id: string;
  readonly source: string;
  readonly location: string;
  /** The member accepts CONNECT. */
  readonly https: boolean;
  readonly uses: number;
  readonly faults: number;
  /** Undefined when unknown. */
  readonly remainingMs: number | undefined;
  readonly sinceSuccessMs: number;
}

export interface PortFilter {
  /** Accepts only members of this source. */
  readonly source?: string;
  /** True: accepts only members that support CONNECT. */
  readonly https: boolean;
}

/** A request to the pool for the member of a port. */
export interface PortPin {
  readonly port: number;
  readonly source?: string;
  /** The members that other ports have; the keys are their ids. */
  readonly taken: ReadonlyMap<string, unknown>;
  /**
   * `keep`: only the port's own member. `fill`: another member if the own one does not work. `move`: another member
   * also if the own one has another source.
   */
  readonly mode: 'keep' | 'fill' | 'move';
}

/** The part of the pool that the ports of one user need. */
export interface PortBackend {
  /** The id of the member that the port has. */
  memberOf(port: number): string | undefined;
  /** Gives the port a member that can serve it now; undefined if there is none. */
  pin(pin: PortPin): PortMember | undefined;
  /**
   * Reports the member of the port as bad. The pool does not use the member for a while, and gives the port another
   * one.
   */
  reject(port: number): void;
  /** Gives the port another member. */
  move(port: number): void;
}

export interface HandedOut {
  readonly port: number;
  readonly member: PortMember;
}

interface RingPort {
  readonly port: number;
  /** The number of the request that last got this port. */
  turn: number;
  /** A client has the port and has not deleted it. */
  isOut: boolean;
  /** Set from `pop` until the port moves. */
  moving: Disposable | undefined;
}

/** How long the client that popped a port has the port's member for itself. */
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

  /** Hands out the next port; undefined when no member can serve one. */
  next(filter: PortFilter): HandedOut | undefined {
    const found = this.#first(filter, 'fill') ?? this.#firstMoved(filter);
    if (found === undefined) return undefined;
    const { ringPort, member } = found;
    this.#turn += 1;
    ringPort.turn = this.#turn;
    ringPort.isOut = true;
    return { port: ringPort.port, member };
  }

  /** Hands out the next port like `next`, and moves it to another member after `POP_MS`. */
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

  /** Returns every port that has a member or can get one, in the order of their numbers. */
  all(filter: PortFilter): HandedOut[] {
    const found = [...this.#serving(filter, 'fill')].map(({ ringPort, member }) => {
      ringPort.isOut = true;
      return { port: ringPort.port, member };
    });
    return found.sort((one, other) => one.port - other.port);
  }

  /**
   * A client reports the member of the port as bad. Clients that share a port may all report the same failure, so only the first
   * report since the port was handed out counts.
   *
   * @returns whether this report counts.
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

  /** Yields the ports that a member can serve, one at a time on request. */
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
      if (member === undefined && before === undefined) nextMode = 'keep'; // no member is free: stop the search
    }
  }

  /** Popped ports come last, because their clients want them for themselves. */
  #inOrder(): RingPort[] {
    const isPopped = ({ moving }: RingPort) => (moving === undefined ? 0 : 1);
    return [...this.#ports.values()].sort(
      (one, other) => isPopped(one) - isPopped(other) || one.turn - other.turn || one.port - other.port,
    );
  }
}
