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

/**
 * Finds the known name that a misspelt name probably means. Ignores case.
 *
 * @returns undefined if more than a third of the characters of the longer name would have to change.
 */
export function nearest(text: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestShare = 1 / 3;
  for (const name of known) {
    const share = distance(text.toLowerCase(), name.toLowerCase()) / Math.max(text.length, name.length);
    if (share < bestShare || (share === bestShare && best === undefined)) {
      best = name;
      bestShare = share;
    }
  }
  return best;
}

/** The optimal string alignment distance. */
function distance(from: string, to: string): number {
  let before: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let row = 1; row <= from.length; row += 1) {
    const line = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const same = from[row - 1] === to[column - 1];
      const swapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      const at = (list: readonly number[], index: number) => list[index] ?? Number.POSITIVE_INFINITY;
      line[column] = Math.min(
        at(last, column) + 1,
        at(line, column - 1) + 1,
        at(last, column - 1) + (same ? 0 : 1),
        swapped ? at(before, column - 2) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    before = last;
    last = line;
  }
  return last[to.length] ?? 0;
}

/**
 * Copies a text: V8 represents a part of a string as a view of the whole, so a stored name from a request head would keep
 * the whole head in memory, including credentials. Only for well-formed Unicode: the copy replaces lone surrogates.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}
