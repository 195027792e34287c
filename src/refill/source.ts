/**
 * One configured source of members: a state machine that draws when its pool will lack members, at the pace of its
 * instance, and suspends itself when the service says so.
 *
 * Every event that may matter calls `wake`, which schedules a check. A check plans (draw-plan.ts), and if a draw is due
 * it starts a turn: the wait for its place in the pace (pace.ts), the connection and the draw itself. At most one turn
 * is in progress. Owns the turn and one timer. Only `#move` writes the phase.
 */
import { EarliestTimer } from '../core/earliest-timer.ts';
import { NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import { formatCount, roughDuration } from '../core/words.ts';
import type { SourceForecast } from '../pool/options.ts';
import { type DrawRow, OPERATIONS } from '../service/operations.ts';
import { type SharedCount, untilServiceMidnight } from './daily-budget.ts';
import { Draw, type DrawContext, type DrawResult, openDraw, TUNNEL_SHARE } from './draw.ts';
import { DrawHistory } from './draw-history.ts';
import { type DrawInputs, type DrawPlan, type PlannedDraw, planDraw } from './draw-plan.ts';
import { type InstanceReport, InstanceReports } from './instance-report.ts';
import type { DrawSourceOptions } from './options.ts';
import { type Pace, type Paces, type PreparedCall, paceKey } from './pace.ts';
import { PACE_SLACK_MS, PACE_UNCHANGED, type Settlement } from './pace-rule.ts';
import type { Permit } from './permit.ts';
import {
  isSuspended,
  mayMove,
  pausedByOperator,
  phaseFromReport,
  phaseReport,
  type SourcePhase,
  suspendedPhase,
  waitingPhase,
} from './phase.ts';
import { type DrawOutcome, outcomeOfError, type Suspension } from './reaction.ts';
import { SourceRecords, type SourceRecordsSnapshot } from './source-records.ts';
import { type SourceStatus, sourceStatus } from './status.ts';

/** The context that all sources of a refiller share. */
export interface DrawSourceContext extends DrawContext {
  readonly random: Random;
  readonly paces: Paces;
  /** Returns the shared count of a source. Absent: the daily budget counts only the draws of this noria. */
  readonly sharedCount?: ((source: string) => SharedCount) | undefined;
  /** Reports to the other norias of the fleet. */
  readonly onReport?: ((source: string, report: InstanceReport) => void) | undefined;
  /** Returns the current settings: a reload may change them. */
  readonly settings: () => { readonly idleAfterMs: number; readonly callTimeoutMs: number };
  /** Whether a source of an earlier priority can serve the clients. Then this source must not draw. */
  readonly defersToEarlier: (source: DrawSource) => boolean;
}

interface SentDraw {
  readonly result: undefined;
  readonly settlement: Settlement;
}

const NOT_SENT: SentDraw = { result: undefined, settlement: PACE_UNCHANGED };
/**
 * Sources of later priorities wait for a draw that delivers within this time. It is longer than the usual pace and
 * call, and shorter than clients wait.
 */
const SOON_MS = 12_000;

export class DrawSource {
  readonly #context: DrawSourceContext;
  #options: DrawSourceOptions;
  readonly #records: SourceRecords;
  readonly #history: DrawHistory;
  readonly #reports = new InstanceReports();
  #phase: SourcePhase = { name: 'idle', reason: 'no client request yet' };
  /** When the source last moved to another state, as a monotonic moment. */
  #movedAt: number;
  #isPausedByOperator = false;
  /** The operator requested a draw now, also without demand and despite a suspension. */
  #refillRequested = false;
  /** The draw before the first client is still pending. */
  #drawsAhead = false;
  /** Aborts the turn in progress, until its call is sent. A call that was sent runs to its end. */
  #turn: AbortController | undefined;
  /** Aborts the connection and the call of the turn in progress. */
  #call: AbortController | undefined;
  /** Settles when the last turn has ended. */
  #running: Promise<void> = Promise.resolve();
  #isCheckQueued = false;
  readonly #timer: EarliestTimer;
  readonly #closing = new AbortController();

  constructor(
    context: DrawSourceContext,
    options: DrawSourceOptions,
    snapshot: SourceRecordsSnapshot | undefined,
  ) {
    const { clock, random, bus } = context;
    const { name, unproven } = options;
    const records = new SourceRecords(clock.now(), snapshot, context.sharedCount?.(name));
    const warn = (message: string) => bus.emit('source.warned', { source: name, message });
    this.#context = context;
    this.#movedAt = clock.monotonic();
    this.#options = options;
    this.#records = records;
    this.#history = new DrawHistory({ clock, random, records, unproven, warn });
    this.#timer = new EarliestTimer(clock, () => this.#check());
  }

  get options(): DrawSourceOptions {
    return this.#options;
  }

  /**
   * Whether the source has usable members or is likely to have some soon. Sources of later priorities then do not draw.
   */
  get canServe(): boolean {
    const { pool, clock } = this.#context;
    if (pool.usableAt(this.#options.name, clock.monotonic()) > 0) return true;
    if (isSuspended(this.#phase) || !this.#history.spacing.isPromising) return false;
    return (this.#nextCallMs() ?? Infinity) + this.#records.latencyMs <= SOON_MS;
  }

  /** Call it after every change that may matter. Schedules one check, however often it is called. */
  wake(): void {
    if (this.#isCheckQueued) return;
    this.#isCheckQueued = true;
    queueMicrotask(() => {
      this.#isCheckQueued = false;
      this.#check();
    });
  }

  /** Draws the missing members, at the pace, also without demand. No-op while the operator has paused the source. */
  refill(): void {
    this.#refillRequested = !this.#isPausedByOperator;
    this.wake();
  }

  /** Draws once without demand, so that the first client is served at once. Repeats the draw until it brings proxies. */
  drawAhead(): void {
    this.#drawsAhead = true;
    this.wake();
  }

  /** Call it after a reload that did not change the options of this source. */
  reloaded(): void {
    // Other options, such as `pool.allowPrivateAddresses`, also decide which proxies noria may use.
    if (this.#history.last?.allDropped) this.drawAhead();
  }

  /** Draws nothing until `resume`. A call in flight continues, and its members are added. */
  pause(): void {
    this.#isPausedByOperator = true;
    this.#refillRequested = false;
    this.#turn?.abort();
    this.wake();
  }

  /**
   * Ends the operator's pause. If the source is suspended for another reason, the source makes one attempt, at the
   * pace.
   */
  resume(): void {
    const wasPaused = this.#isPausedByOperator;
    this.#refillRequested = isSuspended(this.#phase) && !wasPaused;
    if (wasPaused && this.#phase.name === 'paused') {
      this.#move({ name: 'idle', reason: 'resumed by the operator' });
    }
    this.#isPausedByOperator = false;
    this.wake();
  }

  /** Another noria of the fleet got an answer about the instance. */
  hear(report: InstanceReport): void {
    this.#records.quota = report.quota;
    if (this.#reports.hear(report)) this.#turn?.abort();
    this.wake();
  }

  /** Applies changed options. If the source was suspended under the old options, it makes one attempt, at the pace. */
  change(options: DrawSourceOptions): void {
    const before = this.#options;
    this.#options = options;
    if (paceKey(before.call) !== paceKey(options.call)) this.#records.forgetInstance();
    this.#turn?.abort(); // ends a wait at the old pace; a call in flight continues
    this.#startOver();
    this.wake();
  }

  /** Records that a member accepted a tunnel. On the hot path. */
  memberUsed(): void {
    this.#history.spacing.recordUse();
  }

  /** @param uses - the tunnels and requests that the removed member accepted. */
  memberRemoved(uses: number, hasFailed: boolean): void {
    this.#records.countRemoved(uses);
    if (hasFailed && uses === 0) this.#history.recordUnusedFailure();
    this.wake();
  }

  status(): SourceStatus {
    return sourceStatus({
      options: this.#options,
      phase: this.#phase,
      records: this.#records,
      last: this.#history.last,
      unusedFailures: this.#history.spacing.unusedFailures,
      stateMs: this.#context.clock.monotonic() - this.#movedAt,
      nextCallMs: this.#nextCallMs(),
      isPlanned: this.#turn !== undefined || this.#timer.dueAt !== Infinity,
      wallAt: this.#context.clock.now(),
    });
  }

  /** What clients may expect of this source. */
  forecast(): SourceForecast {
    const { name, reason } = this.#phase;
    const nextDrawMs = this.#nextCallMs();
    return {
      name: this.#options.name,
      state: name,
      reason,
      ...(nextDrawMs !== undefined && { nextDrawMs, nextMemberMs: nextDrawMs + this.#records.latencyMs }),
      suspendedMs: this.#suspendedMs(),
    };
  }

  /**
   * How long the source draws nothing, even if clients wait. If waiting clients shorten the suspension, it counts as 0,
   * because they must wait to do so.
   */
  #suspendedMs(): number {
    if (!isSuspended(this.#phase) || this.#refillRequested) return 0;
    const { untilAt, urgentAt } = this.#phase;
    return urgentAt < untilAt ? 0 : untilAt - this.#context.clock.monotonic();
  }

  snapshot(): SourceRecordsSnapshot {
    return this.#records.snapshot();
  }

  /** Aborts the turn and its call, and waits until both have ended. Idempotent. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#turn?.abort();
    this.#call?.abort();
    this.#timer.disarm();
    await this.#running;
  }

  get #pace(): Pace {
    return this.#context.paces.of(paceKey(this.#options.call));
  }

  /** The time from the answer of one call to the next call. */
  get #gapMs(): number {
    return this.#options.intervalMs + PACE_SLACK_MS;
  }

  #check(): void {
    if (this.#closing.signal.aborted || this.#turn !== undefined) return;
    this.#timer.disarm();
    const report = this.#reports.read();
    if (report !== undefined) this.#follow(report);
    const suspendedUntilAt = this.#suspendedUntilAt();
    if (this.#isPausedByOperator) this.#move(pausedByOperator(this.#options.name));
    else if (suspendedUntilAt > this.#context.clock.monotonic()) this.#timer.armBy(suspendedUntilAt);
    else this.#execute(this.#plan());
  }

  /**
   * The monotonic moment at which the suspension ends; 0 when the source is not suspended, or when the operator
   * requested a draw despite the suspension.
   */
  #suspendedUntilAt(): number {
    if (!isSuspended(this.#phase) || this.#refillRequested) return 0;
    const { waiting } = this.#context.pool.demand(this.#options.name);
    return waiting > 0 ? this.#phase.urgentAt : this.#phase.untilAt;
  }

  #plan(): DrawPlan {
    const plan = planDraw(this.#inputs(this.#pace.nextInMs));
    if (plan.kind !== 'draw' || this.#refillRequested || !this.#context.defersToEarlier(this)) return plan;
    return { kind: 'idle', reason: 'a source of an earlier priority can serve the clients' };
  }

  /** @param startInMs - the time until a call may start, in ms. */
  #inputs(startInMs: number): DrawInputs {
    const { clock, pool, settings } = this.#context;
    const { name, size, dailyBudget, call, count } = this.#options;
    const { defaultMax, max = Infinity }: DrawRow['count'] = OPERATIONS[call.product].count;
    return {
      now: clock.monotonic(),
      stock: {
        countedAt: (at) => pool.countedAt(name, at),
        heldAt: (at) => pool.heldAt(name, at),
        nextLossAt: (after) => pool.nextLossAt(name, after),
      },
      demand: pool.demand(name),
      size,
      idleAfterMs: settings().idleAfterMs,
      startInMs,
      gapMs: this.#gapMs + this.#records.latencyMs,
      latencyMs: this.#records.latencyMs,
      maxPerCall: Math.min(count ?? defaultMax, max, this.#history.maxPerCall),
      quotaLeft: this.#records.quotaLeft(dailyBudget, clock.now()),
      despiteNoDemand: this.#refillRequested || this.#drawsAhead || this.#history.mayRecover,
    };
  }

  /** Does what another noria of the fleet learned about the instance. */
  #follow({ suspension }: InstanceReport): void {
    const { clock, pool } = this.#context;
    const { name } = this.#options;
    const own = this.#phase;
    if (suspension === undefined) {
      pool.unlimitTunnels(name);
      if (isSuspended(own) && own.endsWithAnyDraw)
        this.#move({ name: 'idle', reason: 'another noria of the fleet has drawn from the instance' });
      return;
    }
    if (suspension.limitsConnections) pool.limitTunnels(name, TUNNEL_SHARE);
    const next = phaseFromReport(suspension, name);
    const isShorter = next.untilAt <= clock.monotonic() || (isSuspended(own) && own.untilAt > next.untilAt);
    if (isShorter || this.#isPausedByOperator) return;
    this.#refillRequested = false;
    this.#move(next);
  }

  #execute(plan: DrawPlan): void {
    if (plan.kind !== 'draw') this.#refillRequested = false;
    switch (plan.kind) {
      case 'draw':
        this.#startTurn(plan);
        break;
      case 'exhausted':
        this.#pauseUntilMidnight();
        break;
      case 'idle':
        if (this.#phase.name === 'halted') break; // a lack of demand does not end the problem of a halted source
        this.#move({ name: 'idle', reason: plan.reason });
        break;
      case 'enough':
        this.#drawsAhead = false;
        if (this.#phase.name === 'halted') break;
        this.#move({ name: 'ready', reason: `it has enough members (size ${this.#options.size})` });
        this.#timer.armBy(plan.checkAt);
        break;
    }
  }

  #startTurn({ count, urgent }: PlannedDraw): void {
    const startAt = this.#refillRequested ? 0 : this.#history.spacing.notBeforeAt(urgent);
    this.#move(waitingPhase(this.#history.last, this.#options.intervalMs));
    if (startAt > this.#context.clock.monotonic()) {
      this.#timer.armBy(startAt);
      return;
    }
    this.#turn = new AbortController();
    this.#running = this.#takeTurn(count, this.#turn.signal);
  }

  async #takeTurn(planned: number, signal: AbortSignal): Promise<void> {
    let count = planned;
    const turn = {
      rule: {
        intervalMs: this.#options.intervalMs,
        callTimeoutMs: this.#context.settings().callTimeoutMs,
      },
      isWanted: () => {
        const plan = this.#plan();
        if (plan.kind === 'draw') count = plan.count;
        return plan.kind === 'draw' && !this.#isPausedByOperator;
      },
      open: () => this.#openDraw(count, signal),
      onWait: (ms: number) => this.#reportWait(ms),
    };
    try {
      await this.#pace.take(turn, signal);
    } catch (error) {
      // The pace could not be written, before or after the call. The call itself never throws, because its failure is
      // an outcome.
      if (!(error instanceof NoriaError)) throw error;
      this.#refillRequested = false; // the request ignores a suspension, so it would be repeated without a pause
      if (!isSuspended(this.#phase))
        this.#conclude({ outcome: outcomeOfError(error), gained: 0 }, 0, undefined);
    }
    this.#turn = undefined;
    this.#check();
  }

  /**
   * Reports why the source waits. Also explains a wait that is longer than the pace, if no answer in this run explains
   * it.
   */
  #reportWait(ms: number): void {
    const { last } = this.#history;
    if (ms > 2 * this.#gapMs && (last === undefined || last.verdict.kind === 'ok')) {
      const cause = 'an earlier answer of the service, or a call in another process, blocks it';
      this.#move({ name: 'waiting', reason: `the next call must wait ${roughDuration(ms)}: ${cause}` });
    } else if (this.#phase.name === 'drawing') {
      this.#move(waitingPhase(last, this.#options.intervalMs)); // another process called first
    }
  }

  /** Opens the connection of a turn. Returns undefined if the turn is over. */
  async #openDraw(count: number, signal: AbortSignal): Promise<PreparedCall<undefined> | undefined> {
    this.#moveToDrawing(count);
    // A reload during the call does not affect it: its members get the options with which the call was made.
    const options = this.#options;
    const call = new AbortController();
    const abort = () => call.abort();
    this.#call = call;
    signal.addEventListener('abort', abort);
    const drawer = { options, records: this.#records };
    const draw = await openDraw(this.#context, drawer, count, call.signal);
    signal.removeEventListener('abort', abort);
    if (draw instanceof Draw) {
      return { send: (permit) => this.#send(draw, options, permit), close: () => draw.close() };
    }
    this.#refillRequested = false;
    if (draw !== undefined) this.#conclude(draw, count, undefined);
    return undefined;
  }

  /** Makes the call of a turn, or skips it when it is no longer wanted. */
  async #send(draw: Draw, options: DrawSourceOptions, permit: Permit): Promise<SentDraw> {
    // The plan is made again, because connecting and claiming took time. Earlier priorities no longer matter, because
    // the claim is written.
    const plan = planDraw(this.#inputs(0));
    if (plan.kind !== 'draw' || this.#isPausedByOperator || this.#reports.mustStop) return NOT_SENT;
    const { count } = plan;
    const refillRequested = this.#refillRequested;
    this.#refillRequested = false;
    this.#moveToDrawing(count);
    const result = await draw.make({ count, aheadMs: this.#gapMs + this.#records.latencyMs, gate: permit });
    if (permit.state === 'expired') this.#refillRequested ||= refillRequested; // the turn starts again
    if (result === undefined) return NOT_SENT;
    const settlement = this.#conclude(result, count, permit.sinceArrivalMs);
    if (options !== this.#options) this.#startOver();
    return { result: undefined, settlement };
  }

  #moveToDrawing(count: number): void {
    this.#move({ name: 'drawing', reason: `requesting ${formatCount(count, 'member')} from the service` });
  }

  /**
   * Learns from the result of a draw, and suspends the source if necessary.
   *
   * @param sinceArrivalMs - see `Claim`.
   */
  #conclude({ outcome, gained }: DrawResult, asked: number, sinceArrivalMs: number | undefined): Settlement {
    const call = { outcome, asked, gained, gapMs: this.#gapMs, sinceArrivalMs };
    const { settlement, suspension } = this.#history.recordCall(call);
    this.#report(outcome, suspension);
    // Proxies that noria cannot use cost money, too. So they also end the draw ahead.
    if (outcome.verdict.kind === 'ok' || outcome.allDropped) this.#drawsAhead = false;
    if (suspension !== undefined) {
      this.#move(
        suspendedPhase(outcome, suspension, {
          source: this.#options.name,
          now: this.#context.clock.monotonic(),
        }),
      );
    }
    return settlement;
  }

  #report(outcome: DrawOutcome, suspension: Suspension | undefined): void {
    const { clock, onReport } = this.#context;
    const ended = { outcome, suspension, quota: this.#records.quota, now: clock.monotonic() };
    const report = this.#reports.conclude(ended);
    if (report !== undefined) onReport?.(this.#options.name, report);
  }

  /** The fleet's store is available again: ends a suspension if the loss of the store caused it. */
  storeReturned(): void {
    const { last } = this.#history;
    if (this.#phase.name !== 'backoff' || !last?.code.startsWith('fleet-store-')) return;
    this.#move({ name: 'idle', reason: "the fleet's store is back" });
    this.wake();
  }

  /** Forgets what was learned under the old options, and ends the suspension that they caused. */
  #startOver(): void {
    this.#history.reset();
    this.#reports.reset();
    if (!isSuspended(this.#phase) || this.#isPausedByOperator) return;
    this.#move({ name: 'idle', reason: 'the configuration changed' });
    this.#refillRequested = true;
  }

  #pauseUntilMidnight(): void {
    const { clock } = this.#context;
    const untilAt = clock.monotonic() + untilServiceMidnight(clock.now());
    const reason = `the daily budget of ${formatCount(this.#options.dailyBudget ?? 0, 'distinct IP')} is used up`;
    const advice =
      "Drawing resumes at the service's midnight (UTC+8). Raise dailyBudget to draw before that.";
    this.#move({ name: 'paused', reason, advice, untilAt, urgentAt: untilAt });
    this.#timer.armBy(untilAt);
  }

  /** The time in ms until the next call may start; undefined when the operator has to act first. */
  #nextCallMs(): number | undefined {
    if (this.#phase.name === 'drawing') return 0;
    const now = this.#context.clock.monotonic();
    const nextMs = Math.max(this.#pace.nextInMs, this.#plannedAt(now) - now);
    return nextMs === Infinity ? undefined : nextMs;
  }

  #plannedAt(now: number): number {
    if (isSuspended(this.#phase)) return this.#phase.untilAt;
    // A source with enough members may draw as soon as clients need more.
    if (this.#phase.name === 'ready' || this.#timer.dueAt === Infinity) return now;
    return this.#timer.dueAt;
  }

  #move(next: SourcePhase): void {
    const from = this.#phase;
    const source = this.#options.name;
    if (!mayMove(from.name, next.name)) {
      throw new TypeError(`source ${source}: ${from.name} -> ${next.name} is not a move`);
    }
    if (from.name !== next.name) this.#movedAt = this.#context.clock.monotonic();
    this.#phase = next;
    if (from.name === next.name && from.reason === next.reason) return;
    this.#context.bus.emit('source.moved', { source, from: from.name, to: next.name, ...phaseReport(next) });
  }
}
