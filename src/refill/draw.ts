/** One draw from its call to the pool: made, judged, poured, counted and told. When, and what follows, is the source's. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { AddedMembers } from '../pool/drawn-member.ts';
import type { DrawAnswer } from '../service/answer.ts';
import { SUCCESS } from '../service/codes.ts';
import { drawDone, exitName, forbiddenIn, NOTHING_POURED, offersOf } from './draw-result.ts';
import type { DrawSourceOptions, Extractor } from './options.ts';
import { type DrawOutcome, outcomeOfAnswer, outcomeOfError } from './reaction.ts';
import type { RefillPool } from './refill-pool.ts';
import type { SourceRecords } from './source-records.ts';

export interface DrawContext {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly extractor: Extractor;
  readonly pool: RefillPool;
}

export interface Draw {
  readonly options: DrawSourceOptions;
  readonly ledger: SourceRecords;
  readonly count: number;
  /** How far ahead what it is worth is looked at. */
  readonly aheadMs: number;
  readonly signal: AbortSignal;
}

/** How it ended, and how many more members will be usable `aheadMs` from now because of it. */
export interface Drawn {
  readonly outcome: DrawOutcome;
  readonly gained: number;
}

/** What is left of the tunnels of an instance that holds too many connections. */
const HALF = 0.5;

/** Makes one draw. Undefined when `signal` aborted it. @throws what is a mistake in the program, nothing else. */
export async function makeDraw(context: DrawContext, draw: Draw): Promise<Drawn | undefined> {
  const { clock, bus, pool: reservoir } = context;
  const { options, ledger, count, signal } = draw;
  bus.emit('draw.started', { source: options.name, asked: count });
  const startedAt = clock.monotonic();
  const call = await callService(context, draw);
  if (call === undefined) return undefined;

  const { outcome, answer } = call;
  const ms = clock.monotonic() - startedAt;
  const usable = () => reservoir.usableAt(options.name, clock.monotonic() + draw.aheadMs);
  const usableBefore = usable();
  if (outcome.limitsConnections) reservoir.limitTunnels(options.name, HALF);
  else if (outcome.code === SUCCESS) reservoir.unlimitTunnels(options.name);
  const poured = answer === undefined ? NOTHING_POURED : pourAnswer(context, draw, answer);
  const gained = usable() - usableBefore;
  ledger.noteCall(outcome.code, answer === undefined ? undefined : ms);
  bus.emit('draw.done', drawDone(options.name, outcome, { asked: count, answer, poured, ms }));
  return signal.aborted ? undefined : { outcome, gained };
}

async function callService(
  { extractor }: DrawContext,
  { options, count, signal }: Draw,
): Promise<{ readonly outcome: DrawOutcome; readonly answer?: DrawAnswer } | undefined> {
  try {
    const call = { ...options.call, count };
    const answer = await extractor.extract(call, { signal, secrets: options.secrets });
    return { outcome: outcomeOfAnswer(options.call.product, answer), answer };
  } catch (error) {
    if (signal.aborted) return undefined; // given up: whatever it was, nobody waits for it
    return { outcome: outcomeOfError(error) };
  }
}

function pourAnswer(
  { pool: reservoir, clock }: DrawContext,
  { options, ledger }: Draw,
  answer: DrawAnswer,
): AddedMembers {
  ledger.quota = { ...ledger.quota, ...answer.quota };
  ledger.noteForbidden(forbiddenIn(answer));
  if (answer.entries.length === 0) return NOTHING_POURED;
  if (options.dailyBudget !== undefined) ledger.budget.note(answer.entries.map(exitName), clock.now());
  const poured = reservoir.addMembers(options.name, offersOf(answer, options));
  ledger.counts.drawn += poured.joined;
  return poured;
}
