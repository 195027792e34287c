// @ts-check
/** Assigns members to the slots of the wheel, and computes how full each member's bucket is. */

/**
 * @typedef {{ readonly id: string, readonly remainingSeconds: number | null }} SlotMember
 */

/**
 * In seconds: a bucket is never full below this remaining lifetime. So if all members of a source are about to expire,
 * all their buckets look nearly empty.
 */
const MIN_FULL_SECONDS = 30;
/**
 * Each update multiplies the longest known lifetime of a source by this factor. So a member that lived longer than the
 * present members soon no longer affects their levels.
 */
const MAXIMUM_DECAY = 0.999;
/** The minimum level, so that a nearly empty bucket stays visible. */
const MIN_LEVEL = 0.02;

export class WheelSlots {
  /** The ids of the members in the slots of each source; '' is an empty slot. @type {Map<string, string[]>} */
  #slots = new Map();
  /**
   * For each source, the longest recent remaining lifetime of its members, in seconds. A bucket with this lifetime is
   * full.
   * @type {Map<string, number>}
   */
  #longest = new Map();

  /**
   * Gives each new member an empty slot, or an additional slot if none is empty. The other members keep their slots.
   * Empty slots at the end are removed while there are more than `size` slots.
   * @param {string} source
   * @param {number} size - the wanted number of slots
   * @param {readonly SlotMember[]} members
   * @returns {readonly string[]} the id of the member in each slot, '' for an empty slot
   */
  assign(source, size, members) {
    this.#updateLongest(source, members);
    const present = new Set(members.map(({ id }) => id));
    const slots = (this.#slots.get(source) ?? []).map((id) => (present.has(id) ? id : ''));
    const assigned = new Set(slots);
    for (const { id } of members) {
      if (assigned.has(id)) continue;
      const empty = slots.indexOf('');
      if (empty === -1) slots.push(id);
      else slots[empty] = id;
    }
    while (slots.length < size) slots.push('');
    while (slots.length > size && slots.at(-1) === '') slots.pop();
    this.#slots.set(source, slots);
    return slots;
  }

  /**
   * Returns how full the bucket of a member looks, from 0 to 1.
   * @param {string} source
   * @param {number} seconds - the remaining lifetime of the member
   */
  levelOf(source, seconds) {
    const full = this.#longest.get(source) ?? MIN_FULL_SECONDS;
    return Math.min(1, Math.max(MIN_LEVEL, seconds / full));
  }

  /**
   * @param {string} source
   * @param {readonly SlotMember[]} members
   */
  #updateLongest(source, members) {
    const lifetimes = members.map(({ remainingSeconds }) => remainingSeconds ?? 0);
    const before = (this.#longest.get(source) ?? MIN_FULL_SECONDS) * MAXIMUM_DECAY;
    this.#longest.set(source, Math.max(before, MIN_FULL_SECONDS, ...lifetimes));
  }
}
