/**
 * Decodes the JSON lists that operations 9 and 10 return. The records keep the specification's field names, because commands
 * print them. All functions are pure.
 */
import {
  type AnswerOrigin,
  bodyText,
  isWebPage,
  quoteText,
  type RawFields,
  readCode,
  unreadableAnswer,
  webPageAnswer,
} from './body.ts';
import { SUCCESS } from './codes.ts';
import { MAX_ENTRIES, MAX_MESSAGE_LENGTH } from './decode.ts';
import { objectsIn, parseObject } from './decode-json.ts';
import { readInteger, readText } from './fields.ts';
import type { ListName } from './operation.ts';
import { OPERATIONS } from './operations.ts';

/**
 * One area line or one instance. operations.ts lists its fields and their types. Fields without a valid value are
 * absent.
 */
export type ListRecord = Readonly<Record<string, string | number>>;

export interface DecodedList {
  /** The service's code, e.g. `10001`. */
  readonly code: string;
  /** The service's own text, with masked secrets. */
  readonly message: string;
  /** The records, at most 1,000. Empty unless the code is success. */
  readonly records: readonly ListRecord[];
}

/**
 * Decodes an answer with any HTTP status. Drops records without a valid first field (the area, or the id of the
 * instance).
 *
 * @throws NoriaError service-protocol if the body is not the expected JSON, service-blocked if the body is a web
 * page.
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
