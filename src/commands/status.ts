/** `noria status`: prints the state of a running noria: a summary, its sources and its members. */

import { styleText } from 'node:util';
import { readinessLines } from '../admin/readiness-text.ts';
import type { MemberJson, Status } from '../admin/schemas.ts';
import { type Language, translate } from '../core/chinese.ts';
import { type Clock, holdingClock, pause, systemClock } from '../core/clock.ts';
import { hasCode } from '../core/faults.ts';
import { formatCount } from '../core/words.ts';
import { type SourceStatus, stateWord } from '../refill/status.ts';
import {
  ADMIN_FLAGS,
  type AdminClient,
  type AdminFlags,
  openAdminClient,
  TOKEN_HELP,
} from './admin-client.ts';
import { command } from './command.ts';
import { cutToWidth, displayWidth, formatTable, numbers, wrapText } from './table.ts';
import { badUsage, EXIT, languageOfTerminal, type Terminal } from './terminal.ts';

export const statusCommand = command({
  name: 'status',
  about: 'print the state of a running daemon, its sources and its members',
  flags: [
    ...ADMIN_FLAGS,
    ['--watch', 'refresh every second until Ctrl-C'],
    ['--json', 'print the answer of /api/status'],
  ],
  examples: ['status', 'status --watch', 'status --admin 18889', 'status --json | jq .pool'],
  help: `${TOKEN_HELP} Exit codes: 0 ready, 1 not ready, 3 unreachable.`,
  run: async ({ terminal }, flags: AdminFlags & { readonly watch?: boolean }) => {
    if (flags.watch === true && flags.json === true) {
      throw badUsage('use either --watch or --json: --json prints one answer');
    }
    const client = openAdminClient(flags, terminal);
    if (flags.watch === true) return (await watch(client, terminal)) ? EXIT.fine : EXIT.failed;
    const status = await client.status();
    if (flags.json === true) terminal.print(JSON.stringify(status, undefined, 2));
    else {
      const format = formatOf(terminal, systemClock);
      for (const line of formatStatus(status, await client.members(), format)) terminal.print(line);
    }
    return status.ready ? EXIT.fine : EXIT.failed;
  },
});

async function watch(client: AdminClient, terminal: Terminal): Promise<boolean> {
  const ending = new AbortController();
  const stop = () => ending.abort();
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    return await watchStatus({
      fetch: async () => ({ status: await client.status(), members: await client.members() }),
      url: client.origin,
      terminal,
      clock: holdingClock,
      signal: ending.signal,
    });
  } finally {
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}

const INTERVAL_MS = 1_000;
const ENTER_SCREEN = '\u001b[?1049h\u001b[?25l';
const LEAVE_SCREEN = '\u001b[?25h\u001b[?1049l';
const TO_TOP = '\u001b[H';
const CLEAR_LINE_END = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/** @returns whether noria was ready last. @throws NoriaError if the first request fails, or a later one is refused. */
export async function watchStatus(options: {
  readonly fetch: () => Promise<{ readonly status: Status; readonly members: readonly MemberJson[] }>;
  readonly url: string;
  readonly terminal: Terminal;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}): Promise<boolean> {
  const { terminal, clock, signal } = options;
  const read = async () => {
    const { status, members } = await options.fetch();
    return { ready: status.ready, lines: formatStatus(status, members, formatOf(terminal, clock)) };
  };
  let { ready, lines } = await read();
  let seenAt = clock.monotonic();
  if (terminal.interactive) terminal.write(ENTER_SCREEN);
  try {
    while (!signal.aborted) {
      show(terminal, lines);
      await pause(clock, INTERVAL_MS, signal);
      if (signal.aborted) break;
      try {
        ({ ready, lines } = await read());
        seenAt = clock.monotonic();
      } catch (error) {
        if (!hasCode(error, 'daemon-unreachable')) throw error;
        ready = false;
        const silentSeconds = Math.round((clock.monotonic() - seenAt) / 1_000);
        lines = [`no answer from ${options.url} for ${silentSeconds} s; retrying`];
      }
    }
  } finally {
    if (terminal.interactive) terminal.write(LEAVE_SCREEN);
  }
  // prints the last status on the normal screen, where it stays visible
  if (terminal.interactive) for (const line of lines) terminal.print(line);
  return ready;
}

