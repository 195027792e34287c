/**
 * The JSON envelope of an extraction: `{ code, msg, data: { count, proxy_list } }`, and the forms of it that were seen.
 *
 * The code may be a number; `data` may be missing, null, an empty text, or itself the list. Pure.
 */
import { type Envelope, type RawFields, readCode } from './envelope.ts';

/** @returns undefined when it is no JSON object with a code, or a success whose `data` cannot be understood. */
export function readJson(text: string): Envelope | undefined {
  const body = parseObject(text);
  const code = readCode(body?.['code']);
  if (body === undefined || code === undefined) return undefined;
  const { data, msg } = body;
  const message = typeof msg === 'string' ? msg : '';
  const list = listIn(data);
  // An error is told by its code alone: whatever stands in data is not looked at.
  const entries = list ?? (code === '10001' ? undefined : []);
  if (entries === undefined) return undefined;
  return { code, message, counters: isObject(data) ? [data, body] : [body], entries };
}

/** The JSON object that `text` is; undefined when it is anything else. */
export function parseObject(text: string): RawFields | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return isObject(parsed) ? parsed : undefined;
  } catch {
    return undefined; // handled: the caller says what it was instead
  }
}

/** The members of a list that are objects; for those that are not, an empty one, so that they are counted as dropped. */
export function objectsIn(list: readonly unknown[]): RawFields[] {
  return list.map((item) => (isObject(item) ? item : {}));
}

function listIn(data: unknown): RawFields[] | undefined {
  if (data === undefined || data === null || data === '') return [];
  if (Array.isArray(data)) return objectsIn(data);
  if (!isObject(data)) return undefined;
  const list = data['proxy_list'];
  if (Array.isArray(list)) return objectsIn(list);
  const nothingSaid = list === undefined || list === null || list === '';
  const nothingCounted = data['count'] === undefined || Number(data['count']) === 0;
  return nothingSaid && nothingCounted ? [] : undefined;
}

function isObject(value: unknown): value is RawFields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
