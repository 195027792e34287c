import { expect, test } from 'vitest';
import { readinessLines } from '../../src/admin/readiness-text.ts';
import type { Readiness } from '../../src/admin/schemas.ts';

type Kind = Readiness['problems'][number]['kind'];

function linesOf(...kinds: Kind[]): string[] {
  return linesAt(null, ...kinds);
}

function linesAt(nextAttemptSeconds: number | null, ...kinds: Kind[]): string[] {
  const problem = { source: 'city', reason: 'a reason', advice: null, nextAttemptSeconds: null };
  return readinessLines({
    state: 'not-serving',
    ready: false,
    reason: 'source city: a reason',
    advice: 'Do this.',
    sinceSeconds: 7,
    nextAttemptSeconds,
    problems: kinds.map((kind) => ({ ...problem, kind })),
  });
}

test('readiness: the text names a client request only if it can start a draw', () => {
  const second = (who: string) =>
    `noria has been in this state for 7 s; noria does not retry by itself: it waits for ${who}.`;
  expect(linesOf('halted')).toEqual([
    'not serving: source city: a reason',
    second('you'),
    'What to do: Do this.',
  ]);
  expect(linesOf('paused', 'no-listener')[1]).toBe(second('you'));
  expect(linesOf('halted', 'members-failing')[1]).toBe(second('you or a client request'));
  expect(linesOf('credentials-refused')[1]).toBe(second('you or a client request'));
});

test('readiness: a wait of hours is told in hours', () => {
  expect(linesAt(80_386, 'paused')[1]).toBe(
    'noria has been in this state for 7 s; noria tries again in 22 h.',
  );
  expect(linesAt(4, 'paused')[1]).toBe('noria has been in this state for 7 s; noria tries again in 4 s.');
});
