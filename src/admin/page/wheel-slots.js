// @ts-check
/** Assigns members to the slots of the wheel, and computes how full the bucket of a member is. Draws nothing. */

/**
 * @typedef {{ readonly id: string, readonly remainingSeconds: number | null }} SlotMember
 */

/**
 * A full bucket shows at least this remaining lifetime. So when all members of a source expire soon, all buckets look
 * nearly empty.
 */
const MIN_FULL_SECONDS = 30;
/** Each update multiplies the recorded longest lifetime by this factor, so that an old maximum fades. */
const MAXIMUM_DECAY = 0.999;
/** The minimum level, so that a nearly empty bucket stays visible. */
const MIN_LEVEL = 0.02;

export class WheelSlots {
  /** The ids of the members in the slots of each source; '' is an empty slot. @type {Map<string, string[]>} */
  #slots = new Map();
  /** The longest remaining lifetime in seconds that a member recently had, by source. @type {Map<string, number>} */
  #longest = new Map();

  /**
   * Assigns each new member to an empty slot; the other members keep their slots. While there are more than `size`
   * slots and the last slot is empty, the last slot is removed.
   *
   * @param {string} source
   * @param {number} size - the number of slots wanted
   * @param {readonly SlotMember[]} members
   * @returns {readonly string[]} the member's id in each slot, '' for an empty slot
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
   * How full to draw the bucket of a member, from 0 to 1: `seconds`, divided by the longest recent remaining lifetime in the source.
   *
   * @param {string} source
   * @param {number} seconds - remaining lifetime
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
