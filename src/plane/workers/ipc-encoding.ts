/**
 * Settings as they go through the pipe to a worker: plain JSON, with secrets opened on purpose and closed again on arrival.
 *
 * A Secret masks itself whenever it is made into text, so one that were sent as it is would arrive as its mask. Only what a
 * worker needs is packed; the pipe joins two processes of one user, and nothing of it is written anywhere.
 */
import { Secret } from '../../core/secret.ts';

/** What `pack` made; opaque to whoever carries it. */
export type IpcEncoded = { readonly packed: Json };

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Keys under which a secret and a map stand: no key of any settings begins with a dollar sign. */
const SECRET = '$secret';
const MAP = '$map';

/**
 * Packs plain data, maps with text keys, and secrets, to any depth. What is `undefined` is left out.
 *
 * @throws TypeError for anything else: a number that JSON does not know, a function, an object of another class.
 */
export function encodeForIpc(settings: object): IpcEncoded {
  return { packed: packValue(settings) };
}

/** What was packed. Its type is what the other side gave: both run the same code. */
export function decodeFromIpc<Settings>({ packed }: IpcEncoded): Settings {
  return unpackValue(packed) as Settings; // decoded here: the pipe's other end packed it
}

function packValue(value: unknown): Json {
  if (value instanceof Secret) return { [SECRET]: value.reveal() };
  if (value instanceof Map) return { [MAP]: [...value].map(([key, each]) => [key, packValue(each)]) };
  if (Array.isArray(value)) return value.map(packValue);
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  if (isPlain(value)) {
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    return Object.fromEntries(entries.map(([key, each]) => [key, packValue(each)]));
  }
  throw new TypeError(`cannot be packed: ${typeof value}`);
}

function unpackValue(value: Json): unknown {
  if (Array.isArray(value)) return value.map(unpackValue);
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value);
  const [[key, content] = []] = entries;
  if (entries.length === 1 && key === SECRET) return new Secret(String(content));
  if (entries.length === 1 && key === MAP && Array.isArray(content)) return new Map(content.map(unpackPair));
  return Object.fromEntries(entries.map(([name, each]) => [name, unpackValue(each)]));
}

function unpackPair(pair: Json): [unknown, unknown] {
  const [key, value = null] = Array.isArray(pair) ? pair : [];
  return [key, unpackValue(value)];
}

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
