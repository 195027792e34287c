/**
 * Reads one entry of a link's answer, a text or an object. The rules of the source go first; without a rule, a field
 * is recognised by its name or the form of its value. An imprecise lifetime is rounded down, because a client request
 * through an expired member fails.
 */
import { MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import type { MemberProtocol } from '../../core/protocol.ts';
import { Secret } from '../../core/secret.ts';
import type { DropReason, RefuseAddress } from '../decode.ts';
import { type DrawnEntry, readEntryPort, readIp, readProtocol, readText } from '../fields.ts';
import { type AddressText, fillLayout, type LayoutReader, readAddressText } from './address-text.ts';
import { DEFAULT_ZONE, type EntryLogin, type ExpiryKind, type LinkRules, valueAtPath } from './rules.ts';

export interface EntryOptions {
  readonly answer: LinkRules;
  readonly layout: LayoutReader | undefined;
  readonly login: EntryLogin;
  /** Undefined: the protocol that the entry names, or else http. */
  readonly protocol: MemberProtocol | undefined;
  readonly refuses: RefuseAddress;
  readonly wallAt: number;
}

const MAX_LOGIN_BYTES = 255;

export function readLinkEntry(
  raw: unknown,
  options: EntryOptions,
): { readonly entry: DrawnEntry; readonly parts: EntryParts } | DropReason {
  const found = findEntryParts(raw, options);
  const host = found && readIp(found.address.ip);
  if (found === undefined || host === undefined) return 'address';
  const port = readEntryPort(found.address.port);
  if (port === undefined) return 'port';
  const refused = options.refuses(host, port);
  if (refused !== undefined) return refused;
  const lifetime = lifetimeOf(found, options);
  if (lifetime === 'expired') return 'expired';
  const login = options.login === 'ignore' ? undefined : loginOf(found);
  if (login === undefined && options.login === 'require') return 'credentials';
  const exitIp = readIp(found.exitIp);
  const location = readText(found.location.flatMap((part) => readText(part) ?? []).join(' '));
  const entry: DrawnEntry = {
    host,
    port,
    protocol: options.protocol ?? found.protocol ?? 'http',
    ...(lifetime === undefined ? {} : { lifetimeMs: lifetime }),
    ...(exitIp === undefined ? {} : { exitIp }),
    ...(location === undefined ? {} : { location }),
    ...(login === undefined ? {} : { login }),
  };
  return { entry, parts: found.parts };
}

function lifetimeOf({ expiry }: RawEntry, { answer: rules, wallAt }: EntryOptions): Lifetime {
  if (expiry === undefined) return undefined;
  const { value, as, since } = expiry;
  return readLifetime(value, as, { zone: rules.expiry?.zone ?? DEFAULT_ZONE, wallAt, since });
}

function loginOf({ username, password }: RawEntry): DrawnEntry['login'] {
  const [name, word] = [username, password].map(loginText);
  return name === undefined || word === undefined
    ? undefined
    : { username: name, password: new Secret(word) };
}

function loginText(raw: unknown): string | undefined {
  const text = typeof raw === 'number' ? String(raw) : raw;
  if (typeof text !== 'string' || text === '' || /\p{Cc}/u.test(text)) return undefined;
  return Buffer.byteLength(text) > MAX_LOGIN_BYTES ? undefined : text;
}

export interface EntryParts {
  readonly address: string;
  readonly expiry: RecognisedExpiry | undefined;
  readonly exitIp: string | undefined;
  readonly location: readonly string[];
}

export interface RecognisedExpiry {
  readonly field: string;
  readonly as: ExpiryKind;
  readonly since?: string | undefined;
}

interface RawEntry {
  readonly address: AddressText;
  readonly username: unknown;
  readonly password: unknown;
  readonly protocol: MemberProtocol | undefined;
  readonly expiry: { readonly value: unknown; readonly as: ExpiryKind; readonly since: unknown } | undefined;
  readonly exitIp: unknown;
  readonly location: readonly unknown[];
  readonly parts: EntryParts;
}

const MAX_COLUMNS = 10;

function findEntryParts(raw: unknown, options: EntryOptions): RawEntry | undefined {
  if (typeof raw === 'string') return textParts(raw, options);
  if (typeof raw !== 'object' || raw === null) return undefined;
  if (!Array.isArray(raw)) return objectParts(raw, options.answer);
  const texts = raw.slice(0, MAX_COLUMNS).flatMap((value: unknown) => readText(value) ?? []);
  return textParts(texts.join(','), options);
}

function textParts(text: string, { answer: rules, layout }: EntryOptions): RawEntry | undefined {
  const named = layout === undefined ? fieldsByForm(text) : { fields: layout(text), layout: undefined };
  if (named?.fields === undefined) return undefined;
  const found = objectParts(Object.fromEntries(named.fields), { ...rules, address: undefined });
  if (found === undefined || named.layout === undefined) return found;
  return { ...found, parts: { ...found.parts, address: named.layout } };
}

/**
 * After the address, the form of a field shows a lifetime, an IP or a protocol. The other fields are the location.
 */
function fieldsByForm(
  text: string,
): { readonly fields: ReadonlyMap<string, string>; readonly layout: string } | undefined {
  const address = readAddressText(text);
  if (address === undefined) return undefined;
  const { ip, port, username, password, scheme, separator } = address;
  const fields = new Map(Object.entries({ ip, port }));
  if (username !== undefined && password !== undefined) {
    fields.set('username', username);
    fields.set('password', password);
  }
  if (scheme !== undefined) fields.set('protocol', scheme);
  const tags: string[] = [];
  let hasLife = false;
  for (const value of address.rest) {
    const life: ExpiryKind | undefined =
      hasLife || value === '0' ? undefined : expiryKindOf(value, 'seconds');
    hasLife ||= life !== undefined;
    const tag = life ?? formOf(value, fields);
    fields.set(tag, value);
    tags.push(tag);
  }
  const layout = [address.layout, ...tags.map((tag) => `{${tag}}`)];
  return { fields, layout: layout.join(separator === '' ? ',' : separator) };
}

function formOf(value: string, fields: ReadonlyMap<string, string>): string {
  if (readIp(value) !== undefined && !fields.has('exitIp')) return 'exitIp';
  if (readProtocol(value) !== undefined && !fields.has('protocol')) return 'protocol';
  for (let number = 1; ; number += 1) {
    const tag = number === 1 ? 'location' : `location${number}`;
    if (!fields.has(tag)) return tag;
  }
}

function objectParts(object: object, rules: LinkRules): RawEntry | undefined {
  const fields = entryFields(object);
  const read = (field: string | undefined): unknown =>
    field === undefined ? undefined : (valueAtPath(object, field) ?? innerValue(fields, field));
  const address = rules.address === undefined ? findAddress(fields) : givenAddress(rules.address, read);
  if (address === undefined) return undefined;
  const expiry = rules.expiry ?? findExpiry(fields);
  const exitIp = rules.exitIp ?? findExitIp(fields, address);
  const location = rules.location ?? fieldsMeaning(fields, 'location').map(({ name }) => name);
  const protocols = fieldsMeaning(fields, 'protocol').map(({ value }) => readProtocol(value));
  return {
    address,
    username: address.username ?? fieldsMeaning(fields, 'username')[0]?.value,
    password: address.password ?? fieldsMeaning(fields, 'password')[0]?.value,
    protocol: readProtocol(address.scheme) ?? protocols.find((protocol) => protocol !== undefined),
    expiry: expiry && { value: read(expiry.field), as: expiry.as, since: read(expiry.since) },
    exitIp: read(exitIp),
    location: location.map(read),
    parts: { address: address.layout, expiry: expiry && recognisedExpiry(expiry), exitIp, location },
  };
}

function innerValue(fields: EntryFields, name: string): unknown {
  return [...fields.values()].find((field) => field.name === name)?.value;
}

function givenAddress(layout: string, read: (field: string) => unknown): AddressText | undefined {
  const text = fillLayout(layout, read);
  const address = text === undefined ? undefined : readAddressText(text);
  return address && { ...address, layout };
}

function findAddress(fields: EntryFields): AddressText | undefined {
  const named = fieldsMeaning(fields, 'address');
  for (const { name, value } of named) {
    const address = typeof value === 'string' ? readAddressText(value) : undefined;
    if (address !== undefined) return { ...address, layout: `{${name}}` };
  }
  const ip = named.find(({ value }) => readIp(value) !== undefined);
  const [port] = fieldsMeaning(fields, 'port');
  if (ip === undefined || port === undefined) return undefined;
  return {
    ip: String(ip.value),
    port: String(port.value),
    rest: [],
    layout: `{${ip.name}}:{${port.name}}`,
    separator: '',
  };
}

function findExpiry(fields: EntryFields): RecognisedExpiry | undefined {
  const left =
    firstExpiry(fieldsMeaning(fields, 'expiry'), 'seconds') ??
    firstExpiry(fieldsMeaning(fields, 'minutes'), 'minutes');
  if (left !== undefined) return left;
  const whole = firstExpiry(fieldsMeaning(fields, 'wholeMinutes'), 'minutes');
  const isMoment = ({ value }: NamedField) => expiryKindOf(value, 'minutes') === 'datetime';
  const since = fieldsMeaning(fields, 'since').find(isMoment)?.name;
  return whole && recognisedExpiry({ ...whole, since });
}

function firstExpiry(
  named: readonly NamedField[],
  duration: 'seconds' | 'minutes',
): RecognisedExpiry | undefined {
  for (const { name, value } of named) {
    const as = expiryKindOf(value, duration);
    if (as !== undefined) return { field: name, as };
  }
  return undefined;
}

function recognisedExpiry({ field, as, since }: RecognisedExpiry): RecognisedExpiry {
  return since === undefined ? { field, as } : { field, as, since };
}

function findExitIp(fields: EntryFields, { layout }: AddressText): string | undefined {
  const isExit = ({ name, value }: NamedField) =>
    readIp(value) !== undefined && !layout.includes(`{${name}}`);
  return fieldsMeaning(fields, 'exitIp').find(isExit)?.name;
}

/** For each meaning, the usual names without case, `_` and `-`, the most specific first. */
const NAMES = {
  /** The field contains `ip:port`, or only the IP. */
  address: words(`
    server ipport proxy proxyaddress proxyserver proxyurl endpoint ip host proxyip proxyhost
    ipaddress ipaddr address addr serverip nodeip gateway url`),
  port: words('port proxyport serverport httpport nodeport'),
  exitIp: words('realip exitip outip outerip egressip exportip publicip outboundip proxyip'),
  username: words('username user authuser authname proxyuser proxyusername account login'),
  password: words('password pass passwd pwd authpass authpassword proxypass proxypassword'),
  protocol: words('protocol scheme proxyprotocol proxytype type'),
  location: words(`
    country countryname region regionname province prov provincename city cityname area location
    location2 location3 location4 adr isp carrier operator`),
  /** The field contains a point in time or a number of seconds; `expiryKindOf` finds out which. */
  expiry: words(`
    expiretime expiredtime expirytime expirationtime expireat expiresat expiredat expiredate
    expirationdate deadline endtime validuntil validtime expire expires expiration expiry expired
    expiretimestamp endat expiredseconds expireseconds expiresin expirein remainingseconds
    remainseconds leftseconds remaining remain lefttime remaintime ipremain timeleft timeout ttl
    seconds lifetime alivetime datetime epoch`),
  minutes: words('minutes minute expireminutes remainingminutes leftminutes'),
  /** The whole lifetime in minutes, from the moment in `since`. */
  wholeMinutes: words('during duration'),
  since: words('starttime begintime onlinetime createtime'),
};

type FieldMeaning = keyof typeof NAMES;

type EntryFields = ReadonlyMap<string, NamedField>;

interface NamedField {
  readonly name: string;
  readonly value: unknown;
}

const MAX_FIELDS = 100;

function entryFields(entry: object): EntryFields {
  const fields = new Map<string, NamedField>();
  const inner: object[] = [];
  for (const [name, value] of firstFields(entry)) {
    if (typeof value === 'object' && value !== null) inner.push(value);
    else add(fields, name, value);
  }
  for (const object of inner) {
    if (Array.isArray(object)) continue;
    for (const [name, value] of firstFields(object)) {
      if (typeof value !== 'object') add(fields, name, value);
    }
  }
  return fields;
}

function fieldsMeaning(fields: EntryFields, meaning: FieldMeaning): NamedField[] {
  return NAMES[meaning].flatMap((name) => fields.get(name) ?? []);
}

function words(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}

function firstFields(object: object): [string, unknown][] {
  const names = Object.keys(object).slice(0, MAX_FIELDS);
  return names.map((name) => [name, Reflect.get(object, name)]);
}

function add(fields: Map<string, NamedField>, name: string, value: unknown): void {
  if (value === null || value === undefined || value === '') return;
  const plain = name.replace(/[_-]/g, '').toLowerCase();
  if (!fields.has(plain)) fields.set(plain, { name, value });
}

/** In ms. `unknown`: the vendor sent -1. Undefined: noria cannot interpret the value. */
type Lifetime = number | 'expired' | 'unknown' | undefined;

const MAX_LIFE_MS = 366 * 86_400_000;
/** A number below is a duration, any other a Unix time: each since September 2001 has at least this many seconds. */
const FIRST_EPOCH_SECONDS = 1_000_000_000;
/** noria reads a Unix time below this as seconds, and any other Unix time as ms. */
const FIRST_EPOCH_MS = 100_000_000_000;
const NUMBER = /^[+-]?\d{1,16}(?:\.\d{1,9})?$/;
const MOMENT =
  /^(\d{4})[-/](\d{1,2})[-/](\d{1,2})[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d{1,9})?)?\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?$/i;
