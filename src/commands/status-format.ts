/**
 * Formats the status of a running noria for a terminal: a summary, the sources with advice, and the members. The bar of
 * a member shows its remaining lifetime.
 */
import { styleText } from 'node:util';
import { readinessLines } from '../admin/readiness-text.ts';
import type { MemberJson, Status } from '../admin/schemas.ts';
import { formatCount } from '../core/words.ts';
import type { SourceStatus } from '../refill/status.ts';
import { type Column, displayWidth, formatTable, wrapText } from './table.ts';

interface StatusFormat {
  /** The current time, in epoch ms. The times until the next draws are counted from it. */
  readonly now: number;
  readonly colour: boolean;
  readonly columns: number;
}

type Style = Parameters<typeof styleText>[0];
type Paint = (style: Style, text: string) => string;

const INDENT = '  ';
const BAR_CELLS = 10;
/** The characters for a cell of the bar: index n fills n eighths of the cell. */
const PARTIAL_CELLS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/** The minimum remaining lifetime for a full bar. So if all members expire soon, no bar is full. */
const MIN_FULL_SECONDS = 30;

const STATE_STYLES: Readonly<Record<string, Style>> = {
  idle: 'dim',
  waiting: 'cyan',
  drawing: 'cyan',
  backoff: 'yellow',
  paused: 'yellow',
  halted: 'red',
  quarantined: 'yellow',
  draining: 'dim',
  joining: 'dim',
};

export function formatStatus(status: Status, members: readonly MemberJson[], format: StatusFormat): string[] {
  const paint = painter(format);
  const { columns } = format;
  const headline = readinessLines(status).flatMap((line, at) =>
    wrapIndented(at === 0 ? `noria ${status.version}: ${line}` : line, columns),
  );
  return [
    ...headline.map((line) => paint(status.ready ? 'bold' : ['bold', 'red'], line)),
    ...wrapIndented(formatCounts(status), columns).map((line) => paint('dim', line)),
    ...formatFleet(status.fleet).flatMap((line) =>
      wrapIndented(line, columns).map((each) => paint('dim', each)),
    ),
    '',
    ...formatSources(status.sources, format),
    '',
    ...formatMembers(members, format),
  ];
}

/** Wraps a text into lines, and indents all lines except the first. */
function wrapIndented(text: string, columns: number): string[] {
  if (displayWidth(text) <= columns) return [text];
  const lines = wrapText(text, Math.max(1, columns - INDENT.length));
  return lines.map((line, at) => (at === 0 ? line : INDENT + line));
}

function painter({ colour }: Pick<StatusFormat, 'colour'>): Paint {
  return colour ? (style, text) => styleText(style, text, { validateStream: false }) : (_style, text) => text;
}

function formatCounts({ listeners, workers, pool, uptimeSeconds }: Status): string {
  const clients = listeners.reduce((sum, { connections }) => sum + connections, 0);
  return [
    `listening on ${listeners.map(({ address }) => address).join(', ') || 'nothing'}`,
    ...(workers.wanted === 1 ? [] : [`${workers.running} of ${workers.wanted} workers`]),
    formatCount(clients, 'client'),
    formatCount(pool.openTunnels, 'open tunnel'),
    `${pool.waitingClients} waiting`,
    formatCount(pool.sessions, 'session'),
    `up ${roughSeconds(uptimeSeconds)}`,
  ].join(', ');
}

function formatFleet(fleet: Status['fleet']): string[] {
  if (fleet === null) return [];
  const { name, replica, store, lostForSeconds, replicas } = fleet;
  const others = replicas.filter((each) => each.name !== replica).map((each) => each.name);
  const state =
    store === 'connected'
      ? 'store connected'
      : `no connection to the store for ${roughSeconds(lostForSeconds)} (run noria check to see why)`;
  const known = store === 'connected' ? 'with' : 'last seen with';
  const company = others.length === 0 ? 'no other noria is known' : `${known} ${others.join(', ')}`;
  return [`fleet ${name}: ${state}; this is ${replica}, ${company}`];
}

/** Returns a row for each source. The reason for its state and the advice follow on the next lines. */
function formatSources(sources: readonly SourceStatus[], format: StatusFormat): string[] {
  const paint = painter(format);
  const { now, columns } = format;
  const [titles = '', ...rows] = formatTable<SourceStatus>(
    sources,
    [
      { title: 'SOURCE', cell: ({ name }) => name },
      { title: 'STATE', cell: ({ state }) => paint(STATE_STYLES[state] ?? 'reset', state) },
      { title: 'USABLE', align: 'right', cell: ({ ready, size }) => `${ready}/${size}` },
      { title: 'NEXT DRAW', align: 'right', cell: (source) => nextDraw(source, now) },
      { title: 'DRAWN', align: 'right', cell: ({ drawn }) => String(drawn) },
      { title: 'USED', align: 'right', cell: ({ used }) => String(used) },
      { title: 'WASTED', align: 'right', cell: ({ unused }) => String(unused) },
      { title: 'QUOTA', align: 'right', cell: ({ quota }) => String(quota.remaining ?? ''), optional: true },
      { title: 'BUDGET', align: 'right', cell: formatBudget, optional: true },
      { title: 'PRODUCT', cell: ({ product }) => product, optional: true },
    ],
    columns,
  );
  return [titles, ...sources.flatMap((source, at) => [rows[at] ?? '', ...explain(source, columns, paint)])];
}

