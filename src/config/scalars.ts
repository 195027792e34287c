/**
 * The types of scalar values. Each type reads, checks, describes and prints its values.
 *
 * Each type reads the text of a scalar, never a number of YAML (see document.ts). So an instance id of 18 digits keeps
 * all its digits, and a value from the environment is read like a value from the file.
 */
import { z } from 'zod';
import { DAY_MS, formatDuration, parseDuration } from '../core/duration.ts';
import { type FrontProxy, formatFrontProxy, readFrontProxy } from '../core/front-proxy.ts';
import { formatHostPort, type HostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import { formatListenAddress, type ListenAddress, readListenAddress } from '../core/listen-address.ts';
import { isCidr } from '../core/networks.ts';
import { MASK, Secret } from '../core/secret.ts';
import { parseTargetRule, TARGET_SETS, wrongTargetRule } from '../core/target-rule.ts';
import { nearest } from '../core/words.ts';
import { maskedUrl } from '../service/link/link-url.ts';
import { isZone } from '../service/link/read-entry.ts';
import { isKey } from '../service/request.ts';

export interface ScalarJsonSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly anyOf?: readonly ScalarJsonSchema[];
}

/**
 * The result of reading a scalar. `wrong`: why the text is invalid, such as `is not a duration`; the caller puts the
 * value or the key before it. `wrong` never quotes the value, which may be a secret.
 */
export type Reading<T> = { readonly value: T } | { readonly wrong: string };

export interface ScalarType<T> {
  /** Describes a valid value. Messages and the docs show it after "expected". */
  readonly expected: string;
  readonly example?: string;
  readonly json: ScalarJsonSchema;
  /**
   * When messages may quote the value. `valid`: only if the value is valid. An invalid value may be a password that the
   * operator put at the wrong key.
   */
  readonly quoted: 'always' | 'valid' | 'never';
  read(text: string): Reading<T>;
  write(value: T): string;
}

export type Scalar<T> = z.ZodCodec<z.ZodString, z.ZodCustom<T, T>> & { readonly scalarType: ScalarType<T> };
export type Duration = Scalar<number> & { readonly unit: 'ms' };

const DURATION_PATTERN = '^(0|[0-9]+(ms|s|m|h))$';
const MAX_TEXT_BYTES = 255;

export function scalar<T>(
  spec: Pick<ScalarType<T>, 'expected' | 'read'> & Partial<ScalarType<T>>,
): Scalar<T> {
  const scalarType: ScalarType<T> = { json: { type: 'string' }, quoted: 'always', write: String, ...spec };
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
    read(text) {
      if (!/^[+-]?\d{1,15}$/.test(text)) return { wrong: 'is not a whole number' };
      return inRange(Number(text), { from, to }, String);
    },
  });
}

const RATE_UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600 };

export function rate(): Scalar<number> {
  return scalar({
    expected: 'a number of requests a second, minute or hour: 10/s, 100/m or 1000/h',
    example: '10/s',
    json: { type: 'string', pattern: '^[1-9]\\d{0,5}/[smh]$' },
    read(text) {
      const [, count, unit = ''] = /^([1-9]\d{0,5})\/([smh])$/.exec(text) ?? [];
      const seconds = RATE_UNITS[unit];
      return seconds === undefined ? { wrong: 'is not a rate' } : { value: Number(count) / seconds };
    },
    write: (value) =>
      Number.isInteger(value)
        ? `${value}/s`
        : Number.isInteger(value * 60)
          ? `${value * 60}/m`
          : `${Math.round(value * 3_600)}/h`,
  });
}

const BYTE_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

export function byteSize(): Scalar<number> {
  return scalar({
    expected: 'a size of at least 1KiB, in KiB, MiB, GiB or TiB',
    example: '5GiB',
    json: { type: 'string', pattern: '^\\d{1,6}([KMGT]iB)$' },
    read(text) {
      const [, count, unit] = /^(\d{1,6})([KMGT]iB)$/.exec(text) ?? [];
      if (count === undefined || unit === undefined) return { wrong: 'is not a size' };
      return inRange(Number(count) * (BYTE_UNITS[unit] ?? 1), { from: 1_024, to: 2 ** 53 }, String);
    },
    write(value) {
      const unit = Object.keys(BYTE_UNITS).findLast((name) => value % (BYTE_UNITS[name] ?? 1) === 0) ?? '';
      return `${value / (BYTE_UNITS[unit] ?? 1)}${unit}`;
    },
  });
}

export function amount(): Scalar<number> {
  return scalar({
    expected: 'a number from 0 to 1000000, with at most 6 decimals',
    example: '0.02',
    json: { type: 'number', minimum: 0, maximum: 1_000_000 },
    read(text) {
      if (!/^\d{1,7}(?:\.\d{1,6})?$/.test(text)) return { wrong: 'is not such a number' };
      return inRange(Number(text), { from: 0, to: 1_000_000 }, String);
    },
  });
}

