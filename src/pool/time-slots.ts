/**
 * Turns decide which of several processes that share a pool may use a member now. They are needed if a limit on uses
 * applies to all processes together.
 *
 * Each turn of a member belongs to one process. A hash of the member and the number of the turn selects this process,
 * so the processes agree without messages. At the start of its turn, a process first waits. After this wait, it knows
 * all uses by the previous process (for `maxUsesPerMember`), and the minimum time since the last use has passed (for
 * `perHostSpacing`).
 */
import type { Member } from './member.ts';
import type { ProcessPart, RotationOptions } from './options.ts';

type TurnLimits = Pick<RotationOptions, 'maxUsesPerMember' | 'perHostSpacingMs'>;

/** After this time, a process knows all uses by the other processes. */
const USES_KNOWN_MS = 750;
/**
 * The length of a turn, as a multiple of the wait at its start. Longer turns waste less time on waits; shorter turns
 * are fairer.
 */
const WAITS_PER_TURN = 4;
/** Number of turns to search ahead. Almost certainly, at least one of these turns belongs to this process. */
const MAX_TURNS = 64;

export class TimeSlots {
  readonly #share: ProcessPart;
  readonly #clockAheadMs: number;
  readonly #perHost: boolean;
  readonly #waitMs: number;

  constructor(share: ProcessPart, clockAheadMs: number, limits: TurnLimits) {
    const { maxUsesPerMember, perHostSpacingMs } = limits;
    this.#share = share;
    this.#clockAheadMs = clockAheadMs;
    this.#perHost = maxUsesPerMember === 0;
    this.#waitMs = Math.max(perHostSpacingMs, maxUsesPerMember === 0 ? 0 : USES_KNOWN_MS);
  }

  /** Whether the limit applies to sessions as well. `perHostSpacing` does not. */
  get applyToSessions(): boolean {
    return !this.#perHost;
  }

  /** Monotonic moment from which this process may use the member for the host; `now` or earlier if it may use the member now. */
  startAt({ id }: Member, host: string, now: number): number {
    const { changedAt } = this.#share;
    const clockAheadMs = this.#clockAheadMs;
    const key = this.#perHost ? `${id} ${host}` : id;
    const lengthMs = this.#waitMs * WAITS_PER_TURN;
    const current = Math.floor((now - clockAheadMs) / lengthMs);
    for (let turn = current; turn < current + MAX_TURNS; turn += 1) {
      if (!this.#isOwn(key, turn)) continue;
      const waitMs = this.#isOwn(key, turn - 1) ? 0 : this.#waitMs;
      return Math.max(turn * lengthMs + waitMs + clockAheadMs, changedAt + this.#waitMs);
    }
    return now + MAX_TURNS * lengthMs;
  }

  #isOwn(key: string, turn: number): boolean {
    const { count, index } = this.#share;
    return hash(`${key} ${turn}`) % count === index;
  }
}

/** FNV-1a with a final mix: gives the same result in every process. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  return (value ^ (value >>> 13)) >>> 0;
}
