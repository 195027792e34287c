/** The units of time in ms, and the text form of durations: `500ms`, `10s`, `5m`, `2h`. */

export const SECOND_MS = 1_000;
export const MINUTE_MS = 60 * SECOND_MS;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
export const WEEK_MS = 7 * DAY_MS;

/** The largest unit is first: the first unit that divides a value gives the shortest text. */
const UNITS: readonly (readonly [name: string, ms: number])[] = [
  ['h', HOUR_MS],
  ['m', MINUTE_MS],
  ['s', SECOND_MS],
  ['ms', 1],
];
const DURATION = /^(\d{1,16})(ms|s|m|h)$/;

export function parseDuration(text: string): number | undefined {
  if (text === '0') return 0;
  const [, digits, unit] = DURATION.exec(text) ?? [];
  const unitMs = UNITS.find(([name]) => name === unit)?.[1];
  if (unitMs === undefined) return undefined;
  const ms = Number(digits) * unitMs;
  return Number.isSafeInteger(ms) ? ms : undefined;
}

/** @param ms - a whole number, at least 0. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  const [name, unitMs] = UNITS.find(([, each]) => ms % each === 0) ?? ['ms', 1];
  return `${ms / unitMs}${name}`;
}
