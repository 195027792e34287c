/**
 * The kinds of value a key can have: how each is read from its text, written back, and described.
 *
 * Every scalar of the file arrives as text (see document.ts), so that an instance of 18 digits keeps them all, and a
 * value from the environment is read as one from the file. A kind says what is wrong with a text; issues.ts adds what is
 * wanted. zod (schema.ts) holds the kinds together.
 */
import { formatListenAddress, type ListenAddress, readListenAddress } from '../core/listen-address.ts';
import { nearest } from '../core/nearest.ts';
import { Secret } from '../core/secret.ts';
import { isKey } from '../service/key.ts';
import { formatDuration, parseDuration } from './units.ts';

/** The part of JSON Schema that kinds need. */
export interface KindSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly anyOf?: readonly KindSchema[];
}

/** What a text comes to; `wrong` completes "VALUE …", e.g. `is not a duration`, and never quotes it: it may be a secret. */
export type Reading<T> = { readonly value: T } | { readonly wrong: string };

/** A kind in words, for messages, docs and editors. */
export interface KindNote {
  /** Completes "wants …". */
  readonly wants: string;
  /** A good value, as it stands in YAML; absent where `wants` says it all. */
  readonly good?: string;
  readonly json: KindSchema;
  /**
   * Whether a value may stand in messages. `private`: only one that is valid, since a password may have been written into it
   * by mistake.
   */
  readonly shown: 'always' | 'private' | 'never';
  read(text: string): Reading<unknown>;
}

/** A kind of value `T`. */
export interface Kind<T> extends KindNote {
  read(text: string): Reading<T>;
  write(value: T): string;
}

const DAY_MS = 86_400_000;
const DURATION_PATTERN = '^(0|[0-9]+(ms|s|m|h))$';
const MAX_TEXT_BYTES = 255;

/** A whole number. */
export function whole(from: number, to: number): Kind<number> {
  return {
    wants: `a whole number from ${from} to ${to}`,
    json: { type: 'integer', minimum: from, maximum: to },
    shown: 'always',
    read(text) {
      if (!/^[+-]?\d{1,15}$/.test(text)) return { wrong: 'is not a whole number' };
      return inRange(Number(text), from, to, String);
    },
    write: String,
  };
}

/** A duration, inside as ms. */
export function duration(fromMs: number, toMs = DAY_MS): Kind<number> {
  return {
    wants: `a duration such as 500ms, 10s, 5m or 2h, from ${formatDuration(fromMs)} to ${formatDuration(toMs)}`,
    json: { type: 'string', pattern: DURATION_PATTERN },
    shown: 'always',
    read(text) {
      const ms = parseDuration(text);
      if (ms !== undefined) return inRange(ms, fromMs, toMs, formatDuration);
      return { wrong: /^\d+$/.test(text) ? 'has no unit' : 'is not a duration' };
    },
    write: formatDuration,
  };
}

function inRange(value: number, from: number, to: number, write: (value: number) => string): Reading<number> {
  if (value < from) return { wrong: `is less than ${write(from)}` };
  if (value > to) return { wrong: `is more than ${write(to)}` };
  return { value };
}

/** true or false. */
export function flag(): Kind<boolean> {
  return {
    wants: 'true or false',
    json: { type: 'boolean' },
    shown: 'always',
    read: (text) =>
      text === 'true' || text === 'false' ? { value: text === 'true' } : { wrong: 'is no switch' },
    write: String,
  };
}

/** One of a few words. */
export function oneOf<const Word extends string>(words: readonly Word[]): Kind<Word> {
  return {
    wants: words.length === 1 ? `${words[0]}` : `one of ${words.join(', ')}`,
    json: { enum: words },
    shown: 'always',
    read(text) {
      const value = words.find((word) => word === text);
      if (value !== undefined) return { value };
      const meant = nearest(text, words);
      return {
        wrong: meant === undefined ? 'is not known here' : `is not known here (did you mean ${meant}?)`,
      };
    },
    write: (word) => word,
  };
}

/** One of a few words, or what another kind reads. */
export function wordOr<const Word extends string, T>(words: readonly Word[], kind: Kind<T>): Kind<Word | T> {
  const isWord = (value: Word | T): value is Word => words.some((word) => word === value);
  return {
    wants: `${words.join(', ')} or ${kind.wants}`,
    ...(kind.good === undefined ? {} : { good: kind.good }),
    json: { anyOf: [{ enum: words }, kind.json] },
    shown: kind.shown,
    read(text) {
      const word = words.find((each) => each === text);
      return word === undefined ? kind.read(text) : { value: word };
    },
    write: (value) => (isWord(value) ? value : kind.write(value)),
  };
}

/** What a text has to be. */
export interface TextRules {
  readonly wants: string;
  readonly good: string;
  /** Must match the whole text. */
  readonly pattern?: RegExp;
  readonly wrong?: string;
  /** For the bytes of UTF-8. */
  readonly maxBytes?: number;
  /** A password may have been written into it by mistake. */
  readonly private?: boolean;
  /** Line breaks and tabs may stand in it. */
  readonly controls?: boolean;
}

