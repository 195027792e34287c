/** `noria sessions`: lists the sessions of a running noria, moves one to another member, or forgets it. */
import { Argument, type Command } from 'commander';
import type { SessionJson } from '../admin/schemas.ts';
import { hasCode, NoriaError } from '../core/faults.ts';
import type { AdminClient } from './admin-client.ts';
import { type AdminFlags, addAdminOptions, openAdminClient, TOKEN_HELP } from './admin-target.ts';
import type { CommandContext } from './command.ts';
import { roughSeconds } from './status-format.ts';
import { formatTable } from './table.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface SessionsFlags extends AdminFlags {
  readonly close?: boolean;
  readonly json?: boolean;
}

type Verb = 'rotate' | 'forget';

export function addSessionsCommand(program: Command, { action, terminal }: CommandContext): void {
  const command = program
    .command('sessions')
    .description('list the sessions of a running daemon, move one to another member, or forget it')
    .addArgument(
      new Argument('[action]', 'the action; default: print the list').choices(['rotate', 'forget']),
    )
    .argument('[id]', 'the session, as in the list or in X-Noria-Session');
  addAdminOptions(command)
    .option('--close', 'with rotate: also close the open tunnels of the session')
    .option('--json', 'print the list as in /api/sessions')
    .addHelpText(
      'after',
      `\nExamples:\n  noria sessions\n  noria sessions rotate cart\n  noria sessions rotate cart --close\n  noria sessions forget cart\n\n${TOKEN_HELP}`,
    )
    .action(
      action((verb: Verb | undefined, id: string | undefined, flags: SessionsFlags) =>
        verb === undefined ? list(flags, terminal) : change(verb, id, { flags, terminal }),
      ),
    );
}

async function list(flags: SessionsFlags, terminal: Terminal): Promise<number> {
  if (flags.close === true)
    throw new NoriaError('bad-usage', 'use --close only with "noria sessions rotate ID"');
  const sessions = await openAdminClient(flags, terminal).sessions();
  for (const line of flags.json === true
    ? [JSON.stringify(sessions, undefined, 2)]
    : format(sessions, terminal.columns)) {
    terminal.print(line);
  }
  return EXIT.fine;
}

function format(sessions: readonly SessionJson[], columns: number): string[] {
  if (sessions.length === 0) return ['no sessions'];
  return formatTable<SessionJson>(
    sessions,
    [
      { title: 'SESSION', cell: ({ id }) => id },
      { title: 'MEMBER', cell: ({ member }) => member ?? '-' },
      { title: 'USES', align: 'right', cell: ({ uses }) => String(uses) },
      { title: 'IDLE', align: 'right', cell: ({ idleSeconds }) => roughSeconds(idleSeconds) },
      { title: 'EXPIRES IN', align: 'right', cell: ({ expiresInSeconds }) => roughSeconds(expiresInSeconds) },
    ],
    columns,
  );
}

async function change(
  verb: Verb,
  id: string | undefined,
  { flags, terminal }: { readonly flags: SessionsFlags; readonly terminal: Terminal },
): Promise<number> {
  if (id === undefined) {
    throw new NoriaError(
      'bad-usage',
      `"noria sessions ${verb}" needs the ID of a session; "noria sessions" lists the IDs`,
    );
  }
  if (verb === 'forget' && flags.close === true) {
    throw new NoriaError('bad-usage', 'use --close only with "noria sessions rotate ID"');
  }
  const client = openAdminClient(flags, terminal);
  await apply(verb, id, { client, close: flags.close === true }).catch((error: unknown) => {
    if (!hasCode(error, 'not-found')) throw error;
    throw new NoriaError('not-found', `the daemon at ${client.origin} has no session ${id}`);
  });
  const [done, sentence] =
    verb === 'rotate'
      ? ['rotated', `session ${id} moves to another member with its next connection`]
      : ['forgotten', `session ${id} is forgotten`];
  terminal.print(flags.json === true ? JSON.stringify({ [done]: id }) : sentence);
  return EXIT.fine;
}

function apply(
  verb: Verb,
  id: string,
  { client, close }: { readonly client: AdminClient; readonly close: boolean },
): Promise<void> {
  return verb === 'rotate' ? client.rotateSession(id, close) : client.forgetSession(id);
}
