/** The verdict on readiness as text, for /readyz, the command line and systemd. */
import type { Readiness } from './schemas.ts';

/** `not serving: source city: 12001: The key is wrong`. It contains no times, so it changes only with the verdict. */
export function readinessHeadline({ state, reason, problems }: Readiness): string {
  const others =
    state === 'not-serving'
      ? []
      : problems.map(({ source, reason: why }) => (source === null ? why : `${source}: ${why}`));
  return [`${state.replace('-', ' ')}: ${reason}`, ...others].join('; ');
}

/** The headline. While noria does not serve, also: since when, the next attempt, and what to do. */
export function readinessLines(readiness: Readiness): string[] {
  const { ready, advice, sinceSeconds, nextAttemptSeconds } = readiness;
  if (ready) return [readinessHeadline(readiness)];
  const next =
    nextAttemptSeconds === null
      ? 'no further attempt without the operator'
      : nextAttemptSeconds === 0
        ? 'the next attempt is under way'
        : `the next attempt starts in ${nextAttemptSeconds} s`;
  return [
    readinessHeadline(readiness),
    `For ${sinceSeconds} s; ${next}.`,
    ...(advice === null ? [] : [`What to do: ${advice}`]),
  ];
}
