/** Formats counts and durations for sentences. */

/** `1 member`, `5 members`. */
export function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** `10 s`, `0.5 s`, `5 min`; rounded. */
export function roughDuration(ms: number): string {
  if (ms >= 120_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 100) / 10} s`;
}
