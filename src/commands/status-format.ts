/** The status of a running daemon as text for a terminal: a summary, its sources with advice, its members with a bar for their remaining life. */
import { styleText } from 'node:util';
import type { MemberJson, SourceJson, Status } from '../admin/schemas.ts';
import { formatCount } from '../core/words.ts';
import { type Column, formatTable } from './table.ts';

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
/** A full bar is at least this long: a pool in which every member is about to expire shows short bars. */
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

const RIGHT = 'right' as const;

export function formatStatus(
  status: Status,
  members: readonly MemberJson[],
  { now, colour }: StatusFormat,
): string[] {
  const paint: Paint = colour
    ? (style, text) => styleText(style, text, { validateStream: false })
    : (_style, text) => text;
  return [
    paint(status.ready ? 'bold' : ['bold', 'red'], `noria ${status.version}: ${status.reason}`),
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
  const columns: Column[] = [
    { title: 'SOURCE' },
    { title: 'PRODUCT' },
    { title: 'STATE' },
    { title: 'USABLE', align: RIGHT },
    { title: 'NEXT DRAW', align: RIGHT },
    { title: 'DRAWN', align: RIGHT },
    { title: 'USED', align: RIGHT },
    { title: 'WASTED', align: RIGHT },
    { title: 'QUOTA', align: RIGHT },
    { title: 'BUDGET', align: RIGHT },
    { title: 'REASON' },
  ];
  const rows = sources.map((source) => [
    source.name,
    source.product,
    paint(STATE_STYLES[source.state] ?? 'reset', source.state),
    `${source.ready}/${source.size}`,
    nextDraw(source, now),
    String(source.drawn),
    String(source.used),
    String(source.unused),
    source.quota.remaining === undefined ? '' : String(source.quota.remaining),
    source.budget === null ? '' : `${source.budget.used}/${source.budget.limit}`,
    source.reason,
  ]);
  const advice = sources.flatMap(({ name, advice, message }) =>
    advice === null
      ? []
      : [`  ${name}: ${advice}${message === null ? '' : paint('dim', ` (${oneLine(message)})`)}`],
  );
  return [...formatTable(columns, rows), ...advice];
}

function formatMembers(members: readonly MemberJson[], paint: Paint): string[] {
  if (members.length === 0) return ['no members'];
  const fullSeconds = longestLifeBySource(members);
  const columns: Column[] = [
    { title: 'MEMBER' },
    { title: 'SOURCE' },
    { title: 'PROTOCOL' },
    { title: 'STATE' },
    { title: 'LIFE' },
    { title: 'LEFT', align: RIGHT },
    { title: 'OPEN', align: RIGHT },
    { title: 'USES', align: RIGHT },
    { title: 'FAULTS', align: RIGHT },
    { title: 'LATENCY', align: RIGHT },
    { title: 'LOCATION' },
  ];
  const rows = members.map((member) => [
    member.id,
    member.source,
    member.protocol,
    paint(STATE_STYLES[member.state] ?? 'reset', member.state),
    paint('cyan', lifeBar(member.remainingSeconds, fullSeconds.get(member.source) ?? MIN_FULL_SECONDS)),
    member.remainingSeconds === null ? '?' : roughSeconds(member.remainingSeconds),
    String(member.openTunnels),
    String(member.uses),
    String(member.faults),
    member.latencyMs === null ? '' : `${Math.round(member.latencyMs)} ms`,
    oneLine(member.location ?? ''),
  ]);
  return formatTable(columns, rows);
}

/** A full bar is the longest remaining life in its source. */
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

/** `45 s`, `12 min`, `3 h`. */
function roughSeconds(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

/** Removes control characters: text of the service must not control the terminal. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ').trim();
}
