/** `noria status`: the state of a running daemon: one sentence, its sources, its members. */
import { type Command, Option } from 'commander';
import type { MemberView, SourceView, Status } from '../admin/schemas.ts';
import { pause, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { Secret } from '../core/secret.ts';
import { type AdminClient, connectAdmin } from './admin-client.ts';
import type { CommandContext } from './context.ts';
import { formatTable } from './table.ts';
import { EXIT, type Terminal } from './terminal.ts';

const DEFAULT_ADMIN = 'http://127.0.0.1:8889';
const WATCH_INTERVAL_MS = 1_000;
const BAR_CELLS = 10;
/** A full bar: lives longer than this look full. */
const BAR_FULL_SECONDS = 180;
const CLEAR_SCREEN = '\u001b[H\u001b[2J\u001b[3J';

interface StatusFlags {
  readonly watch?: boolean;
  readonly json?: boolean;
  readonly admin: string;
}

export function addStatusCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('status')
    .description('show the state of a running daemon: does it work, its sources, its members')
    .addOption(new Option('--admin <url>', 'its admin address').default(DEFAULT_ADMIN).env('NORIA_ADMIN'))
    .option('--watch', 'redraw every second until Ctrl-C')
    .option('--json', 'print /api/status as it is')
    .addHelpText(
      'after',
      '\nExamples:\n  noria status\n  noria status --watch\n  noria status --json | jq .pool\n\nA token is read from NORIA_ADMIN_TOKEN. Exit code: 0 ready, 1 not ready, 3 unreachable.',
    )
    .action(action((flags: StatusFlags) => showStatus(flags, terminal)));
}

async function showStatus(flags: StatusFlags, terminal: Terminal): Promise<number> {
  const token = terminal.env['NORIA_ADMIN_TOKEN'];
  const client = connectAdmin(adminUrl(flags.admin), token === undefined ? undefined : new Secret(token));
  try {
    if (flags.watch === true) return await watchStatus(client, terminal);
    const status = await client.status();
    if (flags.json === true) terminal.print(JSON.stringify(status, undefined, 2));
    else for (const line of renderStatus(status, await client.members())) terminal.print(line);
    return status.ready ? EXIT.fine : EXIT.failed;
  } finally {
    await client.close();
  }
}

/** Redraws in place on a terminal; prints one picture after another when piped. Ends with Ctrl-C. */
async function watchStatus(client: AdminClient, terminal: Terminal): Promise<number> {
  const ending = new AbortController();
  const stop = () => ending.abort();
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    let ready = true;
    while (!ending.signal.aborted) {
      const status = await client.status();
      ready = status.ready;
      const lines = renderStatus(status, await client.members());
      terminal.print(`${terminal.interactive ? CLEAR_SCREEN : ''}${lines.join('\n')}`);
      await pause(systemClock, WATCH_INTERVAL_MS, ending.signal);
    }
    return ready ? EXIT.fine : EXIT.failed;
  } finally {
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}

function adminUrl(text: string): string {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new NoriaError('bad-usage', `--admin ${text} is not a URL`);
  return url.href;
}

/** The lines of one picture: a sentence, a table of sources, a table of members with a bar of remaining life. */
export function renderStatus(status: Status, members: readonly MemberView[]): string[] {
  const { pool } = status;
  return [
    `noria ${status.version}: ${status.reason}`,
    `  listening on ${status.listeners.map(({ address }) => address).join(', ') || 'nothing'}; ` +
      `${pool.openTunnels} open tunnels, ${pool.waitingClients} clients waiting, ${pool.sessions} sessions`,
    '',
    ...renderSources(status.sources),
    '',
    ...renderMembers(members),
  ];
}

function renderSources(sources: readonly SourceView[]): string[] {
  const rows = sources.map((source) => [
    source.name,
    source.product,
    source.state,
    `${source.ready}/${source.size}`,
    String(source.drawn),
    String(source.unused),
    source.quota.remaining === undefined ? '' : String(source.quota.remaining),
    source.advice === null ? source.reason : `${source.reason}: ${source.advice}`,
  ]);
  const right = 'right' as const;
  return formatTable(
    [
      { title: 'SOURCE' },
      { title: 'PRODUCT' },
      { title: 'STATE' },
      { title: 'READY', align: right },
      { title: 'DRAWN', align: right },
      { title: 'UNUSED', align: right },
      { title: 'QUOTA', align: right },
      { title: 'WHY' },
    ],
    rows,
  );
}

function renderMembers(members: readonly MemberView[]): string[] {
  const rows = members.map((member) => [
    member.id,
    member.source,
    member.protocol,
    member.state,
    lifeBar(member.remainingSeconds),
    member.remainingSeconds === null ? '?' : `${Math.round(member.remainingSeconds)} s`,
    String(member.openTunnels),
    String(member.uses),
    String(member.faults),
    member.latencyMs === null ? '' : `${Math.round(member.latencyMs)} ms`,
    member.location ?? '',
  ]);
  const right = 'right' as const;
  return formatTable(
    [
      { title: 'MEMBER' },
      { title: 'SOURCE' },
      { title: 'SPEAKS' },
      { title: 'STATE' },
      { title: 'LIFE' },
      { title: 'LEFT', align: right },
      { title: 'OPEN', align: right },
      { title: 'USES', align: right },
      { title: 'FAULTS', align: right },
      { title: 'LATENCY', align: right },
      { title: 'LOCATION' },
    ],
    rows,
  );
}

function lifeBar(remainingSeconds: number | null): string {
  if (remainingSeconds === null) return '?'.padEnd(BAR_CELLS, '·');
  const full = Math.min(BAR_CELLS, Math.ceil((remainingSeconds / BAR_FULL_SECONDS) * BAR_CELLS));
  return '█'.repeat(Math.max(0, full)).padEnd(BAR_CELLS, '·');
}
