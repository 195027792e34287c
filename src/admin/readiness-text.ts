/** noria's readiness as text, for /readyz, the command line and systemd. */
import { SECOND_MS } from '../core/duration.ts';
import { roughDuration } from '../core/words.ts';
import type { Readiness } from './schemas.ts';

const FOR_OPERATOR: ReadonlySet<Readiness['problems'][number]['kind']> = new Set([
  'no-listener',
  'halted',
  'paused',
]);

export function readinessHeadline({ state, reason, problems }: Readiness): string {
  const others =
    state === 'not-serving'
      ? []
      : problems.map(({ source, reason: why }) => (source === null ? why : `${source}: ${why}`));
  return [`${state.replace('-', ' ')}: ${reason}`, ...others].join('; ');
}

export function readinessLines(readiness: Readiness): string[] {
  const { ready, advice, sinceSeconds, nextAttemptSeconds, problems } = readiness;
  if (ready) return [readinessHeadline(readiness)];
  const since = `noria has been in this state for ${roughDuration(sinceSeconds * SECOND_MS)}`;
  if (problems[0]?.kind === 'shutting-down') return [readinessHeadline(readiness), `${since}.`];
  const isForOperator = problems.length > 0 && problems.every(({ kind }) => FOR_OPERATOR.has(kind));
  const next =
    nextAttemptSeconds === null
      ? `noria does not retry by itself: it waits for ${isForOperator ? 'you' : 'you or a client request'}`
      : nextAttemptSeconds === 0
        ? 'noria tries again now'
        : `noria tries again in ${roughDuration(nextAttemptSeconds * SECOND_MS)}`;
  return [
    readinessHeadline(readiness),
    `${since}; ${next}.`,
    ...(advice === null ? [] : [`What to do: ${advice}`]),
  ];
}
