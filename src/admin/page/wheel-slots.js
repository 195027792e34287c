// @ts-check
/** Which member is in which slot of the wheel, and how full its bucket is. Without drawing. */

/**
 * @typedef {{ readonly id: string, readonly remainingSeconds: number | null }} SlotMember
 */

/** A shorter lifetime does not fill a bucket, so that a pool whose members all expire soon does not look full. */
const MIN_FULL_SECONDS = 30;
/** What is kept of the longest lifetime at each update: an old maximum fades within some minutes. */
const MAXIMUM_DECAY = 0.999;
/** A bucket that is nearly empty stays visible. */
const MIN_LEVEL = 0.02;

export class WheelSlots {
  /** The member in each slot by source; '' is an empty slot. @type {Map<string, string[]>} */
  #slots = new Map();
  /** The longest recent remaining lifetime in seconds, by source. @type {Map<string, number>} */
  #longest = new Map();

  /**
   * Members keep their slots; new ones take empty slots. Empty slots at the end beyond the wanted size are removed.
   *
   * @param {string} source
   * @param {number} size - slots wanted
   * @param {readonly SlotMember[]} members
   * @returns {readonly string[]} the member in each slot, '' for none
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
   * From 0 to 1, relative to the longest lifetime of the source.
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
