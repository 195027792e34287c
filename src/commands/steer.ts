/**
 * The commands that steer a running noria through its admin API: `members`, `sessions`, `pause`, `resume`, `refill` and
 * `reload`.
 */
import { type SessionJson, sessionSchema } from '../admin/schemas.ts';
import { translate } from '../core/chinese.ts';
import { hasCode, NoriaError } from '../core/faults.ts';
import { nearest } from '../core/words.ts';
import { type SourceStatus, stateWord } from '../refill/status.ts';
import {
  ADMIN_FLAGS,
  type AdminClient,
  type AdminFlags,
  openAdminClient,
  TOKEN_HELP,
} from './admin-client.ts';
import { command } from './command.ts';
import { formatMembers, roughSeconds } from './status.ts';
import { formatTable, numbers } from './table.ts';
import { languageOfTerminal, printResult, type Terminal } from './terminal.ts';

interface SteerFlags extends AdminFlags {
  readonly source?: string;
  readonly close?: boolean;
}

export const membersCommand = command({
  name: 'members',
  about: 'list the members of a running daemon, or evict one; its open tunnels continue',
  args: [
    ['[action]', 'the action; default: print the list', ['evict']],
    ['[id]', 'the member to evict, as in the list or in X-Noria-Member'],
  ],
  flags: [
    ...ADMIN_FLAGS,
    ['--source <name>', 'list only members of this source'],
    ['--json', 'print the list as in /api/members'],
  ],
  examples: ['members', 'members --source city --json', 'members evict 1f7k2'],
  help: TOKEN_HELP,
  run: async ({ terminal }, verb: 'evict' | undefined, id: string | undefined, flags: SteerFlags) =>
    verb === undefined ? listMembers(flags, terminal) : evictMember(id, flags, terminal),
});

async function listMembers(flags: SteerFlags, terminal: Terminal): Promise<void> {
  const client = openAdminClient(flags, terminal);
  const { source } = flags;
  if (source !== undefined) await requireKnownSource(source, client);
  const members = (await client.members()).filter((member) => (source ?? member.source) === member.source);
  printResult(terminal, flags, members, () => formatMembers(members, terminal));
}

async function evictMember(id: string | undefined, flags: SteerFlags, terminal: Terminal): Promise<void> {
  if (id === undefined)
    throw new NoriaError(
      'bad-usage',
      '"noria members evict" needs the ID of a member; "noria members" lists the IDs',
    );
  if (flags.source !== undefined)
    throw new NoriaError(
      'bad-usage',
      'use --source only to list members; "noria members evict" takes one ID',
    );
  const client = openAdminClient(flags, terminal);
  await withKnown(
    client.change('POST', ['members', id, 'evict']),
    `the daemon at ${client.origin} has no member ${id}`,
  );
  printResult(
    terminal,
    flags,
    { evicted: id },
    () => [`member ${id} is evicted; its open tunnels continue`],
    0,
  );
}

export const sessionsCommand = command({
  name: 'sessions',
  about: 'list the sessions of a running daemon, move one to another member, or forget it',
  args: [
    ['[action]', 'the action; default: print the list', ['rotate', 'forget']],
    ['[id]', 'the session, as in the list or in X-Noria-Session'],
  ],
  flags: [
    ...ADMIN_FLAGS,
    ['--close', 'with rotate: also close the open tunnels of the session'],
    ['--json', 'print the list as in /api/sessions'],
  ],
  examples: ['sessions', 'sessions rotate cart', 'sessions rotate cart --close', 'sessions forget cart'],
  help: TOKEN_HELP,
  run: async (
    { terminal },
    verb: 'rotate' | 'forget' | undefined,
    id: string | undefined,
    flags: SteerFlags,
  ) => {
    if (verb !== 'rotate' && flags.close === true)
      throw new NoriaError('bad-usage', 'use --close only with "noria sessions rotate ID"');
    await (verb === undefined ? listSessions(flags, terminal) : changeSession(verb, id, { flags, terminal }));
  },
});

async function listSessions(flags: SteerFlags, terminal: Terminal): Promise<void> {
  const sessions = await openAdminClient(flags, terminal).get('/api/sessions', sessionSchema.array());
  printResult(terminal, flags, sessions, () => formatSessions(sessions, terminal.columns));
}

function formatSessions(sessions: readonly SessionJson[], columns: number): string[] {
  if (sessions.length === 0) return ['no sessions'];
  return formatTable<SessionJson>(
    sessions,
    [
      { title: 'SESSION', cell: ({ id }) => id },
      { title: 'MEMBER', cell: ({ member }) => member ?? '-' },
      numbers('USES', ({ uses }) => uses),
      numbers('IDLE', ({ idleSeconds }) => roughSeconds(idleSeconds)),
      numbers('EXPIRES IN', ({ expiresInSeconds }) => roughSeconds(expiresInSeconds)),
    ],
    columns,
  );
}