export function duration(fromMs: number, toMs = DAY_MS): Duration {
  const type = scalar<number>({
    expected: `a duration from ${formatDuration(fromMs)} to ${formatDuration(toMs)}`,
    example: '10s',
    json: { type: 'string', pattern: DURATION_PATTERN },
    read(text) {
      const ms = parseDuration(text);
      if (ms !== undefined) return inRange(ms, { from: fromMs, to: toMs }, formatDuration);
      return { wrong: /^\d+$/.test(text) ? 'has no unit' : 'is not a duration' };
    },
    write: formatDuration,
  });
  return Object.assign(type, { unit: 'ms' } as const);
}

function inRange(
  value: number,
  { from, to }: { readonly from: number; readonly to: number },
  write: (value: number) => string,
): Reading<number> {
  if (value < from) return { wrong: `is less than ${write(from)}` };
  if (value > to) return { wrong: `is more than ${write(to)}` };
  return { value };
}

export function flag(): Scalar<boolean> {
  return scalar({
    expected: 'true or false',
    json: { type: 'boolean' },
    read: (text) =>
      text === 'true' || text === 'false' ? { value: text === 'true' } : { wrong: 'is not a boolean' },
  });
}

export function oneOf<const Word extends string>(words: readonly Word[]): Scalar<Word> {
  return scalar({
    expected: words.length === 1 ? `${words[0]}` : `one of ${words.join(', ')}`,
    json: { enum: words },
    read(text) {
      const value = words.find((word) => word === text);
      if (value !== undefined) return { value };
      const meant = nearest(text, words);
      return { wrong: `is not a known value${meant === undefined ? '' : ` (did you mean ${meant}?)`}` };
    },
  });
}

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
  readonly pattern?: RegExp;
  /** For a text that does not match the pattern. */
  readonly wrong?: string;
  readonly maxBytes?: number;
  readonly private?: boolean;
  readonly controls?: boolean;
}