const ZONE = /^(?:Z|UTC|GMT|([+-])(\d{2}):?(\d{2}))$/i;

export function isZone(text: string): boolean {
  return zoneOffsetMs(text) !== undefined;
}

/** @param when - `since`: when a lifetime in seconds or minutes began; if unreadable, when the answer arrived. */
function readLifetime(
  raw: unknown,
  as: ExpiryKind,
  when: { readonly zone: string; readonly wallAt: number; readonly since?: unknown },
): Lifetime {
  const { zone, wallAt, since } = when;
  const number = readNumber(raw);
  const passedMs = typeof since === 'string' ? wallAt - (momentOf(since, zone) ?? wallAt) : 0;
  switch (as) {
    case 'seconds':
    case 'minutes': {
      if (number === undefined || number < -1) return undefined;
      if (number === -1) return 'unknown';
      const ms = number * (as === 'seconds' ? SECOND_MS : MINUTE_MS);
      return checked(Math.floor(ms - Math.max(0, passedMs)));
    }
    case 'epoch': {
      if (number === undefined || number < FIRST_EPOCH_SECONDS) return undefined;
      return checked(Math.floor((number < FIRST_EPOCH_MS ? number * SECOND_MS : number) - wallAt));
    }
    case 'datetime': {
      const at = typeof raw === 'string' ? momentOf(raw, zone) : undefined;
      return at === undefined ? undefined : checked(Math.floor(at - wallAt));
    }
  }
}

