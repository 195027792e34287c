/** Stores each distinct location once, so that a keyword search compares each text once instead of once per member. */
import { BoundedMap } from '../core/bounded-map.ts';

/** Location text of the service, such as province, city and carrier. */
export interface Location {
  /** The text as the service sent it; empty if the service reports no location. */
  readonly text: string;
  /** `text` in lower case, for comparison. */
  readonly folded: string;
}

/** Maximum number of remembered locations. A country has fewer combinations of province, city and carrier. */
const MAX_LOCATIONS = 20_000;

export class Locations {
  readonly #byText = new BoundedMap<string, Location>(MAX_LOCATIONS);

  /** Returns the same object each time for the same text, while the location is remembered. */
  of(text = ''): Location {
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    const location = { text, folded: foldLocation(text) };
    this.#byText.set(text, location);
    return location;
  }

  /**
   * Whether a location seen so far contains the keyword.
   * @param keyword - folded by `foldLocation`.
   */
  someContain(keyword: string): boolean {
    for (const { folded } of this.#byText.values()) if (folded.includes(keyword)) return true;
    return false;
  }
}

/** The form in which locations and keywords are compared. */
export function foldLocation(text: string): string {
  return text.toLowerCase();
}

/**
 * Whether the text has a Latin letter. A location without Latin letters, such as a Chinese location, cannot contain a keyword
 * with a Latin letter.
 */
export function hasLatinLetter(text: string): boolean {
  return /\p{Script=Latin}/u.test(text);
}

/**
 * Whether the keyword looks like a country or state code. Gateways of other services select locations by such codes; this
 * service's locations are words.
 */
export function looksLikeCode(keyword: string): boolean {
  return /^[a-z]{1,3}$/i.test(keyword);
}
