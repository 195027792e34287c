/** Reads one entry of a link's answer, text or object, by the rules of the source, and recognises what they leave out. Pure. */
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

export interface EntryOptions {
  readonly rules: LinkRules;
  /** Reads entries that are text by `rules.address`. */
  readonly layout: LayoutReader | undefined;
  readonly login: EntryLogin;
  /** The configured protocol of all members; undefined: the entry's own, else http. */
  readonly protocol: MemberProtocol | undefined;
  readonly refuses: RefuseAddress;
  /** Epoch ms, when the answer arrived. */
  readonly wallAt: number;
}

/** Where the parts of an entry were found, in the terms of `answer` of a source. */
export interface EntryParts {
  readonly address: string;
  readonly expiry: RecognisedExpiry | undefined;
  readonly exitIp: string | undefined;
  readonly location: readonly string[];
  /** The entry has a user name and a password. */
  readonly hasLogin: boolean;
}

export interface RecognisedExpiry {
  readonly field: string;
  readonly as: ExpiryKind;
  readonly since?: string | undefined;
}

export interface ReadEntry {
  readonly entry: DrawnEntry;
  readonly parts: EntryParts;
}

/** The parts of an entry before they are checked. */
interface RawEntry {
  readonly address: AddressText;
  readonly username: unknown;
  readonly password: unknown;
  readonly protocol: unknown;
  readonly expiry: { readonly value: unknown; readonly as: ExpiryKind; readonly since?: unknown } | undefined;
  readonly exitIp: unknown;
  readonly location: readonly unknown[];
  readonly parts: EntryParts;
}

/** Of an entry that is a list. */
const MAX_COLUMNS = 10;
/** `https` is an HTTP proxy that supports CONNECT. */
const PROTOCOLS: Readonly<Record<string, MemberProtocol>> = {
  http: 'http',
  https: 'http',
  socks4: 'socks4',
  socks5: 'socks5',
  socks5h: 'socks5',
};

/** @returns why the entry is dropped, if it is. */
export function readLinkEntry(raw: unknown, options: EntryOptions): ReadEntry | DropReason {
  const found = findParts(raw, options);
  if (found === undefined) return 'address';
  const host = readIp(found.address.ip);
  if (host === undefined) return 'address';
  const port = readEntryPort(found.address.port);
  if (port === undefined) return 'port';
  const refused = options.refuses(host, port);
  if (refused !== undefined) return refused;
  const lifetime = lifetimeOf(found, options);
  if (lifetime === 'expired') return 'expired';
  const login = loginOf(found);
  if (login === undefined && options.login === 'require') return 'credentials';
  const exitIp = readIp(found.exitIp);
  const location = readText(found.location.flatMap((part) => readText(part) ?? []).join(' '));
  const entry: DrawnEntry = {
    host,
    port,
    protocol: options.protocol ?? protocolOf(found.protocol) ?? 'http',
    ...(lifetime === undefined ? {} : { lifetimeMs: lifetime }),
    ...(exitIp === undefined ? {} : { exitIp }),
    ...(location === undefined ? {} : { location }),
    ...(login === undefined || options.login === 'ignore' ? {} : { login }),
  };
  return { entry, parts: { ...found.parts, hasLogin: login !== undefined } };
}

function findParts(raw: unknown, options: EntryOptions): RawEntry | undefined {
  if (typeof raw === 'string') return textParts(raw, options);
  if (typeof raw !== 'object' || raw === null) return undefined;
  if (!Array.isArray(raw)) return objectParts(raw, options);
  const texts = raw.slice(0, MAX_COLUMNS).flatMap((value: unknown) => readText(value) ?? []);
  return textParts(texts.join(','), options);
}

function textParts(text: string, options: EntryOptions): RawEntry | undefined {
  if (options.layout === undefined) {
    const address = readAddressText(text);
    return address && plainTextParts(address);
  }
  const fields = options.layout(text);
  if (fields === undefined) return undefined;
  return objectParts(Object.fromEntries(fields), {
    ...options,
    rules: { ...options.rules, address: undefined },
  });
}

/** The fields after the address are told apart by their form: a life, an IP, a protocol; the rest is the location. */
function plainTextParts(address: AddressText): RawEntry {
  const separator = address.separator === '' ? ',' : address.separator;
  const tags: string[] = [];
  const location: string[] = [];
  let expiry: RawEntry['expiry'];
  let exitIp: string | undefined;
  let protocol = address.scheme;
  for (const value of address.rest) {
    const as = value === '0' ? undefined : expiryKindOf(value, 'seconds');
    if (as !== undefined && expiry === undefined) {
      expiry = { value, as };
      tags.push(as);
    } else if (readIp(value) !== undefined && exitIp === undefined) {
      exitIp = value;
      tags.push('exitIp');
    } else if (protocolOf(value) !== undefined && protocol === undefined) {
      protocol = value;
      tags.push('protocol');
    } else {
      location.push(value);
      tags.push(location.length === 1 ? 'location' : `location${location.length}`);
    }
  }
  const layout = [address.layout, ...tags.map((tag) => `{${tag}}`)].join(separator);
  return {
    address,
    username: address.username,
    password: address.password,
    protocol,
    expiry,
    exitIp,
    location,
    parts: {
      address: layout,
      expiry: expiry && { field: expiry.as, as: expiry.as },
      exitIp: exitIp && 'exitIp',
      location: tags.filter((tag) => tag.startsWith('location')),
      hasLogin: false,
    },
  };
}