/** A whole number that is too small for Unix time is a duration. */
function expiryKindOf(raw: unknown, duration: 'seconds' | 'minutes'): ExpiryKind | undefined {
  const number = readNumber(raw);
  if (number !== undefined) {
    if (number >= FIRST_EPOCH_SECONDS) return 'epoch';
    return Number.isInteger(number) ? duration : undefined;
  }
  return typeof raw === 'string' && momentOf(raw, DEFAULT_ZONE) !== undefined ? 'datetime' : undefined;
}

function checked(ms: number): Lifetime {
  if (ms > MAX_LIFE_MS) return undefined;
  return ms <= 0 ? 'expired' : ms;
}

function readNumber(raw: unknown): number | undefined {
  const value = typeof raw === 'string' && NUMBER.test(raw.trim()) ? Number(raw) : raw;
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function momentOf(text: string, zone: string): number | undefined {
  const [, year, month, day, hour, minute, second = '0', ownZone] = MOMENT.exec(text.trim()) ?? [];
  const offsetMs = zoneOffsetMs(ownZone ?? zone);
  if (year === undefined || offsetMs === undefined) return undefined;
  const [y, mo, d, h, mi, s] = [year, month, day, hour, minute, second].map(Number);
  const isPossible = inRange(mo, 1, 12) && inRange(d, 1, 31) && inRange(h, 0, 24) && inRange(mi, 0, 59);
  if (!isPossible || !inRange(s, 0, 60)) return undefined;
  return Date.UTC(y ?? 0, (mo ?? 1) - 1, d, h, mi, s) - offsetMs;
}

function inRange(value: number | undefined, from: number, to: number): boolean {
  return value !== undefined && value >= from && value <= to;
}

function zoneOffsetMs(zone: string): number | undefined {
  const match = ZONE.exec(zone);
  if (match === null) return undefined;
  const [, sign, hours = '0', minutes = '0'] = match;
  if (Number(hours) > 14 || Number(minutes) > 59) return undefined;
  return (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * MINUTE_MS;
}
