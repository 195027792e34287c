/** `noria members`: lists the members of a running noria, or evicts one. */
import { Argument, type Command } from 'commander';
import { hasCode, NoriaError } from '../core/faults.ts';
import { type AdminFlags, addAdminOptions, openAdminClient, TOKEN_HELP } from './admin-target.ts';
import type { CommandContext } from './command.ts';
import { requireKnownSource } from './source-commands.ts';
import { formatMembers } from './status-format.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface MembersFlags extends AdminFlags {
  readonly source?: string;
  readonly json?: boolean;
}

export function addMembersCommand(program: Command, { action, terminal }: CommandContext): void {
  const command = program
    .command('members')
    .description('list the members of a running daemon, or evict one; its open tunnels continue')
    .addArgument(new Argument('[action]', 'the action; default: print the list').choices(['evict']))
    .argument('[id]', 'the member to evict, as in the list or in X-Noria-Member');
  addAdminOptions(command)
    .option('--source <name>', 'list only members of this source')
    .option('--json', 'print the list as in /api/members')
    .addHelpText(
      'after',
      `\nExamples:\n  noria members\n  noria members --source city --json\n  noria members evict 1f7k2\n\n${TOKEN_HELP}`,
    )
    .action(
      action((verb: 'evict' | undefined, id: string | undefined, flags: MembersFlags) =>
        verb === undefined ? list(flags, terminal) : evict(id, flags, terminal),
      ),
    );
}

async function list(flags: MembersFlags, terminal: Terminal): Promise<number> {
  const client = openAdminClient(flags, terminal);
  const { source } = flags;
  if (source !== undefined) await requireKnownSource(source, client);
  const members = (await client.members()).filter(
    (member) => source === undefined || member.source === source,
  );
  for (const line of flags.json === true
    ? [JSON.stringify(members, undefined, 2)]
    : formatMembers(members, terminal)) {
    terminal.print(line);
  }
  return EXIT.fine;
}

async function evict(id: string | undefined, flags: MembersFlags, terminal: Terminal): Promise<number> {
  if (id === undefined) {
    throw new NoriaError(
      'bad-usage',
      '"noria members evict" needs the ID of a member; "noria members" lists the IDs',
    );
  }
  if (flags.source !== undefined) {
    throw new NoriaError(
      'bad-usage',
      'use --source only to list members; "noria members evict" takes one ID',
    );
  }
  const client = openAdminClient(flags, terminal);
  await client.evictMember(id).catch((error: unknown) => {
    if (!hasCode(error, 'not-found')) throw error;
    throw new NoriaError('not-found', `the daemon at ${client.origin} has no member ${id}`);
  });
  terminal.print(
    flags.json === true
      ? JSON.stringify({ evicted: id })
      : `member ${id} is evicted; its open tunnels continue`,
  );
  return EXIT.fine;
}
