/** What a reload changes, in words: sections by name, sources and listeners one by one. No value is told. */
import type { Config } from '../config/config.ts';
import { isSame } from '../core/is-same.ts';
import { formatListenAddress } from '../core/listen-address.ts';

/** Sections that are one thing; the others are lists. */
const SECTIONS = [
  'service',
  'account',
  'pool',
  'rotation',
  'dial',
  'health',
  'admin',
  'log',
  'state',
  'shutdown',
  'workers',
] as const satisfies readonly (keyof Config)[];

/** For example `['pool', 'source city added', 'listener 127.0.0.1:8888 changed']`; empty when both say the same. */
export function changedKeys(before: Config, next: Config): readonly string[] {
  return [
    ...SECTIONS.filter((section) => !isSame(before[section], next[section])),
    ...changedEntries(
      'source',
      byName(before.sources, ({ name }) => name),
      byName(next.sources, ({ name }) => name),
    ),
    ...changedEntries(
      'listener',
      byName(before.listeners, ({ address }) => formatListenAddress(address)),
      byName(next.listeners, ({ address }) => formatListenAddress(address)),
    ),
  ];
}

function byName<T>(entries: readonly T[], nameOf: (entry: T) => string): ReadonlyMap<string, T> {
  return new Map(entries.map((entry) => [nameOf(entry), entry]));
}

function changedEntries<T>(
  what: string,
  before: ReadonlyMap<string, T>,
  next: ReadonlyMap<string, T>,
): string[] {
  const names = new Set([...before.keys(), ...next.keys()]);
  return [...names].flatMap((name) => {
    if (!next.has(name)) return [`${what} ${name} removed`];
    if (!before.has(name)) return [`${what} ${name} added`];
    return isSame(before.get(name), next.get(name)) ? [] : [`${what} ${name} changed`];
  });
}
