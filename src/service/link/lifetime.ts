/**
 * Converts an expiry field to the remaining lifetime. Imprecise values are rounded down, because a client request
 * through an expired member fails.
 */
import { MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import { DEFAULT_ZONE, type ExpiryKind } from './rules.ts';

/** In ms. `unknown`: the vendor sent -1. Undefined: noria cannot interpret the value. */
export type Lifetime = number | 'expired' | 'unknown' | undefined;

const MAX_LIFE_MS = 366 * 86_400_000;
/** A number below is a duration, any other a Unix time: each since September 2001 has at least this many seconds. */
const FIRST_EPOCH_SECONDS = 1_000_000_000;
/** noria reads a Unix time below this as seconds, and any other Unix time as ms. */
const FIRST_EPOCH_MS = 100_000_000_000;
const NUMBER = /^[+-]?\d{1,16}(?:\.\d{1,9})?$/;
const MOMENT =
  /^(\d{4})[-/](\d{1,2})[-/](\d{1,2})[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d{1,9})?)?\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?$/i;
const ZONE = /^(?:Z|UTC|GMT|([+-])(\d{2}):?(\d{2}))$/i;

export function isZone(text: string): boolean {
  return zoneOffsetMs(text) !== undefined;
}

/** @param when - `since`: when a lifetime in seconds or minutes began; if unreadable, when the answer arrived. */
export function readLifetime(
  raw: unknown,
  as: ExpiryKind,
  when: { readonly zone: string; readonly wallAt: number; readonly since?: unknown },
): Lifetime {
  const { zone, wallAt, since } = when;
  const number = readNumber(raw);
  const passedMs = typeof since === 'string' ? wallAt - (momentOf(since, zone) ?? wallAt) : 0;
  switch (as) {
    case 'seconds':
    case 'minutes': {
      if (number === undefined || number < -1) return undefined;
      if (number === -1) return 'unknown';
      const ms = number * (as === 'seconds' ? SECOND_MS : MINUTE_MS);
      return checked(Math.floor(ms - Math.max(0, passedMs)));
    }
    case 'epoch': {
      if (number === undefined || number < FIRST_EPOCH_SECONDS) return undefined;
      return checked(Math.floor((number < FIRST_EPOCH_MS ? number * SECOND_MS : number) - wallAt));
    }
    case 'datetime': {
      const at = typeof raw === 'string' ? momentOf(raw, zone) : undefined;
      return at === undefined ? undefined : checked(Math.floor(at - wallAt));
    }
  }
}

/** A whole number that is too small for Unix time is a duration. */
export function expiryKindOf(raw: unknown, duration: 'seconds' | 'minutes'): ExpiryKind | undefined {
  const number = readNumber(raw);
  if (number !== undefined) {
    if (number >= FIRST_EPOCH_SECONDS) return 'epoch';
    return Number.isInteger(number) ? duration : undefined;
  }
  return typeof raw === 'string' && momentOf(raw, DEFAULT_ZONE) !== undefined ? 'datetime' : undefined;
}

function checked(ms: number): Lifetime {
  if (ms > MAX_LIFE_MS) return undefined;
  return ms <= 0 ? 'expired' : ms;
}

function readNumber(raw: unknown): number | undefined {
  const value = typeof raw === 'string' && NUMBER.test(raw.trim()) ? Number(raw) : raw;
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function momentOf(text: string, zone: string): number | undefined {
  const [, year, month, day, hour, minute, second = '0', ownZone] = MOMENT.exec(text.trim()) ?? [];
  const offsetMs = zoneOffsetMs(ownZone ?? zone);
  if (year === undefined || offsetMs === undefined) return undefined;
  const [y, mo, d, h, mi, s] = [year, month, day, hour, minute, second].map(Number);
  const isPossible = inRange(mo, 1, 12) && inRange(d, 1, 31) && inRange(h, 0, 24) && inRange(mi, 0, 59);
  if (!isPossible || !inRange(s, 0, 60)) return undefined;
  return Date.UTC(y ?? 0, (mo ?? 1) - 1, d, h, mi, s) - offsetMs;
}

function inRange(value: number | undefined, from: number, to: number): boolean {
  return value !== undefined && value >= from && value <= to;
}

function zoneOffsetMs(zone: string): number | undefined {
  const match = ZONE.exec(zone);
  if (match === null) return undefined;
  const [, sign, hours = '0', minutes = '0'] = match;
  if (Number(hours) > 14 || Number(minutes) > 59) return undefined;
  return (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * MINUTE_MS;
}
