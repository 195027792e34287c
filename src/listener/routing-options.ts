/**
 * Routing options: `BASE-key-value-key-value…` in the proxy user name, or the same keys as X-Noria headers. access.ts
 * decides which part of a user name is BASE. Invalid options refuse the request: otherwise a client with a misspelled
 * `session` would rotate without noticing. docs/routing.md has the same table; test/held/routing.test.ts compares the
 * two.
 */
import { MINUTE_MS, parseDuration as parseWithUnit, SECOND_MS, WEEK_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import { nearest, ownText } from '../core/words.ts';
import type { RoutingOptions } from '../pool/lease.ts';

export type RoutingKeyName =
  | 'session'
  | 'ttl'
  | 'source'
  | 'adr'
  | 'life'
  | 'protocol'
  | 'rotate'
  | 'tag'
  | 'exclusive'
  | 'fixed';

export interface RoutingKey {
  readonly key: RoutingKeyName;
  /** The names that clients of other gateways use for this key. */
  readonly aliases: readonly string[];
  /** Error messages contain it after the word `expected`. Absent if the key has no value. */
  readonly value?: string;
  /** The names whose value without a unit is in minutes: `sesstime-5` is 5 minutes, `ttl-5` 5 seconds. */
  readonly inMinutes?: readonly string[];
}

/** Names are in lower case and unique in the table. */
export const ROUTING_KEYS: readonly RoutingKey[] = [
  {
    key: 'session',
    aliases: ['sessid', 'sid', 'sessionid'],
    value: '1 to 64 of letters, digits, `_`, `.` and `~`',
  },
  {
    key: 'ttl',
    aliases: ['sesstime', 'sessionduration', 'sessionttl', 'sessionlength', 'lifetime'],
    value: 'a duration',
    inMinutes: ['sesstime', 'sessionduration', 'sessionttl', 'lifetime'],
  },
  { key: 'source', aliases: ['pool', 'zone'], value: "a source's name" },
  {
    key: 'adr',
    aliases: ['country', 'cc', 'state', 'city', 'region', 'area'],
    value: 'a keyword of at most 64 characters, URL-encoded where needed, `_` for a space',
  },
  { key: 'life', aliases: ['minlife'], value: 'a duration' },
  { key: 'protocol', aliases: [], value: MEMBER_PROTOCOLS.map((protocol) => `\`${protocol}\``).join(', ') },
  { key: 'rotate', aliases: [] },
  { key: 'tag', aliases: [], value: '1 to 64 of letters, digits, `_`, `.` and `~`' },
  { key: 'exclusive', aliases: [] },
  { key: 'fixed', aliases: [] },
];

/** A longer duration is probably a mistake in the unit, and would keep unused sessions in memory. */
const MAX_DURATION_MS = WEEK_MS;
const MAX_LOCATION_LENGTH = 64;
const SESSION_NAME = /^[A-Za-z0-9_.~]{1,64}$/;
const HEADER_PREFIX = 'x-noria-';
/** A longer word cannot be a misspelled key, and the comparison is slow. */
const MAX_KEY_LENGTH = 32;
const ALL_KEYS = ROUTING_KEYS.map(({ key }) => key).join(', ');

const KEYS_BY_NAME: ReadonlyMap<string, RoutingKey> = new Map(
  ROUTING_KEYS.flatMap((entry) => [entry.key, ...entry.aliases].map((name) => [name, entry] as const)),
);

export interface RoutingSettings {
  readonly session: 'none' | 'client-ip' | 'port' | 'target-host';
  readonly source?: string | undefined;
  /** A reload can change them while the listener is open. */
  readonly sourceNames: () => readonly string[];
}

export interface RoutingContext {
  readonly listener: RoutingSettings;
  readonly user: string;
  /** See `RoutingOptions.client`. */
  readonly client: string;
  /** Its address is read only for sessions, because reading it costs a system call. */
  readonly socket: { readonly remoteAddress?: string | undefined };
  readonly localPort: number;
  /** Canonical host of the target; '' while the target is unknown. */
  readonly targetHost: string;
}

type Given = { -readonly [Key in keyof RoutingOptions]: RoutingOptions[Key] } & { rotate?: boolean };

/**
 * @param routingText - what follows BASE and its separator. @param headers - raw pairs; X-Noria-KEY overrides
 * `routingText`. @returns `bad-routing`, whose message quotes the client and is for the log only.
 */
export function readRoutingOptions(
  routingText: string,
  headers: readonly (readonly [string, string])[],
  context: RoutingContext,
): RoutingOptions | NoriaError {
  const { listener, user, client } = context;
  const given: Given = {};
  const error =
    (routingText === '' ? undefined : parseText(routingText, given)) ??
    parseHeaders(headers, given) ??
    (given.source === undefined ? undefined : checkSource(given.source, listener));
  if (error !== undefined) return error;
  const { sessionTtlMs, location, minLifeMs, protocol, tag, exclusive, fixed } = given;
  const isAutomatic = listener.session !== 'none' && given.rotate !== true;
  if ((exclusive || fixed) && given.session === undefined && !isAutomatic)
    return problem(`the key ${exclusive ? 'exclusive' : 'fixed'} needs a session: add session-NAME`);
  const session = given.session ?? (isAutomatic ? automaticSession(context) : undefined);
  const source = given.source ?? listener.source;
  const routing: Given = { client };
  if (user !== '') routing.user = user;
  if (session !== undefined) {
    routing.session = sessionOfUser(session, user);
    routing.sessionOwner = ownerOf(session, context);
    if (sessionTtlMs !== undefined) routing.sessionTtlMs = sessionTtlMs;
    if (exclusive === true) routing.exclusive = true;
    if (fixed === true) routing.fixed = true;
  }
  if (source !== undefined) routing.source = source;
  if (location !== undefined) routing.location = location;
  if (minLifeMs !== undefined) routing.minLifeMs = minLifeMs;
  if (protocol !== undefined) routing.protocol = protocol;
  if (tag !== undefined) routing.tag = tag;
  return routing;
}

/** The session of a client without routing options on this port, with `session: port`. */
export function sessionOfPort(
  localPort: number,
  user: string,
): Required<Pick<RoutingOptions, 'session' | 'sessionOwner'>> {
  const session = portSession(localPort);
  return { session: sessionOfUser(session, user), sessionOwner: { user: '', address: session } };
}

/**
 * What follows BASE in a listener without users, where BASE is any text. BASE ends before the first word that is a
 * key: `my-app-session-1`, `session-abc,adr-Shanghai`. It has at most two words, or three after Bright Data's
 * `brd-customer` or `lum-customer`; with more words before the first key, the second is probably a misspelled key, so
 * noria refuses it as one.
 */
export function routingTextWithoutUsers(username: string): string {
  const words = username.split(/[-,]/);
  if (words.length === 1 && words[0] !== 'rotate') return '';
  const firstKey = words.findIndex((word) => KEYS_BY_NAME.has(word.toLowerCase()));
  const wordsBefore = firstKey < 0 ? words.length : firstKey;
  const maxWords = /^(?:brd|lum)-customer-/.test(username) ? 3 : 2;
  const baseWords = wordsBefore <= maxWords ? wordsBefore : 1;
  return words.slice(0, baseWords).reduce((rest, word) => rest.slice(word.length + 1), username);
}

function parseText(routingText: string, given: Given): NoriaError | undefined {
  const seen = new Set<RoutingKeyName>();
  for (const item of routingText.split(',')) {
    const words = item.split('-');
    for (let index = 0; index < words.length; ) {
      const name = words[index] ?? '';
      const entry = KEYS_BY_NAME.get(name.toLowerCase());
      if (entry === undefined) {
        return problem(
          `unknown key ${quote(name)} in the user name`,
          `the user name contains an unknown key; ${whichKeys(name)}`,
        );
      }
      if (seen.has(entry.key)) return problem(`key ${entry.key} is given twice in the user name`);
      seen.add(entry.key);
      const value = entry.value === undefined ? '' : words[index + 1];
      if (value === undefined) return problem(`key ${name} has no value in the user name`);
      if (!setOption(given, entry, name.toLowerCase(), value))
        return invalidValue(entry, name.toLowerCase(), value, 'in the user name');
      index += entry.value === undefined ? 1 : 2;
    }
  }
  return undefined;
}

function parseHeaders(headers: readonly (readonly [string, string])[], given: Given): NoriaError | undefined {
  const seen = new Set<RoutingKeyName>();
  for (const [header, value] of headers) {
    if (header.length <= HEADER_PREFIX.length) continue;
    if (header.slice(0, HEADER_PREFIX.length).toLowerCase() !== HEADER_PREFIX) continue;
    const name = header.slice(HEADER_PREFIX.length).toLowerCase();
    const entry = KEYS_BY_NAME.get(name);
    if (entry === undefined) {
      return problem(
        `unknown header ${quote(header)}`,
        `an X-Noria header has an unknown key; ${whichKeys(name)}`,
      );
    }
    if (seen.has(entry.key)) return problem(`key ${entry.key} is given twice in headers`);
    seen.add(entry.key);
    if (!setOption(given, entry, name, value)) return invalidValue(entry, name, value, 'in a header');
  }
  return undefined;
}

/** A text for the client: the key that was probably meant, in the documented spelling, and a list of all keys. */
function whichKeys(name: string): string {
  const meant = name.length > MAX_KEY_LENGTH ? undefined : nearest(name, KEYS_BY_NAME.keys());
  return meant === undefined ? `the keys are ${ALL_KEYS}` : `did you mean ${meant}? The keys are ${ALL_KEYS}`;
}

function invalidValue(entry: RoutingKey, name: string, value: string, where: string): NoriaError {
  const expected = entry.value ?? 'yes or no';
  return problem(
    `invalid value ${quote(value)} for key ${name} ${where}: expected ${expected}`,
    `invalid value for key ${name} ${where}: expected ${expected}`,
  );
}

function setOption(given: Given, entry: RoutingKey, name: string, value: string): boolean {
  switch (entry.key) {
    case 'session':
      if (!SESSION_NAME.test(value)) return false;
      given.session = ownText(value); // a copy: a substring would keep the whole request head in memory
      return true;
    case 'ttl':
    case 'life': {
      const ms = parseDuration(value, entry.inMinutes?.includes(name) ? MINUTE_MS : SECOND_MS);
      if (ms === undefined) return false;
      if (entry.key === 'ttl') given.sessionTtlMs = ms;
      else given.minLifeMs = ms;
      return true;
    }
    case 'source':
      if (value === '') return false;
      given.source = ownText(value);
      return true;
    case 'adr': {
      const location = decodeLocation(value);
      if (location === undefined) return false;
      given.location = ownText(location);
      return true;
    }
    case 'protocol': {
      const protocol = MEMBER_PROTOCOLS.find((known) => known === value.toLowerCase());
      if (protocol === undefined) return false;
      given.protocol = protocol;
      return true;
    }
    case 'tag':
      if (!SESSION_NAME.test(value)) return false;
      given.tag = ownText(value);
      return true;
    case 'rotate':
    case 'exclusive':
    case 'fixed': {
      // A header always has a value, so noria accepts the usual words for yes and no.
      const yes = /^(?:|1|true|yes|on)$/i.test(value);
      if (!yes && !/^(?:0|false|no|off)$/i.test(value)) return false;
      given[entry.key] = yes;
      return true;
    }
  }
}

/** `500ms`, `10s`, `5m`, `2h`, or a whole number of `bareUnitMs`; more than 0 and at most 7 days. */
export function parseDuration(text: string, bareUnitMs: number): number | undefined {
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * bareUnitMs : parseWithUnit(text.toLowerCase());
  return ms !== undefined && ms > 0 && ms <= MAX_DURATION_MS ? ms : undefined;
}

function decodeLocation(value: string): string | undefined {
  let location: string;
  try {
    location = decodeURIComponent(value.replaceAll('_', ' ')).trim();
  } catch {
    return undefined; // handled: a stray percent sign makes the value invalid
  }
  const isValid = location !== '' && location.length <= MAX_LOCATION_LENGTH && !/\p{Cc}/u.test(location);
  return isValid ? location : undefined;
}

function checkSource(source: string, listener: RoutingSettings): NoriaError | undefined {
  if (!listener.sourceNames().includes(source)) {
    return problem(
      `the value ${quote(source)} of the key source is not the name of a configured source`,
      'the value of the key source is not the name of a configured source',
    );
  }
  if (listener.source !== undefined && source !== listener.source) {
    return problem(
      `the value of the key source is ${source}, but this listener uses only the source ${listener.source}`,
    );
  }
  return undefined;
}

/** For example `port=24000`. No client can choose it, because its session names must not contain `=`. */
function automaticSession({ listener, socket, localPort, targetHost }: RoutingContext): string | undefined {
  switch (listener.session) {
    case 'none':
      return undefined;
    case 'client-ip': {
      const { remoteAddress = '' } = socket; // unknown after the client has disconnected
      return remoteAddress === ''
        ? undefined
        : `client-ip=${remoteAddress.replace(/^::ffff:(?=\d+\.)/i, '')}`;
    }
    case 'port':
      return portSession(localPort);
    case 'target-host':
      return `target-host=${targetHost}`;
  }
}

function portSession(localPort: number): string {
  return `port=${localPort}`;
}

/** The pool limits the sessions of one owner. Each port is its own owner: one client may use thousands of ports. */
function ownerOf(session: string, context: RoutingContext): NonNullable<RoutingOptions['sessionOwner']> {
  if (context.listener.session === 'port' && session === portSession(context.localPort))
    return { user: '', address: session };
  return { user: context.user, address: context.socket.remoteAddress ?? '' };
}

/**
 * The full name of a session. A session belongs to its user: two users with the same session name have two sessions.
 */
function sessionOfUser(session: string, user: string): string {
  return user === '' ? session : `${user}:${session}`;
}

/** @param reason - the text for the client. Needed only if `message`, which is for the log, quotes the client. */
function problem(message: string, reason = message): NoriaError {
  return new NoriaError('bad-routing', message, { context: { reason } });
}

/** Formats a text from the client for a log line: shortened, with control characters escaped. */
function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}
