/**
 * Time slots decide which of several processes that share a pool may use a member now. They are needed if a limit on
 * uses applies to all processes together.
 *
 * Each time slot of a member belongs to one process. A hash of the member and the number of the slot selects this
 * process, so the processes agree without messages. At the start of its slot, a process first waits. After this wait,
 * it knows all uses by the previous process (for `maxUsesPerMember`), and the minimum time since the last use has
 * passed (for `perHostSpacing`).
 */
import type { Member } from './member.ts';
import type { ProcessPart, RotationOptions } from './options.ts';

type SlotLimits = Pick<RotationOptions, 'maxUsesPerMember' | 'perHostSpacingMs'>;

const USES_KNOWN_MS = 750;
/**
 * The length of a slot, as a multiple of the wait at the start of the slot. With longer slots, processes waste less
 * time on waits. With shorter slots, they share members more evenly.
 */
const WAITS_PER_SLOT = 4;
/** Number of slots among which to search for a slot of this process. Almost certainly, there is one. */
const MAX_SLOTS = 64;

export class TimeSlots {
  readonly #part: ProcessPart;
  readonly #clockAheadMs: number;
  readonly #perHost: boolean;
  readonly #waitMs: number;

  constructor(part: ProcessPart, clockAheadMs: number, limits: SlotLimits) {
    const { maxUsesPerMember, perHostSpacingMs } = limits;
    this.#part = part;
    this.#clockAheadMs = clockAheadMs;
    this.#perHost = maxUsesPerMember === 0;
    this.#waitMs = Math.max(perHostSpacingMs, maxUsesPerMember === 0 ? 0 : USES_KNOWN_MS);
  }

  /**
   * Whether sessions must wait for time slots. True if `maxUsesPerMember` is set, because this limit counts the uses of
   * sessions. `perHostSpacing` does not apply to sessions.
   */
  get applyToSessions(): boolean {
    return !this.#perHost;
  }

  startAt({ id }: Member, host: string, now: number): number {
    const { changedAt } = this.#part;
    const clockAheadMs = this.#clockAheadMs;
    const key = this.#perHost ? `${id} ${host}` : id;
    const lengthMs = this.#waitMs * WAITS_PER_SLOT;
    const current = Math.floor((now - clockAheadMs) / lengthMs);
    for (let slot = current; slot < current + MAX_SLOTS; slot += 1) {
      if (!this.#isOwn(key, slot)) continue;
      const waitMs = this.#isOwn(key, slot - 1) ? 0 : this.#waitMs;
      return Math.max(slot * lengthMs + waitMs + clockAheadMs, changedAt + this.#waitMs);
    }
    return now + MAX_SLOTS * lengthMs;
  }

  #isOwn(key: string, slot: number): boolean {
    const { count, index } = this.#part;
    return hash(`${key} ${slot}`) % count === index;
  }
}

/** FNV-1a with a final mix: gives the same result in every process. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  return (value ^ (value >>> 13)) >>> 0;
}
