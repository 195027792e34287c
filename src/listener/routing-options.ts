/**
 * Parses routing options: `BASE-key-value-key-value…` in the proxy user name, or the same keys as X-Noria headers.
 *
 * routing-keys.ts lists the keys; access.ts decides which part of a user name is BASE. BASE may be almost any text.
 * noria never ignores invalid options but refuses the request: otherwise a client with a misspelled `session` would
 * rotate without noticing.
 */
import { HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { nearest } from '../core/nearest.ts';
import { ownText } from '../core/own-text.ts';
import { MEMBER_PROTOCOLS, type MemberProtocol } from '../core/protocol.ts';
import type { RoutingOptions, SessionOwner } from '../pool/lease.ts';
import { ROUTING_KEYS, type RoutingKey, type RoutingKeyName } from './routing-keys.ts';

/**
 * The longest duration. A longer duration is probably a mistake in the unit, and would keep unused sessions in memory.
 */
const MAX_DURATION_MS = WEEK_MS;
const MAX_LOCATION_LENGTH = 64;
const SESSION_NAME = /^[A-Za-z0-9_.~]{1,64}$/;
const HEADER_PREFIX = 'x-noria-';
/**
 * The maximum length of a word that noria compares with the keys, because the comparison is slow. A longer word
 * cannot be a misspelled key.
 */
const MAX_KEY_LENGTH = 32;
const ALL_KEYS = ROUTING_KEYS.map(({ key }) => key).join(', ');

const KEYS_BY_NAME: ReadonlyMap<string, RoutingKey> = new Map(
  ROUTING_KEYS.flatMap((entry) => [entry.key, ...entry.aliases].map((name) => [name, entry] as const)),
);

/** The settings of a listener that concern routing options. */
export interface RoutingSettings {
  readonly sessionMode: 'none' | 'client-ip' | 'port' | 'target-host';
  /** The only source that the listener uses. If absent, it uses all sources. */
  readonly source?: string;
  /** Returns the names of all configured sources. A reload can change them while the listener is open. */
  readonly sourceNames: () => readonly string[];
}

/** What the listener knows about a request, to check and complete its routing options. */
export interface RoutingContext {
  readonly listener: RoutingSettings;
  /** The configured user that the client has authenticated as; '' when the listener has no users. */
  readonly user: string;
  /** See `RoutingOptions.client`. */
  readonly client: string;
  /**
   * The client's socket. Its address is read only for sessions, because reading it costs a system call. A client that
   * has disconnected has no address.
   */
  readonly socket: { readonly remoteAddress?: string | undefined };
  /** The port of the listener that the client connected to. */
  readonly localPort: number;
  /** Canonical host of the target; '' while the target is unknown. */
  readonly targetHost: string;
}

/** The options that the client gave, before the listener adds its own. */
interface GivenOptions {
  session?: string;
  sessionTtlMs?: number;
  source?: string;
  location?: string;
  minLifeMs?: number;
  protocol?: MemberProtocol;
  rotate?: boolean;
}

interface GivenOption {
  readonly entry: RoutingKey;
  /** The key or alias, in lower case. */
  readonly name: string;
  readonly value: string;
}

/** Why options are refused: `message` for the log; `reason` for the client, without text that the client sent. */
interface Problem {
  readonly message: string;
  readonly reason: string;
}

/**
 * Parses routing options and adds what the listener decides: its source, its session mode, and the user of the session.
 *
 * @param routingText - what follows BASE in the user name, without the separator: `key-value-key-value` or
 *   `key-value,key-value`.
 * @param headers - raw pairs in any letter case. Those named X-Noria-KEY override `routingText`.
 * @returns `bad-routing` for an unknown key, an invalid or missing value, a key given twice, or an unknown source. Its
 *   message quotes the client and is for the log only; the `reason` in its context is for the client.
 */
export function readRoutingOptions(
  routingText: string,
  headers: readonly (readonly [string, string])[],
  context: RoutingContext,
): RoutingOptions | NoriaError {
  const given: GivenOptions = {};
  const found =
    parseText(routingText, given) ?? parseHeaders(headers, given) ?? checkSource(given, context.listener);
  if (found !== undefined) {
    return new NoriaError('bad-routing', found.message, { context: { reason: found.reason } });
  }
  return complete(given, context);
}

/**
 * Returns the session that a client gets on this port, if the listener has `session: port` and the client sends no
 * routing options.
 */
export function sessionOfPort(
  localPort: number,
  user: string,
): { session: string; sessionOwner: SessionOwner } {
  const session = portSession({ localPort });
  return { session: sessionOfUser(session, user), sessionOwner: { user: '', address: session } };
}

/**
 * Returns what follows BASE in the user name of a client. Only for a listener without users, where BASE is any text.
 *
 * BASE ends before the first word that is a key: in `my-app-session-1`, BASE is `my-app`; in
 * `session-abc,adr-Shanghai`, BASE is empty. BASE has at most two words, or three if it starts with Bright Data's
 * `brd-customer` or `lum-customer`. If more words precede the first key, the second word is probably a misspelled key.
 * Then BASE is only the first word, so noria refuses the second word as an unknown key.
 */
export function routingTextWithoutUsers(username: string): string {
  if (username === '') return '';
  const words = username.split(/[-,]/);
  if (words.length === 1 && words[0] !== 'rotate') return '';
  const firstKey = words.findIndex((word) => KEYS_BY_NAME.has(word.toLowerCase()));
  const wordsBefore = firstKey < 0 ? words.length : firstKey;
  const maxWords = /^(?:brd|lum)-customer-/.test(username) ? 3 : 2;
  const baseWords = wordsBefore <= maxWords ? wordsBefore : 1;
  return words.slice(0, baseWords).reduce((rest, word) => rest.slice(word.length + 1), username);
}

function parseText(routingText: string, given: GivenOptions): Problem | undefined {
  if (routingText === '') return undefined;
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
      const option = { entry, name: name.toLowerCase(), value };
      if (!setOption(given, option)) return invalidValue(option, 'in the user name');
      index += entry.value === undefined ? 1 : 2;
    }
  }
  return undefined;
}

