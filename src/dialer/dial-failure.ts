/**
 * Describes why a dial failed, as a code and a sentence for the client. The sentence has counts and times, but no
 * addresses and no text from outside.
 */
import type { FaultCode } from '../core/faults.ts';
import type { AttemptFailure } from './attempt-contract.ts';
import type { DialBlame } from './blame.ts';
import type { DialFailure } from './dial.ts';
import { describeFrontFailure } from './front-handshake.ts';

/** What members did. Each text follows a count, as in `2 could not be reached`. */
const DESCRIPTIONS: Partial<Record<FaultCode, string>> = {
  'member-unreachable': 'could not be reached',
  'member-silent': 'did not answer in time',
  'member-closed': 'closed the connection',
  'member-protocol': 'sent an invalid proxy response',
  'member-refused': 'refused the request',
  'member-auth': 'required other credentials',
  'front-proxy-failed': 'failed at the front proxy',
  'front-proxy-silent': 'got no answer from the front proxy',
  'member-incapable': 'cannot address this target',
  'target-doubted': 'could not reach the target',
};

/**
 * The failure of a dial that has no attempt left.
 * @param ms - duration of the dial.
 */
export function failureAfterAttempts(
  { failures, isTargetUnreachable, allAtFrontProxy }: DialBlame,
  attempts: number,
  ms: number,
): DialFailure {
  if (allAtFrontProxy) return { code: 'front-proxy-failed', reason: describeFrontProxy(failures), attempts };
  const reason = describeAttempts(failures, attempts, ms);
  if (!isTargetUnreachable) return { code: 'members-failed', reason, attempts };
  // If one member reports a refused connection, the target refused it. Other members may report the same refusal as
  // "unreachable" or as status 502.
  const targetRefused = failures.some((failure) => failure.targetRefused);
  return { code: 'target-unreachable', reason, attempts, targetRefused };
}

/** Why the front proxy did not connect noria to the member of the last attempt, and how to fix it. */
function describeFrontProxy(failures: readonly AttemptFailure[]): string {
  const failure = failures.at(-1)?.frontFailure;
  if (failure === undefined) return '';
  const names = { front: 'the front proxy', server: 'a member', key: 'dial.via' };
  const { reason, advice } = describeFrontFailure(failure, names);
  return `${reason}; ${advice}`;
}

/** Returns for example `2 members tried in 812 ms: 1 did not answer in time, 1 refused the request`. */
export function describeAttempts(failures: readonly AttemptFailure[], attempts: number, ms: number): string {
  const counts = new Map<string, number>();
  for (const { fault } of failures) {
    const description = DESCRIPTIONS[fault] ?? 'failed';
    counts.set(description, (counts.get(description) ?? 0) + 1);
  }
  const tried = `${attempts} ${attempts === 1 ? 'member' : 'members'} tried in ${Math.round(ms)} ms`;
  const list = [...counts].map(([description, count]) => `${count} ${description}`).join(', ');
  return list === '' ? tried : `${tried}: ${list}`;
}
