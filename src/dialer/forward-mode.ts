/**
 * The forward mode for the HTTP members of one source.
 *
 * CONNECT is preferred: the member then cannot modify the request, and its own errors cannot be mistaken for the target's.
 * Some members accept CONNECT only to port 443, or not at all. A refused CONNECT does not show that: it may be about the
 * target. So absolute form is learned from answers of targets that absolute form has reached, for each target, and for all
 * targets once it has reached several.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { AbsoluteAnswer, ForwardMode } from './dial.ts';

/** When only absolute form has reached this many distinct targets, noria uses it for every target of the source. */
export const TARGETS_OF_ABSOLUTE_FORM = 3;
/** Members that must refuse CONNECT in a row before a source that accepted it is considered changed. */
const REFUSALS_OF_A_CHANGED_SOURCE = 3;
/** After this time in absolute form, CONNECT is tried again. */
const RELEARN_MS = 10 * 60_000;
const MAX_TARGETS = 256;

/** Fields by which an error shows that a proxy made it, and not the target. */
const PROXY_FIELDS: ReadonlyMap<string, RegExp> = new Map([
  ['server', /^(?:squid|tinyproxy|privoxy)\b/i],
  ['x-squid-error', /^ERR_/],
  ['proxy-status', /;\s*error=/], // RFC 9209
  ['proxy-connection', /^/], // older 3proxy
  ['proxy-agent', /^/],
]);
const NOT_ACCEPTED = new Set([405, 501]);

export class ForwardModeMemory {
  readonly #clock: Clock;
  readonly #initial: ForwardMode;
  /** Targets that absolute form has reached after a refused CONNECT, and when. */
  readonly #reached = new BoundedMap<string, number>(MAX_TARGETS);
  /** Ports to which a member accepted CONNECT, and when. */
  readonly #acceptedPorts = new BoundedMap<number, number>(MAX_TARGETS);
  readonly #refusedBy = new Set<string>();

  /** @param initial - with `absolute`, CONNECT is never tried, so nothing is learned. */
  constructor(clock: Clock, initial: ForwardMode) {
    this.#clock = clock;
    this.#initial = initial;
  }

  /** What to try first with the next member for this target. */
  first(target: string): ForwardMode {
    if (this.#initial === 'absolute') return 'absolute';
    if (this.#reached.size === 0) return 'direct';
    const now = this.#clock.monotonic();
    this.#reached.deleteOldestWhile((at) => now - at > RELEARN_MS);
    const isLearned = this.#reached.size >= TARGETS_OF_ABSOLUTE_FORM || this.#reached.has(target);
    return isLearned ? 'absolute' : 'direct';
  }

  /** A member accepted CONNECT to this port for a plain HTTP request. */
  connectAccepted(port: number): void {
    const now = this.#clock.monotonic();
    if (this.#acceptedPorts.get(port) !== now) this.#acceptedPorts.set(port, now);
    if (this.#reached.size > 0) this.#reached.clear();
    if (this.#refusedBy.size > 0) this.#refusedBy.clear();
  }

  /** A member refused CONNECT to this port. @returns whether to send the request to this member in absolute form. */
  connectRefused(member: string, port: number): boolean {
    this.#refusedBy.add(member);
    const acceptedAt = this.#acceptedPorts.get(port) ?? Number.NEGATIVE_INFINITY;
    const isAccepted = this.#clock.monotonic() - acceptedAt <= RELEARN_MS;
    return !isAccepted || this.#refusedBy.size >= REFUSALS_OF_A_CHANGED_SOURCE;
  }

  /**
   * A request in absolute form was answered.
   *
   * @param connectStatus - of the refused CONNECT for the same request; absent if none was tried.
   * @returns whether the answer is an error of the member itself, which is not the target's answer.
   */
  answered(target: string, answer: AbsoluteAnswer, connectStatus: number | undefined): boolean {
    const { status } = answer;
    if (status < 400) {
      if (connectStatus !== undefined) this.#reached.set(target, this.#clock.monotonic());
      return false;
    }
    if (NOT_ACCEPTED.has(status)) this.#reached.clear();
    if (this.#initial === 'absolute') return false;
    if (status === connectStatus || answer.fields.some(isOfProxy)) return true;
    return NOT_ACCEPTED.has(status) && answer.isRead;
  }
}

function isOfProxy([name, value]: AbsoluteAnswer['fields'][number]): boolean {
  return PROXY_FIELDS.get(name.toLowerCase())?.test(value) === true;
}
