/** The locations of members, each stored once, so that a keyword search compares few texts instead of all members. */
import { BoundedMap } from '../core/bounded-map.ts';

/** Free text of the service, such as province, city and carrier. */
export interface Location {
  /** As received; empty when the service does not report it. */
  readonly text: string;
  /** In lower case, for comparison. */
  readonly folded: string;
}

/** More than a country has provinces, cities and carriers. */
const MAX_LOCATIONS = 20_000;

/** Every location seen, up to a limit. */
export class Locations {
  readonly #byText = new BoundedMap<string, Location>(MAX_LOCATIONS);

  /** The location with this text; always the same object while it is remembered. */
  of(text = ''): Location {
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    const location = { text, folded: foldLocation(text) };
    this.#byText.set(text, location);
    return location;
  }

  /** Whether a location seen so far contains the folded keyword. */
  someContain(keyword: string): boolean {
    for (const { folded } of this.#byText.values()) if (folded.includes(keyword)) return true;
    return false;
  }
}

/** The form in which locations and keywords are compared. */
export function foldLocation(text: string): string {
  return text.toLowerCase();
}

/** Whether a text of another script, such as Chinese, cannot contain it. */
export function hasLatinLetter(text: string): boolean {
  return /\p{Script=Latin}/u.test(text);
}

/** Whether the keyword looks like the country or state code that other gateways take. The service's locations are words. */
export function looksLikeCode(keyword: string): boolean {
  return /^[a-z]{1,3}$/i.test(keyword);
}
