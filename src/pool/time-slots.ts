/**
 * Time slots decide which of several processes that share a pool may use a member now. They are needed if a limit on
 * uses applies to all processes together.
 *
 * Each time slot of a member belongs to one process. A hash of the member and the number of the slot selects this
 * process, so the processes agree without messages. At the start of its slot, a process first waits. After this wait,
 * it knows all uses by the previous process (for `maxUsesPerMember`), and the minimum time since the last use has
 * passed (for the spacing of a site).
 */
import type { Member } from './member.ts';
import type { ProcessPart } from './options.ts';

const USES_KNOWN_MS = 750;
/**
 * The length of a slot, as a multiple of the wait at the start of the slot. With longer slots, processes waste less
 * time on waits. With shorter slots, they share members more evenly.
 */
const WAITS_PER_SLOT = 4;
/** Number of slots among which to search for a slot of this process. Almost certainly, there is one. */
const MAX_SLOTS = 64;

export class TimeSlots {
  /** Whether the slots belong to whole members, because `maxUsesPerMember` is set. This limit counts the uses of sessions, too. */
  readonly arePerMember: boolean;
  readonly #part: ProcessPart;
  readonly #clockAheadMs: number;

  constructor(part: ProcessPart, clockAheadMs: number, arePerMember: boolean) {
    this.#part = part;
    this.#clockAheadMs = clockAheadMs;
    this.arePerMember = arePerMember;
  }

  /**
   * Monotonic moment from which this process may use the member for the site; `now` or earlier if it may use the member now.
   * @param spacingMs - least time between two uses of an exit at the site.
   */
  startAt({ id, exit }: Member, site: string, spacingMs: number, now: number): number {
    const ownWaitMs = Math.max(spacingMs, this.arePerMember ? USES_KNOWN_MS : 0);
    if (ownWaitMs === 0) return now;
    const { changedAt } = this.#part;
    const clockAheadMs = this.#clockAheadMs;
    const key = this.arePerMember ? id : `${exit} ${site}`;
    const lengthMs = ownWaitMs * WAITS_PER_SLOT;
    const current = Math.floor((now - clockAheadMs) / lengthMs);
    for (let slot = current; slot < current + MAX_SLOTS; slot += 1) {
      if (!this.#isOwn(key, slot)) continue;
      const waitMs = this.#isOwn(key, slot - 1) ? 0 : ownWaitMs;
      return Math.max(slot * lengthMs + waitMs + clockAheadMs, changedAt + ownWaitMs);
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
