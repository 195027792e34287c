/** Stores each distinct location of members once, so that a keyword search compares few texts instead of all members. */
import { BoundedMap } from '../core/bounded-map.ts';

/** Location text of the service, such as province, city and carrier. */
export interface Location {
  /** As received; empty if the service reports none. */
  readonly text: string;
  /** In lower case, for comparison. */
  readonly folded: string;
}

/** Limit of remembered locations: more than a country has provinces, cities and carriers. */
const MAX_LOCATIONS = 20_000;

/** The locations seen so far, up to MAX_LOCATIONS. */
export class Locations {
  readonly #byText = new BoundedMap<string, Location>(MAX_LOCATIONS);

  /** The location with this text. Returns the same object each time while the location is remembered. */
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

/** The form of locations and keywords for comparison. */
export function foldLocation(text: string): string {
  return text.toLowerCase();
}

/** Whether a text in another script, such as Chinese, cannot contain the keyword. */
export function hasLatinLetter(text: string): boolean {
  return /\p{Script=Latin}/u.test(text);
}

/** Whether the keyword looks like a country or state code, as other gateways use. The service's locations are words. */
export function looksLikeCode(keyword: string): boolean {
  return /^[a-z]{1,3}$/i.test(keyword);
}
