/**
 * One configured source of members. It draws before the pool lacks members, at the pace of its instance. After some
 * answers of the service, it draws nothing for some time.
 *
 * Call `wake` after every event that may matter: it schedules a check. A check makes a plan (draw-planner.ts). If a
 * draw is due, the check starts a turn (source-turn.ts), and at most one turn is in progress. The source owns the turn
 * and one timer. phase.ts keeps the phase.
 */
import { EarliestTimer } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import { formatCount } from '../core/words.ts';
import type { SourceForecast } from '../pool/lease.ts';
import { type SharedCount, untilServiceMidnight } from './daily-budget.ts';
import { TUNNEL_SHARE } from './draw.ts';
import { DrawHistory } from './draw-history.ts';
import { type DrawPlan, DrawPlanner, type PlannedDraw, type SourceParts } from './draw-planner.ts';
import { type InstanceReport, InstanceReports } from './instance-report.ts';
import type { DrawSourceOptions } from './options.ts';
import { paceKey } from './pace.ts';
import { isSuspended, pausedByOperator, phaseFromReport, SourceState, waitingPhase } from './phase.ts';
import { isLossOfStore } from './reaction.ts';
import { SourceStatistics, type StatisticsSnapshot } from './source-statistics.ts';
import { forgetOldOptions, SourceTurn, type TurnContext } from './source-turn.ts';
import { type SourceStatus, sourceStatus } from './status.ts';

/** The objects and settings that all sources of a refiller share. */
export interface DrawSourceContext extends TurnContext {
  readonly random: Random;
  /**
   * Returns the counter of distinct IPs that all norias of a fleet share for a source. If absent, the daily budget
   * counts only the draws of this noria.
   */
  readonly sharedCount?: ((source: string) => SharedCount) | undefined;
}

/**
 * If a draw of this source can deliver within this time, in ms, sources with greater priority numbers wait for it. The
 * time is longer than a usual interval plus a usual call, and shorter than the time for which clients wait.
 */
const SOON_MS = 12_000;

export class DrawSource {
  readonly #context: DrawSourceContext;
  readonly #statistics: SourceStatistics;
  readonly #history: DrawHistory;
  readonly #reports = new InstanceReports();
  readonly #parts: SourceParts;
  readonly #planner: DrawPlanner;
  readonly #state: SourceState;
  #turn: SourceTurn | undefined;
  #turnEnded: Promise<void> = Promise.resolve();
  #isCheckQueued = false;
  readonly #timer: EarliestTimer;
  readonly #closing = new AbortController();

  constructor(
    context: DrawSourceContext,
    options: DrawSourceOptions,
    snapshot: StatisticsSnapshot | undefined,
  ) {
    const { clock, random, bus } = context;
    const { name, unproven } = options;
    const statistics = new SourceStatistics(clock.now(), snapshot, context.sharedCount?.(name));
    const warn = (message: string) => bus.emit('source.warned', { source: name, message });
    const history = new DrawHistory({ clock, random, statistics, unproven, warn });
    // The fleet's store may have lost some IPs that the snapshot still contains.
    statistics.budget.shareAgain(clock.now());
    this.#context = context;
    this.#statistics = statistics;
    this.#history = history;
    this.#state = new SourceState(name, context);
    this.#parts = { options, statistics, history, state: this.#state, reports: this.#reports };
    this.#planner = new DrawPlanner(context, this.#parts);
    this.#timer = new EarliestTimer(clock, () => this.#check());
  }

  get options(): DrawSourceOptions {
    return this.#parts.options;
  }

