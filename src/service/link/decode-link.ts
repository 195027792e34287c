/**
 * Decodes the answer of an extraction link: finds the list, reads its entries, and classifies answers without
 * entries. The rules of the source go first; without a rule, a field is recognised by its name or the form of its
 * value. Each step has limits, so that a hostile answer costs little.
 */

import {
  type AnswerOrigin,
  bodyText,
  isWebPage,
  oversizedAnswer,
  quoteText,
  unreadableAnswer,
  webPageAnswer,
} from '../answer.ts';
import { SUCCESS } from '../codes.ts';
import { type DecodedDraw, type DropReason, MAX_ENTRIES, MAX_MESSAGE_LENGTH } from '../decode.ts';
import { isObject, parseJson } from '../decode-json.ts';
import { type DrawnEntry, readText } from '../fields.ts';
import { compileEntryLayout, textEntries } from './address-text.ts';
import { type EntryOptions, type EntryParts, readLinkEntry } from './read-entry.ts';
import { type CodeRule, nodesOf, ROOT, valueAtPath } from './rules.ts';

export type LinkDecodeOptions = AnswerOrigin & Omit<EntryOptions, 'layout'>;

export interface RecognisedAnswer {
  readonly format: 'json' | 'text';
  readonly list?: string;
  readonly parts: EntryParts | undefined;
  readonly ok?: { readonly field: string; readonly value: string };
}

export interface DecodedLink extends DecodedDraw {
  readonly recognised?: RecognisedAnswer;
}

interface FoundList {
  readonly path?: string;
  readonly entries: readonly unknown[];
}

const CODE_OF_RULE = { tooFast: 'too-fast', denied: 'denied', empty: 'empty' } as const;
const REFUSED = 'refused';

const MAX_LINES = 32_000;
/**
 * How many entries noria checks to decide whether a list is the list of proxies: at least one of them must have an
 * address.
 */
const SAMPLE = 5;
const MAX_FIELDS = 100;
const CODE_FIELDS = 'code status errcode error_code errorcode errno ret result success'.split(' ');
const MESSAGE_FIELDS = 'msg message errmsg error_msg error info reason desc data'.split(' ');
const IP_LIKE = /\d{1,3}(?:\.\d{1,3}){3}/;
/** An error in words is short. In a longer answer, the same words may be part of something else. */
const MAX_ERROR_LENGTH = 300;
/** Words that say without any rule that a person must act: the key, the order or the whitelist is wrong. */
const DENIAL = new RegExp(
  [
    '(?:invalid|wrong|bad|unknown|expired|missing|illegal|no)[ _-]?(?:api[ _-]?|access[ _-]?|secret[ _-]?)?(?:key|token|sign|signature|order|account|user)(?![a-z])',
    '(?:key|token|sign|signature|order|account|user|plan|package)[ _-]?(?:is |has |was |not[ _-]?)?(?:invalid|wrong|incorrect|expired|disabled|exist|found|error)',
    'unauthori[sz]ed|not authori[sz]ed|forbidden|permission denied|access denied|authentication failed',
    'white[ _-]?list',
    '白名单|密钥|鉴权|签名|无权限|未授权|没有权限|认证失败|已过期|已到期|订单不存在|账号不存在|账户不存在|余额不足|欠费|已禁用',
  ].join('|'),
  'i',
);

