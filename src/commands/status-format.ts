/** The status of a running daemon as text for a terminal: a summary, its sources with advice, its members with a bar for their remaining life. */
import { styleText } from 'node:util';
import { readinessLines } from '../admin/readiness-text.ts';
import type { MemberJson, SourceJson, Status } from '../admin/schemas.ts';
import { formatCount } from '../core/words.ts';
import { formatTable } from './table.ts';

export interface StatusFormat {
  /** Epoch ms; the times of the next draws are shown relative to it. */
  readonly now: number;
  readonly colour: boolean;
}

type Style = Parameters<typeof styleText>[0];
type Paint = (style: Style, text: string) => string;

const BAR_CELLS = 10;
/** A cell filled by 0 to 7 eighths. */
const PARTIAL_CELLS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/** A full bar stands for at least this time: when every member is about to expire, all bars are short. */
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

export function formatStatus(
  status: Status,
  members: readonly MemberJson[],
  { now, colour }: StatusFormat,
): string[] {
  const paint: Paint = colour
    ? (style, text) => styleText(style, text, { validateStream: false })
    : (_style, text) => text;
  return [
    ...readinessLines(status).map((line, at) =>
      paint(status.ready ? 'bold' : ['bold', 'red'], at === 0 ? `noria ${status.version}: ${line}` : line),
    ),
    paint('dim', formatCounts(status)),
    '',
    ...formatSources(status.sources, now, paint),
    '',
    ...formatMembers(members, paint),
  ];
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

function formatSources(sources: readonly SourceJson[], now: number, paint: Paint): string[] {
  const table = formatTable(sources, [
    { title: 'SOURCE', cell: ({ name }) => name },
    { title: 'PRODUCT', cell: ({ product }) => product },
    { title: 'STATE', cell: ({ state }) => paint(STATE_STYLES[state] ?? 'reset', state) },
    { title: 'USABLE', align: 'right', cell: ({ ready, size }) => `${ready}/${size}` },
    { title: 'NEXT DRAW', align: 'right', cell: (source) => nextDraw(source, now) },
    { title: 'DRAWN', align: 'right', cell: ({ drawn }) => String(drawn) },
    { title: 'USED', align: 'right', cell: ({ used }) => String(used) },
    { title: 'WASTED', align: 'right', cell: ({ unused }) => String(unused) },
    { title: 'QUOTA', align: 'right', cell: ({ quota }) => String(quota.remaining ?? '') },
    { title: 'BUDGET', align: 'right', cell: formatBudget },
    { title: 'REASON', cell: ({ reason }) => reason },
  ]);
  const advice = sources.flatMap(({ name, advice, message }) =>
    advice === null
      ? []
      : [`  ${name}: ${advice}${message === null ? '' : paint('dim', ` (${oneLine(message)})`)}`],
  );
  return [...table, ...advice];
}

function formatMembers(members: readonly MemberJson[], paint: Paint): string[] {
  if (members.length === 0) return ['no members'];
  const fullSeconds = longestLifeBySource(members);
  const life = ({ remainingSeconds, source }: MemberJson) =>
    lifeBar(remainingSeconds, fullSeconds.get(source) ?? MIN_FULL_SECONDS);
  return formatTable(members, [
    { title: 'MEMBER', cell: ({ id }) => id },
    { title: 'SOURCE', cell: ({ source }) => source },
    { title: 'PROTOCOL', cell: ({ protocol }) => protocol },
    { title: 'STATE', cell: ({ state }) => paint(STATE_STYLES[state] ?? 'reset', state) },
    { title: 'LIFE', cell: (member) => paint('cyan', life(member)) },
    {
      title: 'LEFT',
      align: 'right',
      cell: ({ remainingSeconds: s }) => (s === null ? '?' : roughSeconds(s)),
    },
    { title: 'OPEN', align: 'right', cell: ({ openTunnels }) => String(openTunnels) },
    { title: 'USES', align: 'right', cell: ({ uses }) => String(uses) },
    { title: 'FAULTS', align: 'right', cell: ({ faults }) => String(faults) },
    {
      title: 'LATENCY',
      align: 'right',
      cell: ({ latencyMs: ms }) => (ms === null ? '' : `${Math.round(ms)} ms`),
    },
    { title: 'LOCATION', cell: ({ location }) => oneLine(location ?? '') },
  ]);
}

/** The remaining life that a full bar stands for: the longest in each source. */
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

/** A source that is `ready` draws only when members are missing. */
function nextDraw({ nextCallAt, state }: SourceJson, now: number): string {
  if (nextCallAt === null) return '-';
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0) return `in ${roughSeconds(Math.ceil(seconds))}`;
  return state === 'ready' ? 'when needed' : 'now';
}

function formatBudget({ budget }: SourceJson): string {
  return budget === null ? '' : `${budget.used}/${budget.limit}`;
}

/** `45 s`, `12 min`, `3 h`. */
function roughSeconds(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

/** Removes control characters: text of the service must not control the terminal. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ').trim();
}
