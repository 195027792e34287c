/** Durations and sizes as people write them, to ms and bytes and back. */

/** From the largest unit to the smallest, so that the first that fits a value without a rest writes it shortest. */
const DURATION_UNITS: readonly (readonly [name: string, ms: number])[] = [
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
];
const SIZE_UNITS: readonly (readonly [name: string, bytes: number])[] = [
  ['GiB', 1024 ** 3],
  ['MiB', 1024 ** 2],
  ['KiB', 1024],
  ['B', 1],
];
const AMOUNT = /^(\d{1,15})([A-Za-z]+)$/;

/** Ms of `500ms`, `10s`, `5m` or `2h`, a whole number with its unit; `0` needs none. Undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  return text === '0' ? 0 : parseAmount(text, DURATION_UNITS);
}

/** The shortest text that `parseDuration` reads as these ms: a whole number of ms, 0 or more. */
export function formatDuration(ms: number): string {
  return ms === 0 ? '0s' : formatAmount(ms, DURATION_UNITS);
}

/** Bytes of `512B`, `64KiB`, `1MiB` or `2GiB`, a whole number with its unit. Undefined for anything else. */
export function parseSize(text: string): number | undefined {
  return parseAmount(text, SIZE_UNITS);
}

/** The shortest text that `parseSize` reads as these bytes: a whole number, 0 or more. */
export function formatSize(bytes: number): string {
  return bytes === 0 ? '0B' : formatAmount(bytes, SIZE_UNITS);
}

type Units = readonly (readonly [name: string, worth: number])[];

function parseAmount(text: string, units: Units): number | undefined {
  const [, digits, name] = AMOUNT.exec(text) ?? [];
  const worth = units.find(([unit]) => unit === name)?.[1];
  if (worth === undefined) return undefined;
  const amount = Number(digits) * worth;
  return Number.isSafeInteger(amount) ? amount : undefined;
}

function formatAmount(amount: number, units: Units): string {
  const [name, worth] = units.find(([, each]) => amount % each === 0) ?? ['', 1];
  return `${amount / worth}${name}`;
}