/** A text that is not empty and holds no control character. */
export function text(rules: TextRules): Kind<string> {
  return {
    wants: rules.wants,
    good: rules.good,
    // The editor takes digits as a number; noria reads their text.
    json: {
      type: ['string', 'integer'],
      ...(rules.pattern === undefined ? {} : { pattern: rules.pattern.source }),
    },
    shown: rules.private === true ? 'private' : 'always',
    read: (given) => {
      const wrong = wrongText(given, rules);
      return wrong === undefined ? { value: given } : { wrong };
    },
    write: (value) => value,
  };
}

/** A password: RFC 1929 gives it 1 to 255 bytes. */
export function password(): Kind<Secret> {
  return secret({ wants: 'a password of 1 to 255 bytes without line breaks', good: '${NORIA_PASSWORD}' });
}

/** A token that goes into an HTTP header. */
export function token(): Kind<Secret> {
  return secret({
    wants: 'a token of printable ASCII without spaces',
    good: '${NORIA_ADMIN_TOKEN}',
    pattern: /^[\x21-\x7e]+$/,
  });
}

/** A text that is never shown. */
function secret(rules: TextRules): Kind<Secret> {
  const plain = text(rules);
  return {
    ...plain,
    shown: 'never',
    read: (given) => {
      const reading = plain.read(given);
      return 'value' in reading ? { value: new Secret(reading.value) } : reading;
    },
    write: String,
  };
}

/** The 16-character key of an instance or an account; lower case inside. */
export function key(): Kind<Secret> {
  return {
    ...secret({
      wants: 'the 16 hexadecimal digits of the key',
      good: '0123456789abcdef',
      pattern: /^[0-9a-fA-F]{16}$/,
    }),
    read(given) {
      if (isKey(given)) return { value: new Secret(given.toLowerCase()) };
      if (/^[0-9a-f]{32}$/i.test(given))
        return { wrong: 'is a whole MD5: the key is its characters 9 to 24' };
      return {
        wrong: `has ${given.length} characters${/[^0-9a-f]/i.test(given) ? ', not all of them hexadecimal digits' : ''}`,
      };
    },
  };
}

/** An http or https address, without user info, query and fragment; inside without a trailing slash. */
export function baseAddress(): Kind<string> {
  return {
    wants: 'an http:// or https:// address without user info, query and fragment',
    good: 'http://extract.example.com',
    json: { type: 'string', pattern: '^https?://' },
    shown: 'private',
    read(given) {
      const url = readUrl(given);
      if ('wrong' in url) return url;
      if (url.value.search + url.value.hash !== '') return { wrong: 'has a query or a fragment' };
      return { value: url.value.origin + url.value.pathname.replace(/\/+$/, '') };
    },
    write: (value) => value,
  };
}

/** An http or https address of a page. */
export function pageAddress(): Kind<string> {
  return {
    wants: 'an http:// or https:// address without user info',
    good: 'http://example.com/',
    json: { type: 'string', pattern: '^https?://' },
    shown: 'private',
    read(given) {
      const url = readUrl(given);
      return 'wrong' in url ? url : { value: url.value.href };
    },
    write: (value) => value,
  };
}

/** An address to listen on; `one`: neither a range of ports nor an inherited socket. */
export function listenAddress(ports: 'one' | 'range'): Kind<ListenAddress> {
  return {
    wants:
      ports === 'range'
        ? 'host:port, [v6]:port, host:24000-24019 (a port range) or fd:3 (an inherited socket)'
        : 'host:port or [v6]:port',
    good: '127.0.0.1:8888',
    json: { type: 'string' },
    shown: 'always',
    read(given) {
      const reading = readListenAddress(given);
      if ('wrong' in reading || ports === 'range') return reading;
      const { value } = reading;
      if (value.kind === 'fd') return { wrong: 'is an inherited socket' };
      return value.lastPort === value.port ? reading : { wrong: 'has more than one port' };
    },
    write: formatListenAddress,
  };
}

function readUrl(given: string): Reading<URL> {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
    return { wrong: 'is not an http:// or https:// address' };
  }
  return url.username + url.password === '' ? { value: url } : { wrong: 'holds a user name or a password' };
}

function wrongText(
  given: string,
  { pattern, wrong, controls, maxBytes = MAX_TEXT_BYTES }: TextRules,
): string | undefined {
  if (given === '') return 'is empty';
  if (controls !== true && /\p{Cc}/u.test(given)) return 'holds a line break or another control character';
  if (Buffer.byteLength(given) > maxBytes) return `has more than ${maxBytes} bytes`;
  return pattern === undefined || pattern.test(given)
    ? undefined
    : (wrong ?? 'has a character that cannot stand here');
}
