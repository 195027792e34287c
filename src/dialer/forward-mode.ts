/**
 * Chooses the forward mode for the HTTP members of one source: CONNECT or absolute form.
 *
 * noria prefers CONNECT: a member can then neither modify the request nor present its own errors as the target's. Some
 * members accept CONNECT only to port 443, or not at all. A single refused CONNECT does not show that the member is of
 * this kind: the member may refuse only this target. So noria learns from responses: if a target answers a
 * request in absolute form after a refused CONNECT, noria uses absolute form for this target from then on. After
 * several such targets, noria uses absolute form for all targets of the source.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { AbsoluteAnswer, ForwardMode } from './contract.ts';

/**
 * When this number of distinct targets were reached only in absolute form, noria uses absolute form for all targets of
 * the source.
 */
const MIN_ABSOLUTE_FORM_TARGETS = 3;
/**
 * A source whose members accepted CONNECT to a port may change. noria assumes such a change after this many consecutive
 * members refused CONNECT to the port.
 */
const MIN_CONNECT_REFUSALS = 3;
/**
 * After this time, noria forgets that a target needs absolute form, or that members accept CONNECT to a port.
 */
const RELEARN_MS = 10 * 60_000;
const MAX_TARGETS = 256;

/** Header fields that show that a proxy, not the target, generated an error response. */
const PROXY_FIELDS: ReadonlyMap<string, RegExp> = new Map([
  ['server', /^(?:squid|tinyproxy|privoxy)\b/i],
  ['x-squid-error', /^ERR_/],
  ['proxy-status', /;\s*error=/], // the field of RFC 9209
  ['proxy-connection', /^/], // a field that older versions of 3proxy send
  ['proxy-agent', /^/],
]);
const NOT_ACCEPTED = new Set([405, 501]);

export class ForwardModeMemory {
  readonly #initial: ForwardMode;
  /** The targets to which a member refused CONNECT, and which then answered the same request in absolute form. */
  readonly #reached: AgedMap<string>;
  readonly #acceptedPorts: AgedMap<number>;
  readonly #refusedBy = new Set<string>();

  /** @param initial - with `absolute`, noria never tries CONNECT and learns nothing. */
  constructor(clock: Clock, initial: ForwardMode) {
    this.#initial = initial;
    this.#reached = new AgedMap(clock, RELEARN_MS, MAX_TARGETS);
    this.#acceptedPorts = new AgedMap(clock, RELEARN_MS, MAX_TARGETS);
  }

  first(target: string): ForwardMode {
    if (this.#initial === 'absolute') return 'absolute';
    const { size } = this.#reached;
    const isLearned = size >= MIN_ABSOLUTE_FORM_TARGETS || (size > 0 && this.#reached.has(target));
    return isLearned ? 'absolute' : 'direct';
  }

  /** Records that a member accepted CONNECT to this port for a plain HTTP request. */
  connectAccepted(port: number): void {
    this.#acceptedPorts.renew(port, true);
    this.#reached.clear();
    if (this.#refusedBy.size > 0) this.#refusedBy.clear();
  }

  /**
   * Records that a member refused CONNECT to this port. @returns whether to send the request to this member in absolute
   * form.
   */
  connectRefused(member: string, port: number): boolean {
    this.#refusedBy.add(member);
    return !this.#acceptedPorts.has(port) || this.#refusedBy.size >= MIN_CONNECT_REFUSALS;
  }

  /**
   * Learns from the response to a request in absolute form.
   * @param connectStatus - the status with which CONNECT was refused for the same request; undefined if CONNECT was not
   *   tried.
   * @returns whether the member made the response itself.
   */
  answered(target: string, answer: AbsoluteAnswer, connectStatus: number | undefined): boolean {
    const { status } = answer;
    if (status < 400) {
      if (connectStatus !== undefined) this.#reached.set(target, true);
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
