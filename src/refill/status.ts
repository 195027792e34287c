/** The status of a source. Only `message` contains text of the service. */
import type { Quota } from '../service/answer.ts';
import type { DrawSourceOptions } from './options.ts';
import { phaseReport, type SourcePhase, type SourcePhaseName } from './phase.ts';
import type { DrawOutcome } from './reaction.ts';
import type { SourceRecords } from './source-records.ts';

export interface SourceStatus {
  readonly name: string;
  readonly product: string;
  readonly state: SourcePhaseName;
  /** Why it is in this state, in noria's words, with the service's code where that is the reason. */
  readonly reason: string;
  /** What the operator can do; absent when nothing is needed. */
  readonly advice?: string;
  /** The code of the last call, see `DrawOutcome`; absent before the first. */
  readonly code?: string;
  /** The service's own text of the last call, or how it failed: not for clients. */
  readonly message?: string;
  /** Ms until the next call may start; absent when the operator has to act first. */
  readonly nextCallMs?: number;
  /** The same as epoch ms, where a call is planned: a source that is idle or has enough members plans none. */
  readonly nextCallAt?: number;
  /** The usual time from the start of a call until its members are usable. */
  readonly latencyMs: number;
  readonly quota: Quota;
  /** Distinct IPs of the service's day. */
  readonly budget?: { readonly limit: number; readonly used: number };
  readonly size: number;
  readonly priority: number;
  /** Members drawn; removed members that were used, and that never were; tunnels and requests through removed members. */
  readonly drawn: number;
  readonly used: number;
  readonly unused: number;
  readonly tunnels: number;
  /** Calls by code. */
  readonly codes: Readonly<Record<string, number>>;
}

export interface StatusInputs {
  readonly options: DrawSourceOptions;
  readonly phase: SourcePhase;
  readonly records: SourceRecords;
  readonly last: DrawOutcome | undefined;
  /** Ms until the next call may start; undefined: the operator has to act first. */
  readonly nextCallMs: number | undefined;
  /** Whether that call starts without a further event. */
  readonly isPlanned: boolean;
  /** Epoch ms. */
  readonly wallAt: number;
}

export function sourceStatus({
  options,
  phase,
  records,
  last,
  nextCallMs,
  isPlanned,
  wallAt,
}: StatusInputs): SourceStatus {
  const { dailyBudget } = options;
  const { reason, advice } = phaseReport(phase);
  return Object.freeze({
    name: options.name,
    product: options.call.product,
    state: phase.name,
    reason,
    ...(advice === undefined ? {} : { advice }),
    ...(last === undefined ? {} : { code: last.code }),
    ...(last?.message === undefined ? {} : { message: last.message }),
    ...(nextCallMs === undefined ? {} : { nextCallMs }),
    ...(nextCallMs === undefined || !isPlanned ? {} : { nextCallAt: wallAt + nextCallMs }),
    latencyMs: records.latencyMs,
    quota: records.quota,
    ...(dailyBudget === undefined
      ? {}
      : { budget: { limit: dailyBudget, used: records.budget.used(wallAt) } }),
    size: options.size,
    priority: options.priority,
    ...records.counts,
    codes: Object.fromEntries(records.codes),
  });
}
