/** One picture of a running daemon for a terminal: a sentence, its sources with what to do, its members with their lives. Pure. */
import { styleText } from 'node:util';
import type { MemberJson, SourceJson, Status } from '../admin/schemas.ts';
import { type Column, formatTable } from './table.ts';

export interface PictureOptions {
  /** Epoch ms, to count down to the next draws. */
  readonly now: number;
  readonly colour: boolean;
}

type Style = Parameters<typeof styleText>[0];
type Paint = (style: Style, text: string) => string;

const BAR_CELLS = 10;
/** Eighths of a cell, from none to seven. */
const PART_CELLS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/** A life shorter than this does not fill a bar, so that a pool near its end looks like one. */
const LEAST_FULL_SECONDS = 30;

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

/** The lines of the picture. */
export function drawStatus(
  status: Status,
  members: readonly MemberJson[],
  { now, colour }: PictureOptions,
): string[] {
  const paint: Paint = colour
    ? (style, text) => styleText(style, text, { validateStream: false })
    : (_style, text) => text;
  return [
    paint(status.ready ? 'bold' : ['bold', 'red'], `noria ${status.version}: ${status.reason}`),
    paint('dim', whereAndHowMuch(status)),
    '',
    ...drawSources(status.sources, now, paint),
    '',
    ...drawMembers(members, paint),
  ];
}

function whereAndHowMuch({ listeners, workers, pool, uptimeSeconds }: Status): string {
  const clients = listeners.reduce((sum, { connections }) => sum + connections, 0);
  return [
    `listening on ${listeners.map(({ address }) => address).join(', ') || 'nothing'}`,
    ...(workers.wanted === 1 ? [] : [`${workers.running} of ${workers.wanted} workers`]),
    counted(clients, 'client'),
    `${counted(pool.openTunnels, 'open tunnel')}`,
    `${pool.waitingClients} waiting`,
    counted(pool.sessions, 'session'),
    `up ${inWords(uptimeSeconds)}`,
  ].join(', ');
}

function drawSources(sources: readonly SourceJson[], now: number, paint: Paint): string[] {
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
    { title: 'WHY' },
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

function drawMembers(members: readonly MemberJson[], paint: Paint): string[] {
  if (members.length === 0) return ['no members'];
  const longest = longestLives(members);
  const columns: Column[] = [
    { title: 'MEMBER' },
    { title: 'SOURCE' },
    { title: 'SPEAKS' },
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
    paint('cyan', lifeBar(member.remainingSeconds, longest.get(member.source) ?? LEAST_FULL_SECONDS)),
    member.remainingSeconds === null ? '?' : inWords(member.remainingSeconds),
    String(member.openTunnels),
    String(member.uses),
    String(member.faults),
    member.latencyMs === null ? '' : `${Math.round(member.latencyMs)} ms`,
    oneLine(member.location ?? ''),
  ]);
  return formatTable(columns, rows);
}

/** What a full bar stands for: the longest life in each source. */
function longestLives(members: readonly MemberJson[]): ReadonlyMap<string, number> {
  const longest = new Map<string, number>();
  for (const { source, remainingSeconds } of members) {
    longest.set(source, Math.max(longest.get(source) ?? LEAST_FULL_SECONDS, remainingSeconds ?? 0));
  }
  return longest;
}

function lifeBar(remainingSeconds: number | null, fullSeconds: number): string {
  if (remainingSeconds === null) return '?'.padEnd(BAR_CELLS, '·');
  const eighths = Math.min(BAR_CELLS * 8, Math.round((remainingSeconds / fullSeconds) * BAR_CELLS * 8));
  return `${'█'.repeat(eighths >> 3)}${PART_CELLS[eighths & 7] ?? ''}`.padEnd(BAR_CELLS, '·');
}

/** A source that holds what is wanted draws when it lacks something, not when it may. */
function nextDraw({ nextCallAt, state }: SourceJson, now: number): string {
  if (nextCallAt === null) return '-';
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0) return `in ${inWords(Math.ceil(seconds))}`;
  return state === 'ready' ? 'when needed' : 'now';
}

/** `45 s`, `12 min`, `3 h`: for a column, not exact. */
function inWords(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** What the service says may hold anything; a terminal must not obey it. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ').trim();
}