function parseHeaders(
  headers: readonly (readonly [string, string])[],
  given: GivenOptions,
): Problem | undefined {
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
    const option = { entry, name, value: value.trim() };
    if (!setOption(given, option)) return invalidValue(option, 'in a header');
  }
  return undefined;
}

/** A text for the client: the key that was probably meant, in the documented spelling, and a list of all keys. */
function whichKeys(name: string): string {
  const meant = name.length > MAX_KEY_LENGTH ? undefined : nearest(name, KEYS_BY_NAME.keys());
  return meant === undefined ? `the keys are ${ALL_KEYS}` : `did you mean ${meant}? The keys are ${ALL_KEYS}`;
}

function invalidValue({ entry, name, value }: GivenOption, where: string): Problem {
  const expected = entry.value ?? 'yes or no';
  return problem(
    `invalid value ${quote(value)} for key ${name} ${where}: expected ${expected}`,
    `invalid value for key ${name} ${where}: expected ${expected}`,
  );
}

/** @returns false when the value is invalid for this key. */
function setOption(given: GivenOptions, { entry, name, value }: GivenOption): boolean {
  switch (entry.key) {
    case 'session':
      if (!SESSION_NAME.test(value)) return false;
      given.session = ownText(value); // a copy: a substring would keep the whole request head in memory
      return true;
    case 'ttl':
    case 'life': {
      const ms = parseDuration(value, entry.bareUnitMs?.[name] ?? SECOND_MS);
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
    case 'rotate': {
      // In the user name, `rotate` has no value. A header always has a value, so noria accepts the usual words for yes
      // and no.
      const yes = /^(?:|1|true|yes|on)$/i.test(value);
      if (!yes && !/^(?:0|false|no|off)$/i.test(value)) return false;
      given.rotate = yes;
      return true;
    }
  }
}

/**
 * Parses a duration in ms: `500ms`, `10s`, `5m`, `2h`, or a whole number, whose unit is `bareUnitMs`. A valid duration
 * is more than 0 and at most 7 days.
 */
function parseDuration(text: string, bareUnitMs: number): number | undefined {
  const parts = /^(\d{1,9})(ms|s|m|h)?$/i.exec(text);
  if (parts === null) return undefined;
  const units: Readonly<Record<string, number>> = { ms: 1, s: SECOND_MS, m: MINUTE_MS, h: HOUR_MS };
  const unitMs = parts[2] === undefined ? bareUnitMs : (units[parts[2].toLowerCase()] ?? 0);
  const ms = Number(parts[1]) * unitMs;
  return ms > 0 && ms <= MAX_DURATION_MS ? ms : undefined;
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

function checkSource({ source }: GivenOptions, listener: RoutingSettings): Problem | undefined {
  if (source === undefined) return undefined;
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

function complete(given: GivenOptions, context: RoutingContext): RoutingOptions {
  const session = given.session ?? (given.rotate ? undefined : automaticSession(context));
  const source = given.source ?? context.listener.source;
  const { sessionTtlMs, location, minLifeMs, protocol } = given;
  const routing: { -readonly [Key in keyof RoutingOptions]: RoutingOptions[Key] } = {
    client: context.client,
  };
  if (session !== undefined) {
    routing.session = sessionOfUser(session, context.user);
    routing.sessionOwner = ownerOf(session, context);
    if (sessionTtlMs !== undefined) routing.sessionTtlMs = sessionTtlMs;
  }
  if (source !== undefined) routing.source = source;
  if (location !== undefined) routing.location = location;
  if (minLifeMs !== undefined) routing.minLifeMs = minLifeMs;
  if (protocol !== undefined) routing.protocol = protocol;
  return routing;
}

/**
 * Returns the session that the listener's session mode assigns, for example `port=24000`. No client can choose this
 * session, because the session names of clients must not contain `=`.
 */
function automaticSession(context: RoutingContext): string | undefined {
  switch (context.listener.sessionMode) {
    case 'none':
      return undefined;
    case 'client-ip':
      return addressSession(context.socket);
    case 'port':
      return portSession(context);
    case 'target-host':
      return `target-host=${context.targetHost}`;
  }
}

/**
 * The session of the client's address. Undefined if the client has disconnected, because its address is then unknown.
 */
function addressSession({ remoteAddress = '' }: RoutingContext['socket']): string | undefined {
  return remoteAddress === '' ? undefined : `client-ip=${remoteAddress.replace(/^::ffff:(?=\d+\.)/i, '')}`;
}

function portSession({ localPort }: Pick<RoutingContext, 'localPort'>): string {
  return `port=${localPort}`;
}

/**
 * Returns the owner of a session. The pool limits the number of sessions of one owner. The session of each port has a
 * separate owner, because one client may use thousands of ports.
 */
function ownerOf(session: string, context: RoutingContext): SessionOwner {
  if (context.listener.sessionMode === 'port' && session === portSession(context))
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
function problem(message: string, reason = message): Problem {
  return { message, reason };
}

/** Formats a text from the client for a log line: shortened, with control characters escaped. */
function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}
