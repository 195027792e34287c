/** The result of a simulation, as data and as text. It helps the operator to choose `fill`, `size` and `timespan`. */
import { formatCount } from '../../core/words.ts';
import type { SimulatedClients, SimulatedEnding } from './clients.ts';
import type { SimulatedService } from './service.ts';

export type SimulationReport = ReturnType<typeof summarize>;

export function summarize(facts: {
  readonly days: number;
  readonly seed: number;
  readonly service: SimulatedService;
  readonly clients: readonly SimulatedClients[];
  readonly drawnBy: ReadonlyMap<string, number>;
  readonly prices: ReadonlyMap<string, number> | undefined;
}) {
  const { days, seed, service, clients, drawnBy, prices } = facts;
  const sum = (ending: SimulatedEnding) => clients.reduce((total, { endings }) => total + endings[ending], 0);
  const cost = [...drawnBy].reduce((total, [source, drawn]) => total + drawn * (prices?.get(source) ?? 0), 0);
  const delays = clients.flatMap((each) => each.delays).sort((a, b) => a - b);
  return {
    ...{ days, seed },
    calls: Object.fromEntries<number>(service.calls),
    drawn: service.drawn,
    used: service.used,
    wasted: service.wasted,
    clients: { served: sum('served'), noMember: sum('noMember'), membersFailed: sum('membersFailed') },
    /** Of the requests that had to wait for a member and got one. */
    waits: summarizeWaits(clients.flatMap(({ waits }) => waits)),
    /** How long the served requests took until a member accepted them, those included that did not wait, in ms. */
    delay: { p50Ms: shareAt(delays, 0.5), p99Ms: shareAt(delays, 0.99) },
    /** Null if no source has a price. */
    costPerDay: prices === undefined || prices.size === 0 ? null : cost / days,
    /** The longest uninterrupted time in ms with at least one waiting client. */
    longestEmptyMs: Math.max(...clients.map(({ longestEmptyMs }) => longestEmptyMs)),
  };
}

function shareAt(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}

function summarizeWaits(waits: readonly number[]) {
  const sorted = waits.toSorted((a, b) => a - b);
  const at = (share: number) => shareAt(sorted, share);
  return { count: sorted.length, medianMs: at(0.5), p95Ms: at(0.95), longestMs: at(1) };
}

export function formatReport(report: SimulationReport): string {
  const { days, seed, drawn, used, wasted, clients, waits, delay, costPerDay, longestEmptyMs } = report;
  const calls = Object.values(report.calls).reduce((sum, count) => sum + count, 0);
  const requests = clients.served + clients.noMember + clients.membersFailed;
  const byCode = Object.entries(report.calls).map(([code, count]) => `${code} ${count}`);
  const rows: readonly (readonly [string, string])[] = [
    ['simulated', `${formatCount(days, 'day')}, seed ${seed}`],
    ['calls', `${calls} (${perDay(calls, days)} a day): ${byCode.join(', ') || 'none'}`],
    ['members drawn', `${drawn} (${perDay(drawn, days)} a day)`],
    ['  used', `${used} (${share(used, drawn)})`],
    ['  wasted', `${wasted} (${share(wasted, drawn)}): never used`],
    [
      'client requests',
      `${requests}, ${drawn === 0 ? 'no member drawn' : `${round(requests / drawn)} per drawn member`}`,
    ],
    ['  served', `${clients.served} (${share(clients.served, requests)})`],
    ['  no member in time', String(clients.noMember)],
    ['  members failed', String(clients.membersFailed)],
    ['  until a member accepted', `p50 ${seconds(delay.p50Ms)}, p99 ${seconds(delay.p99Ms)}`],
    ...(costPerDay === null ? [] : [['cost', `${money(costPerDay)} a day`] as const]),
    ['requests that waited', waits.count === 0 ? 'none' : formatWaits(waits, requests)],
    ['longest time without a member', longestEmptyMs === 0 ? 'none' : seconds(longestEmptyMs)],
  ];
  const width = Math.max(...rows.map(([name]) => name.length)) + 2;
  return rows.map(([name, value]) => `${name.padEnd(width)}${value}`).join('\n');
}

function formatWaits(
  { count, medianMs, p95Ms, longestMs }: SimulationReport['waits'],
  requests: number,
): string {
  return `${count} (${share(count, requests)}); p50 ${seconds(medianMs)}, p95 ${seconds(p95Ms)}, longest ${seconds(longestMs)}`;
}

export function money(amount: number): string {
  return amount >= 100 ? String(Math.round(amount)) : amount.toFixed(2);
}

function perDay(count: number, days: number): string {
  return String(Math.round(count / days));
}

function share(part: number, whole: number): string {
  return whole === 0 ? '0 %' : `${round((100 * part) / whole)} %`;
}

function seconds(ms: number): string {
  return `${round(ms / 1_000)} s`;
}

function round(number: number): string {
  return number >= 100 ? String(Math.round(number)) : String(Math.round(number * 10) / 10);
}
