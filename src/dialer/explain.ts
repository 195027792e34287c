/** Why no member accepted, in a code and a sentence for the client: counts and times, no address and no foreign text. */
import type { FaultCode } from '../core/faults.ts';
import type { AttemptFailure } from './attempt.ts';

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

/** `target-unreachable` when all members that took the request said so; else they failed themselves. */
export function failureCode(failures: readonly AttemptFailure[]): 'target-unreachable' | 'members-failed' {
  const took = failures.filter(({ phase }) => phase === 'answer');
  const doubting = took.every(({ fault }) => fault === 'target-doubted');
  return doubting && took.length > 0 ? 'target-unreachable' : 'members-failed';
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
