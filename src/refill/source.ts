/**
 * One configured source of members: a state machine that draws when its pool will lack some, at the pace of its
 * instance, and rests when the service says so.
 *
 * Only `#move` writes the phase. Whatever may matter calls `wake`; one look then decides, and at most one turn at the
 * pace is under way. Owns that turn and one timer. How much to draw: need.ts and demand.ts; which answer leads to what:
 * reaction.ts.
 */
import { NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import { untilServiceMidnight } from './daily-budget.ts';
import { type DrawContext, type Drawn, makeDraw } from './draw.ts';
import { DrawHistory } from './draw-history.ts';
import { drawInputsOf } from './draw-inputs.ts';
import { type DrawInputs, type Plan, planDraw } from './draw-plan.ts';
import type { DrawSourceOptions } from './options.ts';
import { type Pace, type Paces, paceKey } from './pace.ts';
import { PACE_SLACK_MS, type Settlement } from './pace-rule.ts';
import {
  isSuspended,
  mayMove,
  PAUSED_BY_PERSON,
  phaseReport,
  type SourcePhase,
  suspendedPhase,
} from './phase.ts';
import { outcomeOfError } from './reaction.ts';
import { SourceRecords, type SourceRecordsSnapshot } from './source-records.ts';
import { type SourceStatus, sourceStatus } from './status.ts';
import { formatCount, whyWaiting } from './words.ts';

/** What the sources of one refiller share. */
export interface DrawSourceContext extends DrawContext {
  readonly random: Random;
  readonly paces: Paces;
  /** A reload may change them. */
  readonly settings: { readonly idleAfterMs: number; readonly callTimeoutMs: number };
  /** Whether a source of an earlier priority serves what this one could. */
  readonly stepsBack: (source: DrawSource) => boolean;
}

/** A draw that lands so soon is worth waiting for: the usual pace and call, and less than clients wait. */
const SOON_MS = 12_000;

const DONE: Settlement = { kind: 'done' };

export class DrawSource {
  readonly #context: DrawSourceContext;
  #options: DrawSourceOptions;
  readonly #ledger: SourceRecords;
  readonly #experience: DrawHistory;
  #phase: SourcePhase = { name: 'idle', reason: 'no client has come yet' };
  /** A person said so, until a person says otherwise. */
  #held = false;
  /** A person wants a draw now: also without a client, and out of a rest. */
  #asked = false;
  #turn: AbortController | undefined;
  /** The turn under way, to its very end. */
  #running: Promise<void> = Promise.resolve();
  #lookQueued = false;
  #timer: { readonly dueAt: number; readonly armed: Disposable } | undefined;
  readonly #closing = new AbortController();

  constructor(
    context: DrawSourceContext,
    options: DrawSourceOptions,
    record: SourceRecordsSnapshot | undefined,
  ) {
    const { clock, random, bus } = context;
    const { name, unproven } = options;
    this.#context = context;
    this.#options = options;
    this.#ledger = new SourceRecords(clock.now(), record);
    const warn = (message: string) => bus.emit('source.warned', { source: name, message });
    this.#experience = new DrawHistory({ clock, random, ledger: this.#ledger, unproven, warn });
  }

  get options(): DrawSourceOptions {
    return this.#options;
  }

  /** Whether it has members, or may be expected to have some soon: one of a later priority then steps back. */
  get canServe(): boolean {
    const { pool: reservoir, clock } = this.#context;
    if (reservoir.usableAt(this.#options.name, clock.monotonic()) > 0) return true;
    if (isSuspended(this.#phase) || !this.#experience.promising) return false;
    return (this.#nextCallMs() ?? Infinity) + this.#ledger.latencyMs <= SOON_MS;
  }

  /** Something changed that may matter: looks once, soon, however often it is called. */
  wake(): void {
    if (this.#lookQueued) return;
    this.#lookQueued = true;
    queueMicrotask(() => {
      this.#lookQueued = false;
      this.#look();
    });
  }

  /** A person wants it topped up: draws what is missing at the pace, also without a client. Nothing while a person's pause lasts. */
  refill(): void {
    this.#asked = !this.#held;
    this.wake();
  }

  /** Draws nothing more until `resume`; a call under way still lands. */
  pause(): void {
    this.#held = true;
    this.#asked = false;
    this.#turn?.abort();
    this.wake();
  }

  /** Ends a person's pause, or tries once again out of a rest. */
  resume(): void {
    this.#asked = isSuspended(this.#phase) && !this.#held;
    if (this.#held && this.#phase.name === 'paused') this.#move({ name: 'idle', reason: 'it was resumed' });
    this.#held = false;
    this.wake();
  }

  /** Takes over changed options. What the old ones led to, a halt or a rest, is tried once again. */
  change(options: DrawSourceOptions): void {
    const before = this.#options;
    this.#options = options;
    if (paceKey(before.call) !== paceKey(options.call)) this.#ledger.forgetInstance();
    this.#turn?.abort(); // a wait at the old pace; a call under way lands
    this.#startAnew();
    this.wake();
  }

  /** A tunnel through one of its members was accepted. On the hot path. */
  proved(): void {
    this.#experience.proved();
  }

  /** One of its members is gone for good, after so many accepted tunnels. */
  memberLeft(uses: number, failed: boolean): void {
    this.#ledger.noteGone(uses);
    if (failed && uses === 0) this.#experience.died();
    this.wake();
  }

  status(): SourceStatus {
    return sourceStatus({
      options: this.#options,
      phase: this.#phase,
      ledger: this.#ledger,
      last: this.#experience.last,
      nextCallMs: this.#nextCallMs(),
      planned: this.#turn !== undefined || this.#timer !== undefined,
      wallAt: this.#context.clock.now(),
    });
  }

  record(): SourceRecordsSnapshot {
    return this.#ledger.record();
  }

  /** Aborts the turn and the call under way, and waits for their end. Safe to call twice. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#turn?.abort();
    this.#disarm();
    await this.#running;
  }

  get #pace(): Pace {
    return this.#context.paces.of(paceKey(this.#options.call));
  }

  get #gapMs(): number {
    return this.#options.intervalMs + PACE_SLACK_MS;
  }

  #look(): void {
    if (this.#closing.signal.aborted || this.#turn !== undefined) return;
    this.#disarm();
    const restsUntilAt = this.#restsUntil();
    if (this.#held) this.#move(PAUSED_BY_PERSON);
    else if (restsUntilAt > this.#context.clock.monotonic()) this.#arm(restsUntilAt);
    else this.#follow(this.#plan());
  }

  /** Monotonic moment until which nothing is done, whatever is wanted; 0: none. */
  #restsUntil(): number {
    if (!isSuspended(this.#phase) || this.#asked) return 0;
    const { waiting } = this.#context.pool.demand(this.#options.name);
    return waiting > 0 ? this.#phase.urgentAt : this.#phase.untilAt;
  }

  #plan(): Plan {
    const plan = planDraw(this.#need(this.#pace.nextInMs));
    if (plan.kind !== 'draw' || this.#asked || !this.#context.stepsBack(this)) return plan;
    return { kind: 'idle', reason: 'a source of an earlier priority serves' };
  }

  /** @param startInMs - until a call may go out: what the pace says, or 0 for one that has its permit. */
  #need(startInMs: number): DrawInputs {
    const { clock, pool: reservoir, settings } = this.#context;
    return drawInputsOf(
      { clock, reservoir, options: this.#options, ledger: this.#ledger, experience: this.#experience },
      { idleAfterMs: settings.idleAfterMs, startInMs, gapMs: this.#gapMs, asked: this.#asked },
    );
  }

  #follow(plan: Plan): void {
    if (plan.kind !== 'draw') this.#asked = false;
    switch (plan.kind) {
      case 'draw':
        this.#beginWhenWorthIt(plan.urgent);
        break;
      case 'spent':
        this.#restUntilMidnight();
        break;
      case 'idle':
        // What halted it has not gone away because nobody wants anything just now. So too below.
        if (this.#phase.name !== 'halted') this.#move({ name: 'idle', reason: plan.reason });
        break;
      case 'served':
        if (this.#phase.name === 'halted') break;
        this.#move({ name: 'ready', reason: 'as many members as wanted are usable' });
        this.#arm(plan.lookAt);
        break;
    }
  }

  #beginWhenWorthIt(urgent: boolean): void {
    const startAt = this.#asked ? 0 : this.#experience.notBeforeAt(urgent);
    this.#move({ name: 'waiting', ...whyWaiting(this.#experience.last, this.#options.intervalMs) });
    if (startAt > this.#context.clock.monotonic()) {
      this.#arm(startAt);
      return;
    }
    this.#turn = new AbortController();
    this.#running = this.#take(this.#turn.signal);
  }

  async #take(signal: AbortSignal): Promise<void> {
    const { intervalMs } = this.#options;
    const rule = { intervalMs, callTimeoutMs: this.#context.settings.callTimeoutMs };
    const wanted = () => !this.#held && this.#plan().kind === 'draw';
    const call = async () => ({ result: undefined, settlement: await this.#draw() });
    const waits = (ms: number) => this.#toldToWait(ms);
    try {
      await this.#pace.take({ rule, wanted, call, onWait: waits }, signal);
    } catch (error) {
      // How a call ended was dealt with; what comes here is a pace that could not be written down, before it or after.
      if (!(error instanceof NoriaError)) throw error;
      const ended = { outcome: outcomeOfError(error), asked: 0, gained: 0 };
      if (!isSuspended(this.#phase)) this.#conclude(ended);
    }
    this.#turn = undefined;
    this.#look();
  }

  /** Longer than the pace, and not by an answer of this run: another run got it, or another process makes its call. */
  #toldToWait(ms: number): void {
    const kind = this.#experience.last?.verdict.kind ?? 'ok';
    if (ms <= 2 * this.#gapMs || kind !== 'ok') return;
    const reason =
      'an earlier answer of the service, or a call that is still under way, keeps the next one back';
    this.#move({ name: 'waiting', reason });
  }

  async #draw(): Promise<Settlement> {
    // Again, since writing the pace took a while; but who stepped back for whom was settled before the permit was used.
    const plan = planDraw(this.#need(0));
    const { signal } = this.#closing;
    if (plan.kind !== 'draw' || this.#held || signal.aborted) return DONE;
    this.#asked = false;
    this.#move({ name: 'drawing', reason: `the service was asked for ${formatCount(plan.count, 'member')}` });
    // A reload may change the options before the answer is here: it is poured by those it was asked with.
    const options = this.#options;
    const drawn = await makeDraw(this.#context, {
      options,
      ledger: this.#ledger,
      count: plan.count,
      aheadMs: this.#gapMs + this.#ledger.latencyMs,
      signal,
    });
    if (drawn === undefined) return DONE;
    const settlement = this.#conclude({ ...drawn, asked: plan.count });
    if (options !== this.#options) this.#startAnew();
    return settlement;
  }

  #conclude(ended: Drawn & { readonly asked: number }): Settlement {
    const { settlement, suspension: rest } = this.#experience.learn({ ...ended, gapMs: this.#gapMs });
    if (rest !== undefined) this.#move(suspendedPhase(ended.outcome, rest, this.#context.clock.monotonic()));
    return settlement;
  }

  /** What was learned under other options says nothing about these, and what rest it led to is over. */
  #startAnew(): void {
    this.#experience.forget();
    if (!isSuspended(this.#phase) || this.#held) return;
    this.#move({ name: 'idle', reason: 'its configuration changed' });
    this.#asked = true;
  }

  #restUntilMidnight(): void {
    const { clock } = this.#context;
    const untilAt = clock.monotonic() + untilServiceMidnight(clock.now());
    const reason = `the daily budget of ${formatCount(this.#options.dailyBudget ?? 0, 'distinct IP')} is used up`;
    const advice = "It goes on at the service's midnight (UTC+8); raise dailyBudget to go on now.";
    this.#move({ name: 'paused', reason, advice, untilAt, urgentAt: untilAt });
    this.#arm(untilAt);
  }

  /** Ms until the next call may go out; undefined: not without a person. */
  #nextCallMs(): number | undefined {
    const now = this.#context.clock.monotonic();
    const phase = this.#phase;
    if (phase.name === 'drawing') return 0;
    const plannedAt = isSuspended(phase) ? phase.untilAt : (this.#timer?.dueAt ?? now);
    // One that holds what it should may draw as soon as someone wants more.
    const nextMs = Math.max(this.#pace.nextInMs, phase.name === 'ready' ? 0 : plannedAt - now);
    return nextMs === Infinity ? undefined : nextMs;
  }

  #arm(dueAt: number): void {
    if (dueAt === Infinity) return; // not by itself
    const { clock } = this.#context;
    const armed = clock.after(dueAt - clock.monotonic(), () => {
      this.#timer = undefined;
      this.#look();
    });
    this.#timer = { dueAt, armed };
  }

  #disarm(): void {
    this.#timer?.armed[Symbol.dispose]();
    this.#timer = undefined;
  }

  #move(next: SourcePhase): void {
    const from = this.#phase;
    const source = this.#options.name;
    if (!mayMove(from.name, next.name)) {
      throw new TypeError(`source ${source}: ${from.name} -> ${next.name} is not a move`);
    }
    this.#phase = next;
    if (from.name === next.name && from.reason === next.reason) return;
    this.#context.bus.emit('source.moved', { source, from: from.name, to: next.name, ...phaseReport(next) });
  }
}
