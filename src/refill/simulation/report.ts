/** What a simulation came to, as data and as a page for a person who chooses size, count and timespan. */
import { formatCount } from '../words.ts';
import type { Violation } from './judge.ts';

export interface SimulationReport {
  readonly days: number;
  readonly seed: number;
  /** Calls by the service's code, `transport` where none came. */
  readonly calls: Readonly<Record<string, number>>;
  /** Members the service gave, each counted once; those that were used; and those that ended without ever having been used. */
  readonly drawn: number;
  readonly used: number;
  readonly wasted: number;
  /** Client requests by how they ended: `killed` with the noria that they came to. */
  readonly clients: {
    readonly served: number;
    readonly noMember: number;
    readonly membersFailed: number;
    readonly killed: number;
  };
  /** Clients that waited for a member and got one, and for how long. */
  readonly waits: {
    readonly count: number;
    readonly medianMs: number;
    readonly p95Ms: number;
    readonly longestMs: number;
  };
  /** The longest time during which there was always a client waiting. */
  readonly longestEmptyMs: number;
  /** Times noria was killed and started again. */
  readonly crashes: number;
  /** Promises that were broken: none, or noria has a fault. Some in words, all counted. */
  readonly violations: readonly Violation[];
  readonly violationCount: number;
}

const DAY_MS = 24 * 3_600_000;

/** The report as lines of text, without a last newline. */
export function formatReport(report: SimulationReport): string {
  const { days, seed, drawn, used, wasted, clients, waits, longestEmptyMs, violationCount } = report;
  const calls = Object.values(report.calls).reduce((sum, count) => sum + count, 0);
  const came = clients.served + clients.noMember + clients.membersFailed + clients.killed;
  const byCode = Object.entries(report.calls).map(([code, count]) => `${code} ${count}`);
  const rows: readonly (readonly [string, string])[] = [
    ['simulated', `${formatCount(days, 'day')}, seed ${seed}`],
    ['calls', `${calls} (${perDay(calls, days)} a day): ${byCode.join(', ') || 'none'}`],
    ['members drawn', `${drawn} (${perDay(drawn, days)} a day)`],
    ['  used', `${used} (${share(used, drawn)})`],
    ['  wasted', `${wasted} (${share(wasted, drawn)}): ended without ever having been used`],
    [
      'client requests',
      `${came}, ${drawn === 0 ? 'no member drawn' : `${round(came / drawn)} for each member drawn`}`,
    ],
    ['  served', `${clients.served} (${share(clients.served, came)})`],
    ['  no member in time', String(clients.noMember)],
    ['  members failed', String(clients.membersFailed)],
    ['waits for a member', waits.count === 0 ? 'none' : describeWaits(waits, came)],
    ['longest empty stretch', longestEmptyMs === 0 ? 'none' : seconds(longestEmptyMs)],
  ];
  const restarts =
    report.crashes > 0
      ? [['restarts', `${report.crashes}; ${clients.killed} requests ended with them`] as const]
      : [];
  const width = Math.max(...rows.map(([name]) => name.length)) + 2;
  const lines = [...rows, ...restarts].map(([name, value]) => `${name.padEnd(width)}${value}`);
  return [...lines, ...brokenPromises(report.violations, violationCount)].join('\n');
}

function describeWaits(
  { count, medianMs, p95Ms, longestMs }: SimulationReport['waits'],
  came: number,
): string {
  return `${count} (${share(count, came)}); half of them at most ${seconds(medianMs)}, 95 % ${seconds(p95Ms)}, longest ${seconds(longestMs)}`;
}

function brokenPromises(violations: readonly Violation[], count: number): string[] {
  if (count === 0)
    return ['', 'No call broke the pace, no member was used after its end, nothing was drawn beyond demand.'];
  const told = violations.map(
    ({ at, what }) => `  day ${Math.floor(at / DAY_MS) + 1}, ${clockTime(at % DAY_MS)}: ${what}`,
  );
  return ['', `${count} promises were broken; please report this with the seed:`, ...told];
}

function clockTime(ms: number): string {
  return new Date(ms).toISOString().slice(11, 19);
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
