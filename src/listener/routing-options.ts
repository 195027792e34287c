/**
 * What a client asks for: `BASE-key-value-key-value…` in its proxy user name, or the same keys as X-Noria headers.
 *
 * The keys stand in routing-keys.ts; who a BASE is, access.ts decides. Liberal about BASE, strict about keys: a wish that
 * cannot be read is refused, never ignored, since a client that believes itself on one member while it rotates is worse
 * off than one that is told.
 */
import { NoriaError } from '../core/faults.ts';
import { ownText } from '../core/own-text.ts';
import { MEMBER_PROTOCOLS, type MemberProtocol } from '../core/protocol.ts';
import type { RoutingOptions } from '../pool/lease.ts';
import { MINUTE_MS, ROUTING_KEYS, type RoutingKey, type RoutingKeyName, SECOND_MS } from './routing-keys.ts';

const HOUR_MS = 60 * MINUTE_MS;
/** A longer one is a slip of the unit, and would keep sessions in memory for no client. */
const MAX_DURATION_MS = 7 * 24 * HOUR_MS;
const MAX_LOCATION_LENGTH = 64;
const SESSION_NAME = /^[A-Za-z0-9_.~]{1,64}$/;
const HEADER_PREFIX = 'x-noria-';
const ALL_KEYS = ROUTING_KEYS.map(({ key }) => key).join(', ');

const KEYS_BY_NAME: ReadonlyMap<string, RoutingKey> = new Map(
  ROUTING_KEYS.flatMap((entry) => [entry.key, ...entry.aliases].map((name) => [name, entry] as const)),
);

/** What a listener knows about a connection, to complete and to judge a wish. */
export interface RoutingContext {
  /** The configured user that the client proved to be; '' where none is configured. */
  readonly user: string;
  readonly sessionMode: 'none' | 'client-ip' | 'port' | 'target-host';
  /** Of the client, where `sessionMode` asks for it; '' when it has left. */
  readonly clientAddress: string;
  /** The listener's port that the client came to. */
  readonly localPort: number;
  /** Canonical host of the target. */
  readonly targetHost: string;
  /** The one source this listener draws from. */
  readonly listenerSource?: string | undefined;
  /** Names of all configured sources. */
  readonly sources: readonly string[];
}

/** A wish as it was written, before the listener's own choices. */
interface Draft {
  session?: string;
  sessionTtlMs?: number;
  source?: string;
  location?: string;
  minLifeMs?: number;
  protocol?: MemberProtocol;
  rotate?: boolean;
}

/** What is wrong with a wish: for the log, and for the client in words that are none of its own. */
interface Problem {
  readonly message: string;
  readonly reason: string;
}

/**
 * Reads a wish and fills in what the listener decides: its source, its session mode, the user a session belongs to.
 *
 * @param routingText - what follows BASE in the user name, without the separator; both `key-value-key-value` and
 *   `key-value,key-value`.
 * @param headers - raw pairs in any letter case; those named X-Noria-KEY are read and win over `routingText`.
 * @returns `bad-routing` for an unknown key, a bad or missing value, a key given twice, or a source that is not there. Its
 *   message is for the log alone, since it quotes the client; `reason` in its context says the same in words of ours.
 */
export function readRoutingOptions(
  routingText: string,
  headers: readonly (readonly [string, string])[],
  context: RoutingContext,
): RoutingOptions | NoriaError {
  const draft: Draft = {};
  const wrong = readText(routingText, draft) ?? readHeaders(headers, draft) ?? judgeSource(draft, context);
  if (wrong !== undefined) {
    return new NoriaError('bad-routing', wrong.message, { context: { reason: wrong.reason } });
  }
  return complete(draft, context);
}

/**
 * What follows BASE in a user name where no users are configured, so that BASE may be anything.
 *
 * BASE is what stands before the first word that is a key: `my-app-session-1` is `my-app` and `session-1`,
 * `session-abc,adr-Shanghai` has none. It has at most two words (three after Bright Data's `brd-customer`): more than
 * that looks like a key noria does not know, and is given back to be refused as one.
 */
export function routingTextWithoutUsers(username: string): string {
  if (username === '') return '';
  const words = username.split(/[-,]/);
  if (words.length === 1 && words[0] !== 'rotate') return '';
  const firstKey = words.findIndex((word) => KEYS_BY_NAME.has(word.toLowerCase()));
  const before = firstKey < 0 ? words.length : firstKey;
  const most = /^(?:brd|lum)-customer-/.test(username) ? 3 : 2;
  const baseWords = before <= most ? before : 1;
  return words.slice(0, baseWords).reduce((rest, word) => rest.slice(word.length + 1), username);
}

function readText(routingText: string, draft: Draft): Problem | undefined {
  if (routingText === '') return undefined;
  const given = new Set<RoutingKeyName>();
  for (const item of routingText.split(',')) {
    const words = item.split('-');
    for (let index = 0; index < words.length; ) {
      const name = words[index] ?? '';
      const entry = KEYS_BY_NAME.get(name.toLowerCase());
      if (entry === undefined) {
        const reason = `a key in the user name is none of ${ALL_KEYS}`;
        return problem(`unknown key ${quote(name)} in the user name`, reason);
      }
      if (given.has(entry.key)) return problem(`key ${entry.key} given twice in the user name`);
      given.add(entry.key);
      const value = entry.value === undefined ? '' : words[index + 1];
      if (value === undefined) return problem(`key ${name} without a value in the user name`);
      const key = name.toLowerCase();
      if (!setWish(draft, entry, key, value)) return badValue(entry, key, value, 'in the user name');
      index += entry.value === undefined ? 1 : 2;
    }
  }
  return undefined;
}