export function decodeLink(body: Uint8Array, given: LinkDecodeOptions): DecodedLink {
  const options: LinkDecodeOptions = { ...given, unreadable: 'link-unreadable' };
  const text = bodyText(body);
  const { answer: rules } = options;
  if (text === '') throw unreadableAnswer('is empty', text, options);
  if (isWebPage(text)) throw webPageAnswer(text, options);
  const json = /^[[{]/.test(text) ? parseJson(text, options) : undefined;
  if (json === undefined && rules.format === 'json')
    throw unreadableAnswer('is not JSON, as answer.format requires', text, options);
  const code = json === undefined ? SUCCESS : codeOf(json, options);
  const message = code === SUCCESS ? '' : messageOf(json, options);
  if (code !== SUCCESS) return { code, message, entries: [], dropped: {}, quota: {} };

  const layout =
    rules.address === undefined || !/\{/.test(rules.address) ? undefined : compileEntryLayout(rules.address);
  const entryOptions = { ...options, layout };
  const list = findList(text, json, entryOptions);
  const read = readEntries(list?.entries ?? [], entryOptions);
  // If noria cannot read most of the lines, the answer is not a list of proxies.
  const isOtherText = list?.path === undefined && (read.dropped.address ?? 0) > read.entries.length;
  if (isOtherText || (read.parts === undefined && isUnexplained(text, list, read, options)))
    return deniedInWords(text, json, options) ?? refuseUnreadable(text, list, options);
  const ok = json === undefined ? undefined : okOf(json);
  const recognised: RecognisedAnswer = {
    format: list?.path === undefined ? 'text' : 'json',
    ...(list?.path === undefined ? {} : { list: list.path }),
    parts: read.parts,
    ...(ok === undefined ? {} : { ok }),
  };
  return { code, message, entries: read.entries, dropped: read.dropped, quota: {}, recognised };
}

function deniedInWords(text: string, json: unknown, { secrets }: AnswerOrigin): DecodedLink | undefined {
  if (text.length > MAX_ERROR_LENGTH || !DENIAL.test(text)) return undefined;
  const said = quoteText(firstText(json, MESSAGE_FIELDS) ?? text, MAX_MESSAGE_LENGTH, secrets);
  return { code: CODE_OF_RULE.denied, message: said, entries: [], dropped: {}, quota: {} };
}

function refuseUnreadable(text: string, list: FoundList | undefined, options: LinkDecodeOptions): never {
  const isError = options.answer.list === undefined && text.length <= MAX_ERROR_LENGTH && !IP_LIKE.test(text);
  const problem = isError ? 'is no list of proxies; it says' : noAddress(list, options);
  throw unreadableAnswer(problem, text, options);
}

export function tooFastAnswer(body: Uint8Array, { secrets }: AnswerOrigin): DecodedLink {
  const message = quoteText(`status 429: ${bodyText(body)}`, MAX_MESSAGE_LENGTH, secrets);
  return { code: CODE_OF_RULE.tooFast, message, entries: [], dropped: {}, quota: {} };
}

function codeOf(json: unknown, { answer: rules }: LinkDecodeOptions): string {
  for (const rule of ['tooFast', 'denied', 'empty'] as const) {
    if (matches(json, rules[rule])) return CODE_OF_RULE[rule];
  }
  return rules.ok === undefined || matches(json, rules.ok) ? SUCCESS : REFUSED;
}

function matches(json: unknown, rule: CodeRule | undefined): boolean {
  if (rule === undefined) return false;
  const value = scalarText(valueAtPath(json, rule.field));
  return value !== undefined && rule.is.includes(value);
}

function messageOf(json: unknown, { answer: rules, secrets }: LinkDecodeOptions): string {
  const field = (rules.ok ?? rules.tooFast ?? rules.denied ?? rules.empty)?.field ?? '';
  const code = scalarText(valueAtPath(json, field));
  const said = firstText(json, MESSAGE_FIELDS);
  const head = code === undefined ? `${field} is missing` : `${field} ${code}`;
  return quoteText(said === undefined ? head : `${head}: ${said}`, MAX_MESSAGE_LENGTH, secrets);
}

function firstText(json: unknown, names: readonly string[]): string | undefined {
  if (!isObject(json)) return undefined;
  const fields = Object.keys(json).slice(0, MAX_FIELDS);
  const own = new Map(fields.map((name) => [name.toLowerCase(), json[name]]));
  const value = names.map((name) => own.get(name)).find((each) => typeof each === 'string' && each !== '');
  return typeof value === 'string' ? value : undefined;
}

function okOf(json: unknown): RecognisedAnswer['ok'] {
  if (!isObject(json)) return undefined;
  const names = Object.keys(json).slice(0, MAX_FIELDS);
  for (const usual of CODE_FIELDS) {
    const field = names.find((name) => name.toLowerCase() === usual);
    const value = field === undefined ? undefined : scalarText(json[field]);
    if (field !== undefined && value !== undefined) return { field, value };
  }
  return undefined;
}

function scalarText(value: unknown): string | undefined {
  return typeof value === 'boolean' ? String(value) : readText(value);
}

function findList(text: string, json: unknown, options: EntryOptions & AnswerOrigin): FoundList | undefined {
  const { list, format } = options.answer;
  if (json === undefined || format === 'text') return { entries: lines(text, options) };
  if (list === undefined) return searchList(json, options);
  const value = valueAtPath(json, list);
  if (Array.isArray(value)) return { path: list, entries: value };
  if (typeof value === 'string') return { path: list, entries: lines(value, options) };
  return isObject(value) && Object.keys(value).length > 0 ? { path: list, entries: [value] } : undefined;
}

function lines(text: string, origin: AnswerOrigin): string[] {
  const entries = textEntries(text, MAX_LINES);
  if (entries.length > MAX_LINES) throw oversizedAnswer(`more than ${MAX_LINES} lines`, text, origin);
  return entries;
}

/** A list of entries, else one object that is an entry, else a text with entries; of several, the outermost. */
function searchList(json: unknown, options: EntryOptions & AnswerOrigin): FoundList | undefined {
  const nodes = nodesOf(json);
  const isEntry = (value: unknown) => hasAddress(value, options);
  for (const { path, value } of nodes) {
    if (Array.isArray(value) && value.slice(0, SAMPLE).some(isEntry)) return { path, entries: value };
  }
  const outside = nodes.filter(({ isInList }) => !isInList);
  for (const { path, value } of outside) {
    if (isObject(value) && isEntry(value)) return { path, entries: [value] };
  }
  for (const { path, value } of outside) {
    if (typeof value !== 'string' || !IP_LIKE.test(value)) continue;
    const entries = lines(value, options);
    if (entries.slice(0, SAMPLE).some(isEntry)) return { path, entries };
  }
  return undefined;
}

function hasAddress(value: unknown, options: EntryOptions): boolean {
  const read = readLinkEntry(value, options);
  return typeof read !== 'string' || (read !== 'address' && read !== 'port');
}

function readEntries(list: readonly unknown[], options: EntryOptions) {
  const entries: DrawnEntry[] = [];
  const dropped: Partial<Record<DropReason, number>> = {};
  let parts: EntryParts | undefined;
  for (const raw of list.slice(0, MAX_ENTRIES)) {
    const read = readLinkEntry(raw, options);
    if (typeof read === 'string') dropped[read] = (dropped[read] ?? 0) + 1;
    else {
      parts ??= read.parts;
      entries.push(read.entry);
    }
  }
  if (list.length > MAX_ENTRIES) dropped.excess = list.length - MAX_ENTRIES;
  return { entries, dropped, parts };
}

/** False if a readable entry was dropped, or if the rule `ok` shows a success without proxies. */
function isUnexplained(
  text: string,
  list: FoundList | undefined,
  { dropped }: Pick<ReturnType<typeof readEntries>, 'dropped'>,
  { answer: rules }: LinkDecodeOptions,
): boolean {
  const { private: privateCount, own, expired, credentials } = dropped;
  if ((privateCount ?? own ?? expired ?? credentials) !== undefined) return false;
  // An answer that reports success but has no proxies contains no IP address. If it contains one, noria did not
  // recognise an entry.
  const isSuccess = rules.ok !== undefined && (list === undefined || list.path !== undefined);
  return !isSuccess || IP_LIKE.test(text);
}

function noAddress(list: FoundList | undefined, { answer: rules }: LinkDecodeOptions): string {
  if (rules.list !== undefined && list === undefined) return `has no list at ${rules.list} (answer.list)`;
  const at = list?.path === undefined || list.path === ROOT ? '' : ` in ${list.path}`;
  return rules.address === undefined
    ? `contains no proxy address that noria recognises${at}; if the answer is a list of proxies, describe the list in sources[].answer`
    : `has no entry${at} that matches answer.address ${rules.address}`;
}
