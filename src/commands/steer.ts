/**
 * The commands that ask and steer a running noria through its admin API: `members`, `sessions`, `pause`, `resume`,
 * `refill` and `reload`; and what its clients requested: `why`, `usage` and `sites`.
 */
import {
  type RequestJson,
  requestSchema,
  type SessionJson,
  type SiteJson,
  sessionSchema,
  siteSchema,
  type UsageJson,
  usageSchema,
} from '../admin/schemas.ts';
import { faultTexts, type Language, translate } from '../core/chinese.ts';
import { parseDuration } from '../core/duration.ts';
import { hasCode, NoriaError } from '../core/faults.ts';
import { formatBytes, nearest } from '../core/words.ts';
import { type SourceStatus, stateWord } from '../refill/status.ts';
import {
  ADMIN_FLAGS,
  type AdminClient,
  type AdminFlags,
  isFaultCode,
  openAdminClient,
  TOKEN_HELP,
} from './admin-client.ts';
import { command, integer } from './command.ts';
import { formatMembers, roughSeconds } from './status.ts';
import { formatTable, numbers } from './table.ts';
import { badUsage, languageOfTerminal, printResult, type Terminal } from './terminal.ts';

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
  run: async ({ terminal }, verb: 'evict' | undefined, id: string | undefined, flags: SteerFlags) => {
    const { source } = flags;
    if (verb !== undefined && id !== undefined && source !== undefined)
      throw badUsage('use --source only to list members; "noria members evict" takes one ID');
    if (verb !== undefined) return changeOne(verb, id, flags, terminal);
    const client = openAdminClient(flags, terminal);
    if (source !== undefined) await requireKnownSource(source, client);
    const members = (await client.members()).filter((member) => (source ?? member.source) === member.source);
    printResult(terminal, flags, members, () => formatMembers(members, terminal));
  },
});

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
      throw badUsage('use --close only with "noria sessions rotate ID"');
    if (verb !== undefined) return changeOne(verb, id, flags, terminal);
    const sessions = await openAdminClient(flags, terminal).get('/api/sessions', sessionSchema.array());
    printResult(terminal, flags, sessions, () => formatSessions(sessions, terminal.columns));
  },
});

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

const CHANGES = {
  evict: ['member', 'evicted', 'is evicted; its open tunnels continue'],
  rotate: ['session', 'rotated', 'moves to another member with its next connection'],
  forget: ['session', 'forgotten', 'is forgotten'],
} as const;

async function changeOne(
  verb: keyof typeof CHANGES,
  id: string | undefined,
  flags: SteerFlags,
  terminal: Terminal,
): Promise<void> {
  const [kind, done, says] = CHANGES[verb];
  if (id === undefined)
    throw badUsage(`"noria ${kind}s ${verb}" needs the ID of a ${kind}; "noria ${kind}s" lists the IDs`);
  const client = openAdminClient(flags, terminal);
  const change =
    verb === 'forget'
      ? client.change('DELETE', ['sessions', id])
      : client.change(
          'POST',
          [`${kind}s`, id, verb],
          verb === 'rotate' ? { close: flags.close === true } : undefined,
        );
  await change.catch((error: unknown) => {
    if (!hasCode(error, 'not-found')) throw error;
    throw new NoriaError('not-found', `the daemon at ${client.origin} has no ${kind} ${id}`);
  });
  printResult(terminal, flags, { [done]: id }, () => [`${kind} ${id} ${says}`], 0);
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
  run: async ({ terminal }, flags: SteerFlags) => {
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
  },
});

export const whyCommand = command({
  name: 'why',
  about:
    'tell what happened to client requests: which members a running daemon tried, and what each answered; newest first',
  args: [['[target]', 'only requests for this host, host:port, domain or URL']],
  flags: [
    ...ADMIN_FLAGS,
    ['--user <name>', 'only requests of this user'],
    ['--session <name>', 'only requests of this session, with its full name'],
    ['--tag <name>', 'only requests with this tag'],
    ['--member <id>', 'only requests that tried this member'],
    ['--failed', 'only failed requests'],
    ['--since <duration>', 'only requests that began in the last 10m, for example'],
    ['--limit <count>', 'how many', integer(1, 10_000, 20)],
    ['--json', 'print the records as in /api/requests'],
  ],
  examples: [
    'why',
    'why shop.example --failed',
    'why --user ann --since 10m',
    'why --json | jq .[0].attempts',
  ],
  help: `noria remembers the latest 10,000 requests of this process.\n${TOKEN_HELP}`,
  run: async ({ terminal }, target: string | undefined, flags: AdminFlags & Filter) => {
    const { user, session, tag, member, failed, since, limit } = flags;
    if (since !== undefined && parseDuration(since) === undefined && Number.isNaN(Date.parse(since)))
      throw badUsage(`--since ${since} is neither a duration such as 10m nor a moment`);
    const filter = { target, user, session, tag, member, since, failed: failed === true ? '1' : undefined };
    const query = new URLSearchParams({ limit: String(limit) });
    for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
    const requests = await openAdminClient(flags, terminal).get(
      `/api/requests?${query}`,
      requestSchema.array(),
    );
    printResult(terminal, flags, requests, () => formatRequests(requests, terminal));
  },
});

type Filter = Partial<Readonly<Record<'user' | 'session' | 'tag' | 'member' | 'since', string>>> & {
  readonly failed?: boolean;
  readonly limit: number;
};

