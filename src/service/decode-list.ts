/**
 * The answers of operations 9 and 10: lists in JSON, kept in the specification's own field names, since commands only show
 * them. Pure.
 */
import {
  type AnswerOrigin,
  bodyText,
  isWebPage,
  quoteText,
  unreadableAnswer,
  webPageAnswer,
} from './body.ts';
import { SUCCESS } from './codes.ts';
import { MAX_ENTRIES, MAX_MESSAGE_LENGTH } from './decode.ts';
import { objectsIn, parseObject } from './decode-json.ts';
import { type RawFields, readCode } from './envelope.ts';
import { readInteger, readText } from './fields.ts';
import { type ListName, OPERATIONS } from './operations.ts';

/** An area line or an instance: fields as the table of operations names and types them; what is not known is left out. */
export type ListRecord = Readonly<Record<string, string | number>>;

export interface DecodedList {
  /** The service's code, e.g. `10001`. */
  readonly code: string;
  /** The service's own text, with secrets masked. */
  readonly message: string;
  /** Empty unless the code is success. At most 1,000. */
  readonly records: readonly ListRecord[];
}

/**
 * Decodes the answer of operation 9 or 10, whatever its status was. Records without their first field (the area, the
 * instance's id) are left out.
 *
 * @throws NoriaError service-protocol when it is no such JSON, service-blocked when it is a web page.
 */
export function decodeList(name: ListName, body: Uint8Array, origin: AnswerOrigin): DecodedList {
  const text = bodyText(body);
  if (isWebPage(text)) throw webPageAnswer(text, origin);
  const answer = parseObject(text);
  const code = readCode(answer?.['code']);
  if (answer === undefined || code === undefined)
    throw unreadableAnswer('is not the JSON expected', text, origin);
  const list = code === SUCCESS ? (answer[OPERATIONS[name].listField] ?? []) : [];
  if (!Array.isArray(list))
    throw unreadableAnswer(`has no list in ${OPERATIONS[name].listField}`, text, origin);
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
  const [needed = ''] = Object.keys(fields);
  return Object.hasOwn(record, needed) ? [record] : [];
}
