/** What a source has to say when it is asked whether to draw: its stock, its demand, and what may be asked for. */
import type { Clock } from '../core/clock.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { DrawHistory } from './draw-history.ts';
import type { DrawInputs } from './draw-plan.ts';
import type { DrawSourceOptions } from './options.ts';
import type { RefillPool } from './refill-pool.ts';
import type { SourceRecords } from './source-records.ts';

/** Where the facts are. */
export interface NeedParts {
  readonly clock: Clock;
  readonly reservoir: RefillPool;
  readonly options: DrawSourceOptions;
  readonly ledger: SourceRecords;
  readonly experience: DrawHistory;
}

/** What the source alone knows at the moment. */
export type NeedNow = Pick<DrawInputs, 'idleAfterMs' | 'startInMs' | 'gapMs' | 'asked'>;

/** The facts of this moment, for `planDraw`; the stock is read from the reservoir as the plan asks for it. */
export function drawInputsOf(
  { clock, reservoir, options, ledger, experience }: NeedParts,
  now: NeedNow,
): DrawInputs {
  const { name, size, dailyBudget } = options;
  return {
    ...now,
    now: clock.monotonic(),
    stock: {
      usableAt: (at) => reservoir.usableAt(name, at),
      heldAt: (at) => reservoir.heldAt(name, at),
      nextLossAt: (after) => reservoir.nextLossAt(name, after),
    },
    demand: reservoir.demand(name),
    size,
    latencyMs: ledger.latencyMs,
    mostPerCall: mostPerCall(options, experience),
    allowance: ledger.allowance(dailyBudget, clock.now()),
  };
}

/** The smallest of what is configured, what the operation allows and what the service was seen to take. */
function mostPerCall({ call, count }: DrawSourceOptions, experience: DrawHistory): number {
  const { askAtMost, most = Number.POSITIVE_INFINITY } = OPERATIONS[call.product].count;
  return Math.min(count ?? askAtMost, most, experience.mostPerCall);
}
