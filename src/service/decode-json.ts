/**
 * Reads the JSON envelope of an extraction: `{ code, msg, data: { count, proxy_list } }`. Pure.
 *
 * The code may be a number; `data` may be missing, null, an empty string, or the list itself.
 */
import { type Envelope, type RawFields, readCode } from './body.ts';
import { SUCCESS } from './codes.ts';

/** @returns undefined when it is not a JSON object with a code, or a success whose `data` is not understood. */
export function readJson(text: string): Envelope | undefined {
  const body = parseObject(text);
  const code = readCode(body?.['code']);
  if (body === undefined || code === undefined) return undefined;
  const { data, msg } = body;
  const message = typeof msg === 'string' ? msg : '';
  // The data of an error has no meaning, so it need not be understood.
  const entries = listIn(data) ?? (code === SUCCESS ? undefined : []);
  if (entries === undefined) return undefined;
  return { code, message, counters: isObject(data) ? [data, body] : [body], entries };
}

/** @returns undefined when the text is not a JSON object. */
export function parseObject(text: string): RawFields | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return isObject(parsed) ? parsed : undefined;
  } catch {
    return undefined; // ignored: the caller reports what the text is instead
  }
}

/** Replaces items that are not objects by empty objects, so that they count as dropped. */
export function objectsIn(list: readonly unknown[]): RawFields[] {
  return list.map((item) => (isObject(item) ? item : {}));
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

function isObject(value: unknown): value is RawFields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
