/**
 * Hands out the local ports of proxyPool to one user. The port that was not handed out for the longest time comes
 * first.
 *
 * Each port gets a member, and keeps it while the member works. If the member no longer works, the port gets a member
 * that no other port has. If there are fewer members than ports, ports that were handed out may share a member. A port
 * that a client got with `/pop/` is called popped: after POP_MS, it moves to another member. Owns the timers of these
 * moves.
 */
import type { Clock } from '../../core/clock.ts';

/** What a client learns about the member of a port. */
export interface PortMember {
  readonly id: string;
  readonly source: string;
  readonly location: string;
  /** Whether the member supports CONNECT. */
  readonly https: boolean;
  readonly uses: number;
  readonly faults: number;
  /** The remaining lifetime of the member, in ms; undefined if it is unknown. */
  readonly remainingMs: number | undefined;
  readonly sinceSuccessMs: number;
}

export interface PortFilter {
  /** If set, only ports whose member is of this source are handed out. */
  readonly source?: string;
  /** If true, only ports whose member supports CONNECT are handed out. */
  readonly https: boolean;
}

/** A request to assign a member to a port. */
interface PortAssignment {
  readonly port: number;
  readonly source?: string;
  /** The members of all other ports; the keys are member ids. */
  readonly taken: ReadonlyMap<string, unknown>;
  /**
   * Which member the port may get. `keep`: only its current member. `fill`: another member only if the current one
   * no longer works. `move`: like `fill`, but also if the current one is not of `source` and the port has no open
   * tunnels.
   */
  readonly mode: 'keep' | 'fill' | 'move';
}

/** What the ports of one user need from the pool. */
export interface PortBackend {
  memberOf(port: number): string | undefined;
  /** Gives the port a member that can serve a client now. Returns undefined if there is no such member. */
  assign(request: PortAssignment): PortMember | undefined;
  /** Reports the port's member as bad. The pool counts a fault of the member and moves the port to another member. */
  reject(port: number): void;
  move(port: number): void;
}

export interface HandedOut {
  readonly port: number;
  readonly member: PortMember;
}

interface RingPort {
  readonly port: number;
  /** The value of `#handOuts` at the last hand-out of this port by `next`; 0 if there was none. */
  lastHandOut: number;
  /** Whether the port was handed out and its member has not been reported as bad since then. */
  isOut: boolean;
  /** The timer that moves the port to another member; set from `/pop/` until the port moves. */
  moving: Disposable | undefined;
}

/** How long, in ms, a port keeps its member after a client got the port with `/pop/`. */
export const POP_MS = 60_000;

export class PortRing {
  readonly #clock: Clock;
  readonly #backend: PortBackend;
  readonly #ports: ReadonlyMap<number, RingPort>;
  /** How many times `next` has handed out a port. */
  #handOuts = 0;

  constructor(clock: Clock, backend: PortBackend, ports: readonly number[]) {
    this.#clock = clock;
    this.#backend = backend;
    this.#ports = new Map(
      ports.map((port) => [
        port,
        { port, lastHandOut: 0, isOut: false, moving: undefined } satisfies RingPort,
      ]),
    );
  }

  /** Hands out the next port. Returns undefined if no port can get a matching member. */
  next(filter: PortFilter): HandedOut | undefined {
    const found = this.#first(filter, 'fill') ?? this.#firstMoved(filter);
    if (found === undefined) return undefined;
    const { ringPort, member } = found;
    this.#handOuts += 1;
    ringPort.lastHandOut = this.#handOuts;
    ringPort.isOut = true;
    return { port: ringPort.port, member };
  }

  /** Hands out the next port, and moves it to another member after `POP_MS`. */
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

  /** Hands out every port that has or can get a matching member. Sorts them by port number. */
  all(filter: PortFilter): HandedOut[] {
    const found = [...this.#serving(filter, 'fill')].map(({ ringPort, member }) => {
      ringPort.isOut = true;
      return { port: ringPort.port, member };
    });
    return found.sort((one, other) => one.port - other.port);
  }

  /**
   * Handles a client's report that the member of a port is bad. Only the first report since the port was handed out
   * counts, because clients that share a port may report the same failure.
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

  /**
   * Yields each port whose member matches the filter. Assigns a member to a port only when the caller asks for the next
   * port.
   */
  *#serving(filter: PortFilter, mode: PortAssignment['mode']) {
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
      const member = this.#backend.assign({ port, ...source, taken, mode: nextMode });
      take(this.#backend.memberOf(port), 1);
      if (member !== undefined && (member.https || !filter.https)) yield { ringPort, member };
      // no free member is left: the remaining ports get no other member
      if (member === undefined && before === undefined) nextMode = 'keep';
    }
  }

  /** Sorts the ports. Ports that a client got with `/pop/` come last, so another client seldom gets them. */
  #inOrder(): RingPort[] {
    const isPopped = ({ moving }: RingPort) => (moving === undefined ? 0 : 1);
    return [...this.#ports.values()].sort(
      (one, other) =>
        isPopped(one) - isPopped(other) || one.lastHandOut - other.lastHandOut || one.port - other.port,
    );
  }
}
