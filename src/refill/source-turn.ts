/**
 * One turn of a source and its draw: waits in the queue for a permit, opens a connection, makes the call, and learns
 * from the result. Owns the connection and the call.
 */
import type { EventBus } from '../core/events.ts';
import { hasCode, NoriaError } from '../core/faults.ts';
import { formatCount, roughDuration } from '../core/words.ts';
import { applyDraw, type EndedDraw } from './draw.ts';
import type { RecordedDraw } from './draw-history.ts';
import type { DrawPlanner, PlannerContext, SourceParts } from './draw-planner.ts';
import type { InstanceReport } from './instance-report.ts';
import type { DrawSourceOptions, ExtractConnection, Extractor } from './options.ts';
import type { Permit, PreparedCall } from './pace.ts';
import { PACE_UNCHANGED, type Settlement } from './pace-rule.ts';
import { suspendedPhase, waitingPhase } from './phase.ts';
import { type DrawOutcome, outcomeOfAnswer, outcomeOfError, type Suspension } from './reaction.ts';

export interface TurnContext extends PlannerContext {
  readonly bus: EventBus;
  readonly extractor: Extractor;
  /** Sends a report to the other norias of the fleet. */
  readonly onReport?: ((source: string, report: InstanceReport) => void) | undefined;
}

/** A draw whose connection to the service is open. Its call may not be sent yet. */
interface OpenDraw {
  readonly connection: ExtractConnection;
  /**
   * The options that the source had before the connection was opened. A reload during the call does not change them.
   */
  readonly options: DrawSourceOptions;
  readonly startedAt: number;
  readonly signal: AbortSignal;
}

interface SentDraw {
  readonly result: undefined;
  readonly settlement: Settlement;
}

const NOT_SENT: SentDraw = { result: undefined, settlement: PACE_UNCHANGED };

export class SourceTurn {
  readonly #context: TurnContext;
  readonly #planner: DrawPlanner;
  readonly #parts: SourceParts;
  /** Aborts the turn if its call is not sent yet. */
  readonly #turnAbort = new AbortController();
  #callAbort: AbortController | undefined;

  constructor(context: TurnContext, planner: DrawPlanner, parts: SourceParts) {
    this.#context = context;
    this.#planner = planner;
    this.#parts = parts;
  }

  /**
   * @param planned - the number of members to draw, as planned before the wait.
   * @throws only if noria has a bug.
   */
  async run(planned: number): Promise<void> {
    const { state } = this.#parts;
    const { signal } = this.#turnAbort;
    const phaseBefore = state.phase;
    let count = planned;
    const turn = {
      rule: {
        intervalMs: this.#parts.options.intervalMs,
        callTimeoutMs: this.#context.settings().callTimeoutMs,
      },
      isWanted: () => {
        const plan = this.#planner.plan();
        if (plan.kind === 'draw') count = plan.count;
        return plan.kind === 'draw' && !state.isPausedByOperator;
      },
      open: () => this.#open(count, signal),
      onWait: (ms: number) => this.#reportWait(ms),
    };
    try {
      await this.#planner.pace.take(turn, signal);
    } catch (error) {
      // `take` throws only if noria cannot record the call. A failed call does not throw: its failure is an outcome.
      if (!(error instanceof NoriaError)) throw error;
      // Clears the operator's request for a draw. Such a request overrides the suspension, so noria would otherwise
      // repeat the draw endlessly and without a pause.
      state.refillRequested = false;
      const isSuspendedByTurn = state.isSuspended && state.phase !== phaseBefore;
      if (!isSuspendedByTurn) this.#learn({ outcome: outcomeOfError(error), asked: 0, gained: 0 }, undefined);
    }
  }

  /** Ends the turn. If its call is already sent, the call continues. Idempotent. */
  abort(): void {
    this.#turnAbort.abort();
  }

  /** Ends the turn and aborts its call. Idempotent. */
  abortCall(): void {
    this.#turnAbort.abort();
    this.#callAbort?.abort();
  }

