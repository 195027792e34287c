/**
 * One configured source of members. It owns its state, draws before the pool lacks members, at the pace of its instance,
 * and after some answers of the service draws nothing for some time.
 *
 * Call `wake` after every event that may matter: it schedules a check. A check makes a plan (plan.ts). If a draw is due,
 * the check starts a turn, and at most one turn is in progress.
 */
import { EarliestTimer, pause } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { hasCode } from '../core/faults.ts';
import { isSame } from '../core/secret.ts';
import { formatCount, roughDuration } from '../core/words.ts';
import type { AddedMembers, DrawnMember } from '../pool/drawn-member.ts';
import type { SourceForecast } from '../pool/lease.ts';
import type { DrawAnswer } from '../service/answer.ts';
import type { SupplyConnection } from '../service/client.ts';
import { SUCCESS } from '../service/codes.ts';
import { type DrawRow, OPERATIONS } from '../service/operations.ts';
import { distinctIps, drawnMembers, forbiddenIn } from './draw.ts';
import { ExitRotation } from './exit-rotation.ts';
import type { DrawSourceOptions, SourceContext } from './options.ts';
import { type Pace, type Place, paceKey } from './pace.ts';
import { PACE_SLACK_MS, PACE_UNCHANGED, type Settlement } from './pace-rule.ts';
import { type DrawInputs, type DrawPlan, describeHolding, type HoldingInputs, planDraw } from './plan.ts';
import {
  type DrawOutcome,
  describeOutcome,
  type InstanceReport,
  isLossOfStore,
  isSuspended,
  outcomeOfAnswer,
  outcomeOfError,
  PARAMS_WRONG,
  phaseReport,
  type Reaction,
  reactTo,
  reportOf,
  SOURCE_MOVES,
  type SourcePhase,
  type Suspension,
  suspensionByReport,
  waitingPhase,
} from './reaction.ts';
import { SourceStatistics, type StatisticsSnapshot, untilServiceMidnight } from './source-statistics.ts';
import type { SourceStatus } from './status.ts';
import { Whitelist } from './whitelist.ts';

interface OpenDraw {
  readonly connection: SupplyConnection;
  /** The options when noria began to connect. A reload during the call does not change them. */
  readonly options: DrawSourceOptions;
  readonly startedAt: number;
  readonly signal: AbortSignal;
}

interface Call {
  readonly asked: number;
  /** How many more members are usable because of the call. */
  readonly gained: number;
  /** See `Place`. */
  readonly sinceArrivalMs?: number | undefined;
}

/**
 * If a draw of this source can deliver within this time, in ms, sources with greater priority numbers wait for it. The
 * time is longer than a usual interval plus a usual call, and shorter than the time for which clients wait.
 */
const SOON_MS = 12_000;
/** The factor of `RefillPool.limitTunnels` when the service reports too many connections. */
const TUNNEL_SHARE = 0.5;
const EMPTY_BEFORE_WARNING = 3;
const UNUSED_FAILURES_ADVICE =
  "Check that this machine's address is bound in the console of the service, and check upstream.protocol and upstream.auth of the source.";
/** The number of members of the first draw, which no client has requested. The second one is there if the first is dead. */
const START_MEMBERS = 2;
/**
 * If clients wait and the pool is empty, a draw waits this long, in ms, from its start for more clients, so that one call
 * brings members for all that come at once.
 */
const GATHER_MS = 100;
const NO_STREAK = { kind: '', length: 0 };
const NO_NEWS: InstanceReport = { quota: {} };

export class Source {
  options: DrawSourceOptions;
  readonly #context: SourceContext;
  readonly statistics: SourceStatistics;
  readonly #stock: DrawInputs['stock'];
  #readAt = -Infinity;
  #rotation: ExitRotation | undefined;
  #whitelist: Whitelist | undefined;

  #phase: SourcePhase = { name: 'idle', reason: 'no client request yet' };
  #movedAt: number;
  #isPausedByOperator = false;
  /** Requested by the operator: needs no demand and ignores a suspension. */
  #refillRequested = false;
  #drawsAhead = false;