function show(terminal: Terminal, lines: readonly string[]): void {
  if (!terminal.interactive) {
    terminal.print(`${lines.join('\n')}\n`);
    return;
  }
  const room = Math.max(1, terminal.rows - 1);
  const shown =
    lines.length <= room ? lines : [...lines.slice(0, room - 1), `… ${lines.length - room + 1} more lines`];
  const redrawn = shown.map((line) => `${cutToWidth(line, terminal.columns)}${CLEAR_LINE_END}\n`);
  terminal.write(`${TO_TOP}${redrawn.join('')}${CLEAR_BELOW}`);
}

interface StatusFormat {
  readonly now: number;
  readonly colour: boolean;
  readonly columns: number;
  readonly language: Language;
}

function formatOf(terminal: Terminal, clock: Clock): StatusFormat {
  const { colour, columns } = terminal;
  return { now: clock.now(), colour, columns, language: languageOfTerminal(terminal) };
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
  const { columns, language } = format;
  const texts = readinessLines(status).map((line) => translate(line, language));
  const headline = texts.flatMap((line, at) =>
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

function formatSources(sources: readonly SourceStatus[], format: StatusFormat): string[] {
  const paint = painter(format);
  const { now, columns } = format;
  const [titles = '', ...rows] = formatTable<SourceStatus>(
    sources,
    [
      { title: 'SOURCE', cell: ({ name }) => name },
      {
        title: 'STATE',
        cell: (source) => paint(STATE_STYLES[source.state] ?? 'reset', stateWord(source)),
      },
      numbers('USABLE', ({ ready, size }) => `${ready}/${size}`),
      numbers('NEXT DRAW', (source) => nextDraw(source, now)),
      numbers('DRAWN', ({ drawn }) => drawn),
      numbers('USED', ({ used }) => used),
      numbers('WASTED', ({ unused }) => unused),
      numbers('QUOTA', ({ quota }) => quota.remaining ?? '', true),
      numbers('BUDGET', formatBudget, true),
      { title: 'PRODUCT', cell: ({ product }) => product, optional: true },
    ],
    columns,
  );
  return [titles, ...sources.flatMap((source, at) => [rows[at] ?? '', ...explain(source, format)])];
}

function explain({ reason, advice, message, code }: SourceStatus, format: StatusFormat): string[] {
  const { columns, language } = format;
  const paint = painter(format);
  const width = Math.max(1, columns - INDENT.length);
  const wrap = (text: string) => wrapText(oneLine(text), width).map((line) => INDENT + line);
  return [
    ...wrap(translate(reason, language)),
    ...(advice === null ? [] : wrap(translate(advice, language))),
    ...(advice === null || message === null
      ? []
      : wrap(`${translate(isOfService(code) ? 'The service says: ' : 'Details: ', language)}${message}`).map(
          (line) => paint('dim', line),
        )),
  ];
}

function isOfService(code: string | null): boolean {
  return code !== 'transport' && code?.startsWith('fleet-store-') !== true;
}

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
      numbers('LEFT', ({ remainingSeconds: s }) => (s === null ? '?' : roughSeconds(s))),
      { title: 'LOCATION', cell: ({ location }) => oneLine(location ?? ''), optional: true },
      numbers('OPEN', ({ openTunnels }) => openTunnels, true),
      numbers('USES', ({ uses }) => uses, true),
      numbers('FAULTS', ({ faults }) => faults, true),
      { title: 'BANNED BY', cell: ({ bannedBy }) => bannedBy.join(', '), optional: true },
      numbers('LATENCY', ({ latencyMs: ms }) => (ms === null ? '' : `${Math.round(ms)} ms`), true),
      { title: 'DRAWN BY', cell: ({ drawnBy }) => drawnBy ?? '', optional: true },
      { title: 'PROTOCOL', cell: ({ protocol }) => protocol, optional: true },
    ],
    format.columns,
  );
}

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

function nextDraw({ nextCallAt, state }: SourceStatus, now: number): string {
  if (nextCallAt === null) return '-';
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0) return `in ${roughSeconds(Math.ceil(seconds))}`;
  return state === 'ready' ? 'when needed' : 'now';
}

function formatBudget({ budget }: SourceStatus): string {
  return budget === null ? '' : `${budget.used}/${budget.limit}`;
}

export function roughSeconds(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

/** Removes control characters, because a text of the service must not control the terminal. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ').trim();
}