/** Tells each request in one line, followed by a line for each member that was tried. */
function formatRequests(requests: readonly RequestJson[], terminal: Terminal): string[] {
  const language = languageOfTerminal(terminal);
  if (requests.length === 0) return [language === 'en' ? 'no such request' : '没有这样的请求'];
  return requests.flatMap((request) => tell(request, language));
}

function tell(request: RequestJson, language: Language): string[] {
  const { at, id, user, session, tag, protocol, target, attempts, bytesUp, bytesDown, ms, code } = request;
  const who = [session ?? user, tag === null ? null : `#${tag}`].filter((part) => part !== null).join(' ');
  const words = WORDS[language];
  const bytes = `↑ ${formatBytes(bytesUp)} ↓ ${formatBytes(bytesDown)}`;
  const moment = at.slice(0, 19).replace('T', ' ');
  const end = code ?? words.served;
  const first = [moment, who, protocol, target ?? '-', end, `${Math.round(ms)} ms`, bytes, id];
  const tried = attempts.map((attempt) => {
    const { member, exit, source } = attempt;
    const what = attempt.code ?? words.accepted;
    return `    ${member}${exit === null ? '' : ` ${exit}`} (${source}): ${what}, ${Math.round(attempt.ms)} ms`;
  });
  const why = code === null || !isFaultCode(code) ? [] : [`    ${faultTexts(code, language).summary}`];
  return [first.filter((part) => part !== '').join('  '), ...tried, ...why];
}

const WORDS: Readonly<Record<Language, { readonly served: string; readonly accepted: string }>> = {
  en: { served: 'served', accepted: 'accepted' },
  'zh-CN': { served: '成功', accepted: '已接受' },
};

interface UsageFlags extends AdminFlags {
  readonly by: 'user' | 'site' | 'source';
  readonly day?: string;
  readonly csv?: boolean;
}

export const usageCommand = command({
  name: 'usage',
  about: 'print what users, sites or sources used on a day, and what it cost',
  flags: [
    ...ADMIN_FLAGS,
    ['--by <kind>', 'user, site or source', { choices: ['user', 'site', 'source'], fallback: 'user' }],
    ['--day <date>', 'the day, as 2026-11-23; default: today'],
    ['--csv', 'print CSV'],
    ['--json', 'print the rows as in /api/usage'],
  ],
  examples: ['usage', 'usage --by site', 'usage --by source --day 2026-11-23 --csv'],
  help: `Spend needs \`price\` of the sources. noria keeps 32 days in state.dir.\n${TOKEN_HELP}`,
  run: async ({ terminal }, flags: UsageFlags) => {
    const client = openAdminClient(flags, terminal);
    const query = new URLSearchParams({
      by: flags.by,
      ...(flags.day === undefined ? {} : { day: flags.day }),
    });
    if (flags.csv === true) {
      terminal.write(await client.usageCsv(query));
      return;
    }
    const rows = await client.get(`/api/usage?${query}`, usageSchema.array());
    printResult(terminal, flags, rows, () => formatUsage(rows, flags.by, terminal.columns));
  },
});

function formatUsage(rows: readonly UsageJson[], by: UsageFlags['by'], columns: number): string[] {
  if (rows.length === 0) return ['nothing was used'];
  const cost = (row: UsageJson) => {
    const answered = row.requests - row.failed;
    return answered === 0 || row.spend === 0 ? '' : money(row.spend / answered);
  };
  return formatTable<UsageJson>(
    rows,
    [
      { title: by.toUpperCase(), cell: ({ name }) => (name === '' ? '-' : name) },
      numbers('REQUESTS', ({ requests }) => requests),
      numbers('FAILED', ({ failed }) => failed),
      numbers('UP', ({ bytesUp }) => formatBytes(bytesUp)),
      numbers('DOWN', ({ bytesDown }) => formatBytes(bytesDown)),
      numbers('MEMBERS', ({ members }) => members),
      numbers('SPEND', ({ spend }) => (spend === 0 ? '' : money(spend)), true),
      numbers('PER ANSWER', cost, true),
    ],
    columns,
  );
}

function money(amount: number): string {
  return String(Number(amount.toPrecision(4)));
}

export const sitesCommand = command({
  name: 'sites',
  about: 'list the busiest sites of a running daemon: banned and usable exits, spacing, next slot and draws',
  flags: [...ADMIN_FLAGS, ['--json', 'print the sites as in /api/sites']],
  examples: ['sites', 'sites --json | jq .[0].bannedExits'],
  help: `A site is a registrable domain, or what a rule of \`targets\` names.\n${TOKEN_HELP}`,
  run: async ({ terminal }, flags: AdminFlags) => {
    const sites = await openAdminClient(flags, terminal).get('/api/sites', siteSchema.array());
    printResult(terminal, flags, sites, () => formatSites(sites, terminal.columns));
  },
});

function formatSites(sites: readonly SiteJson[], columns: number): string[] {
  if (sites.length === 0) return ['no site was visited'];
  return formatTable<SiteJson>(
    sites,
    [
      { title: 'SITE', cell: ({ name }) => name },
      numbers('USES', ({ uses }) => uses),
      numbers('BANS', ({ bans }) => bans),
      numbers('BANNED', ({ bannedExits }) => bannedExits),
      numbers('USABLE', ({ usableExits }) => usableExits),
      numbers('SPACING', ({ spacingMs }) => (spacingMs === 0 ? '-' : `${spacingMs / 1000} s`)),
      { title: 'NEXT SLOT', cell: ({ nextSlotAt }) => nextSlotAt?.slice(11, 19) ?? 'none' },
      numbers('DRAWS', ({ draws }) => draws, true),
    ],
    columns,
  );
}