function explain({ reason, advice, message, code }: SourceStatus, columns: number, paint: Paint): string[] {
  const width = Math.max(1, columns - INDENT.length);
  const wrap = (text: string) => wrapText(oneLine(text), width).map((line) => INDENT + line);
  return [
    ...wrap(reason),
    ...(advice === null ? [] : wrap(advice)),
    ...(advice === null || message === null
      ? []
      : wrap(`${isOfService(code) ? 'The service says' : 'Details'}: ${message}`).map((line) =>
          paint('dim', line),
        )),
  ];
}

/** Whether the message of the last call comes from the service. Otherwise noria wrote it. */
function isOfService(code: string | null): boolean {
  return code !== 'transport' && code?.startsWith('fleet-store-') !== true;
}

const DRAWN_BY: Column<MemberJson> = {
  title: 'DRAWN BY',
  cell: ({ drawnBy }) => drawnBy ?? '',
  optional: true,
};

/** Returns a table of members, or a sentence if there are none. */
export function formatMembers(
  members: readonly MemberJson[],
  format: Pick<StatusFormat, 'colour' | 'columns'>,
): string[] {
  if (members.length === 0) return ['no members'];
  const paint = painter(format);
  const fullSeconds = longestLifeBySource(members);
  const life = ({ remainingSeconds, source }: MemberJson) =>
    lifeBar(remainingSeconds, fullSeconds.get(source) ?? MIN_FULL_SECONDS);
  return formatTable<MemberJson>(
    members,
    [
      { title: 'MEMBER', cell: ({ id }) => id },
      { title: 'SOURCE', cell: ({ source }) => source },
      { title: 'STATE', cell: ({ state }) => paint(STATE_STYLES[state] ?? 'reset', state) },
      { title: 'LIFE', cell: (member) => paint('cyan', life(member)) },
      {
        title: 'LEFT',
        align: 'right',
        cell: ({ remainingSeconds: s }) => (s === null ? '?' : roughSeconds(s)),
      },
      { title: 'LOCATION', cell: ({ location }) => oneLine(location ?? ''), optional: true },
      { title: 'OPEN', align: 'right', cell: ({ openTunnels }) => String(openTunnels), optional: true },
      { title: 'USES', align: 'right', cell: ({ uses }) => String(uses), optional: true },
      { title: 'FAULTS', align: 'right', cell: ({ faults }) => String(faults), optional: true },
      {
        title: 'LATENCY',
        align: 'right',
        cell: ({ latencyMs: ms }) => (ms === null ? '' : `${Math.round(ms)} ms`),
        optional: true,
      },
      ...(members.some(({ drawnBy }) => typeof drawnBy === 'string') ? [DRAWN_BY] : []),
      { title: 'PROTOCOL', cell: ({ protocol }) => protocol, optional: true },
    ],
    format.columns,
  );
}

/**
 * Returns, for each source, the remaining lifetime in seconds at which a member's bar is full. It is the longest
 * remaining lifetime of the source's members, but at least MIN_FULL_SECONDS.
 */
function longestLifeBySource(members: readonly MemberJson[]): ReadonlyMap<string, number> {
  const longest = new Map<string, number>();
  for (const { source, remainingSeconds } of members) {
    longest.set(source, Math.max(longest.get(source) ?? MIN_FULL_SECONDS, remainingSeconds ?? 0));
  }
  return longest;
}

function lifeBar(remainingSeconds: number | null, fullSeconds: number): string {
  if (remainingSeconds === null) return '?'.padEnd(BAR_CELLS, '·');
  const eighths = Math.min(BAR_CELLS * 8, Math.round((remainingSeconds / fullSeconds) * BAR_CELLS * 8));
  return `${'█'.repeat(eighths >> 3)}${PARTIAL_CELLS[eighths & 7] ?? ''}`.padEnd(BAR_CELLS, '·');
}

/** Returns when the source draws next. A source in the state `ready` draws only when members are missing. */
function nextDraw({ nextCallAt, state }: SourceStatus, now: number): string {
  if (nextCallAt === null) return '-';
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0) return `in ${roughSeconds(Math.ceil(seconds))}`;
  return state === 'ready' ? 'when needed' : 'now';
}

function formatBudget({ budget }: SourceStatus): string {
  return budget === null ? '' : `${budget.used}/${budget.limit}`;
}

/** Formats a duration, rounded to one unit: `45 s`, `12 min` or `3 h`. */
export function roughSeconds(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

/** Removes control characters, because a text of the service must not control the terminal. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ').trim();
}
