/**
 * Reads one entry, a text or an object, of a link's answer: finds its fields, and checks and converts their values. All
 * functions are pure. noria applies the rules of the source first. Without a rule, it recognises a field by its name or
 * by the form of its value.
 */
import type { MemberProtocol } from '../../core/protocol.ts';
import { Secret } from '../../core/secret.ts';
import type { DrawnEntry } from '../answer.ts';
import type { DropReason, RefuseAddress } from '../decode.ts';
import { readEntryPort, readIp, readText } from '../fields.ts';
import { type AddressText, fillLayout, type LayoutReader, readAddressText } from './address-text.ts';
import { type EntryFields, entryFields, fieldsMeaning, type NamedField } from './entry-names.ts';
import { valueAtPath } from './json-path.ts';
import { expiryKindOf, type Lifetime, readLifetime } from './lifetime.ts';
import { DEFAULT_ZONE, type EntryLogin, type ExpiryKind, type LinkRules } from './rules.ts';

export interface EntryOptions extends PartsOptions {
  readonly login: EntryLogin;
  /**
   * The configured protocol of all members. If undefined, a member has the protocol that its entry names, or else http.
   */
  readonly protocol: MemberProtocol | undefined;
  readonly refuses: RefuseAddress;
  /** The time at which the answer arrived, in epoch ms. */
  readonly wallAt: number;
}

interface ReadEntry {
  readonly entry: DrawnEntry;
  readonly parts: EntryParts;
}

/** The maximum length of a user name and of a password, by RFC 1929. */
const MAX_LOGIN_BYTES = 255;

/** Returns the entry, or the reason why noria drops it. */
export function readLinkEntry(raw: unknown, options: EntryOptions): ReadEntry | DropReason {
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

function lifetimeOf({ expiry }: RawEntry, { rules, wallAt }: EntryOptions): Lifetime {
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

/** The fields of an entry in which noria found its address, expiry, exit IP and location. */
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

interface PartsOptions {
  readonly rules: LinkRules;
  /** The reader of the layout `rules.address`, for entries that are text. */
  readonly layout: LayoutReader | undefined;
}

/** The maximum number of values that noria reads from an entry that is a list. */
const MAX_COLUMNS = 10;
/** Vendors use `https` for an HTTP proxy that supports CONNECT. */
const PROTOCOLS: Readonly<Record<string, MemberProtocol>> = {
  http: 'http',
  https: 'http',
  socks4: 'socks4',
  socks5: 'socks5',
  socks5h: 'socks5',
};

/** @returns undefined if the entry has no address. */
function findEntryParts(raw: unknown, options: PartsOptions): RawEntry | undefined {
  if (typeof raw === 'string') return textParts(raw, options);
  if (typeof raw !== 'object' || raw === null) return undefined;
  if (!Array.isArray(raw)) return objectParts(raw, options.rules);
  const texts = raw.slice(0, MAX_COLUMNS).flatMap((value: unknown) => readText(value) ?? []);
  return textParts(texts.join(','), options);
}

function textParts(text: string, { rules, layout }: PartsOptions): RawEntry | undefined {
  const named = layout === undefined ? fieldsByForm(text) : { fields: layout(text), layout: undefined };
  if (named?.fields === undefined) return undefined;
  const found = objectParts(Object.fromEntries(named.fields), { ...rules, address: undefined });
  if (found === undefined || named.layout === undefined) return found;
  return { ...found, parts: { ...found.parts, address: named.layout } };
}

/**
 * Splits a text into fields. After the address, the form of a field shows whether it is a lifetime, an IP or a
 * protocol. The other fields are the location.
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
  if (protocolOf(value) !== undefined && !fields.has('protocol')) return 'protocol';
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
  const protocols = fieldsMeaning(fields, 'protocol').map(({ value }) => protocolOf(value));
  return {
    address,
    username: address.username ?? fieldsMeaning(fields, 'username')[0]?.value,
    password: address.password ?? fieldsMeaning(fields, 'password')[0]?.value,
    protocol: protocolOf(address.scheme) ?? protocols.find((protocol) => protocol !== undefined),
    expiry: expiry && { value: read(expiry.field), as: expiry.as, since: read(expiry.since) },
    exitIp: read(exitIp),
    location: location.map(read),
    parts: { address: address.layout, expiry: expiry && recognisedExpiry(expiry), exitIp, location },
  };
}

/** Returns the value of the field `name`. The field may be in an object inside the entry. */
function innerValue(fields: EntryFields, name: string): unknown {
  return [...fields.values()].find((field) => field.name === name)?.value;
}

function givenAddress(layout: string, read: (field: string) => unknown): AddressText | undefined {
  const text = fillLayout(layout, read);
  const address = text === undefined ? undefined : readAddressText(text);
  return address && { ...address, layout };
}

/** Finds a field that contains IP and port. If there is none, finds a field with an IP and a field with a port. */
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

function protocolOf(label: unknown): MemberProtocol | undefined {
  const name = typeof label === 'string' ? label.trim().toLowerCase() : '';
  return Object.hasOwn(PROTOCOLS, name) ? PROTOCOLS[name] : undefined;
}
