/** Reads and writes durations such as `500ms`, `10s`, `5m` and `2h`. */

/** Largest first: the first unit that divides a value writes it shortest. */
const UNITS: readonly (readonly [name: string, ms: number])[] = [
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
];
const DURATION = /^(\d{1,16})(ms|s|m|h)$/;

/** @returns ms, or undefined unless it is a whole number with a unit, or `0`. */
export function parseDuration(text: string): number | undefined {
  if (text === '0') return 0;
  const [, digits, unit] = DURATION.exec(text) ?? [];
  const unitMs = UNITS.find(([name]) => name === unit)?.[1];
  if (unitMs === undefined) return undefined;
  const ms = Number(digits) * unitMs;
  return Number.isSafeInteger(ms) ? ms : undefined;
}

/** @param ms - whole, at least 0. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  const [name, unitMs] = UNITS.find(([, each]) => ms % each === 0) ?? ['ms', 1];
  return `${ms / unitMs}${name}`;
}
