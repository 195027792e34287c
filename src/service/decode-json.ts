/**
 * Reads the JSON envelope `{ code, msg, data: { count, proxy_list } }`. The code may be a number; `data` may be
 * missing, null, an empty string, or the list itself.
 */
import {
  type AnswerOrigin,
  type Envelope,
  MAX_DEPTH,
  MAX_VALUES,
  oversizedAnswer,
  type RawFields,
  readCode,
  TOO_MANY_VALUES,
} from './answer.ts';
import { SUCCESS } from './codes.ts';

const [QUOTE, BACKSLASH, COMMA, OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST] = [...'"\\,{}[]'].map(
  (char) => char.charCodeAt(0),
);

export function readJson(text: string, origin: AnswerOrigin): Envelope | undefined {
  const body = parseObject(text, origin);
  const code = readCode(body?.['code']);
  if (body === undefined || code === undefined) return undefined;
  const { data, msg } = body;
  const message = typeof msg === 'string' ? msg : '';
  // If the code is an error, `data` has no meaning and may have any structure.
  const entries = listIn(data) ?? (code === SUCCESS ? undefined : []);
  if (entries === undefined) return undefined;
  return { code, message, counters: isObject(data) ? [data, body] : [body], entries };
}

export function parseObject(text: string, origin: AnswerOrigin): RawFields | undefined {
  const parsed = text.startsWith('{') ? parseJson(text, origin) : undefined;
  return isObject(parsed) ? parsed : undefined;
}

export function parseJson(text: string, origin: AnswerOrigin): unknown {
  if (isOversized(text)) throw oversizedAnswer(TOO_MANY_VALUES, text, origin);
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // ignored: the caller reports the text as unreadable
  }
}

export function objectsIn(list: readonly unknown[]): RawFields[] {
  return list.map((item) => (isObject(item) ? item : {}));
}

/** Each value follows a comma or an opening bracket, so this only counts these and does not parse. */
function isOversized(text: string): boolean {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) at = endOfString(text, at);
    else if (char === COMMA) values += 1;
    else if (char === OPEN_OBJECT || char === OPEN_LIST) {
      values += 1;
      depth += 1;
    } else if (char === CLOSE_OBJECT || char === CLOSE_LIST) depth -= 1;
    if (values > MAX_VALUES || depth > MAX_DEPTH) return true;
  }
  return false;
}

function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) return at;
    if (char === BACKSLASH) at += 1;
  }
  return text.length;
}

function listIn(data: unknown): RawFields[] | undefined {
  if (data === undefined || data === null || data === '') return [];
  if (Array.isArray(data)) return objectsIn(data);
  if (!isObject(data)) return undefined;
  const { proxy_list: list, count } = data;
  if (Array.isArray(list)) return objectsIn(list);
  const isListEmpty = list === undefined || list === null || list === '';
  const isCountZero = count === undefined || Number(count) === 0;
  return isListEmpty && isCountZero ? [] : undefined;
}

export function isObject(value: unknown): value is RawFields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
