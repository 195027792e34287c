/**
 * What the three formats have in common once read: a code, a text, counters, and entries not yet checked.
 *
 * Each reader gives an envelope, or nothing when the text is not one; what is kept of it is decided in `decode`.
 */
import type { Quota } from './answer.ts';
import { readInteger } from './fields.ts';

/** Values by their wire names, as they came. */
export type RawFields = Readonly<Record<string, unknown>>;

export interface Envelope {
  readonly code: string;
  /** The service's own text, as it came. */
  readonly message: string;
  /** Where counters may stand, the likeliest place first. */
  readonly counters: readonly RawFields[];
  readonly entries: readonly RawFields[];
}

/** The service's code, a text or a number in an answer; undefined when it is neither. */
export function readCode(raw: unknown): string | undefined {
  const text = typeof raw === 'number' || typeof raw === 'string' ? String(raw).trim() : '';
  return /^[\w.-]{1,16}$/.test(text) ? text : undefined;
}

/** The counters, from the first place that has each. Sources: "Additional data fields" of the specification. */
export function readQuota(places: readonly RawFields[]): Quota {
  const count = (...names: readonly string[]): number | undefined => {
    for (const place of places) {
      for (const name of names) {
        const value = Object.hasOwn(place, name) ? readInteger(place[name]) : undefined;
        if (value !== undefined && value >= 0) return value;
      }
    }
    return undefined;
  };
  const found: Record<keyof Quota, number | undefined> = {
    remaining: count('surplus_count', 'today_left_count'),
    added: count('update_count', 'dedup_count'),
    active: count('active_count'),
    today: count('today_count'),
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}
