/**
 * The fields of a proxy entry, by the service's names: how noria decodes and prints each. Decoding is tolerant:
 * numbers may be text, text may be numbers, and an invalid value counts as missing.
 */
import { canonicalIp, parsePort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';

export interface DrawnEntry {
  readonly host: string;
  readonly port: number;
  /** Links: always. Free product: if the entry names it. All other products: never. */
  readonly protocol?: MemberProtocol;
  /** Counts from when noria sent the request. `unknown`: the service sent -1. Absent: it sent no lifetime. */
  readonly lifetimeMs?: number | 'unknown';
  readonly exitIp?: string;
  /** The made name of a gateway's exit. */
  readonly exitName?: string;
  readonly login?: Login;
  readonly location?: string;
  readonly onlineMs?: number;
  /** The anonymity label of the free product, as received. */
  readonly level?: string;
  readonly area?: string;
  readonly serverId?: string;
  readonly lastScore?: number;
  readonly yesterdayScore?: number;
  /** Whether the instance drew this IP for the first time today (`is_new_dedup`, only `short-pure`). */
  readonly isNew?: boolean;
}

type Details = Omit<DrawnEntry, 'host' | 'port' | 'protocol' | 'login'>;
type Printed = string | number | boolean;

interface FieldRow {
  /** Which characters the field may contain in a custom Text layout: `PATTERNS` in decode-text.ts. */
  readonly text: 'address' | 'number' | 'word' | 'free';
  readonly about: string;
  readonly read?: (raw: unknown) => Details;
  readonly print: (entry: DrawnEntry) => Printed | undefined;
}

/** A text keeps 200 characters; more are read, because surplus white space is dropped first. */
const MAX_TEXT_LENGTH = 200;
const MAX_READ_LENGTH = 2_000;
const MAX_LIFETIME_SECONDS = 366 * 86_400;

const lifetime: Pick<FieldRow, 'read' | 'print'> = {
  read: (raw) => {
    const seconds = readInteger(raw);
    if (seconds === -1) return { lifetimeMs: 'unknown' };
    if (seconds === undefined || seconds < 0 || seconds > MAX_LIFETIME_SECONDS) return {};
    return { lifetimeMs: seconds * 1_000 };
  },
  print: ({ lifetimeMs }) => (typeof lifetimeMs === 'number' ? lifetimeMs / 1_000 : lifetimeMs && -1),
};

const FIELD_ROWS = {
  ip: { text: 'address', about: 'address of the proxy', print: (entry) => entry.host },
  port: { text: 'number', about: 'port of the proxy', print: (entry) => entry.port },
  adr: { text: 'free', about: 'location and carrier', ...field('location', readText) },
  outip: { text: 'address', about: 'exit IP', ...field('exitIp', readIp) },
  out_ip: { text: 'address', about: 'exit IP', ...field('exitIp', readIp) },
  timeout: { text: 'number', about: 'remaining lifetime in seconds; -1: unknown', ...lifetime },
  expired_seconds: { text: 'number', about: 'remaining lifetime in seconds', ...lifetime },
  cometime: {
    text: 'number',
    about: 'how long the proxy has been online, in seconds',
    read: (raw) => {
      const seconds = readInteger(raw);
      return seconds === undefined || seconds < 0 ? {} : { onlineMs: seconds * 1_000 };
    },
    print: ({ onlineMs }) => (onlineMs === undefined ? undefined : onlineMs / 1_000),
  },
  is_new_dedup: {
    text: 'word',
    about: 'whether this is the first draw of the IP today',
    ...field('isNew', readFlag),
  },
  protocol: { text: 'word', about: 'protocol of the proxy', print: (entry) => entry.protocol },
  level: { text: 'free', about: 'anonymity level, as the service labels it', ...field('level', readText) },
  area: { text: 'free', about: 'area line of the proxy', ...field('area', readText) },
  id: { text: 'word', about: "identifier of the proxy's server", ...field('serverId', readText) },
  lastscore: {
    text: 'number',
    about: "latest network score of the proxy's server; -1: not available",
    ...field('lastScore', readInteger),
  },
  yestodayscore: {
    text: 'number',
    about: "yesterday's composite score of the proxy's server; -1: not available",
    ...field('yesterdayScore', readInteger),
  },
} as const satisfies Record<string, FieldRow>;

export type WireField = keyof typeof FIELD_ROWS;

export const ENTRY_FIELDS: Readonly<Record<WireField, FieldRow>> = FIELD_ROWS;

export function isWireField(name: string): name is WireField {
  return Object.hasOwn(ENTRY_FIELDS, name);
}

export function readDetails(raw: Readonly<Record<string, unknown>>): Details {
  let details: Details = {};
  for (const [name, value] of Object.entries(raw)) {
    if (isWireField(name)) details = { ...details, ...ENTRY_FIELDS[name].read?.(value) };
  }
  return details;
}

/** As `noria extract --json` prints it: the specification's names, without fields that have no value. */
export function printEntry(entry: DrawnEntry, fields: readonly WireField[]): Record<string, Printed> {
  const printed: Record<string, Printed> = {};
  for (const name of fields) {
    const value = ENTRY_FIELDS[name].print(entry);
    if (value !== undefined) printed[name] = value;
  }
  return printed;
}

export function readInteger(raw: unknown): number | undefined {
  const value = typeof raw === 'string' && /^\s*[+-]?\d{1,15}(?:\.0*)?\s*$/.test(raw) ? Number(raw) : raw;
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;
}

export function readText(raw: unknown): string | undefined {
  if (typeof raw === 'number') return Number.isFinite(raw) ? String(raw) : undefined;
  if (typeof raw !== 'string') return undefined;
  const text = oneLine(raw.slice(0, MAX_READ_LENGTH)).slice(0, MAX_TEXT_LENGTH).trim();
  return text === '' ? undefined : text;
}

export function readIp(raw: unknown): string | undefined {
  if (typeof raw !== 'string') return undefined;
  const text = raw.trim();
  return canonicalIp(text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text);
}

export function readEntryPort(raw: unknown): number | undefined {
  if (typeof raw === 'number') return Number.isInteger(raw) ? parsePort(String(raw)) : undefined;
  return typeof raw === 'string' ? parsePort(raw.trim()) : undefined;
}

/** Vendors use `https` for an HTTP proxy that supports CONNECT. */
const PROTOCOLS: Readonly<Record<string, MemberProtocol>> = {
  http: 'http',
  https: 'http',
  socks4: 'socks4',
  socks5: 'socks5',
  socks5h: 'socks5',
};

export function readProtocol(label: unknown): MemberProtocol | undefined {
  const name = typeof label === 'string' ? label.trim().toLowerCase() : '';
  return Object.hasOwn(PROTOCOLS, name) ? PROTOCOLS[name] : undefined;
}

/** The text as one printable, well-formed line: each run of control characters and white space becomes one space. */
export function oneLine(text: string): string {
  return text
    .toWellFormed()
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim();
}

function readFlag(raw: unknown): boolean | undefined {
  if (raw === undefined || raw === null || raw === '') return undefined;
  return (
    raw === true || raw === 1 || raw === '1' || (typeof raw === 'string' && raw.toLowerCase() === 'true')
  );
}

function field<Name extends keyof Details>(
  name: Name,
  read: (raw: unknown) => Details[Name] | undefined,
): Pick<FieldRow, 'read' | 'print'> {
  return {
    read: (raw) => {
      const value = read(raw);
      return value === undefined ? {} : { [name]: value };
    },
    print: (entry) => entry[name],
  };
}
