/** Durations as people write them, to ms and back. */

/** From the largest unit to the smallest, so that the first that fits a value without a rest writes it shortest. */
const UNITS: readonly (readonly [name: string, ms: number])[] = [
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
];
const DURATION = /^(\d{1,16})(ms|s|m|h)$/;

/** Ms of `500ms`, `10s`, `5m` or `2h`, a whole number with its unit; `0` needs none. Undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  if (text === '0') return 0;
  const [, digits, unit] = DURATION.exec(text) ?? [];
  const unitMs = UNITS.find(([name]) => name === unit)?.[1];
  if (unitMs === undefined) return undefined;
  const ms = Number(digits) * unitMs;
  return Number.isSafeInteger(ms) ? ms : undefined;
}

/** The shortest text that `parseDuration` reads as these ms: a whole number, 0 or more. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  const [name, unitMs] = UNITS.find(([, each]) => ms % each === 0) ?? ['ms', 1];
  return `${ms / unitMs}${name}`;
}
