/** The locations that members have or had, each kept once: wishes are compared with these few, not with every member. */

/** One location, as free text of the service. */
export interface Location {
  /** As it came; empty when it was not told. */
  readonly text: string;
  /** In lower case, for comparing. */
  readonly folded: string;
}

/** More than a country has provinces, cities and carriers; the oldest is forgotten beyond it. */
const MAX_PLACES = 20_000;

/** Every location seen lately. */
export class Locations {
  readonly #places = new Map<string, Location>();

  /** The one place with this text. */
  of(text = ''): Location {
    const known = this.#places.get(text);
    if (known !== undefined) return known;
    const place = { text, folded: foldLocation(text) };
    this.#places.set(text, place);
    for (const oldest of this.#places.keys()) {
      if (this.#places.size <= MAX_PLACES) break;
      this.#places.delete(oldest);
    }
    return place;
  }

  /** Whether any place seen so far contains the folded keyword. */
  anyHas(keyword: string): boolean {
    for (const place of this.#places.values()) if (place.folded.includes(keyword)) return true;
    return false;
  }
}

/** The form in which locations and keywords are compared. */
export function foldLocation(text: string): string {
  return text.toLowerCase();
}

/**
 * Whether the keyword looks like a country code, as users of other gateways write it, or like the code of a state:
 * locations of the service are words.
 */
export function looksLikeCode(keyword: string): boolean {
  return /^[a-z]{1,3}$/i.test(keyword);
}
