/** The commands that ask a running noria what its clients requested: `why`, `usage` and `sites`. */
import {
  type RequestJson,
  requestSchema,
  type SiteJson,
  siteSchema,
  type UsageJson,
  usageSchema,
} from '../admin/schemas.ts';
import { faultTexts, type Language } from '../core/chinese.ts';
import { parseDuration } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { formatBytes } from '../core/words.ts';
import { ADMIN_FLAGS, type AdminFlags, isFaultCode, openAdminClient, TOKEN_HELP } from './admin-client.ts';
import { command, integer } from './command.ts';
import { formatTable, numbers } from './table.ts';
import { languageOfTerminal, printResult, type Terminal } from './terminal.ts';

interface WhyFlags extends AdminFlags {
  readonly user?: string;
  readonly session?: string;
  readonly tag?: string;
  readonly member?: string;
  readonly failed?: boolean;
  readonly since?: string;
  readonly limit: number;
}

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 10_000;

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
    ['--limit <count>', 'how many', integer(1, MAX_LIMIT, DEFAULT_LIMIT)],
    ['--json', 'print the records as in /api/requests'],
  ],
  examples: [
    'why',
    'why shop.example --failed',
    'why --user ann --since 10m',
    'why --json | jq .[0].attempts',
  ],
  help: `noria remembers the latest 10,000 requests of this process.\n${TOKEN_HELP}`,
  run: async ({ terminal }, target: string | undefined, flags: WhyFlags) => {
    const { user, session, tag, member, failed, since, limit } = flags;
    if (since !== undefined && parseDuration(since) === undefined && Number.isNaN(Date.parse(since)))
      throw new NoriaError('bad-usage', `--since ${since} is neither a duration such as 10m nor a moment`);
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
