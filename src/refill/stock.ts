/**
 * How a source gets its members: when, how many, and what the pool does with them. A drawn source, and a gateway that
 * makes names, follow the demand. A list has all its members in each answer, and is read at intervals.
 */
import { formatCount } from '../core/words.ts';
import type { AddedMembers, DrawnMember } from '../pool/drawn-member.ts';
import { type DrawRow, OPERATIONS } from '../service/operations.ts';
import { ExitRotation } from './exit-rotation.ts';
import type { DrawSourceOptions, SourceContext } from './options.ts';
import { paceKey } from './pace.ts';
import { PACE_SLACK_MS } from './pace-rule.ts';
import { type DrawPlan, type DrawSpacing, describeHolding, type HoldingInputs, planDraw } from './plan.ts';
import type { SourceStatistics } from './source-statistics.ts';

export interface Stock {
  /**
   * @param startInMs - the time in ms until the call may start.
   * @param atLeast - the number of members to hold even without client requests; Infinity if the operator requested all.
   */
  plan(startInMs: number, atLeast: number): DrawPlan;
  /** What the source holds, in words. `message`: the text of the last answer. */
  text(message: string | undefined): string;
  add(members: readonly DrawnMember[]): AddedMembers;
  close(): Promise<void>;
}

interface History {
  readonly statistics: SourceStatistics;
  readonly spacing: DrawSpacing;
}

export function openStock(context: SourceContext, options: DrawSourceOptions, history: History): Stock {
  const { refreshMs } = options;
  return refreshMs === undefined
    ? stockByDemand(context, options, history)
    : new ListStock(context, options, refreshMs);
}

function stockByDemand(
  { clock, pool, settings }: SourceContext,
  options: DrawSourceOptions,
  { statistics, spacing }: History,
): Stock {
  const { name, size, dailyBudget, call, count, intervalMs } = options;
  const { defaultMax, max = Infinity }: DrawRow['count'] = OPERATIONS[call.product].count;
  const stock = {
    countedAt: (at: number) => pool.countedAt(name, at),
    heldAt: (at: number) => pool.heldAt(name, at),
    nextLossAt: (after: number) => pool.nextLossAt(name, after),
  };
  const holding = (atLeast: number): HoldingInputs => {
    const { fill, idleAfterMs } = settings();
    const { lifetimeMs } = statistics;
    return {
      demand: pool.demand(name),
      size,
      fill,
      idleAfterMs,
      lifetimeMs,
      atLeast: Math.min(size, atLeast),
    };
  };
  return {
    plan: (startInMs, atLeast) =>
      planDraw({
        ...{ now: clock.monotonic(), stock, startInMs, ...holding(atLeast) },
        callCycleMs: intervalMs + PACE_SLACK_MS + statistics.latencyMs,
        latencyMs: statistics.latencyMs,
        maxPerCall: Math.min(count ?? defaultMax, max, statistics.learnedMax, spacing.maxPerCall),
        quotaLeft: statistics.quotaLeft(dailyBudget, clock.now()),
        deadShare: spacing.deadShare,
        failedInARow: spacing.failedInARow,
      }),
    text: () => describeHolding(holding(0), pool.usableAt(name, clock.monotonic())),
    add: (members) =>
      members.length > 0 ? pool.addMembers(name, members) : { joined: 0, renewed: 0, rejected: 0 },
    close: async () => {},
  };
}

class ListStock implements Stock {
  readonly #context: SourceContext;
  readonly #options: DrawSourceOptions;
  readonly #refreshMs: number;
  readonly #rotation: ExitRotation | undefined;
  #readAt = -Infinity;

  constructor(context: SourceContext, options: DrawSourceOptions, refreshMs: number) {
    this.#context = context;
    this.#options = options;
    this.#refreshMs = refreshMs;
    const { name, call, rotate } = options;
    const { urls } = context;
    if (rotate !== undefined && urls !== undefined)
      this.#rotation = new ExitRotation(context, { source: name, key: paceKey(call) }, { ...rotate, urls });
  }

  plan(_startInMs: number, atLeast: number): DrawPlan {
    const now = this.#context.clock.monotonic();
    const readAt = atLeast === Infinity ? now : this.#readAt + this.#refreshMs;
    if (readAt <= now) return { kind: 'draw', count: Math.max(1, this.#options.size), urgent: true };
    return { kind: 'enough', checkAt: readAt };
  }

  text(message: string | undefined): string {
    const { pool, clock } = this.#context;
    const held = formatCount(pool.heldAt(this.#options.name, clock.monotonic()), 'member');
    return [`the list has ${held}`, message ?? '', this.#rotation?.text() ?? ''].filter(Boolean).join('; ');
  }

  add(members: readonly DrawnMember[]): AddedMembers {
    const { pool, clock } = this.#context;
    const { name } = this.#options;
    this.#readAt = clock.monotonic();
    const listed = this.#rotation?.list(members) ?? members;
    const added = pool.addMembers(name, listed);
    pool.retainMembers(name, listed);
    return added;
  }

  async close(): Promise<void> {
    await this.#rotation?.close();
  }
}
