/**
 * What CONNECT requests ask for, read once: most clients come back to a few targets a thousand times.
 *
 * Saves the grammar, and gives everything behind it one string per target, whose hash is known already where it is a
 * key. Bounded in number and in length; when full it is emptied, which costs each target one more reading.
 */
import { type HostPort, parseHostPort } from '../core/host-port.ts';
import { ownText } from '../core/own-text.ts';

const MOST = 1_024;
const LONGEST = 128;

export class KnownTargets {
  readonly #byText = new Map<string, HostPort>();

  get size(): number {
    return this.#byText.size;
  }

  /** As `parseHostPort` reads it, without a default port. */
  read(text: string): HostPort | undefined {
    return this.#byText.get(text) ?? this.#readNew(text);
  }

  #readNew(text: string): HostPort | undefined {
    if (text.length > LONGEST) return parseHostPort(text);
    const own = ownText(text);
    const target = parseHostPort(own);
    if (target === undefined) return undefined;
    if (this.#byText.size >= MOST) this.#byText.clear();
    this.#byText.set(own, target);
    return target;
  }
}
