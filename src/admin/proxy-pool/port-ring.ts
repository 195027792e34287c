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

export interface PortMember {
  readonly id: string;
  readonly source: string;
  readonly location: string;
  readonly https: boolean;
  readonly uses: number;
  readonly faults: number;
  readonly remainingMs: number | undefined;
  readonly sinceSuccessMs: number;
}

export interface PortFilter {
  readonly source?: string;
  readonly https: boolean;
}

interface PortAssignment {
  readonly port: number;
  readonly source?: string;
  readonly taken: ReadonlyMap<string, unknown>;
  /**
   * Which member the port may get. `keep`: only its current member. `fill`: another member only if the current one
   * no longer works. `move`: like `fill`, but also if the current one is not of `source` and the port has no open
   * tunnels.
   */
  readonly mode: 'keep' | 'fill' | 'move';
}

export interface PortBackend {
  memberOf(port: number): string | undefined;
  assign(request: PortAssignment): PortMember | undefined;
  reject(port: number): void;
  move(port: number): void;
}

export interface HandedOut {
  readonly port: number;
  readonly member: PortMember;
}

interface RingPort {
  readonly port: number;
  lastHandOut: number;
  /** Whether the port was handed out and its member has not been reported as bad since then. */
  isOut: boolean;
  moving: Disposable | undefined;
}

export const POP_MS = 60_000;

export class PortRing {
  readonly #clock: Clock;
  readonly #backend: PortBackend;
  readonly #ports: ReadonlyMap<number, RingPort>;
  #handOuts = 0;

  constructor(clock: Clock, backend: PortBackend, ports: readonly number[]) {
    this.#clock = clock;
    this.#backend = backend;
    const fresh = { lastHandOut: 0, isOut: false, moving: undefined };
    this.#ports = new Map(ports.map((port) => [port, { port, ...fresh }]));
  }

  next(filter: PortFilter): HandedOut | undefined {
    const found =
      this.#serving(filter, 'fill').next().value ??
      (filter.source === undefined ? undefined : this.#serving(filter, 'move').next().value);
    if (found === undefined) return undefined;
    const { ringPort, member } = found;
    this.#handOuts += 1;
    ringPort.lastHandOut = this.#handOuts;
    ringPort.isOut = true;
    return { port: ringPort.port, member };
  }

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

  *#serving(
    filter: PortFilter,
    mode: PortAssignment['mode'],
  ): Generator<{ ringPort: RingPort; member: PortMember }, undefined> {
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

  #inOrder(): RingPort[] {
    const isPopped = ({ moving }: RingPort) => (moving === undefined ? 0 : 1);
    return [...this.#ports.values()].sort(
      (one, other) =>
        isPopped(one) - isPopped(other) || one.lastHandOut - other.lastHandOut || one.port - other.port,
    );
  }
}
