/** What a source shows of itself; texts of the service stand in `message` alone. */
import type { Quota } from '../service/answer.ts';
import type { DrawSourceOptions } from './options.ts';
import { isSuspended, type SourcePhase, type SourcePhaseName } from './phase.ts';
import type { DrawOutcome } from './reaction.ts';
import type { SourceRecords } from './source-records.ts';

/** A source as `/api/status` and the outlook show it. */
export interface SourceStatus {
  readonly name: string;
  readonly product: string;
  readonly state: SourcePhaseName;
  /** Why it is in this state, in noria's words, with the service's code where that is the reason. */
  readonly reason: string;
  /** What a person can do about it; absent where nothing needs doing. */
  readonly advice?: string;
  /** The code of the last call, `transport` where none came, a fault's own where it could not go out; absent before the first. */
  readonly code?: string;
  /** The service's own text of the last call, or how it failed: not for clients. */
  readonly message?: string;
  /** Ms until the next call may go out; absent when none does without a person. */
  readonly nextCallMs?: number;
  /** The same as epoch ms, where one is planned: a source that is idle, or holds what it should, plans none. */
  readonly nextCallAt?: number;
  /** How long a call usually takes, to its members being usable. */
  readonly latencyMs: number;
  readonly quota: Quota;
  /** Distinct IPs of the service's day. */
  readonly budget?: { readonly limit: number; readonly used: number };
  readonly size: number;
  readonly priority: number;
  /** Members drawn; of those that are gone, used and never used; and the tunnels the used ones carried. */
  readonly drawn: number;
  readonly used: number;
  readonly unused: number;
  readonly tunnels: number;
  /** Calls by code. */
  readonly codes: Readonly<Record<string, number>>;
}

export interface Shown {
  readonly options: DrawSourceOptions;
  readonly phase: SourcePhase;
  readonly ledger: SourceRecords;
  readonly last: DrawOutcome | undefined;
  /** Ms until the next call may go out; undefined: not without a person. */
  readonly nextCallMs: number | undefined;
  /** Whether it will go out by itself. */
  readonly planned: boolean;
  /** Epoch ms. */
  readonly wallAt: number;
}

export function sourceStatus({
  options,
  phase,
  ledger,
  last,
  nextCallMs,
  planned,
  wallAt,
}: Shown): SourceStatus {
  const advice = isSuspended(phase) || phase.name === 'waiting' ? phase.advice : undefined;
  const { dailyBudget } = options;
  return Object.freeze({
    name: options.name,
    product: options.call.product,
    state: phase.name,
    reason: phase.reason,
    ...(advice === undefined || advice === '' ? {} : { advice }),
    ...(last === undefined ? {} : { code: last.code }),
    ...(last?.message === undefined ? {} : { message: last.message }),
    ...(nextCallMs === undefined ? {} : { nextCallMs }),
    ...(nextCallMs === undefined || !planned ? {} : { nextCallAt: wallAt + nextCallMs }),
    latencyMs: ledger.latencyMs,
    quota: ledger.quota,
    ...(dailyBudget === undefined
      ? {}
      : { budget: { limit: dailyBudget, used: ledger.budget.used(wallAt) } }),
    size: options.size,
    priority: options.priority,
    ...ledger.counts,
    codes: Object.fromEntries(ledger.codes),
  });
}
