/** The status of a source. Only `message` contains text of the service. */
import type { Quota } from '../service/answer.ts';
import { UNUSED_FAILURES_ADVICE } from './draw-history.ts';
import type { SourceParts } from './draw-planner.ts';
import { phaseReport, type SourcePhaseName } from './phase.ts';
import { type DrawOutcome, describeOutcome } from './reaction.ts';

export interface SourceStatus {
  readonly name: string;
  readonly product: string;
  readonly state: SourcePhaseName;
  /**
   * Why the source is in this state, in noria's own words. If a code of the service is the reason, the text begins with
   * the code.
   */
  readonly reason: string;
  /** What the operator can do; absent if nothing is necessary. */
  readonly advice?: string;
  /**
   * The code that explains the state. If no code explains it, the code of the last call (see `DrawOutcome.code`).
   * Absent before the first call, and before the first call after a change of the source's configuration.
   */
  readonly code?: string;
  /** What the service said in its answer to the last call, or how the call failed. Never shown to clients. */
  readonly message?: string;
  /** The last draw that ended; absent before the first draw. */
  readonly lastDraw?: LastDraw;
  /** For how long the source has been in this state, in ms. */
  readonly stateMs: number;
  /** The time in ms until the next call may start; absent if the operator has to act first. */
  readonly nextCallMs?: number;
  /**
   * The time of the next call in epoch ms. Absent if no call is planned, for example because there are enough
   * members.
   */
  readonly nextCallAt?: number;
  readonly quota: Quota;
  /** The maximum number of distinct IPs to draw on one day of the service, and the number drawn today. */
  readonly budget?: { readonly limit: number; readonly used: number };
  readonly size: number;
  /** The counts of the source since the state folder was created, as `Counts` defines them. */
  readonly drawn: number;
  readonly used: number;
  readonly unused: number;
}

/** The result of the last draw. It shows whether the next draw will probably bring usable members. */
export interface LastDraw {
  /** How the draw ended. `useless`: it brought members, but many members in a row failed before their first use. */
  readonly result: 'succeeded' | 'empty' | 'useless' | 'failed';
  /** The outcome in noria's own words, not in those of the service. */
  readonly reason: string;
  /** What the operator can do; empty if nothing is necessary. */
  readonly advice: string;
}

interface NextCall {
  /** The time in ms until the next call may start; undefined if the operator has to act first. */
  readonly ms: number | undefined;
  /** Whether the source has planned its next call. */
  readonly isPlanned: boolean;
}

/** @param wallAt - the current time in epoch ms. */
export function sourceStatus(parts: SourceParts, nextCall: NextCall, wallAt: number): SourceStatus {
  const { options, statistics, history, state } = parts;
  const { last } = history;
  const { phase } = state;
  const { ms: nextCallMs, isPlanned } = nextCall;
  const { dailyBudget } = options;
  const { reason, advice, code = last?.code } = phaseReport(phase);
  return Object.freeze({
    name: options.name,
    product: options.call.product,
    state: phase.name,
    reason,
    ...(advice === undefined ? {} : { advice }),
    ...(code === undefined ? {} : { code }),
    ...(last?.message === undefined ? {} : { message: last.message }),
    ...(last === undefined ? {} : { lastDraw: lastDraw(last, history.spacing.unusedFailures) }),
    stateMs: state.lastedMs,
    ...(nextCallMs === undefined ? {} : { nextCallMs }),
    ...(nextCallMs === undefined || !isPlanned ? {} : { nextCallAt: wallAt + nextCallMs }),
    quota: statistics.quota,
    ...(dailyBudget === undefined
      ? {}
      : { budget: { limit: dailyBudget, used: statistics.budget.used(wallAt) } }),
    size: options.size,
    ...statistics.counts,
  });
}

function lastDraw(last: DrawOutcome, unusedFailures: number | undefined): LastDraw {
  const { kind } = last.verdict;
  if (kind === 'ok' && unusedFailures !== undefined) {
    const reason = `${unusedFailures} members in a row failed before their first use.`;
    return { result: 'useless', reason, advice: UNUSED_FAILURES_ADVICE };
  }
  const result = kind === 'ok' ? 'succeeded' : kind === 'empty' ? 'empty' : 'failed';
  return { result, reason: describeOutcome(last), advice: last.advice };
}
