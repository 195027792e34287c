/**
 * Encodes settings, including secrets and maps, as JSON for the pipe between primary and worker. A Secret needs its own
 * encoding: converted to text, it gives only a mask. The pipe connects two processes of the same user, and nothing that
 * it carries is stored.
 */
import { Secret } from '../../core/secret.ts';

export type IpcEncoded = { readonly encoded: Json };

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** The keys that mark an encoded secret, map, `Infinity` and `undefined` in a list. No key of any settings starts with a dollar sign. */
const SECRET = '$secret';
const MAP = '$map';
const INFINITY = '$infinity';
const UNDEFINED = '$undefined';

/**
 * Encodes plain data, `Infinity`, maps with string keys, and secrets, at any depth. Leaves out keys whose value is `undefined`.
 *
 * @throws TypeError for everything else, such as NaN, a function or a class instance.
 */
export function encodeForIpc(settings: object): IpcEncoded {
  return { encoded: encode(settings) };
}

export function decodeFromIpc<Settings>({ encoded }: IpcEncoded): Settings {
  return decode(encoded) as Settings; // the cast is safe because both processes run the same code
}

function encode(value: unknown): Json {
  if (value instanceof Secret) return { [SECRET]: value.reveal() };
  if (value instanceof Map) return { [MAP]: [...value].map(([key, each]) => [key, encode(each)]) };
  if (Array.isArray(value)) return value.map(encode);
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  if (value === Number.POSITIVE_INFINITY) return { [INFINITY]: true };
  if (value === undefined) return { [UNDEFINED]: true };
  if (isPlain(value)) {
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    return Object.fromEntries(entries.map(([key, each]) => [key, encode(each)]));
  }
  throw new TypeError(`cannot encode for IPC: ${typeof value}`);
}

function decode(value: Json): unknown {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value);
  const [[key, content] = []] = entries;
  if (entries.length === 1 && key === SECRET) return new Secret(String(content));
  if (entries.length === 1 && key === INFINITY) return Number.POSITIVE_INFINITY;
  if (entries.length === 1 && key === UNDEFINED) return undefined;
  if (entries.length === 1 && key === MAP && Array.isArray(content)) return new Map(content.map(decodePair));
  return Object.fromEntries(entries.map(([name, each]) => [name, decode(each)]));
}

function decodePair(pair: Json): [unknown, unknown] {
  const [key, value = null] = Array.isArray(pair) ? pair : [];
  return [key, decode(value)];
}

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
