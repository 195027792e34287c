/**
 * `noria link URL`: calls an extraction link once. Prints what noria recognises in the answer, and a source for the
 * configuration.
 *
 * Two calls to one link are at least a second apart, even from two processes. If a source of the default configuration
 * has this link, the command keeps the interval of that source and records its call in the configured state folder.
 * Otherwise it records its call in a folder of the current user. It calls neither the address of a gateway, which needs
 * no call, nor a list in a file.
 */
import { existsSync, lstatSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { Document, isMap, isScalar } from 'yaml';
import type { Config } from '../config/config.ts';
import { findDefaultFile } from '../config/files.ts';
import { loadConfig } from '../config/load.ts';
import { linkUrl } from '../config/scalars.ts';
import { systemClock } from '../core/clock.ts';
import { formatDuration } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import { isPrivateAddress } from '../core/networks.ts';
import { escapeAll } from '../core/printable.ts';
import type { Secret } from '../core/secret.ts';
import { guardOfCommand, serviceTunnel } from '../daemon/part-options.ts';
import { extractLink } from '../service/client.ts';
import type { DrawnEntry } from '../service/fields.ts';
import { SESSION_TAG } from '../service/gateway.ts';
import type { DecodedLink, RecognisedAnswer } from '../service/link/decode-link.ts';
import { linkIdentity, linkSecrets, urlWithVariables } from '../service/link/link-url.ts';
import type { RecognisedExpiry } from '../service/link/read-entry.ts';
import { DEFAULT_ZONE, type ExpiryKind } from '../service/link/rules.ts';
import { decodeList, readListFile } from '../service/list.ts';
import type { LinkCall } from '../service/request.ts';
import type { Transport, WriteGate } from '../service/transport.ts';
import { command, integer } from './command.ts';
import { callWithinPace, dropTexts } from './service.ts';
import { formatTable } from './table.ts';
import { badUsage, printResult, type Terminal } from './terminal.ts';

const MAX_COUNT = 1_000;
const MIN_SPACING_MS = 1_000;
const TIMEOUT_MS = 10_000;

export const linkCommand = command({
  name: 'link',
  about:
    'call an extraction link once, print what noria recognises in the answer, and print the source for the configuration',
  args: [
    [
      '<url>',
      'the link, the address of a gateway (user:password@host:port), or a file with a list; with -, the command reads it from standard input, so that it is not in the history of the shell',
    ],
  ],
  flags: [
    ['-n, --count <count>', 'what replaces {count} in the link', integer(1, MAX_COUNT, 1)],
    ['--json', 'print the result as JSON'],
  ],
  examples: [
    "link 'https://share.example.com/get?key=…&num={count}'",
    'link - < link.txt',
    'link proxies.txt',
  ],
  help: 'docs/links.md explains what noria recognises, and how to set the rest.',
  run: async ({ terminal }, given: string, flags: { readonly count: number; readonly json?: boolean }) => {
    const text = given === '-' ? (await terminal.readHidden('link: ')).trim() : given;
    const other = gatewayOf(text) ?? (existsSync(text) ? await listOf(text) : undefined);
    if (other !== undefined) {
      printResult(terminal, flags, other, () => other, 0);
      return;
    }
    const url = readUrl(text);
    const call = callOfUrl(url, flags.count);
    const { intervalMs, ...settings } = callSettings(call.instance, terminal);
    const refuses = () => undefined; // private addresses are accepted: the command only prints them
    const send = (transport: Transport, gate: WriteGate): Promise<DecodedLink> =>
      extractLink(transport, call, { gate, refuses });
    const answer = await callWithinPace(settings, { ...call, intervalMs, send }, terminal);
    const facts = linkFacts(url, answer);
    printResult(terminal, flags, facts, () => linkReport(facts));
  },
});

/** No message quotes the URL, because it contains keys. */
function readUrl(given: string): Secret {
  const { scalarType } = linkUrl();
  const reading = scalarType.read(given);
  if ('value' in reading) return reading.value;
  throw badUsage(`the link ${reading.wrong}; expected ${scalarType.expected}`);
}

function callOfUrl(url: Secret, count: number): LinkCall {
  return {
    product: 'link',
    method: 'GET',
    baseUrl: new URL(url.reveal()).origin,
    instance: linkIdentity(url, undefined),
    url,
    headers: {},
    secrets: linkSecrets(url, { headers: {}, body: undefined }),
    params: {},
    count,
    answer: { format: 'auto' },
    login: 'use',
    protocol: undefined,
  };
}

/** With the interval and the state folder of the source that has this link in the default configuration, if there is one. */
function callSettings(identity: string, terminal: Terminal) {
  const config = defaultConfig(terminal);
  const found = config?.sources.find(({ instance }) => instance === identity);
  const source = found?.product === 'link' ? found : undefined;
  return {
    timeoutMs: TIMEOUT_MS,
    intervalMs: Math.max(MIN_SPACING_MS, source?.intervalMs ?? 0),
    stateDir: (source && config?.state?.dir) ?? ownFolder(terminal),
    fleet: undefined,
    openTunnel: config && serviceTunnel(config, guardOfCommand(config)),
  };
}

function defaultConfig({ env }: Terminal): Config | undefined {
  const file = findDefaultFile();
  try {
    return file === undefined ? undefined : loadConfig(file, { env });
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    return undefined; // ignored: the command does not need a valid configuration
  }
}

/**
 * The folder of the current user for calls to links that are in no configuration. Without a home folder it is in the
 * folder for temporary files, where another user could have created it.
 *
 * @throws NoriaError state-unwritable if the folder belongs to another user, or is a symbolic link.
 */
function ownFolder({ env }: Terminal): string {
  const uid = process.getuid?.();
  const roots = [env['XDG_STATE_HOME'], env['HOME'] && join(env['HOME'], '.local', 'state')];
  const home = roots.find((root) => root !== undefined && isAbsolute(root));
  const folder =
    home === undefined ? join(tmpdir(), `noria-link-${uid ?? 'user'}`) : join(home, 'noria', 'link');
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (found === undefined || (found.isDirectory() && (uid === undefined || found.uid === uid))) return folder;
  const what = found.isDirectory() ? 'belongs to another user' : 'is not a folder';
  throw new NoriaError('state-unwritable', `the folder ${folder} ${what}; remove it`);
}

type LinkFacts = ReturnType<typeof linkFacts>;

const SHOWN = 3;
const COUNT_PARAM = /([?&](?:num|count|n|qty|size|number|nums|limit|extract_num|pack_num)=)(\d{1,3})(?=&|$)/i;
const KIND_WORDS: Readonly<Record<ExpiryKind, string>> = {
  seconds: 'the remaining lifetime in seconds',
  minutes: 'the remaining lifetime in minutes',
  datetime: `a date and time, in ${DEFAULT_ZONE} if it names no zone`,
  epoch: 'Unix time',
};

function linkFacts(url: Secret, answer: DecodedLink) {
  const { recognised, entries, dropped } = answer;
  const { parts } = recognised ?? {};
  const { source, variables } = sourceOf(url, answer);
  return {
    recognised: {
      format: recognised?.format ?? 'text',
      list: recognised?.list,
      address: parts?.address,
      expiry: parts?.expiry,
      exitIp: parts?.exitIp,
      location: parts?.location ?? [],
      success: recognised?.ok,
    },
    count: entries.length,
    dropped,
    entries: entries.slice(0, SHOWN).map(shownEntry),
    // the pool accepts such an entry only with `pool.allowPrivateAddresses`
    hasPrivate: entries.some(({ host }) => isPrivateAddress(host)),
    source,
    variables,
  };
}

function linkReport(facts: LinkFacts): string[] {
  const { recognised, count, dropped, entries, source, variables, hasPrivate } = facts;
  const { format, list, address, expiry, exitIp, location, success } = recognised;
  const rows: readonly (readonly [part: string, found: string])[] = [
    ['format', format],
    ['list', format === 'json' ? (list === '.' ? 'the answer itself' : (list ?? '')) : 'one entry per line'],
    ['address', address ?? 'none'],
    ['expiry', expiry === undefined ? 'none' : expiryText(expiry)],
    ['exit IP', exitIp ?? 'none'],
    ['location', location.length === 0 ? 'none' : location.join(', ')],
    ['success', success === undefined ? 'no code' : `${success.field} is ${success.value}`],
    ['entries', [String(count), ...dropTexts(dropped)].join(', ')],
  ];
  const names = Object.entries(variables);
  return [
    ...formatTable(rows, [
      { title: 'PART', cell: ([part]) => part },
      { title: 'RECOGNISED', cell: ([, found]) => escapeAll(found) },
    ]),
    '',
    ...formatTable(entries, [
      { title: 'ADDRESS', cell: (entry) => entry.address },
      { title: 'PROTOCOL', cell: (entry) => entry.protocol },
      { title: 'LIFE', cell: (entry) => entry.life },
      { title: 'EXIT IP', cell: (entry) => escapeAll(entry.exitIp ?? ''), optional: true },
      { title: 'LOCATION', cell: (entry) => escapeAll(entry.location ?? ''), optional: true },
      { title: 'CREDENTIALS', cell: (entry) => (entry.credentials ? 'its own' : ''), optional: true },
    ]),
    '',
    ...(hasPrivate ? ['# The addresses are private: set pool.allowPrivateAddresses: true to use them.'] : []),
    ...(names.length === 0 ? [] : ['# Set these variables, with the values from the link:']),
    ...names.map(([name, where]) => `#   export ${name}='…'  # ${escapeAll(where)}`),
    ...source.trimEnd().split('\n'),
  ];
}

function shownEntry({ host, port, protocol, lifetimeMs, exitIp, location, login }: DrawnEntry) {
  return {
    address: formatHostPort(host, port),
    protocol: protocol ?? 'http',
    life: lifeText(lifetimeMs),
    exitIp,
    location,
    credentials: login === undefined ? undefined : true,
  };
}

function lifeText(ms: DrawnEntry['lifetimeMs']): string {
  if (ms === undefined) return 'not in the answer';
  return ms === 'unknown' ? 'unknown (-1)' : formatDuration(Math.floor(ms / 1_000) * 1_000);
}

/** Whether the URL is that of a file: its entries have no end, and the answer has no code. */
function isList(url: string, { recognised }: DecodedLink): boolean {
  const isFile = /\.(?:txt|csv|json|list)$/i.test(new URL(url).pathname);
  return isFile && recognised?.ok === undefined && recognised?.parts?.expiry === undefined;
}

/** Returns the source in YAML. Comments mark the values that only the operator can know. */
function sourceOf(
  url: Secret,
  answer: DecodedLink,
): { readonly source: string; readonly variables: Readonly<Record<string, string>> } {
  const { recognised, entries } = answer;
  const variables = new Map<string, string>();
  const asked = urlWithVariables(url, (name) => addVariable(variables, name));
  const count = COUNT_PARAM.exec(asked)?.[2];
  const hasLife = recognised?.parts?.expiry !== undefined;
  const hasLogin = entries.some(({ login }) => login !== undefined);
  const protocols = new Set(entries.map(({ protocol }) => protocol));
  const [protocol = 'http'] = protocols;
  const drawn = {
    name: 'other',
    product: 'link',
    url: asked.replace(COUNT_PARAM, '$1{count}'),
    interval: '10s',
    ...(hasLife ? {} : { lifetime: '60s' }),
    ...(count === undefined ? {} : { params: { count: Number(count) } }),
  };
  const listed = { name: 'list', product: 'list', url: asked, refresh: '5m' };
  const source = {
    ...(count === undefined && isList(url.reveal(), answer) ? listed : drawn),
    upstream: { ...(protocols.size > 1 ? {} : { protocol }), auth: hasLogin ? 'entry' : 'none' },
    ...answerOf(recognised),
  };
  const document = new Document({ sources: [source] });
  if (count !== undefined && /[?&]sign=/i.test(asked))
    comment(
      document,
      'url',
      ` if the parameter sign is a signature that also covers the count, write ${count} instead of {count}: the signature is invalid for any other count`,
    );
  comment(
    document,
    'refresh',
    ' how often noria reads the list; if each call gives other proxies, use product: link',
  );
  comment(document, 'interval', " the minimum time between two calls: see the vendor's documentation");
  comment(document, 'lifetime', ' the lifetime of a proxy: the answer does not contain it');
  return { source: document.toString({ lineWidth: 0 }), variables: Object.fromEntries(variables) };
}

function answerOf(recognised: RecognisedAnswer | undefined): object {
  if (recognised?.parts === undefined) return {};
  const { list, ok, parts } = recognised;
  return {
    answer: {
      ...(list === undefined ? {} : { list }),
      address: parts.address,
      ...(parts.expiry === undefined ? {} : { expiry: expiryOf(parts.expiry) }),
      ...(parts.exitIp === undefined ? {} : { exitIp: parts.exitIp }),
      ...(parts.location.length === 0 ? {} : { location: parts.location }),
      ...(ok === undefined ? {} : { ok: { field: ok.field, is: [ok.value] } }),
    },
  };
}

function expiryOf({ field, as, since }: RecognisedExpiry): object {
  const zone = as === 'datetime' || since !== undefined ? { zone: DEFAULT_ZONE } : {};
  return { field, as, ...(since === undefined ? {} : { since }), ...zone };
}

function expiryText({ field, as, since }: RecognisedExpiry): string {
  return `${field}: ${since === undefined ? KIND_WORDS[as] : `the whole lifetime in ${as}, counted from the time in ${since}`}`;
}

function addVariable(variables: Map<string, string>, param: string): string {
  const word = param.replace(/[^A-Za-z0-9]+/g, '_').toUpperCase();
  const base = word === '' || word === '_' ? 'LINK_VALUE' : `LINK_${word}`;
  let name = base;
  for (let number = 2; variables.has(name); number += 1) name = `${base}_${number}`;
  variables.set(name, param === '' ? 'the value of the parameter without a name' : `the value of ${param}`);
  return name;
}

function comment(document: Document, key: string, text: string): void {
  const source = document.getIn(['sources', 0], true);
  if (!isMap(source)) return;
  const value = source.get(key, true);
  if (isScalar(value)) value.comment = text;
}

const SCHEME = /^(https?|socks5h?):\/\//i;
/** The words after which gateways expect the name of a session, longest first. */
const SESSION_WORD = /(sessionid|session|sessid|sid)([-_.=])([A-Za-z0-9]+)/i;

function gatewayOf(given: string): readonly string[] | undefined {
  const scheme = SCHEME.exec(given)?.[1]?.toLowerCase();
  const rest = given.replace(SCHEME, '').replace(/\/$/, '');
  const at = rest.lastIndexOf('@');
  const address = at < 0 ? undefined : parseHostPort(rest.slice(at + 1));
  const [username = '', ...password] = rest.slice(0, Math.max(0, at)).split(':');
  if (address === undefined || username === '' || password.length === 0) return undefined;
  if (!SESSION_WORD.test(username))
    throw badUsage(
      `the user name of this address names no session, so noria cannot make other names of it; write it as in the vendor's documentation, for example ${username}-session-abc123`,
    );
  const source = {
    name: 'gateway',
    product: 'gateway',
    address: formatHostPort(address.host, address.port),
    upstream: {
      protocol: scheme === 'https' ? 'https' : scheme?.startsWith('socks5') ? 'socks5' : 'http',
      auth: {
        username: username.replace(SESSION_WORD, `$1$2${SESSION_TAG}`),
        password: '${GATEWAY_PASSWORD}',
      },
    },
    lifetime: '10m',
  };
  return [
    'This is the address of a gateway: noria makes a name for each member.',
    '',
    '# Set this variable, and lifetime to the time for which the vendor keeps the exit of a name:',
    "#   export GATEWAY_PASSWORD='…'  # the password of the address",
    ...yamlOf(source),
  ];
}

async function listOf(given: string): Promise<readonly string[]> {
  const file = resolve(given);
  const call = {
    ...({ product: 'list', instance: '', secrets: [], params: {}, url: undefined, file } as const),
    ...({ answer: { format: 'auto' }, login: 'use', protocol: undefined } as const),
  };
  const options = { refuses: () => undefined, wallAt: systemClock.now() };
  const { entries, dropped, message } = decodeList(await readListFile(file), call, options);
  const hasLogin = entries.some(({ login }) => login !== undefined);
  return [
    `This is a list with ${[`${entries.length} proxies`, ...dropTexts(dropped)].join(', ')}.`,
    ...(message === '' ? [] : [escapeAll(message)]),
    '',
    ...yamlOf({ name: 'list', product: 'list', file, upstream: { auth: hasLogin ? 'entry' : 'none' } }),
  ];
}

function yamlOf(source: object): string[] {
  return new Document({ sources: [source] }).toString({ lineWidth: 0 }).trimEnd().split('\n');
}