  /**
   * Reports why the source waits. If the wait is more than twice the usual time between two calls, and the last call
   * does not explain it, the report names the possible causes.
   */
  #reportWait(ms: number): void {
    const { state, history } = this.#parts;
    const { last } = history;
    if (ms > 2 * this.#planner.gapMs && (last === undefined || last.verdict.kind === 'ok')) {
      const isInFleet = this.#context.onReport !== undefined;
      const cause = isInFleet
        ? "an earlier answer of the service, a call of another noria, or lost data in the fleet's store"
        : 'an earlier answer of the service, or a call of another process';
      const reason = `the next call must wait ${roughDuration(ms)} because of ${cause}`;
      state.move({ name: 'waiting', reason });
    } else if (state.phase.name !== 'waiting') {
      // this turn waits again: the source was suspended, or another process made a call while the connection opened
      this.#moveToWaiting();
    }
  }

  /** Opens the connection. Returns undefined if the connection failed or the turn has ended. */
  async #open(count: number, signal: AbortSignal): Promise<PreparedCall<undefined> | undefined> {
    const { clock, bus, extractor } = this.#context;
    const { options } = this.#parts;
    const startedAt = clock.monotonic();
    if (this.#parts.state.isSuspended) this.#moveToWaiting();
    this.#moveToDrawing(count);
    const call = new AbortController();
    const abort = () => call.abort();
    this.#callAbort = call;
    signal.addEventListener('abort', abort);
    try {
      const connection = await extractor.connect(options.call, call.signal);
      const draw = { connection, options, startedAt, signal: call.signal };
      return { send: (permit) => this.#send(draw, permit), close: () => connection.close() };
    } catch (error) {
      this.#parts.state.refillRequested = false;
      if (call.signal.aborted) return undefined; // ignored: the turn has ended
      const outcome = outcomeOfError(error);
      bus.emit('draw.started', { source: options.name, asked: count });
      const gained = this.#apply({ options, startedAt, asked: count, outcome });
      this.#learn({ outcome, asked: count, gained }, undefined);
      return undefined;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** Makes the call if it is still necessary. */
  async #send(draw: OpenDraw, permit: Permit): Promise<SentDraw> {
    const { state, reports } = this.#parts;
    const plan = this.#planner.planNow(); // plans again: the pool may have changed while the connection opened
    if (plan.kind !== 'draw' || state.isPausedByOperator || reports.mustStop) return NOT_SENT;
    const { count } = plan;
    const { refillRequested } = state;
    state.refillRequested = false;
    this.#moveToDrawing(count);
    const ended = await this.#call(draw, count, permit);
    // If the permit expired, the turn waits for another permit, and the operator's request for a draw still applies.
    if (permit.state === 'expired') state.refillRequested ||= refillRequested;
    if (ended === undefined) return NOT_SENT;
    const gained = this.#apply(ended);
    if (draw.signal.aborted) return NOT_SENT;
    const settlement = this.#learn({ outcome: ended.outcome, asked: count, gained }, permit.sinceArrivalMs);
    if (draw.options !== this.#parts.options) forgetOldOptions(this.#parts);
    return { result: undefined, settlement };
  }

  /**
   * Calls the service. Returns undefined if the call was aborted, or if the permit had expired and noria sent nothing.
   */
  async #call(draw: OpenDraw, asked: number, gate: Permit): Promise<EndedDraw | undefined> {
    const { connection, options, startedAt, signal } = draw;
    const { call, secrets, name: source } = options;
    this.#context.bus.emit('draw.started', { source, asked });
    try {
      const answer = await connection.extract({ ...call, count: asked }, { secrets, gate });
      return { options, startedAt, asked, outcome: outcomeOfAnswer(call.product, answer), answer };
    } catch (error) {
      // ignored: the source closes, or the permit expired and `Pace.take` waits for another one
      if (signal.aborted || hasCode(error, 'pace-held')) return undefined;
      return { options, startedAt, asked, outcome: outcomeOfError(error) };
    }
  }

  #apply(draw: EndedDraw): number {
    const { statistics } = this.#parts;
    return applyDraw({ ...this.#context, statistics }, draw, this.#planner.aheadMs);
  }

  #moveToWaiting(): void {
    const { state, history } = this.#parts;
    state.move(waitingPhase(history.last, this.#parts.options.intervalMs));
  }

  #moveToDrawing(count: number): void {
    const reason = `requesting ${formatCount(count, 'member')} from the service`;
    this.#parts.state.move({ name: 'drawing', reason });
  }

  /**
   * Learns from the end of a draw, and suspends the source if necessary.
   *
   * @param sinceArrivalMs - see `Permit.sinceArrivalMs`.
   */
  #learn(
    draw: Pick<RecordedDraw, 'outcome' | 'asked' | 'gained'>,
    sinceArrivalMs: number | undefined,
  ): Settlement {
    const { state, history } = this.#parts;
    const { outcome } = draw;
    const { gapMs } = this.#planner;
    const { settlement, suspension } = history.recordDraw({ ...draw, gapMs, sinceArrivalMs });
    this.#report(outcome, suspension);
    // noria does not repeat the first draw if it dropped all proxies of the answer: each draw may cost money.
    if (outcome.verdict.kind === 'ok' || outcome.allDropped) state.drawsAhead = false;
    if (suspension !== undefined) {
      const at = { source: this.#parts.options.name, now: this.#context.clock.monotonic() };
      state.move(suspendedPhase(outcome, suspension, at));
    }
    return settlement;
  }

  #report(outcome: DrawOutcome, suspension: Suspension | undefined): void {
    const { clock, onReport } = this.#context;
    const { statistics, reports } = this.#parts;
    const report = reports.conclude({ outcome, suspension, quota: statistics.quota, now: clock.monotonic() });
    if (report !== undefined) onReport?.(this.#parts.options.name, report);
  }
}

/** Forgets what the source learned with the old options, and ends the suspension that they caused. */
export function forgetOldOptions({ history, reports, state }: SourceParts): void {
  history.reset();
  reports.reset();
  state.optionsChanged();
}
