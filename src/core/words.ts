/** Formats a count, such as `1 member` or `5 members`. */
export function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Formats a rounded duration, such as `10 s`, `0.5 s`, `5 min` or `22 h`. */
export function roughDuration(ms: number): string {
  if (ms >= 7_200_000) return `${Math.round(ms / 3_600_000)} h`;
  if (ms >= 120_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 100) / 10} s`;
}

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** Formats a size, such as `999 B`, `1.5 KiB` or `12 MiB`. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1_000 && unit < BYTE_UNITS.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  const rounded = value >= 10 || unit === 0 ? Math.round(value) : Math.round(value * 10) / 10;
  return `${rounded} ${BYTE_UNITS[unit]}`;
}