  #lastCall: DrawOutcome | undefined;
  #lossOfStore: DrawOutcome | undefined;
  /** The kind of the last call's result (`CodeVerdict.kind`), and the number of calls in a row with this kind. */
  #streak = NO_STREAK;
  #warnedOfDropped = false;
  /** The last report that this noria sent to the fleet or received, and a received one that it has not read yet. */
  #lastReport: InstanceReport = NO_NEWS;
  #unreadReport: InstanceReport | undefined;

  /** Aborts the turn in progress, unless its call is sent. */
  #turn: AbortController | undefined;
  /** Aborts the connection and the call of the turn. */
  #call: AbortController | undefined;
  #turnEnded: Promise<void> = Promise.resolve();
  #isCheckQueued = false;
  #isClosed = false;
  readonly #timer: EarliestTimer;

  constructor(context: SourceContext, options: DrawSourceOptions, snapshot: StatisticsSnapshot | undefined) {
    const { clock, pool } = context;
    const { name, unproven } = options;
    this.#context = context;
    this.options = options;
    const shared = context.sharedCount?.(name);
    this.statistics = new SourceStatistics(clock.now(), snapshot, { unproven, shared });
    this.#stock = {
      countedAt: (at) => pool.stockAt(name, at).counted,
      heldAt: (at) => pool.stockAt(name, at).held,
      nextLossAt: (after) => pool.nextLossAt(name, after),
    };
    this.#openHelpers();
    this.#movedAt = clock.monotonic();
    this.#timer = new EarliestTimer(clock, () => this.#check());
    // The fleet's store may have lost some IPs that the snapshot still contains.
    this.statistics.budget.shareAgain(clock.now());
  }

  /** Whether it has usable members, or will probably have some soon: sources with greater priority numbers then wait. */
  get canServe(): boolean {
    const { pool, clock } = this.#context;
    if (pool.stockAt(this.options.name, clock.monotonic()).usable > 0) return true;
    if (isSuspended(this.#phase) || !this.statistics.isPromising) return false;
    return (this.#nextCallMs() ?? Infinity) + this.statistics.latencyMs <= SOON_MS;
  }

  wake(): void {
    if (this.#isCheckQueued) return;
    this.#isCheckQueued = true;
    queueMicrotask(() => {
      this.#isCheckQueued = false;
      this.#check();
    });
  }

  /** No-op while the operator has paused the source. */
  refill(): void {
    this.#refillRequested = !this.#isPausedByOperator;
    this.wake();
  }

  /** Makes one draw without demand, so that the first client does not wait. Repeats it until it brings proxies. */
  drawAhead(): void {
    this.#drawsAhead = true;
  }

  /** Draws again if noria dropped all proxies of the last draw: an option of the pool may now let noria accept them. */
  reloaded(): void {
    if (this.#last?.allDropped) this.drawAhead();
  }

  /** A call in flight continues, and the pool gets its members. */
  pause(): void {
    this.#isPausedByOperator = true;
    this.#refillRequested = false;
    this.#turn?.abort();
    this.wake();
  }

  /** If the source is suspended for another reason than the operator's pause, it tries one draw. */
  resume(): void {
    const wasPaused = this.#isPausedByOperator;
    this.#refillRequested = isSuspended(this.#phase) && !wasPaused;
    if (wasPaused && this.#phase.name === 'paused')
      this.#move({ name: 'idle', reason: 'resumed by the operator' });
    this.#isPausedByOperator = false;
    this.wake();
  }

  receiveReport(report: InstanceReport): void {
    this.statistics.quota = report.quota;
    this.#lastReport = report;
    this.#unreadReport = report;
    if (report.suspension !== undefined) this.#turn?.abort();
    this.wake();
  }

  change(options: DrawSourceOptions): void {
    if (paceKey(this.options.call) !== paceKey(options.call)) this.statistics.forgetInstance();
    this.options = options;
    void this.#rotation?.close();
    this.#openHelpers();
    this.#turn?.abort(); // the turn waits for the old interval; a call in flight continues
    this.#forgetOldOptions();
  }

  storeReturned(): void {
    this.statistics.budget.shareAgain(this.#context.clock.now());
    this.#lossOfStore = undefined;
    if (!('code' in this.#phase && isLossOfStore(this.#phase.code))) return;
    this.#moveToWaiting();
    this.wake();
  }

  memberRemoved(uses: number, how: { readonly hasFailed: boolean; readonly isOwn: boolean }): void {
    if (this.statistics.recordRemoval(uses, how))
      this.#warn(
        `${this.statistics.failedInARow} members in a row failed before their first use, so noria now draws one member at a time, and less often. ${UNUSED_FAILURES_ADVICE}`,
      );
    this.wake();
  }

  status(): SourceStatus {
    const { clock, pool, adviceOnBlock } = this.#context;
    const { name, call, size, dailyBudget, intervalMs } = this.options;
    const { quota, drawn, used, unused, budget } = this.statistics;
    const counts = pool.countsOf(name);
    const blocked = counts?.blocked ?? undefined;
    const last = this.#last;
    const { reason, advice, code = last?.code } = phaseReport(this.#phase);
    const nextCallMs = this.#nextCallMs();
    const isPlanned = this.#turn !== undefined || this.#timer.dueAt !== Infinity;
    const { meaning, lastDraw } = this.#lastDraw();
    return Object.freeze({
      ...{ name, product: call.product, size, quota, drawn, unused, meaning, lastDraw },
      // a source without a pace gets other members at once, so only the operator can end its block
      state: blocked === undefined ? this.#phase.name : intervalMs === 0 ? 'halted' : 'paused',
      suspended: blocked !== undefined || (this.#phase.name === 'paused' && !this.#isPausedByOperator),
      blocked: blocked !== undefined,
      reason: blocked ?? (this.#phase.name === 'ready' ? this.#holdingText() : reason),
      advice: (blocked === undefined ? advice : adviceOnBlock?.(name)) ?? null,
      code: code ?? null,
      // After a successful call, the service's text explains nothing, whatever the source waits for.
      message: (last?.verdict.kind === 'ok' ? undefined : last?.message) ?? null,
      stateSeconds: (clock.monotonic() - this.#movedAt) / SECOND_MS,
      nextCallSeconds: nextCallMs === undefined ? null : nextCallMs / SECOND_MS,
      nextCallAt:
        nextCallMs === undefined || !isPlanned ? null : new Date(clock.now() + nextCallMs).toISOString(),
      budget: dailyBudget === undefined ? null : { limit: dailyBudget, used: budget.used(clock.now()) },
      ready: blocked === undefined ? (counts?.ready ?? 0) : 0,
      joining: counts?.joining ?? 0,
      // Counts members that have left the pool, and members in the pool.
      used: used + (counts?.used ?? 0),
    });
  }

  forecast(): SourceForecast {
    const { name, reason } = this.#phase;
    const nextDrawMs = this.#nextCallMs();
    return {
      name: this.options.name,
      state: name,
      reason,
      ...(nextDrawMs !== undefined && { nextDrawMs, nextMemberMs: nextDrawMs + this.statistics.latencyMs }),
      suspendedMs: this.#suspendedMs(),
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#turn?.abort();
    this.#call?.abort();
    this.#timer.disarm();
    await Promise.all([this.#turnEnded, this.#rotation?.close()]);
  }

  get #last(): DrawOutcome | undefined {
    return this.#lossOfStore ?? this.#lastCall;
  }

  get #pace(): Pace {
    return this.#context.paceOf(paceKey(this.options.call));
  }

  get #gapMs(): number {
    return this.options.intervalMs + PACE_SLACK_MS;
  }

  #openHelpers(): void {
    const { clock, urls } = this.#context;
    const { rotate, whitelist } = this.options;
    this.#readAt = -Infinity;
    this.#whitelist = whitelist && urls && new Whitelist(clock, urls, whitelist);
    this.#rotation = rotate && urls && new ExitRotation(this.#context, urls, this.options, rotate);
  }

  #lastDraw(): Pick<SourceStatus, 'meaning' | 'lastDraw'> {
    const last = this.#last;
    if (last === undefined) return { meaning: null, lastDraw: null };
    const { kind } = last.verdict;
    const { isDistrusted, failedInARow } = this.statistics;
    if (kind === 'ok' && isDistrusted) {
      const meaning = `${failedInARow} members in a row failed before their first use.`;
      return { meaning, lastDraw: { result: 'useless', advice: UNUSED_FAILURES_ADVICE } };
    }
    const result = kind === 'ok' ? 'succeeded' : kind === 'empty' ? 'empty' : 'failed';
    return { meaning: describeOutcome(last), lastDraw: { result, advice: last.advice } };
  }

  #move(next: SourcePhase): void {
    const from = this.#phase;
    const source = this.options.name;
    const allowed: readonly string[] = SOURCE_MOVES[from.name];
    if (from.name !== next.name) {
      if (!allowed.includes(next.name))
        throw new TypeError(`source ${source}: ${from.name} -> ${next.name} is not a move`);
      this.#movedAt = this.#context.clock.monotonic();
    }
    this.#phase = next;
    if (from.name === next.name && from.reason === next.reason) return;
    this.#context.bus.emit('source.moved', { source, from: from.name, to: next.name, ...phaseReport(next) });
  }

  #moveToWaiting(): void {
    this.#move(waitingPhase(this.#last, this.options.intervalMs));
  }

  #moveToDrawing(count: number): void {
    this.#move({ name: 'drawing', reason: `requesting ${formatCount(count, 'member')} from the service` });
  }

  #warn(message: string): void {
    this.#context.bus.emit('source.warned', { source: this.options.name, message });
  }

  /** The time in ms that waiting clients cannot shorten; 0 without a suspension. */
  #suspendedMs(): number {
    if (!isSuspended(this.#phase) || this.#refillRequested) return 0;
    const { untilAt, urgentAt } = this.#phase;
    return urgentAt < untilAt ? 0 : Math.max(0, untilAt - this.#context.clock.monotonic());
  }

  #suspendedUntilAt(): number {
    if (!isSuspended(this.#phase) || this.#refillRequested) return 0;
    const clientsAreWaiting = this.#context.pool.demand(this.options.name).waiting > 0;
    return clientsAreWaiting ? this.#phase.urgentAt : this.#phase.untilAt;
  }

  /** The time in ms until the next call may start; undefined if the operator has to act first. */
  #nextCallMs(): number | undefined {
    if (this.#phase.name === 'drawing') return 0;
    const now = this.#context.clock.monotonic();
    const nextMs = Math.max(this.#pace.nextInMs, this.#plannedAt(now) - now);
    return nextMs === Infinity ? undefined : nextMs;
  }

  #plannedAt(now: number): number {
    if (isSuspended(this.#phase)) return this.#phase.untilAt;
    // In the phase `ready`, there are enough members. If clients need more, a draw starts as soon as the pace allows.
    if (this.#phase.name === 'ready' || this.#timer.dueAt === Infinity) return now;
    return this.#timer.dueAt;
  }

  #check(): void {
    if (this.#isClosed || this.#turn !== undefined) return;
    this.#timer.disarm();
    const report = this.#unreadReport;
    this.#unreadReport = undefined;
    if (report !== undefined) this.#applyReport(report);
    const suspendedUntilAt = this.#suspendedUntilAt();
    if (this.#isPausedByOperator) {
      const advice = `Run noria resume ${this.options.name}, or resume it in the dashboard.`;
      const forever = { untilAt: Infinity, urgentAt: Infinity };
      this.#move({ name: 'paused', reason: 'paused by the operator', advice, ...forever });
    } else if (suspendedUntilAt > this.#context.clock.monotonic()) this.#timer.armBy(suspendedUntilAt);
    else this.#execute(this.#plan());
  }

  #applyReport({ suspension }: InstanceReport): void {
    const { clock, pool } = this.#context;
    const { name } = this.options;
    const own = this.#phase;
    if (suspension === undefined) {
      pool.unlimitTunnels(name);
      // Another noria has drawn from the instance, so the service's refusal of this noria's last call no longer applies.
      if (this.#lastCall?.concernsInstance) this.#lastCall = undefined;
      if (isSuspended(own) && own.endsWithAnyDraw)
        this.#move({ name: 'idle', reason: 'another noria of the fleet has drawn from the instance' });
      return;
    }
    if (suspension.limitsConnections) pool.limitTunnels(name, TUNNEL_SHARE);
    const next = suspensionByReport(suspension, name);
    const isShorter = next.untilAt <= clock.monotonic() || (isSuspended(own) && own.untilAt > next.untilAt);
    if (isShorter || this.#isPausedByOperator) return;
    this.#refillRequested = false;
    this.#move(next);
  }

  /**
   * The pace may not allow the call yet. No draw while a source with a smaller priority number can serve the clients,
   * unless the operator requested it.
   */
  #plan(): DrawPlan {
    const plan = this.#planAfter(this.#pace.nextInMs);
    if (plan.kind !== 'draw' || this.#refillRequested || !this.#context.isPreferredServing(this.options))
      return plan;
    return { kind: 'idle', reason: 'a source with a smaller priority number can serve the clients' };
  }

  #planAfter(startInMs: number): DrawPlan {
    const ahead = this.#drawsAhead ? START_MEMBERS : this.#mayRecover() ? 1 : 0;
    const { clock } = this.#context;
    const { size, dailyBudget, call, count, intervalMs, refreshMs } = this.options;
    const now = clock.monotonic();
    if (refreshMs !== undefined) {
      const readAt = this.#refillRequested ? now : this.#readAt + refreshMs;
      if (readAt > now) return { kind: 'enough', checkAt: readAt };
      return { kind: 'draw', count: Math.max(1, size), urgent: true };
    }
    const { defaultMax, max = Infinity }: DrawRow['count'] = OPERATIONS[call.product].count;
    const { latencyMs, learnedMax, isDistrusted, deadShare, failedInARow } = this.statistics;
    return planDraw({
      ...this.#holding(this.#refillRequested ? size : Math.min(size, ahead)),
      ...{ now, stock: this.#stock, startInMs, latencyMs, deadShare, failedInARow },
      callCycleMs: intervalMs + PACE_SLACK_MS + latencyMs,
      // while noria distrusts the source, one member shows whether its members work again
      maxPerCall: isDistrusted ? 1 : Math.min(count ?? defaultMax, max, learnedMax),
      quotaLeft: this.statistics.quotaLeft(dailyBudget, clock.now()),
    });
  }

  #holding(atLeast: number): HoldingInputs {
    const { pool, settings } = this.#context;
    const { name, size } = this.options;
    const { fill, idleAfterMs } = settings();
    const { lifetimeMs } = this.statistics;
    return { demand: pool.demand(name), size, fill, idleAfterMs, lifetimeMs, atLeast };
  }

  #holdingText(): string {
    const { pool, clock } = this.#context;
    const { name, refreshMs } = this.options;
    const now = clock.monotonic();
    if (refreshMs === undefined) return describeHolding(this.#holding(0), pool.stockAt(name, now).usable);
    const list = `the list has ${formatCount(pool.stockAt(name, now).held, 'member')}`;
    return [list, this.#last?.message, this.#rotation?.text()].filter(Boolean).join('; ');
  }

  /**
   * Whether the last call failed, but a repeated call may succeed without an action of the operator. The source then
   * repeats the call even without demand. Reason: a load balancer sends no clients to a noria that is not ready, so
   * noria would wait for demand forever. An empty answer does not count as a failure, because repeating the call may
   * cost money.
   */
  #mayRecover(): boolean {
    const kind = this.#last?.verdict.kind ?? 'ok';
    return kind !== 'ok' && kind !== 'empty' && kind !== 'halt';
  }

  #execute(plan: DrawPlan): void {
    if (plan.kind !== 'draw') this.#refillRequested = false;
    // A halted source without demand keeps its phase, so that the status still shows the problem.
    const isHalted = this.#phase.name === 'halted';
    switch (plan.kind) {
      case 'draw':
        this.#startTurn(plan.count, plan.urgent);
        break;
      case 'exhausted': {
        const { clock } = this.#context;
        const untilAt = clock.monotonic() + untilServiceMidnight(clock.now());
        const reason = `the daily budget of ${formatCount(this.options.dailyBudget ?? 0, 'distinct IP')} is used up`;
        const advice =
          "Drawing resumes at the service's midnight (UTC+8). Raise dailyBudget to draw before that.";
        this.#move({ name: 'paused', reason, advice, untilAt, urgentAt: untilAt });
        this.#timer.armBy(untilAt);
        break;
      }
      case 'idle':
        if (!isHalted) this.#move({ name: 'idle', reason: plan.reason });
        break;
      case 'enough':
        this.#drawsAhead = false;
        if (isHalted) break;
        this.#move({ name: 'ready', reason: this.#holdingText() });
        this.#timer.armBy(plan.checkAt);
        break;
    }
  }

  #startTurn(count: number, urgent: boolean): void {
    const startAt = this.#refillRequested ? 0 : this.statistics.notBeforeAt(urgent);
    const mustWait = startAt > this.#context.clock.monotonic();
    // A suspended source that tries a draw keeps its phase until the pace store answers. So if the pace store fails
    // again, the phase does not change and noria emits no event.
    if (mustWait || !isSuspended(this.#phase)) this.#moveToWaiting();
    if (mustWait) this.#timer.armBy(startAt);
    else this.#turnEnded = this.#takeTurn(count);
  }

  async #takeTurn(count: number): Promise<void> {
    const turn = new AbortController();
    this.#turn = turn;
    const phaseBefore = this.#phase;
    const { intervalMs } = this.options;
    const callTimeoutMs = this.#context.settings().callTimeoutMs;
    const place = this.#pace.enter({ intervalMs, callTimeoutMs });
    try {
      await this.#draw(place, count, turn.signal).finally(() => place.leave());
    } catch (error) {
      // Only noria's inability to record the call ends here. A failed call does not throw: its failure is an outcome.
      const outcome = outcomeOfError(error);
      // Such a request overrides the suspension, so noria would otherwise repeat the draw endlessly without a pause.
      this.#refillRequested = false;
      const isSuspendedByTurn = isSuspended(this.#phase) && this.#phase !== phaseBefore;
      if (!isSuspendedByTurn) this.#learn(outcome, { asked: 0, gained: 0 });
    }
    this.#turn = undefined;
    this.#check();
  }

  /** @param count - the number of members, as planned before the wait. */
  async #draw(place: Place, count: number, signal: AbortSignal): Promise<void> {
    const isWanted = () => this.#plan().kind === 'draw';
    for (;;) {
      let hasWaited = false;
      for await (const waitMs of place.waits(signal)) {
        if (hasWaited && !isWanted()) return;
        hasWaited = true;
        this.#reportWait(waitMs);
      }
      if (signal.aborted || (hasWaited && !isWanted())) return;
      if (this.#whitelist?.isDue) {
        await this.#whitelist.bind(place, signal);
        continue;
      }
      const open = await this.#connect(count, signal);
      if (open === undefined) return;
      try {
        const send = () => this.#send(open, place, signal);
        if (await place.send(send, (settlement) => settlement)) return;
      } finally {
        open.connection.close();
      }
    }
  }

  /**
   * A long wait that the last call does not explain has another cause. A turn may wait again: the source was suspended, or
   * another process made a call while the connection opened.
   */
  #reportWait(ms: number): void {
    const last = this.#last;
    if (ms > 2 * this.#gapMs && (last === undefined || last.verdict.kind === 'ok')) {
      const cause =
        this.#context.onReport === undefined
          ? 'an earlier answer of the service, or a call of another process'
          : "an earlier answer of the service, a call of another noria, or lost data in the fleet's store";
      const reason = `the next call must wait ${roughDuration(ms)} because of ${cause}`;
      this.#move({ name: 'waiting', reason });
    } else this.#moveToWaiting();
  }

  /** @returns undefined if the connection failed or the turn has ended. */
  async #connect(count: number, turn: AbortSignal): Promise<OpenDraw | undefined> {
    const { clock, bus, extractor, pool, settings } = this.#context;
    const { options } = this;
    const startedAt = clock.monotonic();
    if (isSuspended(this.#phase)) this.#moveToWaiting();
    this.#moveToDrawing(count);
    const call = new AbortController();
    const { signal } = call;
    const abort = () => call.abort();
    this.#call = call;
    turn.addEventListener('abort', abort);
    try {
      const gathers = settings().fill === 'demand' && pool.demand(options.name).waiting > 0;
      const [connection] = await Promise.all([
        extractor.connect(options.call, signal),
        gathers ? pause(clock, GATHER_MS, signal) : undefined,
      ]);
      return { options, startedAt, signal, connection };
    } catch (error) {
      this.#refillRequested = false;
      if (signal.aborted) return undefined; // ignored: the turn has ended
      const outcome = outcomeOfError(error);
      bus.emit('draw.started', { source: options.name, asked: count });
      this.#end({ options, startedAt, signal }, { outcome }, { asked: count });
      return undefined;
    } finally {
      turn.removeEventListener('abort', abort);
    }
  }

  /** @returns the effect on the pace. */
  async #send(draw: OpenDraw, place: Place, turn: AbortSignal): Promise<Settlement> {
    if (turn.aborted) return PACE_UNCHANGED;
    const plan = this.#planAfter(0); // plans again: the pool may have changed while the connection opened
    if (plan.kind !== 'draw') return PACE_UNCHANGED;
    const { connection, options, signal } = draw;
    const { call, secrets, name: source } = options;
    const { count: asked } = plan;
    const wasRequested = this.#refillRequested;
    this.#refillRequested = false;
    this.#moveToDrawing(asked);
    this.#context.bus.emit('draw.started', { source, asked });
    let answer: DrawAnswer | undefined;
    let outcome: DrawOutcome;
    try {
      answer = await connection.extract({ ...call, count: asked }, { secrets, gate: place });
      outcome = outcomeOfAnswer(call.product, answer);
    } catch (error) {
      // the turn waits for another permit, and the operator's request for a draw still applies
      if (place.permit === 'expired') this.#refillRequested ||= wasRequested;
      // ignored: the source closes, or the permit expired
      if (signal.aborted || hasCode(error, 'pace-held')) return PACE_UNCHANGED;
      outcome = outcomeOfError(error);
    }
    const { sinceArrivalMs } = place;
    const settlement = this.#end(draw, { outcome, answer }, { asked, sinceArrivalMs });
    if (!signal.aborted && options !== this.options) this.#forgetOldOptions();
    return settlement;
  }

  /** Adds the members of a draw to the pool, counts them, and learns from the outcome. @returns the effect on the pace. */
  #end(
    { options, startedAt, signal }: Omit<OpenDraw, 'connection'>,
    { outcome, answer }: { readonly outcome: DrawOutcome; readonly answer?: DrawAnswer | undefined },
    call: Omit<Call, 'gained'>,
  ): Settlement {
    const { clock, bus, pool } = this.#context;
    const source = options.name;
    const statistics = this.statistics;
    const ms = clock.monotonic() - startedAt;
    const aheadMs = this.#gapMs + statistics.latencyMs; // before the next draw can deliver
    const usable = () => pool.stockAt(source, clock.monotonic() + aheadMs).usable;
    const usableBefore = usable();
    if (outcome.limitsConnections) pool.limitTunnels(source, TUNNEL_SHARE);
    else if (outcome.code === SUCCESS) pool.unlimitTunnels(source);
    let added = { joined: 0, renewed: 0 };
    let forbidden = 0;
    let received = 0; // with those that noria dropped
    if (answer !== undefined) {
      statistics.quota = { ...statistics.quota, ...answer.quota };
      if (options.dailyBudget !== undefined) statistics.budget.add(distinctIps(answer), clock.now());
      const members = drawnMembers(answer, options);
      added = this.#addMembers(members);
      forbidden = forbiddenIn(answer);
      received = Object.values(answer.dropped).reduce((sum, count) => sum + count, answer.entries.length);
      statistics.drawn += forbidden + added.joined;
      statistics.unused += forbidden;
      statistics.recordLatency(ms);
      statistics.recordLifetimes(members.map(({ endsAt }) => (endsAt ?? Infinity) - clock.monotonic()));
    }
    const gained = usable() - usableBefore;
    const { joined, renewed } = added;
    const { code, message } = outcome;
    bus.emit('draw.done', {
      ...{ source, asked: call.asked, ms, code, received, joined, renewed, forbidden },
      rejected: received - joined - renewed,
      ...(code !== SUCCESS && message !== undefined && { message }),
    });
    return signal.aborted ? PACE_UNCHANGED : this.#learn(outcome, { ...call, gained });
  }

  /** Gives members to the pool. A list has all its members in each answer, so members that it lacks leave. */
  #addMembers(members: readonly DrawnMember[]): AddedMembers {
    const { pool, clock } = this.#context;
    const { name, refreshMs } = this.options;
    if (refreshMs === undefined)
      return members.length > 0 ? pool.addMembers(name, members) : { joined: 0, renewed: 0, rejected: 0 };
    this.#readAt = clock.monotonic();
    const listed = this.#rotation?.list(members) ?? members;
    const added = pool.addMembers(name, listed);
    pool.retainMembers(name, listed);
    return added;
  }

  #learn(answered: DrawOutcome, call: Call): Settlement {
    const whitelist = answered.refusesAddress ? this.#whitelist : undefined;
    const outcome = whitelist?.refused(answered) ?? answered;
    const { settlement, suspension } = this.#react(outcome, call);
    this.#report(outcome, suspension);
    // noria does not repeat the first draw if it dropped all proxies of the answer: each draw may cost money.
    if (outcome.verdict.kind === 'ok' || outcome.allDropped) this.#drawsAhead = false;
    if (whitelist?.isDue) this.#drawsAhead = true;
    else if (suspension !== undefined) this.#move(suspension);
    return settlement;
  }

  #react(outcome: DrawOutcome, { asked, gained, sinceArrivalMs }: Call): Reaction {
    const { clock, random } = this.#context;
    const isLoss = isLossOfStore(outcome.code);
    this.#lossOfStore = isLoss ? outcome : undefined;
    if (!isLoss) this.#lastCall = outcome;
    if (outcome.code === PARAMS_WRONG && asked > 1) return this.#requestLess(asked);
    const { kind } = outcome.verdict;
    this.#streak = { kind, length: this.#streak.kind === kind ? this.#streak.length + 1 : 1 };
    if (kind === 'ok' || kind === 'empty') this.statistics.recordDraw(gained, clock.monotonic(), this.#gapMs);
    if (kind === 'ok') this.#warnedOfDropped = false;
    this.#warnAbout(outcome, sinceArrivalMs);
    return reactTo(outcome, {
      ...{ source: this.options.name, consecutive: this.#streak.length },
      ...{ clock, random },
    });
  }

  /**
   * Halves the number of members that noria requests per call, because the service may have rejected only that number.
   * If the service also rejects a request for 1 member, the configuration is wrong.
   */
  #requestLess(asked: number): Reaction {
    const max = Math.floor(asked / 2);
    this.statistics.learnedMax = max;
    this.#warn(
      `the service rejected a count of ${asked} (${PARAMS_WRONG}), so noria now requests at most ${max} per call; set params.count to the maximum of the instance`,
    );
    return { settlement: PACE_UNCHANGED };
  }

  #warnAbout(outcome: DrawOutcome, sinceArrivalMs: number | undefined): void {
    const { kind } = outcome.verdict;
    const text = `${describeOutcome(outcome)} ${outcome.advice}`;
    if (outcome.allDropped) {
      if (!this.#warnedOfDropped) this.#warn(text);
      this.#warnedOfDropped = true;
    } else if (kind === 'empty' && this.#streak.length === EMPTY_BEFORE_WARNING) {
      this.#warn(`${EMPTY_BEFORE_WARNING} draws in a row brought no member: ${text}`);
    }
    if (kind === 'slow-down') this.#warn(`${describeOutcome(outcome)} ${causeOfRefusal(sinceArrivalMs)}`);
  }

  #report(outcome: DrawOutcome, suspension: Suspension | undefined): void {
    this.#unreadReport = undefined; // outdated, because this noria has made a call since it received the report
    const report = reportOf(outcome, suspension, this.statistics.quota);
    if (report === undefined || isSame(report, this.#lastReport)) return;
    this.#lastReport = report;
    this.#context.onReport?.(this.options.name, report);
  }

  #forgetOldOptions(): void {
    this.#lastCall = undefined;
    this.#lossOfStore = undefined;
    this.#streak = NO_STREAK;
    this.#warnedOfDropped = false;
    this.#unreadReport = undefined;
    this.statistics.forgetDraws();
    if (!isSuspended(this.#phase) || this.#isPausedByOperator) return;
    this.#move({ name: 'idle', reason: 'the configuration changed' });
    this.#refillRequested = true;
  }
}

/** Names another program as a possible cause only if noria knows that its own calls were not too close to each other. */
function causeOfRefusal(sinceArrivalMs: number | undefined): string {
  if (sinceArrivalMs === undefined) {
    return 'noria has no record of when its previous call arrived, so its own calls may be the cause; noria now calls less often. If this repeats, raise interval';
  }
  return `noria's previous call arrived about ${roughDuration(sinceArrivalMs)} before this one, or earlier, so another program may be using this instance; stop that program. If there is none, raise interval`;
}
