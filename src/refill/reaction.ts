/**
 * What one call of the service leads to: how the pace goes on, and whether the source rests, and until when. Pure.
 *
 * An answer is judged by the code table of the service; a call without one by the fault it ended with.
 */
import { FAULTS, type FaultCode, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { DrawAnswer } from '../service/answer.ts';
import { type CodeVerdict, intervalNamedMs, judgeDraw } from '../service/codes.ts';
import type { Product } from '../service/operations.ts';
import { untilServiceMidnight } from './daily-budget.ts';
import type { Settlement } from './pace-rule.ts';

/** A call as it ended, in words. */
export interface DrawOutcome {
  /** The service's code; `transport` where none came; a fault's own where the call never went out. */
  readonly code: string;
  /** One sentence in noria's words. */
  readonly summary: string;
  readonly advice: string;
  /** The service's own text, or what went wrong in detail: for status and log only. */
  readonly message: string | undefined;
  readonly verdict: CodeVerdict;
  readonly limitsConnections: boolean;
  /** It brought proxies of which none may or can be used. */
  readonly allDropped: boolean;
  /** Not tried sooner because a client waits, nor by another process: each call may make it worse. */
  readonly retryWorsens: boolean;
}

/** How long a source rests. */
export interface Suspension {
  readonly phase: 'backoff' | 'paused' | 'halted';
  /** Infinity: until a person does something. */
  readonly ms: number;
  /** The same while a client waits. */
  readonly urgentMs: number;
}

export interface Reaction {
  readonly settlement: Settlement;
  readonly suspension?: Suspension;
}

/** The code of a call that brought no answer of the service. */
export const TRANSPORT = 'transport';
/** "Parameters incomplete or wrong": also what the service says to a count above the single-pull limit of the instance. */
export const PARAMS_WRONG = '12003';

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;

/** No answer: doubling, so that a service that is down is not hammered when it comes back. */
const NO_ANSWER: CodeVerdict = { kind: 'back-off', retryFromMs: 5 * SECOND_MS, retryToMs: 10 * MINUTE_MS };
/** Something else answered, perhaps a firewall: each call may prolong the block. */
const BLOCKED: CodeVerdict = { kind: 'back-off', retryFromMs: 2 * MINUTE_MS, retryToMs: 30 * MINUTE_MS };
const NOT_UNDERSTOOD: CodeVerdict = {
  kind: 'back-off',
  retryFromMs: 30 * SECOND_MS,
  retryToMs: 10 * MINUTE_MS,
};
/** While a client waits, a service that could not be reached is tried again this soon. */
const URGENT_MS = MINUTE_MS;
/** Rests differ by up to so much either way, so that many norias do not come back at once. */
const JITTER = 0.1;
/** Midnight is inferred and clocks differ: a little later rather than a little earlier. */
const AFTER_MIDNIGHT_MS = 5 * SECOND_MS;

export function outcomeOfAnswer(product: Product, answer: DrawAnswer): DrawOutcome {
  const {
    summary,
    advice,
    verdict,
    limitsConnections = false,
    allDropped = false,
  } = judgeDraw(product, answer);
  const common = { code: answer.code, message: answer.message === '' ? undefined : answer.message };
  if (verdict.kind === 'ok' && answer.quota.remaining === 0) return { ...common, ...NOTHING_LEFT };
  return { ...common, summary, advice, verdict, limitsConnections, allDropped, retryWorsens: false };
}

/** The draw was fine, and the service says that it was the last one. */
const NOTHING_LEFT = {
  summary: 'The service has no distinct IPs left for this instance.',
  advice: "Wait for the service's midnight (UTC+8), or buy more.",
  verdict: { kind: 'quota', retryFromMs: 30 * MINUTE_MS, retryToMs: 30 * MINUTE_MS, atMidnight: true },
  limitsConnections: false,
  allDropped: false,
  retryWorsens: false,
} as const;

/** @throws whatever is not a NoriaError: a mistake in the program, not a state of the world. */
export function outcomeOfError(error: unknown): DrawOutcome {
  if (!(error instanceof NoriaError)) throw error;
  const { side, says, advice } = FAULTS[error.code];
  return {
    code: side === 'service' ? TRANSPORT : error.code,
    summary: says,
    advice,
    message: error.message,
    verdict: verdictOn(error.code),
    limitsConnections: false,
    allDropped: false,
    retryWorsens: error.code === 'service-blocked',
  };
}

function verdictOn(code: FaultCode): CodeVerdict {
  if (code === 'service-blocked') return BLOCKED;
  if (code === 'service-protocol') return NOT_UNDERSTOOD;
  // An address that cannot be called at all stays so until someone changes it.
  return code === 'bad-config' ? { kind: 'halt' } : NO_ANSWER;
}

/**
 * @param inARow - how often the source came to rest like this without a good call between, this one included.
 * @param wallAt - epoch ms, for what waits until the service's midnight.
 */
export function reactTo(outcome: DrawOutcome, inARow: number, wallAt: number, random: Random): Reaction {
  const { verdict } = outcome;
  switch (verdict.kind) {
    case 'ok':
    case 'empty':
      return { settlement: { kind: 'done' } };
    case 'slow-down':
      return { settlement: { kind: 'refused', leastMs: intervalNamedMs(outcome.message ?? '') } };
    case 'silence':
      // Written to the pace file too: a restart or a second process must be as silent.
      return { settlement: { kind: 'silence', ms: verdict.ms }, suspension: exactly('paused', verdict.ms) };
    case 'pause':
      return { settlement: { kind: 'done' }, suspension: exactly('paused', verdict.retryEveryMs) };
    case 'halt':
      return {
        settlement: { kind: 'done' },
        suspension: exactly('halted', verdict.retryEveryMs ?? Infinity),
      };
    case 'quota': {
      const ms = doubled(verdict, inARow, random);
      const midnightMs = untilServiceMidnight(wallAt) + AFTER_MIDNIGHT_MS;
      return {
        settlement: { kind: 'done' },
        suspension: exactly('paused', verdict.atMidnight ? Math.min(ms, midnightMs) : ms),
      };
    }
    case 'back-off': {
      const ms = doubled(verdict, inARow, random);
      if (outcome.retryWorsens)
        return { settlement: { kind: 'silence', ms }, suspension: exactly('backoff', ms) };
      const urgentMs = Math.min(ms, URGENT_MS);
      return { settlement: { kind: 'done' }, suspension: { phase: 'backoff', ms, urgentMs } };
    }
  }
}

function exactly(phase: Suspension['phase'], ms: number): Suspension {
  return { phase, ms, urgentMs: ms };
}

function doubled(
  { retryFromMs, retryToMs }: { readonly retryFromMs: number; readonly retryToMs: number },
  inARow: number,
  random: Random,
): number {
  const ms = retryFromMs * 2 ** Math.max(0, inARow - 1) * (1 + JITTER * (2 * random() - 1));
  return Math.min(retryToMs, Math.max(retryFromMs, ms));
}
