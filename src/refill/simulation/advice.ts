/** The buyer's advice: which `fill`, `size` and `timespan` serve a load at the least cost. */
import { DAY_MS } from '../../core/duration.ts';
import { formatCount } from '../../core/words.ts';
import { OPERATIONS } from '../../service/operations.ts';
import { money } from './report.ts';
import { type SimulationOptions, simulate } from './simulate.ts';

/** Settings, and what they cost and yield with the load. */
interface Choice {
  readonly fill: 'demand' | 'size';
  readonly size: number;
  /** The most IPs of one call: the size, at most the configured count. */
  readonly count: number;
  /** In minutes; null if the sources have none. */
  readonly timespan: number | null;
  readonly drawnPerDay: number;
  readonly costPerDay: number | null;
  readonly p99Ms: number;
  readonly failedShare: number;
}

const SIZES = [1, 2, 3, 5, 10, 20];
const FILLS = ['demand', 'size'] as const;
/** A trial has about this number of requests, within these limits of its length, in days. */
const REQUESTS = 2_000;
const SHORTEST_DAYS = 1 / 24;
const LONGEST_DAYS = 1;
/** What counts as served: at most this share of failed requests, and this wait, or what the configuration has itself. */
const MAX_FAILED = 0.001;
const MAX_P99_MS = 1_500;
const SHOWN = 3;

/**
 * Tries settings with the load, all with the same seed.
 *
 * @param timespans - the values of `timespan` to try, beside the configured one.
 * @returns the configured settings, and the cheapest that serve the load as well, cheapest first.
 */
export async function advise(
  options: SimulationOptions,
  timespans: readonly number[],
): Promise<{ readonly now: Choice; readonly best: readonly Choice[] }> {
  const { ratesByHour, log } = options.load;
  const perDay = ratesByHour.reduce((sum, rate) => sum + rate * 60, 0);
  // A day whose hours differ is the least that shows all of them.
  const isEven = ratesByHour.every((rate) => rate === ratesByHour[0]);
  const requestsDays = Math.max(isEven ? 0 : 1, REQUESTS / perDay);
  const wished = log === undefined ? requestsDays : log.everyMs / DAY_MS;
  const days = Math.min(LONGEST_DAYS, Math.max(SHORTEST_DAYS, wished));
  const now = await tryChoice({ ...options, days }, {});
  const choices: Choice[] = [];
  for (const timespan of new Set([now.timespan ?? undefined, ...timespans])) {
    for (const size of new Set([...SIZES, now.size]).values()) {
      for (const fill of FILLS) {
        const choice = await tryChoice({ ...options, days }, { fill, size, timespan });
        if (choice.failedShare > Math.max(MAX_FAILED, now.failedShare)) continue;
        if (choice.p99Ms <= Math.max(MAX_P99_MS, now.p99Ms)) choices.push(choice);
      }
    }
  }
  const best = choices.sort((a, b) => costOf(a) - costOf(b) || a.size - b.size).slice(0, SHOWN);
  return { now, best };
}

/** IPs where no price is known. */
function costOf({ costPerDay, drawnPerDay }: Choice): number {
  return costPerDay ?? drawnPerDay;
}

async function tryChoice(
  options: SimulationOptions,
  change: Partial<Pick<Choice, 'fill' | 'size'>> & { readonly timespan?: number | undefined },
): Promise<Choice> {
  const { refill, pool } = options;
  const { fill = refill.fill, timespan: changedTo } = change;
  const sized = change.size === undefined ? {} : { size: change.size };
  const sources = refill.sources.map((each) => {
    const params = { ...each.call.params, ...(changedTo !== undefined && { timespan: changedTo }) };
    return { ...each, ...sized, call: { ...each.call, params } };
  });
  const changed = {
    ...options,
    refill: { ...refill, fill, sources },
    pool: { ...pool, sources: pool.sources.map((each) => ({ ...each, ...sized })) },
  };
  const report = await simulate(changed);
  const [source] = changed.refill.sources;
  if (source === undefined) throw new TypeError('a simulation needs a source');
  const { size, call } = source;
  const { count = OPERATIONS[call.product].count.defaultMax } = source;
  const timespan = call.params['timespan'];
  const { served, noMember, membersFailed } = report.clients;
  const failed = noMember + membersFailed;
  return {
    ...{ fill, size, count: Math.min(count, size) },
    timespan: typeof timespan === 'number' ? timespan : null,
    drawnPerDay: report.drawn / report.days,
    costPerDay: report.costPerDay,
    p99Ms: report.delay.p99Ms,
    failedShare: failed / Math.max(1, failed + served),
  };
}

export function formatAdvice({ now, best }: Awaited<ReturnType<typeof advise>>): string {
  const [cheapest] = best;
  const head =
    cheapest === undefined
      ? 'advice: no settings of those tried serve this load as well'
      : costOf(cheapest) < costOf(now) * 0.95
        ? 'advice: these settings serve the load at the least cost'
        : 'advice: the configured settings are about as cheap as any';
  const rows = [...best.map((choice) => ['  ', choice] as const), ['now', now] as const];
  return [head, ...rows.map(([mark, choice]) => `  ${mark.padEnd(4)}${describeChoice(choice)}`)].join('\n');
}

function describeChoice({ fill, size, count, timespan, ...results }: Choice): string {
  const { drawnPerDay, costPerDay, p99Ms, failedShare } = results;
  const settings = [
    `fill: ${fill}`,
    `size: ${size}`,
    `count: ${count}`,
    ...(timespan === null ? [] : [`timespan: ${timespan}`]),
  ].join(', ');
  const cost = costPerDay === null ? '' : `, cost ${money(costPerDay)}`;
  const failed = failedShare > 0 ? `, ${(100 * failedShare).toFixed(1)} % failed` : '';
  const waited = `p99 ${(p99Ms / 1_000).toFixed(1)} s`;
  return `${settings}: ${formatCount(Math.round(drawnPerDay), 'IP')} a day${cost}, ${waited}${failed}`;
}
