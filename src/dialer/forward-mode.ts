/**
 * Chooses the forward mode for the HTTP members of one source. noria prefers CONNECT: a member can then neither
 * modify the request nor pass off its own errors as the target's. Some members accept CONNECT only to port 443, or
 * not at all; but a refused CONNECT may concern only this target. So noria learns from responses: if a target answers
 * in absolute form after a refused CONNECT, that is its mode, and after several such targets that of all.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { AbsoluteAnswer, ForwardMode } from './contract.ts';

/** After so many targets that were reached only in absolute form, all targets of the source get it. */
const MIN_ABSOLUTE_FORM_TARGETS = 3;
/** After so many members in a row, the source may have changed, and a port is no longer accepted. */
const MIN_CONNECT_REFUSALS = 3;
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
    const isLearned = this.#reached.size >= MIN_ABSOLUTE_FORM_TARGETS || this.#reached.has(target);
    return isLearned ? 'absolute' : 'direct';
  }

  connectAccepted(port: number): void {
    this.#acceptedPorts.renew(port, true);
    this.#reached.clear();
    this.#refusedBy.clear();
  }

  /** @returns whether to send the request to this member in absolute form. */
  connectRefused(member: string, port: number): boolean {
    this.#refusedBy.add(member);
    return !this.#acceptedPorts.has(port) || this.#refusedBy.size >= MIN_CONNECT_REFUSALS;
  }

  /**
   * @param connectStatus - with which CONNECT was refused for the same request.
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