function objectParts(object: object, { rules }: EntryOptions): RawEntry | undefined {
  const fields = entryFields(object);
  const read = (field: string): unknown => valueAtPath(object, field) ?? innerValue(fields, field);
  const address = rules.address === undefined ? findAddress(fields) : givenAddress(rules.address, read);
  if (address === undefined) return undefined;
  const expiry = rules.expiry ?? findExpiry(fields);
  const exitIp = rules.exitIp ?? findExitIp(fields, address);
  const location = rules.location ?? fieldsMeaning(fields, 'location').map(({ name }) => name);
  const one = (...meaning: Parameters<typeof fieldsMeaning>): unknown => fieldsMeaning(...meaning)[0]?.value;
  return {
    address,
    username: address.username ?? one(fields, 'username'),
    password: address.password ?? one(fields, 'password'),
    protocol:
      address.scheme ?? fieldsMeaning(fields, 'protocol').find(({ value }) => protocolOf(value))?.value,
    expiry: expiry && {
      value: read(expiry.field),
      as: expiry.as,
      since: expiry.since === undefined ? undefined : read(expiry.since),
    },
    exitIp: exitIp === undefined ? undefined : read(exitIp),
    location: location.map(read),
    parts: {
      address: address.layout,
      expiry: expiry && recognisedExpiry(expiry),
      exitIp,
      location,
      hasLogin: false,
    },
  };
}

/** The value of a recognised field that may be in an object inside the entry. */
function innerValue(fields: EntryFields, name: string): unknown {
  return [...fields.values()].find((field) => field.name === name)?.value;
}

function givenAddress(layout: string, read: (field: string) => unknown): AddressText | undefined {
  const text = fillLayout(layout, read);
  const address = text === undefined ? undefined : readAddressText(text);
  return address && { ...address, layout };
}

/** A field with address and port, else a field with an IP and one with a port. */
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

function findExpiry(fields: EntryFields): EntryParts['expiry'] {
  const asFirst = (named: readonly NamedField[], duration: 'seconds' | 'minutes') => {
    for (const { name, value } of named) {
      const as = expiryKindOf(value, duration);
      if (as !== undefined) return { field: name, as };
    }
    return undefined;
  };
  const left =
    asFirst(fieldsMeaning(fields, 'expiry'), 'seconds') ??
    asFirst(fieldsMeaning(fields, 'minutes'), 'minutes');
  if (left !== undefined) return left;
  const whole = asFirst(fieldsMeaning(fields, 'wholeMinutes'), 'minutes');
  const isMoment = ({ value }: NamedField) => expiryKindOf(value, 'minutes') === 'datetime';
  const since = fieldsMeaning(fields, 'since').find(isMoment)?.name;
  return whole && recognisedExpiry({ ...whole, since });
}

function recognisedExpiry({ field, as, since }: RecognisedExpiry): RecognisedExpiry {
  return since === undefined ? { field, as } : { field, as, since };
}

function findExitIp(fields: EntryFields, { layout }: AddressText): string | undefined {
  const isExit = ({ name, value }: NamedField) =>
    readIp(value) !== undefined && !layout.includes(`{${name}}`);
  return fieldsMeaning(fields, 'exitIp').find(isExit)?.name;
}

function lifetimeOf({ expiry }: RawEntry, { rules, wallAt }: EntryOptions): Lifetime {
  if (expiry === undefined) return undefined;
  const { value, as, since } = expiry;
  return readLifetime(value, as, { zone: rules.expiry?.zone ?? DEFAULT_ZONE, wallAt, since });
}

function loginOf({ username, password }: RawEntry): DrawnEntry['login'] {
  const name = readText(username);
  const word = typeof password === 'number' ? String(password) : password;
  if (name === undefined || typeof word !== 'string' || word === '') return undefined;
  return Buffer.byteLength(word) > 255 ? undefined : { username: name, password: new Secret(word) };
}

function protocolOf(label: unknown): MemberProtocol | undefined {
  const name = typeof label === 'string' ? label.trim().toLowerCase() : '';
  return Object.hasOwn(PROTOCOLS, name) ? PROTOCOLS[name] : undefined;
}
