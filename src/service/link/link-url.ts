/** The URL of an extraction link: the number of proxies in it, a name derived from it, and its secrets. */
import { createHash } from 'node:crypto';
import { MASK, Secret } from '../../core/secret.ts';

const COUNT = /\{count\}|%7Bcount%7D/gi;
/** Common words are not secret: masking them would hide parts of every answer. */
const HARMLESS =
  /^(?:\{count\}|\d{1,5}|json|jsonp|text|txt|html|xml|http|https|socks4|socks5|socks|true|false|auto|all|none|get|post|basic|bearer|token)$/i;
const SECRET_NAME = /key|secret|pass|pwd|token|sign|auth|trade|order/i;
/** Matches a part of a path that looks like a key: at least 16 characters and a digit. */
const KEY_IN_PATH = /^(?=[^/]*\d)[\w.~-]{16,}$/;
const MIN_SECRET_LENGTH = 4;
const IDENTITY_LENGTH = 16;

export function withCount(text: string, count: number): string {
  return text.replace(COUNT, String(count));
}

export function linkIdentity(url: Secret, body: Secret | undefined): string {
  const text = `${url.reveal()}\n${body?.reveal() ?? ''}`.replace(COUNT, '');
  return `link-${createHash('sha256').update(text, 'utf8').digest('hex').slice(0, IDENTITY_LENGTH)}`;
}

export function linkSecrets(
  url: Secret,
  { headers, body }: { headers: Readonly<Record<string, Secret>>; body: Secret | undefined },
): Secret[] {
  const { pathname, search } = new URL(url.reveal());
  const values = [
    ...pathname.split('/').filter((part) => KEY_IN_PATH.test(part)),
    ...pairsOf(search.slice(1)).flatMap((pair) => (isHarmless(pair) ? [] : formsOf(pair.value))),
    ...Object.values(headers).flatMap((header) => [header.reveal(), ...wordsOf(header.reveal())]),
    ...(body === undefined ? [] : [body.reveal(), ...valuesOfBody(body.reveal())]),
  ];
  const secret = values.filter((value) => value.length >= MIN_SECRET_LENGTH);
  return [...new Set(secret)].map((value) => new Secret(value));
}

function isHarmless({ name, value }: Pair): boolean {
  return value === '' || (HARMLESS.test(decoded(value)) && !SECRET_NAME.test(name)) || value === '{count}';
}

export function maskedUrl(url: Secret): string {
  return replaceSecrets(url, () => MASK);
}

/** The URL with a reference to an environment variable in place of each secret; in the path, its name is `path`. */
export function urlWithVariables(url: Secret, variableOf: (name: string) => string): string {
  return replaceSecrets(url, (name) => `\${${variableOf(name)}}`);
}

function replaceSecrets(url: Secret, replace: (name: string) => string): string {
  const { origin, pathname, search } = new URL(url.reveal());
  const path = pathname.split('/').map((part) => (KEY_IN_PATH.test(part) ? replace('path') : part));
  const pairs = pairsOf(search.slice(1)).map(({ name, value }) =>
    pairText(name, isHarmless({ name, value }) ? value : replace(name)),
  );
  const text = `${origin}${path.join('/')}${pairs.length === 0 ? '' : `?${pairs.join('&')}`}`;
  return text.replace(/%7Bcount%7D/gi, '{count}');
}

/** Still percent-encoded. Without `=`, all of it is the value. */
interface Pair {
  readonly name: string;
  readonly value: string;
}

function pairsOf(query: string): Pair[] {
  if (query === '') return [];
  return query.split('&').map((pair) => {
    const at = pair.indexOf('=');
    return at < 0 ? { name: '', value: pair } : { name: pair.slice(0, at), value: pair.slice(at + 1) };
  });
}

function wordsOf(text: string): string[] {
  return text.split(/\s+/).filter((word) => !HARMLESS.test(word));
}

function pairText(name: string, value: string): string {
  return name === '' ? value : `${name}=${value}`;
}

/** The forms in which an answer may quote a value: as in the URL, decoded, and escaped for JSON. */
function formsOf(value: string): string[] {
  const plain = decoded(value);
  return [value, plain, plain.replaceAll('/', '\\/'), JSON.stringify(plain).slice(1, -1)];
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value.replaceAll('+', ' '));
  } catch {
    return value; // handled: the value is not percent-encoded
  }
}

function valuesOfBody(body: string): string[] {
  const texts = [...body.matchAll(/"((?:[^"\\]|\\.)*)"?/gs)].map(([, text = '']) => text);
  const values = [...texts, ...pairsOf(body).flatMap(({ value }) => formsOf(value))];
  return values.filter((value) => !HARMLESS.test(value));
}
