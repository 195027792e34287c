/**
 * `noria pause SOURCE`, `noria resume SOURCE` and `noria refill SOURCE`: control whether and when a running noria draws
 * from a source.
 */
import type { Command } from 'commander';
import { hasCode, NoriaError } from '../core/faults.ts';
import { nearest } from '../core/nearest.ts';
import type { SourceStatus } from '../refill/status.ts';
import type { AdminClient } from './admin-client.ts';
import { type AdminFlags, addAdminOptions, openAdminClient, TOKEN_HELP } from './admin-target.ts';
import type { CommandContext } from './command.ts';
import { EXIT, type Terminal } from './terminal.ts';

type Verb = 'pause' | 'resume' | 'refill';

interface SourceFlags extends AdminFlags {
  readonly json?: boolean;
}

const DESCRIPTIONS: { readonly [V in Verb]: string } = {
  pause: 'stop drawing from a source; its members stay in use',
  resume:
    'resume the draws from a source; a halted source makes one call, which shows whether the problem is solved',
  refill: 'draw from a source as soon as the pace allows',
};

export const addSourceCommand =
  (verb: Verb) =>
  (program: Command, { action, terminal }: CommandContext): void => {
    const command = program
      .command(verb)
      .description(DESCRIPTIONS[verb])
      .argument('<source>', 'the name of a source; "noria status" lists the names');
    addAdminOptions(command)
      .option('--json', 'print the source as in /api/status')
      .addHelpText('after', `\nExamples:\n  noria ${verb} city\n  noria ${verb} city --json\n\n${TOKEN_HELP}`)
      .action(action((name: string, flags: SourceFlags) => sendCommand({ verb, name, flags, terminal })));
  };

interface SentCommand {
  readonly verb: Verb;
  readonly name: string;
  readonly flags: SourceFlags;
  readonly terminal: Terminal;
}

async function sendCommand({ verb, name, flags, terminal }: SentCommand): Promise<number> {
  const client = openAdminClient(flags, terminal);
  try {
    await client.commandSource(name, verb);
  } catch (error) {
    if (hasCode(error, 'not-found')) await requireKnownSource(name, client);
    throw error;
  }
  const source = (await client.status()).sources.find((candidate) => candidate.name === name);
  if (source === undefined) throw new NoriaError('not-found', `a reload has removed the source ${name}`);
  for (const line of flags.json === true ? [JSON.stringify(source, undefined, 2)] : describe(source)) {
    terminal.print(line);
  }
  return EXIT.fine;
}

/** @throws NoriaError not-found if there is no such source. The message suggests a similar name. */
export async function requireKnownSource(name: string, client: AdminClient): Promise<void> {
  const names = (await client.status()).sources.map((source) => source.name);
  if (names.includes(name)) return;
  const meant = nearest(name, names);
  const choice = names.length === 0 ? 'this noria has no sources' : `its sources are ${names.join(', ')}`;
  const why = meant === undefined ? choice : `did you mean ${meant}?`;
  throw new NoriaError('not-found', `the daemon at ${client.origin} has no source ${name}; ${why}`);
}

function describe({ name, state, reason, advice }: SourceStatus): string[] {
  return [`${name} is ${state}: ${reason}`, ...(advice === null ? [] : [`  ${advice}`])];
}
