/** `noria status`: prints the state of a running noria: a summary, its sources and its members. */
import type { Command } from 'commander';
import { holdingClock, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { AdminClient } from './admin-client.ts';
import { type AdminFlags, addAdminOptions, openAdminClient, TOKEN_HELP } from './admin-target.ts';
import type { CommandContext } from './command.ts';
import { formatStatus } from './status-format.ts';
import { watchStatus } from './status-watch.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface StatusFlags extends AdminFlags {
  readonly watch?: boolean;
  readonly json?: boolean;
}

export function addStatusCommand(program: Command, { action, terminal }: CommandContext): void {
  const command = program
    .command('status')
    .description('print the state of a running daemon, its sources and its members');
  addAdminOptions(command)
    .option('--watch', 'refresh every second until Ctrl-C')
    .option('--json', 'print the answer of /api/status')
    .addHelpText(
      'after',
      `\nExamples:\n  noria status\n  noria status --watch\n  noria status --admin 18889\n  noria status --json | jq .pool\n\n${TOKEN_HELP} Exit codes: 0 ready, 1 not ready, 3 unreachable.`,
    )
    .action(action((flags: StatusFlags) => showStatus(flags, terminal)));
}

async function showStatus(flags: StatusFlags, terminal: Terminal): Promise<number> {
  if (flags.watch === true && flags.json === true) {
    throw new NoriaError('bad-usage', 'use either --watch or --json: --json prints one answer');
  }
  const client = openAdminClient(flags, terminal);
  if (flags.watch === true) return (await watch(client, terminal)) ? EXIT.fine : EXIT.failed;
  const status = await client.status();
  if (flags.json === true) terminal.print(JSON.stringify(status, undefined, 2));
  else {
    const format = { now: systemClock.now(), colour: terminal.colour, columns: terminal.columns };
    for (const line of formatStatus(status, await client.members(), format)) terminal.print(line);
  }
  return status.ready ? EXIT.fine : EXIT.failed;
}

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