function readHeaders(headers: readonly (readonly [string, string])[], draft: Draft): Problem | undefined {
  const given = new Set<RoutingKeyName>();
  for (const [header, value] of headers) {
    if (header.length <= HEADER_PREFIX.length) continue;
    if (header.slice(0, HEADER_PREFIX.length).toLowerCase() !== HEADER_PREFIX) continue;
    const name = header.slice(HEADER_PREFIX.length).toLowerCase();
    const entry = KEYS_BY_NAME.get(name);
    if (entry === undefined) {
      return problem(
        `unknown header ${quote(header)}`,
        `the key of an X-Noria header is none of ${ALL_KEYS}`,
      );
    }
    if (given.has(entry.key)) return problem(`key ${entry.key} given twice in headers`);
    given.add(entry.key);
    const text = value.trim();
    if (!setWish(draft, entry, name, text)) return badValue(entry, name, text, 'in a header');
  }
  return undefined;
}

function badValue(entry: RoutingKey, name: string, value: string, where: string): Problem {
  const wanted = `of key ${name} ${where}: wanted ${entry.value ?? 'none'}`;
  return problem(`bad value ${quote(value)} ${wanted}`, `bad value ${wanted}`);
}

/** @returns false when the value is none for this key. */
function setWish(draft: Draft, entry: RoutingKey, name: string, value: string): boolean {
  switch (entry.key) {
    case 'session':
      if (!SESSION_NAME.test(value)) return false;
      draft.session = ownText(value); // sessions last
      return true;
    case 'ttl':
    case 'life': {
      const ms = parseDuration(value, entry.bareUnitMs?.[name] ?? SECOND_MS);
      if (ms === undefined) return false;
      if (entry.key === 'ttl') draft.sessionTtlMs = ms;
      else draft.minLifeMs = ms;
      return true;
    }
    case 'source':
      if (value === '') return false;
      draft.source = ownText(value);
      return true;
    case 'adr': {
      const location = decodeLocation(value);
      if (location === undefined) return false;
      draft.location = ownText(location);
      return true;
    }
    case 'protocol': {
      const protocol = MEMBER_PROTOCOLS.find((known) => known === value.toLowerCase());
      if (protocol === undefined) return false;
      draft.protocol = protocol;
      return true;
    }
    case 'rotate': {
      // A header cannot be without a value, so the usual words for yes and no are read there.
      const yes = /^(?:|1|true|yes|on)$/i.test(value);
      if (!yes && !/^(?:0|false|no|off)$/i.test(value)) return false;
      draft.rotate = yes;
      return true;
    }
  }
}

/** `500ms`, `10s`, `5m`, `2h`, or a bare whole number in `bareUnitMs`; more than 0 and at most 7 days. */
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
    return undefined; // handled: a stray percent sign is a bad value
  }
  const good = location !== '' && location.length <= MAX_LOCATION_LENGTH && !/\p{Cc}/u.test(location);
  return good ? location : undefined;
}

function judgeSource(draft: Draft, context: RoutingContext): Problem | undefined {
  if (draft.source === undefined) return undefined;
  if (!context.sources.includes(draft.source)) {
    return problem(
      `no source ${quote(draft.source)}, named by key source`,
      'key source names none of the configured sources',
    );
  }
  if (context.listenerSource !== undefined && draft.source !== context.listenerSource) {
    return problem(
      `key source names ${draft.source}, and this listener draws from ${context.listenerSource} alone`,
    );
  }
  return undefined;
}

function complete(draft: Draft, context: RoutingContext): RoutingOptions {
  const session = draft.session ?? (draft.rotate ? undefined : automaticSession(context));
  const source = draft.source ?? context.listenerSource;
  const { sessionTtlMs, location, minLifeMs, protocol } = draft;
  const routing: { -readonly [Key in keyof RoutingOptions]: RoutingOptions[Key] } = {};
  if (session !== undefined) routing.session = ofUser(session, context.user);
  if (session !== undefined && sessionTtlMs !== undefined) routing.sessionTtlMs = sessionTtlMs;
  if (source !== undefined) routing.source = source;
  if (location !== undefined) routing.location = location;
  if (minLifeMs !== undefined) routing.minLifeMs = minLifeMs;
  if (protocol !== undefined) routing.protocol = protocol;
  return routing;
}

/** The session that the listener's mode gives to everyone. Its `=` keeps it apart from any name a client can choose. */
function automaticSession(context: RoutingContext): string | undefined {
  switch (context.sessionMode) {
    case 'none':
      return undefined;
    case 'client-ip':
      if (context.clientAddress === '') return undefined; // it has left: no session is its own
      return `client-ip=${context.clientAddress.replace(/^::ffff:(?=\d+\.)/i, '')}`;
    case 'port':
      return `port=${context.localPort}`;
    case 'target-host':
      return `target-host=${context.targetHost}`;
  }
}

/** A session belongs to its user: two users with the same name for one have two. */
function ofUser(session: string, user: string): string {
  return user === '' ? session : `${user}:${session}`;
}

/** `reason` where `message` quotes the client. */
function problem(message: string, reason = message): Problem {
  return { message, reason };
}

/** A client's text for a log line: short, and with its control characters escaped. */
function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}
