/** `noria reload`: makes a running noria read its configuration file again. */
import type { Command } from 'commander';
import { type AdminFlags, addAdminOptions, openAdminClient, TOKEN_HELP } from './admin-target.ts';
import type { CommandContext } from './command.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface ReloadFlags extends AdminFlags {
  readonly json?: boolean;
}

export function addReloadCommand(program: Command, { action, terminal }: CommandContext): void {
  const command = program
    .command('reload')
    .description(
      'make a running daemon read its configuration file again; the daemon refuses an invalid file',
    );
  addAdminOptions(command)
    .option('--json', 'print the answer of /api/reload')
    .addHelpText(
      'after',
      `\nExamples:\n  noria reload\n  noria reload --json | jq .restart\n\nThe daemon reloads the file with which it was started, in its own environment.\nThis command reads only the admin address and the token from the file that -c names.\n${TOKEN_HELP} Exit codes: 0 reloaded, 2 the configuration is invalid, 3 unreachable.`,
    )
    .action(action((flags: ReloadFlags) => reload(flags, terminal)));
}

async function reload(flags: ReloadFlags, terminal: Terminal): Promise<number> {
  const client = openAdminClient(flags, terminal);
  const { applied, ...answer } = await client.reload();
  const { changed, restart, warnings } = answer;
  if (flags.json === true) {
    terminal.print(JSON.stringify(answer, undefined, 2));
    return EXIT.fine;
  }
  const what = changed.length === 0 ? 'nothing changed' : `changed: ${changed.join(', ')}`;
  terminal.print(`configuration ${applied ? 'reloaded' : 'accepted'}; ${what}`);
  if (!applied)
    terminal.print('  The admin API restarts to apply the change; the log of the daemon shows the result.');
  if (restart.length > 0)
    terminal.print(`  These changes since noria started need a restart: ${restart.join(', ')}`);
  for (const warning of warnings) terminal.printError(`warning: ${warning}`);
  return EXIT.fine;
}
