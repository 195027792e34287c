// @ts-check
/** Which member stands in which bucket, and how full a life makes it. Knows no drawing. */

/**
 * @typedef {{ readonly id: string, readonly remainingSeconds: number | null }} Seated
 */

/** A life shorter than this does not fill a bucket, so that a pool near its end looks like one. */
const SHORTEST_FULL_SECONDS = 30;
/** How much of the old measure is kept each time: it is forgotten within some minutes. */
const MEMORY = 0.999;
/** A bucket that is not yet empty shows it. */
const LEAST_LEVEL = 0.02;

export class Seating {
  /** By source; '' is an empty bucket. @type {Map<string, string[]>} */
  #seats = new Map();
  /** The longest life lately seen, by source: what fills a bucket. @type {Map<string, number>} */
  #longest = new Map();

  /**
   * Who stays keeps its place, who is new takes an empty one; empty ones beyond the wanted size go.
   *
   * @param {string} source
   * @param {number} size - buckets wanted
   * @param {readonly Seated[]} members
   * @returns {readonly string[]} the member of each bucket, '' for none
   */
  seat(source, size, members) {
    this.#noteLives(source, members);
    const present = new Set(members.map(({ id }) => id));
    const seats = (this.#seats.get(source) ?? []).map((id) => (present.has(id) ? id : ''));
    const seated = new Set(seats);
    for (const { id } of members) {
      if (seated.has(id)) continue;
      const empty = seats.indexOf('');
      if (empty === -1) seats.push(id);
      else seats[empty] = id;
    }
    while (seats.length < size) seats.push('');
    while (seats.length > size && seats.at(-1) === '') seats.pop();
    this.#seats.set(source, seats);
    return seats;
  }

  /**
   * From 0 to 1, beside the longest life of the source.
   *
   * @param {string} source
   * @param {number} seconds - of life left
   */
  levelOf(source, seconds) {
    const full = this.#longest.get(source) ?? SHORTEST_FULL_SECONDS;
    return Math.min(1, Math.max(LEAST_LEVEL, seconds / full));
  }

  /**
   * @param {string} source
   * @param {readonly Seated[]} members
   */
  #noteLives(source, members) {
    const lives = members.map(({ remainingSeconds }) => remainingSeconds ?? 0);
    const before = (this.#longest.get(source) ?? SHORTEST_FULL_SECONDS) * MEMORY;
    this.#longest.set(source, Math.max(before, SHORTEST_FULL_SECONDS, ...lives));
  }
}
