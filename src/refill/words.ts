/** The words in which sources and warnings are told: noria's own, with the service's codes and no text of it. */
import type { DrawOutcome } from './reaction.ts';

/** `12009: No proxy exists at present under these conditions.` */
export function describeOutcome({ code, summary }: Pick<DrawOutcome, 'code' | 'summary'>): string {
  return /^\d+$/.test(code) ? `${code}: ${summary}` : summary;
}

/** Why a source waits that wants to draw: the pace, or how its last call ended. */
export function whyWaiting(last: DrawOutcome | undefined, intervalMs: number) {
  if (last === undefined || last.verdict.kind === 'ok') {
    return { reason: `the pace is one call every ${roughDuration(intervalMs)}` };
  }
  return { reason: describeOutcome(last), advice: last.advice, code: last.code };
}

/** `1 member`, `5 members`. */
export function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** `10 s`, `0.5 s`, `5 min`: for sentences, not exact. */
export function roughDuration(ms: number): string {
  if (ms >= 120_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 100) / 10} s`;
}
