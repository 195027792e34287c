/**
 * The types of scalar values. Each type reads, checks, describes and prints its values.
 *
 * Every scalar of the file arrives as text (see document.ts). So an instance of 18 digits keeps all its digits, and a
 * value from the environment is read like one from the file.
 */
import { z } from 'zod';
import { formatDuration, parseDuration } from '../core/duration.ts';
import { type FrontProxy, formatFrontProxy, readFrontProxy } from '../core/front-proxy.ts';
import { formatListenAddress, type ListenAddress, readListenAddress } from '../core/listen-address.ts';
import { nearest } from '../core/nearest.ts';
import { isCidr } from '../core/networks.ts';
import { Secret } from '../core/secret.ts';
import { parseTargetRule, TARGET_SETS, wrongTargetRule } from '../core/target-rule.ts';
import { isKey } from '../service/key.ts';
import { isZone } from '../service/link/lifetime.ts';
import { maskedUrl } from '../service/link/link-url.ts';

/** The part of JSON Schema that scalars need. */
export interface ScalarJsonSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly anyOf?: readonly ScalarJsonSchema[];
}

/**
 * `wrong` is a predicate that follows the value in a message: `is not a duration`. The predicate never quotes the
 * value, which may be a secret.
 */
type Reading<T> = { readonly value: T } | { readonly wrong: string };

export interface ScalarType<T> {
  /** Describes a valid value. Messages show it after "expected", and so do the docs. */
  readonly expected: string;
  /** A valid value as written in YAML. Absent where `expected` is enough. */
  readonly example?: string;
  readonly json: ScalarJsonSchema;
  /**
   * Which values messages may quote. `valid`: only valid values, because an invalid one may be a misplaced password.
   */
  readonly quoted: 'always' | 'valid' | 'never';
  read(text: string): Reading<T>;
  write(value: T): string;
}

/** The zod schema of a scalar: text in the file, `T` in the Config. */
export type Scalar<T> = z.ZodCodec<z.ZodString, z.ZodCustom<T, T>> & { readonly scalarType: ScalarType<T> };
/** A scalar whose value is in ms. */
export type Duration = Scalar<number> & { readonly unit: 'ms' };

const DAY_MS = 86_400_000;
const DURATION_PATTERN = '^(0|[0-9]+(ms|s|m|h))$';
const MAX_TEXT_BYTES = 255;
const MAX_LINK_BYTES = 4096;

export function scalar<T>(scalarType: ScalarType<T>): Scalar<T> {
  const codec = z.codec(z.string(), z.custom<T>(), {
    decode(text, context) {
      const reading = scalarType.read(text);
      if ('value' in reading) return reading.value;
      context.issues.push({ code: 'custom', message: reading.wrong, input: text });
      return z.NEVER;
    },
    encode: (value) => scalarType.write(value),
  });
  return Object.assign(codec, { scalarType });
}

export function isScalar(schema: unknown): schema is Scalar<unknown> {
  return schema instanceof z.ZodCodec && 'scalarType' in schema;
}

export function isDuration(schema: unknown): schema is Duration {
  return isScalar(schema) && 'unit' in schema;
}

export function whole(from: number, to: number): Scalar<number> {
  return scalar({
    expected: `a whole number from ${from} to ${to}`,
    json: { type: 'integer', minimum: from, maximum: to },
    quoted: 'always',
    read(text) {
      if (!/^[+-]?\d{1,15}$/.test(text)) return { wrong: 'is not a whole number' };
      return inRange(Number(text), from, to, String);
    },
    write: String,
  });
}

