/**
 * Decodes the answers of draws and lists. noria keeps an entry if its IP, port and protocol are valid and
 * `RefuseAddress` does not refuse the address; it drops and counts all others.
 */
import {
  type AnswerOrigin,
  bodyText,
  type DrawAnswer,
  type Envelope,
  isWebPage,
  type Quota,
  quoteText,
  type RawFields,
  readCode,
  unreadableAnswer,
  webPageAnswer,
} from './answer.ts';
import { SUCCESS } from './codes.ts';
import { objectsIn, parseObject, readJson } from './decode-json.ts';
import { readTextCode, readTextLines } from './decode-text.ts';
import { readXml } from './decode-xml.ts';
import {
  type DrawnEntry,
  readDetails,
  readEntryPort,
  readInteger,
  readIp,
  readProtocol,
  readText,
} from './fields.ts';
import { type Format, type ListName, OPERATIONS, type Product } from './operations.ts';

export const MAX_ENTRIES = 1_000;
export const MAX_MESSAGE_LENGTH = 500;

export type DropReason =
  | 'address'
  | 'port'
  | 'private'
  | 'own'
  | 'protocol'
  | 'excess'
  /** Only for links. `credentials`: the source requires credentials, and the entry has none. */
  | 'expired'
  | 'credentials';

/** `own`: noria listens there. */
export type RefuseAddress = (host: string, port: number) => 'private' | 'own' | undefined;

export interface DecodeOptions extends AnswerOrigin {
  readonly product: Product;
  readonly format: Format;
  /** For the format `text`; `compileLayout` has accepted it. */
  readonly textLayout?: string | undefined;
  readonly refuses: RefuseAddress;
}

export type DecodedDraw = Omit<DrawAnswer, 'sentAt'>;

const READERS: Readonly<Record<Format, (text: string, options: DecodeOptions) => Envelope | undefined>> = {
  json: readJson,
  xml: readXml,
  text: readTextLines,
};

/** @throws service-protocol if the body is not in the requested format, service-blocked for a web page. */
export function decodeDraw(body: Uint8Array, options: DecodeOptions): DecodedDraw {
  const envelope = readEnvelope(bodyText(body), options);
  const { code } = envelope;
  const message = quoteText(envelope.message, MAX_MESSAGE_LENGTH, options.secrets);
  const entries = code === SUCCESS ? envelope.entries : []; // an answer with an error may contain entries, but they have no meaning
  return { code, message, ...keepValid(entries, options), quota: readQuota(envelope.counters) };
}

/** Only an error code is accepted in another format than the requested one. */
function readEnvelope(text: string, options: DecodeOptions): Envelope {
  const { format, product } = options;
  // In the format Text, an empty body means that there are no proxies. In every other format, it is an error.
  if (text === '' && format !== 'text') throw unreadableAnswer('is empty', text, options);
  if (isWebPage(text)) throw webPageAnswer(text, options);
  const requested = READERS[format](text, options);
  if (requested !== undefined) return requested;
  const other =
    readJson(text, options) ??
    readXml(text, options) ??
    (format === 'text' ? readTextCode(text, product) : undefined);
  if (other !== undefined && other.code !== SUCCESS) return other;
  throw unreadableAnswer(`is not in the requested format ${format}`, text, options);
}

function keepValid(
  raw: readonly RawFields[],
  options: DecodeOptions,
): Pick<DecodedDraw, 'entries' | 'dropped'> {
  const entries: DrawnEntry[] = [];
  const dropped: Partial<Record<DropReason, number>> = {};
  for (const fields of raw) {
    const entry = entries.length < MAX_ENTRIES ? readEntry(fields, options) : 'excess';
    if (typeof entry === 'string') dropped[entry] = (dropped[entry] ?? 0) + 1;
    else entries.push(entry);
  }
  return { entries, dropped };
}

function readEntry(raw: RawFields, { product, refuses }: DecodeOptions): DrawnEntry | DropReason {
  const host = readIp(raw['ip']);
  if (host === undefined) return 'address';
  const port = readEntryPort(raw['port']);
  if (port === undefined) return 'port';
  const refused = refuses(host, port);
  if (refused !== undefined) return refused;
  const details = readDetails(raw);
  const label = OPERATIONS[product].protocol === 'by-entry' ? raw['protocol'] : undefined;
  if (label === undefined || label === null || label === '') return { host, port, ...details };
  const protocol = readProtocol(label);
  return protocol === undefined ? 'protocol' : { host, port, protocol, ...details };
}

/** Source: the specification, "Additional data fields". An earlier object takes precedence. */
function readQuota(counters: readonly RawFields[]): Quota {
  const count = (...names: readonly string[]): number | undefined => {
    for (const counter of counters) {
      for (const name of names) {
        const value = Object.hasOwn(counter, name) ? readInteger(counter[name]) : undefined;
        if (value !== undefined && value >= 0) return value;
      }
    }
    return undefined;
  };
  const quota: Record<keyof Quota, number | undefined> = {
    remaining: count('surplus_count', 'today_left_count'),
    added: count('update_count', 'dedup_count'),
    active: count('active_count'),
    today: count('today_count'),
  };
  return Object.fromEntries(Object.entries(quota).filter(([, value]) => value !== undefined));
}

export type ListRecord = Readonly<Record<string, string | number>>;

export interface DecodedList {
  readonly code: string;
  readonly message: string;
  readonly records: readonly ListRecord[];
}

/**
 * Operations 9 and 10, any HTTP status. The records keep the specification's field names, because commands print
 * them; those without a valid first field (the area, the id of the instance) are dropped.
 */
export function decodeList(name: ListName, body: Uint8Array, origin: AnswerOrigin): DecodedList {
  const text = bodyText(body);
  if (isWebPage(text)) throw webPageAnswer(text, origin);
  const answer = parseObject(text, origin);
  const code = readCode(answer?.['code']);
  if (answer === undefined || code === undefined)
    throw unreadableAnswer('is not JSON with a code', text, origin);
  const { listField } = OPERATIONS[name];
  const list = code === SUCCESS ? (answer[listField] ?? []) : [];
  if (!Array.isArray(list)) throw unreadableAnswer(`has no list in ${listField}`, text, origin);
  const { msg } = answer;
  return {
    code,
    message: quoteText(typeof msg === 'string' ? msg : '', MAX_MESSAGE_LENGTH, origin.secrets),
    records: objectsIn(list.slice(0, MAX_ENTRIES)).flatMap((raw) => readRecord(name, raw)),
  };
}

function readRecord(name: ListName, raw: RawFields): ListRecord[] {
  const { fields } = OPERATIONS[name];
  const record: Record<string, string | number> = {};
  for (const [field, type] of Object.entries(fields)) {
    const value = type === 'integer' ? readInteger(raw[field]) : readText(raw[field]);
    if (value !== undefined) record[field] = value;
  }
  const [requiredField = ''] = Object.keys(fields);
  return Object.hasOwn(record, requiredField) ? [record] : [];
}
