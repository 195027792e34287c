/** The result of a simulation, as data and as text. It helps the operator to choose `size`, `count` and `timespan`. */
import { formatCount } from '../../core/words.ts';
import type { SimulatedEnding } from './clients.ts';

export interface SimulationReport {
  readonly days: number;
  readonly seed: number;
  /** The number of calls for each code of the service. */
  readonly calls: Readonly<Record<string, number>>;
  /** The number of members that the service returned, each counted once. */
  readonly drawn: number;
  /** The number of drawn members that at least one client used. */
  readonly used: number;
  /** How many of the drawn members expired without use. */
  readonly wasted: number;
  /** The number of client requests for each way in which they ended. */
  readonly clients: Readonly<Record<SimulatedEnding, number>>;
  /** The waits of the client requests that had to wait for a member and got one. */
  readonly waits: {
    readonly count: number;
    readonly medianMs: number;
    readonly p95Ms: number;
    readonly longestMs: number;
  };
  /** The longest uninterrupted time in ms with at least one waiting client. */
  readonly longestEmptyMs: number;
}

export function summarizeWaits(waits: readonly number[]): SimulationReport['waits'] {
  const sorted = waits.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { count: sorted.length, medianMs: at(0.5), p95Ms: at(0.95), longestMs: at(1) };
}

export function formatReport(report: SimulationReport): string {
  const { days, seed, drawn, used, wasted, clients, waits, longestEmptyMs } = report;
  const calls = Object.values(report.calls).reduce((sum, count) => sum + count, 0);
  const requests = clients.served + clients.noMember + clients.membersFailed;
  const byCode = Object.entries(report.calls).map(([code, count]) => `${code} ${count}`);
  const rows: readonly (readonly [string, string])[] = [
    ['simulated', `${formatCount(days, 'day')}, seed ${seed}`],
    ['calls', `${calls} (${perDay(calls, days)} a day): ${byCode.join(', ') || 'none'}`],
    ['members drawn', `${drawn} (${perDay(drawn, days)} a day)`],
    ['  used', `${used} (${share(used, drawn)})`],
    ['  wasted', `${wasted} (${share(wasted, drawn)}): expired unused`],
    [
      'client requests',
      `${requests}, ${drawn === 0 ? 'no member drawn' : `${round(requests / drawn)} per drawn member`}`,
    ],
    ['  served', `${clients.served} (${share(clients.served, requests)})`],
    ['  no member in time', String(clients.noMember)],
    ['  members failed', String(clients.membersFailed)],
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
