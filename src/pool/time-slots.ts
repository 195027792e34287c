/**
 * Which of several processes with one pool may use a member now, if a limit on uses applies to all of them. Each time slot of a member
 * belongs to one process, which a hash selects, so the processes agree without messages. At the start of its slot, a process waits until it
 * knows all uses by the previous one (`maxUsesPerMember`), or until the spacing of the site has passed.
 */
import type { Member } from './member.ts';
import type { ProcessPart } from './options.ts';

const USES_KNOWN_MS = 750;
/** Longer slots waste less time on waits, shorter ones share members more evenly. */
const WAITS_PER_SLOT = 4;
/** Among so many, one is almost certainly its own. */
const MAX_SLOTS = 64;

export class TimeSlots {
  /** Whether the slots belong to whole members, because `maxUsesPerMember` is set. This limit counts the uses of sessions, too. */
  readonly arePerMember: boolean;
  readonly #part: ProcessPart;

  constructor(part: ProcessPart, arePerMember: boolean) {
    this.#part = part;
    this.arePerMember = arePerMember;
  }

  /** At most `now`: the process may use the member now. */
  startAt({ id, exit }: Member, site: string, spacingMs: number, now: number): number {
    const ownWaitMs = Math.max(spacingMs, this.arePerMember ? USES_KNOWN_MS : 0);
    if (ownWaitMs === 0) return now;
    const { changedAt } = this.#part;
    const key = this.arePerMember ? id : `${exit} ${site}`;
    const lengthMs = ownWaitMs * WAITS_PER_SLOT;
    const current = Math.floor(now / lengthMs);
    for (let slot = current; slot < current + MAX_SLOTS; slot += 1) {
      if (!this.#isOwn(key, slot)) continue;
      const waitMs = this.#isOwn(key, slot - 1) ? 0 : ownWaitMs;
      return Math.max(slot * lengthMs + waitMs, changedAt + ownWaitMs);
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