export function duration(fromMs: number, toMs = DAY_MS): Duration {
  const type: ScalarType<number> = {
    expected: `a duration from ${formatDuration(fromMs)} to ${formatDuration(toMs)}`,
    example: '10s',
    json: { type: 'string', pattern: DURATION_PATTERN },
    quoted: 'always',
    read(text) {
      const ms = parseDuration(text);
      if (ms !== undefined) return inRange(ms, fromMs, toMs, formatDuration);
      return { wrong: /^\d+$/.test(text) ? 'has no unit' : 'is not a duration' };
    },
    write: formatDuration,
  };
  return Object.assign(scalar(type), { unit: 'ms' } as const);
}

function inRange(value: number, from: number, to: number, write: (value: number) => string): Reading<number> {
  if (value < from) return { wrong: `is less than ${write(from)}` };
  if (value > to) return { wrong: `is more than ${write(to)}` };
  return { value };
}

export function flag(): Scalar<boolean> {
  return scalar({
    expected: 'true or false',
    json: { type: 'boolean' },
    quoted: 'always',
    read: (text) =>
      text === 'true' || text === 'false' ? { value: text === 'true' } : { wrong: 'is not a boolean' },
    write: String,
  });
}

export function oneOf<const Word extends string>(words: readonly Word[]): Scalar<Word> {
  return scalar({
    expected: words.length === 1 ? `${words[0]}` : `one of ${words.join(', ')}`,
    json: { enum: words },
    quoted: 'always',
    read(text) {
      const value = words.find((word) => word === text);
      if (value !== undefined) return { value };
      const meant = nearest(text, words);
      return { wrong: `is not a known value${meant === undefined ? '' : ` (did you mean ${meant}?)`}` };
    },
    write: (word) => word,
  });
}

/** Accepts one of a few words, or a value of another type. */
export function wordOr<const Word extends string, T>(
  words: readonly Word[],
  { scalarType: type }: Scalar<T>,
): Scalar<Word | T> {
  const isWord = (value: Word | T): value is Word => words.some((word) => word === value);
  return scalar<Word | T>({
    ...type,
    expected: `${words.join(', ')} or ${type.expected}`,
    json: { anyOf: [{ enum: words }, type.json] },
    read(text) {
      const word = words.find((each) => each === text);
      return word === undefined ? type.read(text) : { value: word };
    },
    write: (value) => (isWord(value) ? value : type.write(value)),
  });
}

interface TextRules {
  readonly expected: string;
  readonly example: string;
  /** The whole text must match this pattern. */
  readonly pattern?: RegExp;
  /** The predicate for a text that does not match the pattern. */
  readonly wrong?: string;
  /** The maximum length, in bytes of UTF-8. */
  readonly maxBytes?: number;
  /** True: messages quote no invalid value, because it may be a misplaced password. */
  readonly private?: boolean;
  /** True: line breaks and tabs are allowed. */
  readonly controls?: boolean;
}

/** A text of at least one character, without control characters. */
export function text(rules: TextRules): Scalar<string> {
  return scalar({
    expected: rules.expected,
    example: rules.example,
    // YAML editors read unquoted digits as a number; noria reads them as text.
    json: {
      type: ['string', 'integer'],
      ...(rules.pattern === undefined ? {} : { pattern: rules.pattern.source }),
    },
    quoted: rules.private === true ? 'valid' : 'always',
    read: (given) => {
      const wrong = wrongText(given, rules);
      return wrong === undefined ? { value: given } : { wrong };
    },
    write: (value) => value,
  });
}

function wrongText(given: string, rules: TextRules): string | undefined {
  const { pattern, wrong, controls, maxBytes = MAX_TEXT_BYTES } = rules;
  if (given === '') return 'is empty';
  if (controls !== true && /\p{Cc}/u.test(given)) return 'contains a line break or another control character';
  if (Buffer.byteLength(given) > maxBytes) return `is longer than ${maxBytes} bytes`;
  if (pattern === undefined || pattern.test(given)) return undefined;
  return wrong ?? 'contains a character that is not allowed';
}

/** RFC 1929 allows 1 to 255 bytes. */
export function password(): Scalar<Secret> {
  return secret({
    expected: 'a password of 1 to 255 bytes without line breaks',
    example: '${NORIA_PASSWORD}',
  });
}

