/** Why no member accepted, in a code and a sentence for the client: counts and times, no address and no foreign text. */
import type { FaultCode } from '../core/faults.ts';
import type { LeaseRefusal } from '../pool/lease.ts';
import type { AttemptFailure } from './attempt.ts';
import type { DialFailure } from './dial.ts';

const WORDS: Partial<Record<FaultCode, string>> = {
  'member-unreachable': 'could not be connected to',
  'member-silent': 'gave no answer in time',
  'member-closed': 'closed the connection',
  'member-protocol': 'answered something else than a proxy does',
  'member-refused': 'refused the request',
  'member-auth': 'wanted other credentials',
  'member-incapable': 'cannot name such a target in its protocol',
  'target-doubted': 'could not reach the target',
};

/** What the client is told when every member tried failed. */
export function membersFailed(
  failures: readonly AttemptFailure[],
  attempts: number,
  ms: number,
): DialFailure {
  const took = failures.filter(({ phase }) => phase === 'answer');
  const doubts = took.filter(({ fault }) => fault === 'target-doubted');
  // The target's fault only when all members that took the request said so; else they failed themselves.
  const unreachable = took.length > 0 && doubts.length === took.length;
  return {
    code: unreachable ? 'target-unreachable' : 'members-failed',
    reason: explainFailures(failures, ms),
    attempts,
    // A refusal is the target's own word; "unreachable", and HTTP's 502, may be all that the other members know.
    ...(unreachable ? { targetRefused: doubts.some(({ targetRefused }) => targetRefused) } : {}),
  };
}

/** What the client is told when the pool had no member for it. */
export function noMember(
  { refused, reason, retryAfterMs, sources }: LeaseRefusal,
  attempts: number,
): DialFailure {
  return {
    code: refused,
    reason,
    attempts,
    sources,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
}

/** For example `2 members tried in 812 ms: 1 gave no answer in time, 1 refused the request`. */
export function explainFailures(failures: readonly AttemptFailure[], ms: number): string {
  const counts = new Map<string, number>();
  for (const { fault } of failures) {
    const words = WORDS[fault] ?? 'failed';
    counts.set(words, (counts.get(words) ?? 0) + 1);
  }
  const members = failures.length === 1 ? '1 member' : `${failures.length} members`;
  const list = [...counts].map(([words, count]) => `${count} ${words}`).join(', ');
  const tried = `${members} tried in ${Math.round(ms)} ms`;
  return list === '' ? tried : `${tried}: ${list}`;
}