export function text(rules: TextRules): Scalar<string> {
  return scalar({
    expected: rules.expected,
    example: rules.example,
    // the JSON Schema also accepts integers, because YAML editors read unquoted digits as a number
    json: {
      type: ['string', 'integer'],
      ...(rules.pattern === undefined ? {} : { pattern: rules.pattern.source }),
    },
    quoted: rules.private === true ? 'valid' : 'always',
    read: (given) => {
      const wrong = wrongText(given, rules);
      return wrong === undefined ? { value: given } : { wrong };
    },
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

export function zone(): Scalar<string> {
  return scalar({
    expected: 'an offset from UTC such as +08:00, or Z',
    example: '"+08:00"',
    read: (given) => (isZone(given) ? { value: given } : { wrong: 'is not a zone' }),
  });
}

/** In the Config, it has no trailing slash. */
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
      return { value: url.value.origin + url.value.pathname.replace(/^((?:\/+[^/]+)*)\/*$/, '$1') };
    },
  });
}

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
  });
}

export function readUrl(given: string): Reading<URL> {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
    return { wrong: 'is not an http:// or https:// URL' };
  }
  return url.username + url.password === ''
    ? { value: url }
    : { wrong: 'contains a user name or a password' };
}

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

export function listenAddress(ports: 'one' | 'range'): Scalar<ListenAddress> {
  return scalar({
    expected:
      ports === 'range'
        ? 'host:port, [v6]:port, host:24000-24019 (a port range) or fd:3 (an inherited socket)'
        : 'host:port or [v6]:port',
    example: '127.0.0.1:8888',
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

export type PortNumbers = Readonly<Record<'first' | 'last', number>>;

export function portNumbers(): Scalar<PortNumbers> {
  return scalar<PortNumbers>({
    expected: 'a range of ports such as 24000-24019, or one port',
    json: { type: ['string', 'integer'], pattern: '^[0-9]+(-[0-9]+)?$' },
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

export function network(): Scalar<string> {
  return scalar({
    expected: 'a network in CIDR form, or an address',
    example: '192.0.2.0/24',
    read: (given) => (isCidr(given) ? { value: given } : { wrong: 'is neither a network nor an address' }),
  });
}

export function denyTarget(): Scalar<string> {
  return scalar({
    expected:
      'private, smtp, a host, a pattern such as *.example.com, a network in CIDR form, or ports such as :25 or :6000-6010',
    read(given) {
      const rule = parseTargetRule(given);
      if (rule === undefined) return { wrong: wrongTargetRule(given) };
      // `privat` is a valid host name, but probably means `private`
      const meant = rule.kind === 'host' && !given.includes('.') ? nearest(given, TARGET_SETS) : undefined;
      return meant === undefined
        ? { value: given }
        : { wrong: `is not a known set (did you mean ${meant}?)` };
    },
  });
}

export function sitePattern(): Scalar<string> {
  return scalar({
    expected: 'a host, an IP address, or a pattern such as *.example.com',
    example: 'shop.example',
    read(given) {
      const rule = parseTargetRule(given);
      if (rule === undefined) return { wrong: wrongTargetRule(given) };
      if (rule.kind === 'host' || rule.kind === 'below') return { value: given.toLowerCase() };
      const address = rule.kind === 'network' && !given.includes('/') ? hostPort(given, 1)?.host : undefined;
      return address === undefined ? { wrong: 'names no host' } : { value: address };
    },
  });
}

const MAX_LINK_BYTES = 4096;

export function password(): Scalar<Secret> {
  return secret({
    expected: 'a password of 1 to 255 bytes without line breaks',
    example: '${NORIA_PASSWORD}',
  });
}

export function token(): Scalar<Secret> {
  return secret({
    expected: 'a token of printable ASCII characters without spaces',
    example: '${NORIA_ADMIN_TOKEN}',
    pattern: /^[\x21-\x7e]+$/,
  });
}

export function secretText(example: string): Scalar<Secret> {
  return secret({ expected: 'a text without line breaks', example, maxBytes: MAX_LINK_BYTES });
}

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

export function webhookUrl(): Scalar<Secret> {
  const { scalarType } = linkUrl();
  return scalar({ ...scalarType, example: '"https://hooks.example.com/services/${HOOK_TOKEN}"' });
}

/** The 16-character key of an instance or an account. In the Config, it is in lower case. */
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

export interface StoreUrl {
  readonly tls: boolean;
  readonly host: string;
  readonly port: number;
  readonly username: string | undefined;
  readonly password: Secret | undefined;
  readonly database: number;
}

const DEFAULT_PORT = 6379;

export function formatStoreUrl({ tls, host, port, username, password, database }: StoreUrl): string {
  const secret = password === undefined ? '' : `:${MASK}`;
  const login =
    username === undefined && secret === '' ? '' : `${encodeURIComponent(username ?? '')}${secret}@`;
  const path = database === 0 ? '' : `/${database}`;
  return `${tls ? 'rediss' : 'redis'}://${login}${formatHostPort(host, port)}${path}`;
}

export function storeUrl(): Scalar<StoreUrl> {
  return scalar({
    expected:
      'redis://host:port or rediss://host:port (TLS), with user name, password and database number if needed',
    example: 'redis://valkey.example.com:6379',
    json: { type: 'string', pattern: '^rediss?://' },
    quoted: 'never',
    read: readStoreUrl,
    write: formatStoreUrl,
  });
}

function readStoreUrl(given: string): Reading<StoreUrl> {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !['redis:', 'rediss:'].includes(url.protocol)) {
    return { wrong: 'is not a redis:// or rediss:// URL' };
  }
  if (url.search + url.hash !== '') return { wrong: 'has a query or a fragment' };
  const port = url.port === '' ? DEFAULT_PORT : Number(url.port);
  const address = hostPort(url.hostname.replace(/^\[|\]$/g, ''), port);
  if (address === undefined) return { wrong: 'has no valid host and port' };
  const path = /^\/?(\d{1,3})?$/.exec(url.pathname);
  if (path === null) return { wrong: 'has a path that is not the number of a database' };
  try {
    const [username, password] = [url.username, url.password].map(decodeURIComponent);
    return {
      value: {
        tls: url.protocol === 'rediss:',
        host: address.host,
        port,
        username: username === '' ? undefined : username,
        password: password === '' || password === undefined ? undefined : new Secret(password),
        database: Number(path[1] ?? 0),
      },
    };
  } catch {
    // handled: decodeURIComponent throws only for an invalid use of %, which the returned message explains
    return { wrong: 'has a % that is not part of an encoded character; write %25 for it' };
  }
}

export function sentinelAddress(): Scalar<Pick<HostPort, 'host' | 'port'>> {
  return scalar<Pick<HostPort, 'host' | 'port'>>({
    expected: 'host:port or [v6]:port',
    example: '"10.0.0.1:26379"',
    read(given) {
      const address = parseHostPort(given, 26_379);
      return address === undefined ? { wrong: 'is not host:port' } : { value: address };
    },
    write: ({ host, port }) => formatHostPort(host, port),
  });
}

export const MAX = {
  members: 100_000,
  sessions: 100_000,
  tunnels: 1_000_000,
  attempts: 10,
  warm: 10_000,
  processes: 256,
  priority: 1000,
};
const MAX_PATH_BYTES = 4096;

export const filePath = (example: string, expected = 'the path of a file') =>
  text({ expected, example, maxBytes: MAX_PATH_BYTES });
export const secretFile = (example: string) =>
  filePath(example, 'the path of a file that contains only the secret');
export const username = () =>
  text({
    expected: 'a user name of 1 to 255 bytes without a colon',
    example: 'alice',
    pattern: /^[^:]*$/,
    wrong: 'contains a colon, which ends a user name in HTTP',
    private: true,
  });
export const shortName = (allowed: string, pattern: RegExp, example: string) =>
  text({
    ...{ pattern, example, maxBytes: 64 },
    expected: `1 to 64 ${allowed}`,
    wrong: `contains a character other than ${allowed}`,
  });