/** A token for an HTTP header. */
export function token(): Scalar<Secret> {
  return secret({
    expected: 'a token of printable ASCII characters without spaces',
    example: '${NORIA_ADMIN_TOKEN}',
    pattern: /^[\x21-\x7e]+$/,
  });
}

/** A text that may contain secrets. `{count}` in it is replaced when it is sent. */
export function secretText(example: string): Scalar<Secret> {
  return secret({ expected: 'a text without line breaks', example, maxBytes: MAX_LINK_BYTES });
}

/** The URL of an extraction link, which contains keys. noria prints it with masked secrets. */
export function linkUrl(): Scalar<Secret> {
  const rules = {
    expected: 'an http:// or https:// URL without user name, password and fragment',
    example: '"https://share.example.com/get?key=${OTHER_KEY}&num={count}"',
    maxBytes: MAX_LINK_BYTES,
  };
  const { scalarType } = secret(rules, (given) => {
    if (Buffer.byteLength(given) > MAX_LINK_BYTES) return { wrong: `is longer than ${MAX_LINK_BYTES} bytes` };
    if (/\s|\p{Cc}/u.test(given)) return { wrong: 'contains white space' };
    const url = readUrl(given);
    if ('wrong' in url) return url;
    return url.value.hash === '' ? { value: new Secret(given) } : { wrong: 'has a fragment' };
  });
  return scalar({ ...scalarType, write: maskedUrl });
}

/** A time zone, given as its offset from UTC. */
export function zone(): Scalar<string> {
  return scalar({
    expected: 'a distance from UTC such as +08:00, or Z',
    example: '"+08:00"',
    json: { type: 'string' },
    quoted: 'always',
    read: (given) => (isZone(given) ? { value: given } : { wrong: 'is not a zone' }),
    write: (value) => value,
  });
}

/** The 16-character key of an instance or an account. The Config has it in lower case. */
export function key(): Scalar<Secret> {
  const rules = {
    expected: 'a key of 16 hexadecimal digits',
    example: '0123456789abcdef',
    pattern: /^[0-9a-fA-F]{16}$/,
  };
  return secret(rules, (given) => {
    if (isKey(given)) return { value: new Secret(given.toLowerCase()) };
    if (/^[0-9a-f]{32}$/i.test(given))
      return { wrong: 'is a full MD5 hash; the key is its characters 9 to 24' };
    const others = /[^0-9a-f]/i.test(given) ? ', some of which are not hexadecimal digits' : '';
    return { wrong: `has ${given.length} characters${others}` };
  });
}

function secret(rules: TextRules, read?: ScalarType<Secret>['read']): Scalar<Secret> {
  const plain = text(rules).scalarType;
  const readPlain = (given: string): Reading<Secret> => {
    const reading = plain.read(given);
    return 'value' in reading ? { value: new Secret(reading.value) } : reading;
  };
  return scalar({ ...plain, quoted: 'never', read: read ?? readPlain, write: String });
}

/** An http or https URL without credentials, query and fragment. The Config has it without a trailing slash. */
export function baseAddress(): Scalar<string> {
  return scalar({
    expected: 'an http:// or https:// URL without user name, password, query and fragment',
    example: 'http://extract.example.com',
    json: { type: 'string', pattern: '^https?://' },
    quoted: 'valid',
    read(given) {
      const url = readUrl(given);
      if ('wrong' in url) return url;
      if (url.value.search + url.value.hash !== '') return { wrong: 'has a query or a fragment' };
      return { value: url.value.origin + url.value.pathname.replace(/\/+$/, '') };
    },
    write: (value) => value,
  });
}

