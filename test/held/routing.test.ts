import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { hostPort } from '../../src/core/host-port.ts';
import { PRIVATE_NETWORKS } from '../../src/core/networks.ts';
import { parseTargetRule } from '../../src/core/target-rule.ts';
import { DenyTargets } from '../../src/listener/access.ts';
import { successHeaders } from '../../src/listener/http/header-fields.ts';
import { ROUTING_KEYS, routingTextWithoutUsers } from '../../src/listener/routing-options.ts';

const page = readFileSync('docs/routing.md', 'utf8');

/** The cells of the table whose header row begins with `head`, without the backquotes around them. */
function table(head: string): string[][] {
  const lines = page.split('\n');
  const start = lines.findIndex((line) => line.startsWith(`| ${head} |`));
  if (start < 0) throw new Error(`docs/routing.md has no table that begins with ${head}`);
  const rows = lines.slice(start + 2);
  const end = rows.findIndex((line) => !line.startsWith('|'));
  return rows.slice(0, end).map((row) =>
    row
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim()),
  );
}

const code = (text: string): string => `\`${text}\``;

test('docs/routing.md: the keys, their aliases and values are those of the code', () => {
  const coded = ROUTING_KEYS.map((entry) => [
    code(entry.key),
    entry.aliases.map(code).join(', '),
    entry.value ?? 'none',
  ]);
  expect(coded.length).toBeGreaterThan(0);
  expect(table('key').map((cells) => cells.slice(0, 3))).toEqual(coded);
});

test('docs/routing.md: the units of bare numbers are those of the code', () => {
  const msOf: Record<string, number> = { seconds: 1_000, minutes: 60_000 };
  const listed = table('key whose value is a number without a unit').flatMap(([names = '', unit = '']) =>
    names.split(', ').map((name) => [name, msOf[unit]]),
  );
  const coded = ROUTING_KEYS.filter(({ value }) => value === 'a duration').flatMap((entry) =>
    [entry.key, ...entry.aliases].map((name) => [
      code(name),
      entry.inMinutes?.includes(name) ? 60_000 : 1_000,
    ]),
  );
  expect(coded.length).toBeGreaterThan(0);
  expect(listed.sort()).toEqual(coded.sort());
});

test('docs/routing.md: without users, each user name shown is divided as the page says', () => {
  const rows = table('user name');
  expect(rows.length).toBeGreaterThan(0);
  const plain = (cell = '') => /^`(.*?)`/.exec(cell)?.[1] ?? '';
  for (const [username, base, routing] of rows) {
    const text = routingTextWithoutUsers(plain(username));
    expect(text, plain(username)).toBe(plain(routing));
    const before = plain(username)
      .slice(0, plain(username).length - text.length)
      .replace(/[-,]$/, '');
    expect(before, plain(username)).toBe(plain(base));
  }
});

test('docs/routing.md: the response headers are those that noria sends', () => {
  const facts = { member: 'm1', exitIp: '203.0.113.7', remainingMs: 60_000, session: 's' };
  const sent = successHeaders(facts, 1).map(([name]) => code(name));
  expect(table('header').map(([name]) => name)).toEqual(sent);
});

test('docs/routing.md: every rule about targets on the page is valid', () => {
  const shown = table('rule').flatMap(([rules = '']) =>
    [...rules.matchAll(/`([^`]+)`/g)].map(([, rule = '']) => rule),
  );
  expect(shown.length).toBeGreaterThan(0);
  for (const rule of shown) expect(parseTargetRule(rule), rule).toBeDefined();
});

test('docs/routing.md: the networks of the rule `private` are those of the code', () => {
  const listed = /these networks:\n\n```text\n([\s\S]*?)```/.exec(page)?.[1]?.trim().split(/\s+/);
  expect(listed).toEqual([...PRIVATE_NETWORKS]);
});

test('docs/routing.md: the names of the rule `private` are those of the code', () => {
  const [, exact = '', below = ''] =
    /these names: ([\s\S]*?), and every name below ([\s\S]*?)\.\n/.exec(page) ?? [];
  const names = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
  const denied = [...names(exact), ...names(below).map((name) => `some.${name}`)];
  expect(denied.length).toBeGreaterThan(3);
  const rules = new DenyTargets(['private']);
  for (const name of denied) {
    const target = hostPort(name, 443);
    expect(target && rules.reasonToDeny(target), name).toBeDefined();
  }
});