async function changeSession(
  verb: 'rotate' | 'forget',
  id: string | undefined,
  { flags, terminal }: { readonly flags: SteerFlags; readonly terminal: Terminal },
): Promise<void> {
  if (id === undefined)
    throw new NoriaError(
      'bad-usage',
      `"noria sessions ${verb}" needs the ID of a session; "noria sessions" lists the IDs`,
    );
  const client = openAdminClient(flags, terminal);
  const change =
    verb === 'rotate'
      ? client.change('POST', ['sessions', id, verb], { close: flags.close === true })
      : client.change('DELETE', ['sessions', id]);
  await withKnown(change, `the daemon at ${client.origin} has no session ${id}`);
  const [done, sentence] =
    verb === 'rotate'
      ? ['rotated', `session ${id} moves to another member with its next connection`]
      : ['forgotten', `session ${id} is forgotten`];
  printResult(terminal, flags, { [done]: id }, () => [sentence], 0);
}

const SOURCE_VERBS = {
  pause: 'stop drawing from a source; its members stay in use',
  resume:
    'resume the draws from a source; a halted source makes one call, which shows whether the problem is solved',
  refill: 'draw from a source as soon as the pace allows',
};

export const sourceCommand = (verb: keyof typeof SOURCE_VERBS) =>
  command({
    name: verb,
    about: SOURCE_VERBS[verb],
    args: [['<source>', 'the name of a source; "noria status" lists the names']],
    flags: [...ADMIN_FLAGS, ['--json', 'print the source as in /api/status']],
    examples: [`${verb} city`, `${verb} city --json`],
    help: TOKEN_HELP,
    run: async ({ terminal }, name: string, flags: SteerFlags) => {
      const source = await commandSource(verb, name, openAdminClient(flags, terminal));
      const { reason, advice } = source;
      const [why, todo] = [reason, advice ?? ''].map((text) => translate(text, languageOfTerminal(terminal)));
      const lines = [`${name} is ${stateWord(source)}: ${why}`, ...(advice === null ? [] : [`  ${todo}`])];
      printResult(terminal, flags, source, () => lines);
    },
  });

async function commandSource(
  verb: keyof typeof SOURCE_VERBS,
  name: string,
  client: AdminClient,
): Promise<SourceStatus> {
  try {
    await client.change('POST', ['sources', name, verb]);
  } catch (error) {
    if (hasCode(error, 'not-found')) await requireKnownSource(name, client);
    throw error;
  }
  const source = (await client.status()).sources.find((candidate) => candidate.name === name);
  if (source === undefined) throw new NoriaError('not-found', `a reload has removed the source ${name}`);
  return source;
}

/** @throws NoriaError not-found if there is no such source. The message suggests a similar name. */
async function requireKnownSource(name: string, client: AdminClient): Promise<void> {
  const names = (await client.status()).sources.map((source) => source.name);
  if (names.includes(name)) return;
  const meant = nearest(name, names);
  const choice = names.length === 0 ? 'this noria has no sources' : `its sources are ${names.join(', ')}`;
  const why = meant === undefined ? choice : `did you mean ${meant}?`;
  throw new NoriaError('not-found', `the daemon at ${client.origin} has no source ${name}; ${why}`);
}

export const reloadCommand = command({
  name: 'reload',
  about: 'make a running daemon read its configuration file again; the daemon refuses an invalid file',
  flags: [...ADMIN_FLAGS, ['--json', 'print the answer of /api/reload']],
  examples: ['reload', 'reload --json | jq .restart'],
  help: `The daemon reloads the file with which it was started, in its own environment.\nThis command reads only the admin address and the token from the file that -c names.\n${TOKEN_HELP} Exit codes: 0 reloaded, 2 the configuration is invalid, 3 unreachable.`,
  run: ({ terminal }, flags: SteerFlags) => reload(terminal, flags),
});

async function reload(terminal: Terminal, flags: SteerFlags): Promise<void> {
  const { applied, ...answer } = await openAdminClient(flags, terminal).reload();
  const { changed, restart, warnings } = answer;
  const what = changed.length === 0 ? 'nothing changed' : `changed: ${changed.join(', ')}`;
  printResult(terminal, flags, answer, () => [
    `configuration ${applied ? 'reloaded' : 'accepted'}; ${what}`,
    ...(applied
      ? []
      : ['  The admin API restarts to apply the change; the log of the daemon shows the result.']),
    ...(restart.length === 0
      ? []
      : [`  These changes since noria started need a restart: ${restart.join(', ')}`]),
  ]);
  if (flags.json !== true) for (const warning of warnings) terminal.printError(`warning: ${warning}`);
}

async function withKnown(change: Promise<void>, message: string): Promise<void> {
  await change.catch((error: unknown) => {
    throw hasCode(error, 'not-found') ? new NoriaError('not-found', message) : error;
  });
}