/** The http or https URL of a web page. */
export function pageAddress(): Scalar<string> {
  return scalar({
    expected: 'an http:// or https:// URL without user name and password',
    example: 'http://example.com/',
    json: { type: 'string', pattern: '^https?://' },
    quoted: 'valid',
    read(given) {
      const url = readUrl(given);
      return 'wrong' in url ? url : { value: url.value.href };
    },
    write: (value) => value,
  });
}

function readUrl(given: string): Reading<URL> {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
    return { wrong: 'is not an http:// or https:// URL' };
  }
  return url.username + url.password === ''
    ? { value: url }
    : { wrong: 'contains a user name or a password' };
}

/** The URL of a front proxy, which may contain a password. */
export function frontProxy(): Scalar<FrontProxy> {
  return scalar({
    expected: 'http://host:port or socks5://host:port, with user:password@ before the host if needed',
    example: 'http://user:${VIA_PASSWORD}@bastion:3128',
    json: { type: 'string', pattern: '^(http|socks5h?)://' },
    quoted: 'never',
    read: readFrontProxy,
    write: formatFrontProxy,
  });
}

/** An address to listen on. `one` rejects port ranges and inherited sockets. */
export function listenAddress(ports: 'one' | 'range'): Scalar<ListenAddress> {
  return scalar({
    expected:
      ports === 'range'
        ? 'host:port, [v6]:port, host:24000-24019 (a port range) or fd:3 (an inherited socket)'
        : 'host:port or [v6]:port',
    example: '127.0.0.1:8888',
    json: { type: 'string' },
    quoted: 'always',
    read(given) {
      const reading = readListenAddress(given);
      if ('wrong' in reading || ports === 'range') return reading;
      const { value } = reading;
      if (value.kind === 'fd') return { wrong: 'is an inherited socket' };
      return value.lastPort === value.port ? reading : { wrong: 'has more than one port' };
    },
    write: formatListenAddress,
  });
}

/** One port, or a range of them. */
export interface PortNumbers {
  readonly first: number;
  readonly last: number;
}

export function portNumbers(): Scalar<PortNumbers> {
  return scalar<PortNumbers>({
    expected: 'a range of ports such as 24000-24019, or one port',
    json: { type: ['string', 'integer'], pattern: '^[0-9]+(-[0-9]+)?$' },
    quoted: 'always',
    read(given) {
      const reading = readListenAddress(`127.0.0.1:${given}`);
      if ('wrong' in reading)
        return /^\d+(-\d+)?$/.test(given) ? reading : { wrong: 'is not a range of ports' };
      const { value } = reading;
      if (value.kind === 'fd' || value.port === 0) return { wrong: 'has the port 0' };
      return { value: { first: value.port, last: value.lastPort ?? value.port } };
    },
    write: ({ first, last }) => (first === last ? String(first) : `${first}-${last}`),
  });
}

/** A network in CIDR form, or one address. */
export function network(): Scalar<string> {
  return scalar({
    expected: 'a network in CIDR form, or an address',
    example: '192.0.2.0/24',
    json: { type: 'string' },
    quoted: 'always',
    read: (given) => (isCidr(given) ? { value: given } : { wrong: 'is neither a network nor an address' }),
    write: (value) => value,
  });
}

/** A rule for targets that a listener refuses. core/target-rule.ts has the grammar. */
export function denyTarget(): Scalar<string> {
  return scalar({
    expected:
      'private, smtp, a host, a pattern such as *.example.com, a network in CIDR form, or ports such as :25 or :6000-6010',
    json: { type: 'string' },
    quoted: 'always',
    read(given) {
      const rule = parseTargetRule(given);
      if (rule === undefined) return { wrong: wrongTargetRule(given) };
      // Any single word is a valid host. So a word that is similar to the name of a set counts as a typo.
      const meant = rule.kind === 'host' && !given.includes('.') ? nearest(given, TARGET_SETS) : undefined;
      return meant === undefined
        ? { value: given }
        : { wrong: `is not a known set (did you mean ${meant}?)` };
    },
    write: (value) => value,
  });
}