  /**
   * Whether the source has usable members, or will probably have some soon. If so, sources with greater priority
   * numbers do not draw.
   */
  get canServe(): boolean {
    const { pool, clock } = this.#context;
    if (pool.usableAt(this.options.name, clock.monotonic()) > 0) return true;
    if (this.#state.isSuspended || !this.#history.spacing.isPromising) return false;
    return (this.#nextCallMs() ?? Infinity) + this.#statistics.latencyMs <= SOON_MS;
  }

  /** Schedules a check. Further calls before that check have no effect. */
  wake(): void {
    if (this.#isCheckQueued) return;
    this.#isCheckQueued = true;
    queueMicrotask(() => {
      this.#isCheckQueued = false;
      this.#check();
    });
  }

  /**
   * Draws the missing members as soon as the pace allows, even without demand. No-op while the operator has paused
   * the source.
   */
  refill(): void {
    this.#state.refillRequested = !this.#state.isPausedByOperator;
    this.wake();
  }

  /**
   * Makes one draw without demand, so that the first client does not wait. Repeats the draw if it brings no proxies.
   */
  drawAhead(): void {
    this.#state.drawsAhead = true;
    this.wake();
  }

  /**
   * Draws again if noria dropped all proxies of the last draw. Call this after a reload that did not change the options
   * of this source. The reload may have changed another option, such as `pool.allowPrivateAddresses`, so that noria now
   * accepts these proxies.
   */
  reloaded(): void {
    if (this.#history.last?.allDropped) this.drawAhead();
  }

  /** Draws nothing until `resume`. A call in flight continues, and the pool gets its members. */
  pause(): void {
    this.#state.isPausedByOperator = true;
    this.#state.refillRequested = false;
    this.#turn?.abort();
    this.wake();
  }

  /**
   * Ends the operator's pause. If the source is suspended for another reason, it tries one draw as soon as the
   * pace allows.
   */
  resume(): void {
    const wasPaused = this.#state.isPausedByOperator;
    this.#state.refillRequested = this.#state.isSuspended && !wasPaused;
    if (wasPaused && this.#state.phase.name === 'paused') {
      this.#state.move({ name: 'idle', reason: 'resumed by the operator' });
    }
    this.#state.isPausedByOperator = false;
    this.wake();
  }

  /** Receives the report of another noria of the fleet about an answer that concerns the instance. */
  receiveReport(report: InstanceReport): void {
    this.#statistics.quota = report.quota;
    if (this.#reports.receive(report)) this.#turn?.abort();
    this.wake();
  }

  /**
   * Applies changed options. If the source was suspended with the old options, it tries one draw as soon as the
   * pace allows.
   */
  change(options: DrawSourceOptions): void {
    if (paceKey(this.options.call) !== paceKey(options.call)) this.#statistics.forgetInstance();
    this.#parts.options = options;
    this.#turn?.abort(); // the turn waits for the old interval; a call in flight continues
    forgetOldOptions(this.#parts);
    this.wake();
  }

  /** Call it when the fleet's store is available again. Ends a suspension that the loss of the store caused. */
  storeReturned(): void {
    this.#statistics.budget.shareAgain(this.#context.clock.now());
    this.#history.forgetLossOfStore();
    const { phase } = this.#state;
    if (!('code' in phase && isLossOfStore(phase.code))) return;
    this.#state.move(waitingPhase(this.#history.last, this.options.intervalMs));
    this.wake();
  }

  /** Records that a member accepted a tunnel. Runs for every tunnel, so it must be fast. */
  memberUsed(): void {
    this.#history.spacing.recordUse();
  }

  /** @param uses - the number of tunnels and requests that the removed member had accepted. */
  memberRemoved(uses: number, hasFailed: boolean): void {
    this.#statistics.countRemoved(uses > 0);
    if (hasFailed && uses === 0) this.#history.recordUnusedFailure();
    this.wake();
  }

  status(): SourceStatus {
    return sourceStatus(
      this.#parts,
      { ms: this.#nextCallMs(), isPlanned: this.#turn !== undefined || this.#timer.dueAt !== Infinity },
      this.#context.clock.now(),
    );
  }

  /** Returns what the source waits for, and when its next draw can bring a member. Waiting clients see this. */
  forecast(): SourceForecast {
    const { name, reason } = this.#state.phase;
    const nextDrawMs = this.#nextCallMs();
    return {
      name: this.options.name,
      state: name,
      reason,
      ...(nextDrawMs !== undefined && { nextDrawMs, nextMemberMs: nextDrawMs + this.#statistics.latencyMs }),
      suspendedMs: this.#state.suspendedMs,
    };
  }

  snapshot(): StatisticsSnapshot {
    return this.#statistics.snapshot();
  }

  /** Aborts the turn and its call, and waits for their end. Idempotent. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#turn?.abortCall();
    this.#timer.disarm();
    await this.#turnEnded;
  }

  #check(): void {
    if (this.#closing.signal.aborted || this.#turn !== undefined) return;
    this.#timer.disarm();
    const report = this.#reports.read();
    if (report !== undefined) this.#applyReport(report);
    const suspendedUntilAt = this.#suspendedUntilAt();
    if (this.#state.isPausedByOperator) this.#state.move(pausedByOperator(this.options.name));
    else if (suspendedUntilAt > this.#context.clock.monotonic()) this.#timer.armBy(suspendedUntilAt);
    else this.#execute(this.#planner.plan());
  }

  #suspendedUntilAt(): number {
    if (!this.#state.isSuspended) return 0;
    return this.#state.suspendedUntilAt(this.#context.pool.demand(this.options.name).waiting > 0);
  }

  #applyReport({ suspension }: InstanceReport): void {
    const { clock, pool } = this.#context;
    const { name } = this.options;
    const { phase: own, isPausedByOperator } = this.#state;
    if (suspension === undefined) {
      pool.unlimitTunnels(name);
      this.#history.forgetRefusalOfInstance();
      if (isSuspended(own) && own.endsWithAnyDraw)
        this.#state.move({ name: 'idle', reason: 'another noria of the fleet has drawn from the instance' });
      return;
    }
    if (suspension.limitsConnections) pool.limitTunnels(name, TUNNEL_SHARE);
    const next = phaseFromReport(suspension, name);
    const isShorter = next.untilAt <= clock.monotonic() || (isSuspended(own) && own.untilAt > next.untilAt);
    if (isShorter || isPausedByOperator) return;
    this.#state.refillRequested = false;
    this.#state.move(next);
  }

  #execute(plan: DrawPlan): void {
    if (plan.kind !== 'draw') this.#state.refillRequested = false;
    switch (plan.kind) {
      case 'draw':
        this.#startTurn(plan);
        break;
      case 'exhausted':
        this.#pauseUntilMidnight();
        break;
      case 'idle':
        if (this.#state.phase.name === 'halted') break; // keeps the phase `halted`, so that the status still shows the problem
        this.#state.move({ name: 'idle', reason: plan.reason });
        break;
      case 'enough':
        this.#state.drawsAhead = false;
        if (this.#state.phase.name === 'halted') break;
        this.#state.move({
          name: 'ready',
          reason: `the source has enough members (size ${this.options.size})`,
        });
        this.#timer.armBy(plan.checkAt);
        break;
    }
  }

  #startTurn({ count, urgent }: PlannedDraw): void {
    const startAt = this.#state.refillRequested ? 0 : this.#history.spacing.notBeforeAt(urgent);
    const mustWait = startAt > this.#context.clock.monotonic();
    // A suspended source that tries a draw keeps its phase until the pace store answers. So if the pace store fails
    // again, the phase does not change and noria emits no event.
    if (mustWait || !this.#state.isSuspended)
      this.#state.move(waitingPhase(this.#history.last, this.options.intervalMs));
    if (mustWait) {
      this.#timer.armBy(startAt);
      return;
    }
    this.#turnEnded = this.#takeTurn(count);
  }

  async #takeTurn(count: number): Promise<void> {
    this.#turn = new SourceTurn(this.#context, this.#planner, this.#parts);
    await this.#turn.run(count);
    this.#turn = undefined;
    this.#check();
  }

  #pauseUntilMidnight(): void {
    const { clock } = this.#context;
    const untilAt = clock.monotonic() + untilServiceMidnight(clock.now());
    const reason = `the daily budget of ${formatCount(this.options.dailyBudget ?? 0, 'distinct IP')} is used up`;
    const advice =
      "Drawing resumes at the service's midnight (UTC+8). Raise dailyBudget to draw before that.";
    this.#state.move({ name: 'paused', reason, advice, untilAt, urgentAt: untilAt });
    this.#timer.armBy(untilAt);
  }

  /** The time in ms until the next call may start; undefined if the operator has to act first. */
  #nextCallMs(): number | undefined {
    if (this.#state.phase.name === 'drawing') return 0;
    const now = this.#context.clock.monotonic();
    const nextMs = Math.max(this.#planner.pace.nextInMs, this.#plannedAt(now) - now);
    return nextMs === Infinity ? undefined : nextMs;
  }

  #plannedAt(now: number): number {
    const { phase } = this.#state;
    if (isSuspended(phase)) return phase.untilAt;
    // In the phase `ready`, there are enough members. If clients need more, a draw starts as soon as the pace allows.
    if (phase.name === 'ready' || this.#timer.dueAt === Infinity) return now;
    return this.#timer.dueAt;
  }
}
