/**
 * The fields of a proxy entry, by their wire names: how each is read into noria's words and printed back.
 *
 * Reading is liberal (numbers as text, text as numbers, missing fields); a value that makes no sense is left out, as if
 * the service had not told it. Source: the specification, "Proxy entry".
 */

import { canonicalIp, parsePort } from '../core/host-port.ts';
import type { DrawnEntry } from './answer.ts';

/** Fields that an entry can have besides its address, port and protocol, which decide whether it is kept. */
type Detail = Omit<DrawnEntry, 'host' | 'port' | 'protocol'>;
type Printed = string | number | boolean;

interface FieldRow {
  /** What its text looks like, which a custom Text layout needs to know. */
  readonly text: 'address' | 'number' | 'word' | 'free';
  readonly about: string;
  /** Absent for fields that decide whether an entry is kept: `decode` reads those. */
  readonly read?: (raw: unknown) => Detail;
  readonly print: (entry: DrawnEntry) => Printed | undefined;
}

/** Longest free text kept of an entry. */
const MAX_TEXT_LENGTH = 200;
/** A lifetime beyond a year is no lifetime. */
const MAX_LIFETIME_SECONDS = 366 * 86_400;

const exitIp = (raw: unknown): Detail => defined('exitIp', readIp(raw));

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
  adr: {
    text: 'free',
    about: 'where it is, and its carrier',
    read: (raw) => defined('location', readText(raw)),
    print: (entry) => entry.location,
  },
  outip: { text: 'address', about: 'exit IP', read: exitIp, print: (entry) => entry.exitIp },
  out_ip: { text: 'address', about: 'exit IP', read: exitIp, print: (entry) => entry.exitIp },
  timeout: { text: 'number', about: 'seconds left to live; -1: nobody knows', ...lifetime },
  expired_seconds: { text: 'number', about: 'seconds left to live', ...lifetime },
  cometime: {
    text: 'number',
    about: 'seconds it has been online',
    read: (raw) => {
      const seconds = readInteger(raw);
      return seconds === undefined || seconds < 0 ? {} : { onlineMs: seconds * 1_000 };
    },
    print: ({ onlineMs }) => (onlineMs === undefined ? undefined : onlineMs / 1_000),
  },
  is_new_dedup: {
    text: 'word',
    about: 'whether it is new today',
    read: (raw) => defined('isNew', readFlag(raw)),
    print: (entry) => entry.isNew,
  },
  protocol: { text: 'word', about: 'what it speaks', print: (entry) => entry.protocol },
  level: {
    text: 'free',
    about: 'anonymity, as a label',
    read: (raw) => defined('level', readText(raw)),
    print: (entry) => entry.level,
  },
  area: {
    text: 'free',
    about: 'area line',
    read: (raw) => defined('area', readText(raw)),
    print: (entry) => entry.area,
  },
  id: {
    text: 'word',
    about: 'server number',
    read: (raw) => defined('serverId', readText(raw)),
    print: (entry) => entry.serverId,
  },
  lastscore: {
    text: 'number',
    about: 'latest score of its network; -1: could not be had',
    read: (raw) => defined('lastScore', readInteger(raw)),
    print: (entry) => entry.lastScore,
  },
  yestodayscore: {
    text: 'number',
    about: "yesterday's score; -1: could not be had",
    read: (raw) => defined('yesterdayScore', readInteger(raw)),
    print: (entry) => entry.yesterdayScore,
  },
} as const satisfies Record<string, FieldRow>;

export type WireField = keyof typeof FIELD_ROWS;

export const ENTRY_FIELDS: Readonly<Record<WireField, FieldRow>> = FIELD_ROWS;

/** Whether the service has a field of this name. */
export function isWireField(name: string): name is WireField {
  return Object.hasOwn(ENTRY_FIELDS, name);
}

/** Everything an entry tells besides its address, port and protocol. Unknown fields are left alone. */
export function readDetails(raw: Readonly<Record<string, unknown>>): Detail {
  let details: Detail = {};
  for (const [name, value] of Object.entries(raw)) {
    if (isWireField(name)) details = { ...details, ...ENTRY_FIELDS[name].read?.(value) };
  }
  return details;
}

/** An entry in the specification's field names, as `noria extract --json` prints it; what is not known is left out. */
export function printEntry(entry: DrawnEntry, fields: readonly WireField[]): Record<string, Printed> {
  const printed: Record<string, Printed> = {};
  for (const name of fields) {
    const value = ENTRY_FIELDS[name].print(entry);
    if (value !== undefined) printed[name] = value;
  }
  return printed;
}

/** A whole number, also as text; undefined for anything else. */
export function readInteger(raw: unknown): number | undefined {
  const value = typeof raw === 'string' && /^\s*[+-]?\d{1,15}(?:\.0*)?\s*$/.test(raw) ? Number(raw) : raw;
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;
}

/** Free text or a number, on one line, without control characters, cut at 200 characters; undefined when nothing is left. */
export function readText(raw: unknown): string | undefined {
  if (typeof raw === 'number') return Number.isFinite(raw) ? String(raw) : undefined;
  if (typeof raw !== 'string') return undefined;
  const text = oneLine(raw).slice(0, MAX_TEXT_LENGTH).trim();
  return text === '' ? undefined : text;
}

/** An IP literal in canonical form, also in brackets. */
export function readIp(raw: unknown): string | undefined {
  if (typeof raw !== 'string') return undefined;
  const text = raw.trim();
  return canonicalIp(text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text);
}

/** 1 to 65535, as a number or as text. */
export function readEntryPort(raw: unknown): number | undefined {
  if (typeof raw === 'number') return Number.isInteger(raw) ? parsePort(String(raw)) : undefined;
  return typeof raw === 'string' ? parsePort(raw.trim()) : undefined;
}

/** The text as one printable, well-formed line: control characters and line breaks become spaces. */
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

function defined<Name extends keyof Detail>(
  name: Name,
  value: Detail[Name] | undefined,
): Pick<Detail, Name> | Record<string, never> {
  return value === undefined ? {} : ({ [name]: value } as Pick<Detail, Name>);
}
