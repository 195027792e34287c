/**
 * The answer of a draw, from bytes to what noria keeps of it. Pure: liberal in what it reads, strict in what it keeps.
 *
 * An entry is kept with an IP literal, a port and nothing that speaks against it; every other one is dropped and counted. What
 * cannot be understood is a NoriaError that quotes the beginning of it, with secrets masked.
 */
import type { MemberProtocol } from '../core/protocol.ts';
import type { DrawAnswer, DrawnEntry } from './answer.ts';
import {
  type AnswerOrigin,
  bodyText,
  isWebPage,
  quoteText,
  unreadableAnswer,
  webPageAnswer,
} from './body.ts';
import { SUCCESS } from './codes.ts';
import { readJson } from './decode-json.ts';
import { readTextCode, readTextLines } from './decode-text.ts';
import { readXml } from './decode-xml.ts';
import { type Envelope, type RawFields, readQuota } from './envelope.ts';
import { readDetails, readEntryPort, readIp } from './fields.ts';
import { type Format, OPERATIONS, type Product } from './operations.ts';

/** Most entries kept of one answer. */
export const MAX_ENTRIES = 1_000;
/** Longest text of the service that is kept for status and log. */
export const MAX_MESSAGE_LENGTH = 500;

export type DropReason = 'address' | 'port' | 'private' | 'own' | 'protocol' | 'excess';

/** Why an address is not acceptable as a member, or undefined when it is. Both are noria's policy, not the service's. */
export type RefuseAddress = (host: string, port: number) => 'private' | 'own' | undefined;

/** How an answer is to be read. */
export interface DecodeOptions extends AnswerOrigin {
  readonly product: Product;
  readonly format: Format;
  /** With the format `text`: the custom extraction format, checked by `compileLayout` before. */
  readonly textLayout?: string | undefined;
  readonly refuses: RefuseAddress;
}

export type DecodedDraw = Pick<DrawAnswer, 'code' | 'message' | 'entries' | 'dropped' | 'quota'>;

/** What an answer of the free product calls its protocols. `https` there means: an HTTP proxy that can CONNECT. */
const PROTOCOL_LABELS: Readonly<Record<string, MemberProtocol>> = {
  http: 'http',
  https: 'http',
  socks4: 'socks4',
  socks5: 'socks5',
};

const READERS: Readonly<Record<Format, (text: string, reading: DecodeOptions) => Envelope | undefined>> = {
  json: readJson,
  xml: readXml,
  text: (text, { product, textLayout }) => readTextLines(text, product, textLayout),
};

/**
 * Decodes the body of an answer, whatever its status was.
 *
 * @throws NoriaError service-protocol when it is not the format asked for, service-blocked when it is a web page.
 */
export function decodeDraw(body: Uint8Array, reading: DecodeOptions): DecodedDraw {
  const envelope = readEnvelope(bodyText(body), reading);
  const { code } = envelope;
  const message = quoteText(envelope.message, MAX_MESSAGE_LENGTH, reading.secrets);
  // An error is told by its code alone: whatever else stands there is not looked at.
  const raw = code === SUCCESS ? envelope.entries : [];
  return { code, message, ...keep(raw, reading), quota: readQuota(envelope.counters) };
}

/** The envelope in the format asked for; that of another format only where it tells an error. */
function readEnvelope(text: string, reading: DecodeOptions): Envelope {
  // No lines are no proxies; in the other formats there is always something.
  if (text === '' && reading.format !== 'text') throw unreadableAnswer('is empty', text, reading);
  if (isWebPage(text)) throw webPageAnswer(text, reading);
  const asked = READERS[reading.format](text, reading);
  if (asked !== undefined) return asked;
  const other =
    readJson(text) ??
    readXml(text) ??
    (reading.format === 'text' ? readTextCode(text, reading.product) : undefined);
  if (other !== undefined && other.code !== SUCCESS) return other;
  throw unreadableAnswer(`is not the ${reading.format} asked for`, text, reading);
}

function keep(raw: readonly RawFields[], reading: DecodeOptions): Pick<DecodedDraw, 'entries' | 'dropped'> {
  const entries: DrawnEntry[] = [];
  const dropped: Partial<Record<DropReason, number>> = {};
  for (const fields of raw) {
    const judged = entries.length < MAX_ENTRIES ? readEntry(fields, reading) : 'excess';
    if (typeof judged === 'string') dropped[judged] = (dropped[judged] ?? 0) + 1;
    else entries.push(judged);
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

function readProtocol(label: unknown): MemberProtocol | undefined {
  const name = typeof label === 'string' ? label.trim().toLowerCase() : '';
  return Object.hasOwn(PROTOCOL_LABELS, name) ? PROTOCOL_LABELS[name] : undefined;
}
