/**
 * Decides how noria reacts to a call: how the call affects the pace, for how long the source draws nothing, and what it
 * reports to the other norias of its fleet. All functions are pure. Has the phases of a source and the moves between them;
 * the diagram in docs/architecture.md has the same moves, checked by test/held/phases.test.ts.
 *
 * codes.ts classifies the code of an answer. A call without an answer is classified by its fault.
 */
import type { Clock } from '../core/clock.ts';
import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { FAULTS, type FaultCode, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import { roughDuration } from '../core/words.ts';
import type { DrawAnswer, Quota } from '../service/answer.ts';
import { type CodeMeaning, type CodeVerdict, intervalNamedMs, judgeDraw } from '../service/codes.ts';
import type { SourceProduct } from '../service/operations.ts';
import { PACE_UNCHANGED, type Settlement } from './pace-rule.ts';
import { untilServiceMidnight } from './source-statistics.ts';
import type { SourceState } from './status.ts';

export interface DrawOutcome extends CodeMeaning {
  /** The service's code; `transport` if there was no answer; the fault code if noria could not send the call. */
  readonly code: string;
  /** The service's own text, or the details of the failure, only for the status and the log. */
  readonly message: string | undefined;
  /** Further calls may prolong the problem: no process that shares the pace calls during the suspension, even for waiting clients. */
  readonly retryWorsens?: true;
}

export interface Suspension {
  /**
   * `backoff`: noria cannot reach the service or cannot read its answers. `paused`: the service reported a temporary
   * condition, the daily budget is used up, or the operator paused the source. `halted`: the operator has to act.
   */
  readonly name: 'backoff' | 'paused' | 'halted';
  /** In noria's own words, not in those of the service. */
  readonly reason: string;
  readonly advice: string;
  readonly code?: string;
  /** The monotonic moment of the next draw. With Infinity, the operator has to act first. */
  readonly untilAt: number;
  /** The same if clients are waiting. */
  readonly urgentAt: number;
  /** Whether the suspension ends as soon as any noria of the fleet draws from the instance. */
  readonly endsWithAnyDraw?: boolean;
}

export type SourcePhase =
  /**
   * `idle`: there is no demand, or a source with a smaller priority number can serve the clients. `ready`: the source has
   * enough members.
   */
  | { readonly name: 'idle' | 'ready' | 'drawing'; readonly reason: string }
  /** The source will draw. It waits for the pace, or longer because earlier draws brought no usable members. */
  | { readonly name: 'waiting'; readonly reason: string; readonly advice?: string; readonly code?: string }
  | Suspension;

/** The phases that may follow each phase. A phase may also follow itself, with another reason. */
export const SOURCE_MOVES = {
  idle: ['ready', 'waiting', 'paused', 'halted'],
  ready: ['idle', 'waiting', 'paused', 'halted'],
  drawing: ['idle', 'ready', 'waiting', 'backoff', 'paused', 'halted'],
  waiting: ['idle', 'ready', 'drawing', 'paused', 'backoff', 'halted'],
  backoff: ['idle', 'ready', 'waiting', 'paused', 'halted'],
  paused: ['idle', 'ready', 'waiting', 'halted'],
  halted: ['idle', 'waiting', 'paused'],
} as const satisfies Record<SourceState, readonly SourceState[]>;

export interface Reaction {
  readonly settlement: Settlement;
  readonly suspension?: Suspension;
}

/**
 * What one noria of a fleet reports to the others about the instance of a source, so that one refusal stops the draws of
 * all. It is plain data that JSON can represent.
 */
export interface InstanceReport {
  readonly quota: Quota;
  /** Absent if the service accepted the call. */
  readonly suspension?:
    | (Pick<DrawOutcome, 'code' | 'summary' | 'advice'> & {
        readonly phase: 'paused' | 'halted';
        readonly untilAt?: number | undefined;
        readonly limitsConnections: boolean;
      })
    | undefined;
}

const TRANSPORT = 'transport';
/** Wrong parameters. The service also sends this code for a count above the maximum of the instance. */
export const PARAMS_WRONG = '12003';

const NO_ANSWER: CodeVerdict = { kind: 'back-off', retryFromMs: 5 * SECOND_MS, retryToMs: 10 * MINUTE_MS };
/** The reaction to an answer that does not come from the service but, for example, from a firewall. */
const BLOCKED: CodeVerdict = { kind: 'back-off', retryFromMs: 2 * MINUTE_MS, retryToMs: 30 * MINUTE_MS };
const NOT_UNDERSTOOD: CodeVerdict = {
  kind: 'back-off',
  retryFromMs: 30 * SECOND_MS,
  retryToMs: 10 * MINUTE_MS,
};
const MAX_URGENT_BACKOFF_MS = MINUTE_MS;
/** So that many norias do not retry at the same moment. */
const JITTER = 0.1;
/** Clocks differ, and the service's time zone is an assumption. */
const AFTER_MIDNIGHT_MS = 5 * SECOND_MS;

export function outcomeOfAnswer(product: SourceProduct, answer: DrawAnswer): DrawOutcome {
  const message = answer.message === '' ? undefined : answer.message;
  return { ...judgeDraw(product, answer), code: answer.code, message };
}

/** @throws `error` itself if it is not a NoriaError, because any other error is a bug of noria. */
export function outcomeOfError(error: unknown): DrawOutcome {
  if (!(error instanceof NoriaError)) throw error;
  return {
    code: FAULTS[error.code].side === 'service' ? TRANSPORT : error.code,
    ...wordsOf(error),
    verdict: verdictOn(error.code),
    ...(error.code === 'service-blocked' ? { retryWorsens: true } : {}),
  };
}

/**
 * Returns the texts about a failed call. Clients see the summary. It comes from the table FAULTS, except for failures
 * of the front proxy, which have many causes: their summary is the message of the error.
 */
function wordsOf({ code, message }: NoriaError): Pick<DrawOutcome, 'summary' | 'advice' | 'message'> {
  const { summary, advice } = FAULTS[code];
  if (code !== 'front-proxy-failed') return { summary, advice, message };
  return { summary: `${message.slice(0, 1).toUpperCase()}${message.slice(1)}.`, advice, message: undefined };
}

/** In noria's own words, for example `12001: The key is wrong.` */
export function describeOutcome({ code, summary }: Pick<DrawOutcome, 'code' | 'summary'>): string {
  return /^\d+$/.test(code) ? `${code}: ${summary}` : summary;
}

/** Whether noria made no call because it had lost the fleet's store, or because the store refuses noria. */
export function isLossOfStore(code: string | undefined): boolean {
  return code === 'fleet-store-lost' || code === 'fleet-store-unusable';
}

function verdictOn(code: FaultCode): CodeVerdict {
  if (code === 'service-blocked') return BLOCKED;
  if (code === 'service-protocol' || code === 'link-unreadable' || code === 'service-not-found')
    return NOT_UNDERSTOOD;
  // a retry cannot help, because the configured address is unusable
  return code === 'bad-config' ? { kind: 'halt' } : NO_ANSWER;
}

/** @param consecutive - how many calls in a row, including this one, had the same kind of result. */
export function reactTo(
  outcome: DrawOutcome,
  call: {
    readonly source: string;
    readonly consecutive: number;
    readonly clock: Pick<Clock, 'now' | 'monotonic'>;
    readonly random: Random;
  },
): Reaction {
  const { source, consecutive, clock, random } = call;
  const { verdict } = outcome;
  const suspend = (name: Suspension['name'], ms: number, urgentMs = ms): Reaction => {
    const now = clock.monotonic();
    const endsWithAnyDraw = outcome.concernsInstance === true;
    const times = { untilAt: now + ms, urgentAt: now + urgentMs, endsWithAnyDraw };
    return { settlement: PACE_UNCHANGED, suspension: { ...suspensionBy(outcome, name, source), ...times } };
  };
  switch (verdict.kind) {
    case 'ok':
    case 'empty':
      return { settlement: PACE_UNCHANGED };
    case 'slow-down':
      return { settlement: { kind: 'refused', minMs: intervalNamedMs(outcome.message ?? '') } };
    case 'silence':
      // The pace store records this wait. So no process calls the service for `ms`, even after a restart.
      return { ...suspend('paused', verdict.ms), settlement: { kind: 'silence', ms: verdict.ms } };
    case 'pause':
      return suspend('paused', verdict.retryEveryMs);
    case 'halt':
      return suspend('halted', verdict.retryEveryMs ?? Infinity);
    case 'quota': {
      const ms = exponentialMs(verdict, consecutive, random);
      const midnightMs = untilServiceMidnight(clock.now()) + AFTER_MIDNIGHT_MS;
      return suspend('paused', verdict.atMidnight ? Math.min(ms, midnightMs) : ms);
    }
    case 'back-off': {
      const ms = exponentialMs(verdict, consecutive, random);
      return outcome.retryWorsens
        ? { ...suspend('backoff', ms), settlement: { kind: 'silence', ms } }
        : suspend('backoff', ms, Math.min(ms, MAX_URGENT_BACKOFF_MS));
    }
  }
}

export function suspensionByReport(
  report: NonNullable<InstanceReport['suspension']>,
  source: string,
): Suspension {
  const { untilAt = Infinity } = report;
  const { reason, ...suspension } = suspensionBy(report, report.phase, source);
  const told = `${reason} Another noria of the fleet got this answer.`;
  return { ...suspension, reason: told, untilAt, urgentAt: untilAt, endsWithAnyDraw: true };
}

function suspensionBy(
  outcome: Pick<DrawOutcome, 'code' | 'summary' | 'advice'>,
  name: Suspension['name'],
  source: string,
) {
  const { code, advice } = outcome;
  const then = ` Then run noria resume ${source}, or noria reload after a change of the configuration.`;
  const all = name === 'halted' ? advice + then : advice;
  return { name, reason: describeOutcome(outcome), advice: all, code };
}

/**
 * The report of a call to the other norias. Undefined if the refusal may concern only this noria: the address of its machine, its
 * key or its parameters.
 */
export function reportOf(
  { code, summary, advice, verdict, concernsInstance, limitsConnections }: DrawOutcome,
  suspension: Suspension | undefined,
  quota: Quota,
): InstanceReport | undefined {
  if (suspension === undefined || concernsInstance === undefined || suspension.name === 'backoff') {
    const isAccepted = verdict.kind === 'ok' || verdict.kind === 'empty' || verdict.kind === 'slow-down';
    return isAccepted ? { quota } : undefined;
  }
  const { name: phase, untilAt } = suspension;
  const limits = { limitsConnections: limitsConnections === true };
  return { quota, suspension: { phase, code, summary, advice, untilAt, ...limits } };
}

function exponentialMs(
  { retryFromMs, retryToMs }: { readonly retryFromMs: number; readonly retryToMs: number },
  consecutive: number,
  random: Random,
): number {
  const ms = retryFromMs * 2 ** Math.max(0, consecutive - 1) * (1 + JITTER * (2 * random() - 1));
  return Math.min(retryToMs, Math.max(retryFromMs, ms));
}

export function isSuspended(phase: SourcePhase): phase is Suspension {
  return 'untilAt' in phase;
}

/** The reason of the wait is the last call if that was not successful, else the pace. */
export function waitingPhase(last: DrawOutcome | undefined, intervalMs: number): SourcePhase {
  if (last === undefined || last.verdict.kind === 'ok') {
    return { name: 'waiting', reason: `the pace allows one call every ${roughDuration(intervalMs)}` };
  }
  return { name: 'waiting', reason: describeOutcome(last), advice: last.advice, code: last.code };
}

/** What the event `source.moved` and the status tell of a phase. */
export function phaseReport({
  reason,
  advice = '',
  code,
}: Pick<Suspension, 'reason' | 'code'> & { readonly advice?: string }): {
  readonly reason: string;
  readonly advice?: string;
  readonly code?: string;
} {
  return { reason, ...(advice !== '' && { advice }), ...(code !== undefined && { code }) };
}
