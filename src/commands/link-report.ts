/**
 * The report of `noria link`: what noria recognised in the answer, the first entries, and a source for the
 * configuration. Contains no secret. All functions are pure.
 */
import { Document, isMap, isScalar } from 'yaml';
import { formatDuration } from '../core/duration.ts';
import { isPrivateAddress } from '../core/networks.ts';
import { escapeAll } from '../core/printable.ts';
import type { Secret } from '../core/secret.ts';
import type { DrawnEntry } from '../service/fields.ts';
import type { DecodedLink, RecognisedAnswer } from '../service/link/decode-link.ts';
import { urlWithVariables } from '../service/link/link-url.ts';
import type { RecognisedExpiry } from '../service/link/read-entry.ts';
import { DEFAULT_ZONE, type ExpiryKind } from '../service/link/rules.ts';
import { dropText } from './service-call.ts';
import { formatTable } from './table.ts';

interface LinkFacts {
  readonly recognised: {
    readonly format: string;
    readonly list: string | undefined;
    readonly address: string | undefined;
    readonly expiry: RecognisedExpiry | undefined;
    readonly exitIp: string | undefined;
    readonly location: readonly string[];
    readonly success: { readonly field: string; readonly value: string } | undefined;
  };
  readonly count: number;
  readonly dropped: Readonly<Record<string, number>>;
  /** The first entries of the answer as examples, at most three. */
  readonly entries: readonly ShownEntry[];
  /** Whether an entry has a private address. The pool accepts such an entry only with `pool.allowPrivateAddresses`. */
  readonly hasPrivate: boolean;
  /** A source for the configuration, in YAML. */
  readonly source: string;
  /**
   * Maps the name of each environment variable in the YAML to a description of its value, for example `LINK_KEY` to
   * `the value of key`.
   */
  readonly variables: Readonly<Record<string, string>>;
}

interface ShownEntry {
  readonly address: string;
  readonly protocol: string;
  readonly life: string;
  readonly exitIp?: string;
  readonly location?: string;
  readonly credentials?: true;
}

const SHOWN = 3;
/** Matches a usual name of the parameter that sets the number of proxies. */
const COUNT_PARAM = /([?&](?:num|count|n|qty|size|number|nums|limit|extract_num|pack_num)=)(\d{1,3})(?=&|$)/i;
const KIND_WORDS: Readonly<Record<ExpiryKind, string>> = {
  seconds: 'the remaining lifetime in seconds',
  minutes: 'the remaining lifetime in minutes',
  datetime: `a date and time, in ${DEFAULT_ZONE} if it names no zone`,
  epoch: 'Unix time',
};

export function linkFacts(url: Secret, answer: DecodedLink): LinkFacts {
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
    hasPrivate: entries.some(({ host }) => isPrivateAddress(host)),
    source,
    variables,
  };
}

export function linkReport(facts: LinkFacts): string[] {
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
    [
      'entries',
      [String(count), ...Object.entries(dropped).map(([why, n]) => `${n} dropped: ${dropText(why)}`)].join(
        ', ',
      ),
    ],
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

function shownEntry({ host, port, protocol, lifetimeMs, exitIp, location, login }: DrawnEntry): ShownEntry {
  return {
    address: host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`,
    protocol: protocol ?? 'http',
    life: lifeText(lifetimeMs),
    ...(exitIp === undefined ? {} : { exitIp }),
    ...(location === undefined ? {} : { location }),
    ...(login === undefined ? {} : { credentials: true }),
  };
}

function lifeText(ms: DrawnEntry['lifetimeMs']): string {
  if (ms === undefined) return 'not in the answer';
  return ms === 'unknown' ? 'unknown (-1)' : formatDuration(Math.floor(ms / 1_000) * 1_000);
}

/** Returns the source in YAML. Comments mark the values that only the operator can know. */
function sourceOf(
  url: Secret,
  { recognised, entries }: DecodedLink,
): { readonly source: string; readonly variables: Readonly<Record<string, string>> } {
  const variables = new Map<string, string>();
  const asked = urlWithVariables(url, (name) => addVariable(variables, name));
  const count = COUNT_PARAM.exec(asked)?.[2];
  const hasLife = recognised?.parts?.expiry !== undefined;
  const hasLogin = entries.some(({ login }) => login !== undefined);
  const protocols = new Set(entries.map(({ protocol }) => protocol));
  const [protocol = 'http'] = protocols;
  const source = {
    name: 'other',
    product: 'link',
    url: asked.replace(COUNT_PARAM, '$1{count}'),
    interval: '10s',
    ...(hasLife ? {} : { lifetime: '60s' }),
    ...(count === undefined ? {} : { params: { count: Number(count) } }),
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

/**
 * Adds an environment variable for a parameter, such as `LINK_KEY` for `key`, to `variables`. Returns the name of the
 * variable; it ends in a number if the plain name is already used.
 */
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
