import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { configOf } from './files.ts';

/** The warnings as `path: message`. */
function warned(source: string, rest = ''): string[] {
  return configOf(source, rest).warnings.map(({ path, message }) => `${path}: ${message}`);
}

/** Returns the warnings of a file with this service URL and these sources. */
function warnedAt(baseUrl: string, ...sources: string[]): string[] {
  const text = `service: { baseUrl: "${baseUrl}" }\nsources:\n${sources.map((source) => `  - { akey: 83aa400af464c76d, ${source} }`).join('\n')}`;
  return parseConfig(text, 'noria.yaml', { env: {} }).warnings.map(
    ({ path, message }) => `${path}: ${message}`,
  );
}

test('warnings: an ordinary configuration has none', () => {
  expect(warned('params: { count: 5, timespan: 3 }')).toEqual([]);
});

test('warnings: warns of an unencrypted key, unless it stays on this machine or in a private network', () => {
  const city = 'name: a, product: short-classic, instance: 1';
  expect(warnedAt('http://extract.example.com', city)).toEqual([
    'service.baseUrl: noria sends the key over the network unencrypted; use https:// if the service offers HTTPS',
  ]);
  expect(warnedAt('https://extract.example.com', `${city}, baseUrl: "http://192.0.2.1/"`)[0]).toContain(
    'sources[0].baseUrl',
  );
  for (const here of ['http://127.0.0.1:1', 'http://localhost:1', 'http://[::1]:1', 'http://10.0.0.1']) {
    expect(warnedAt(here, city), here).toEqual([]);
  }
});

test('warnings: warns of a count that is larger than the size', () => {
  expect(warned('size: 3\nparams: { count: 5 }')).toEqual([
    'sources[0].params.count: count 5 is more than size 3; no call asks for more than 3 members',
  ]);
  expect(warned('size: 5\nparams: { count: 5 }')).toEqual([]);
});

test('warnings: warns of a size that the pace and the lifetime cannot reach', () => {
  expect(warned('size: 31\nparams: { count: 5 }')).toEqual([
    'sources[0].size: the pool may hold only 30 members instead of size 31: a call brings 5 members, calls are 10s apart, and members live 1m; lower size, or raise params.count',
  ]);
  expect(warned('size: 30\nparams: { count: 5 }')).toEqual([]);
});

test('warnings: warns of a timespan shorter than the margins, or longer than a member is used', () => {
  expect(warned('params: { timespan: 0 }')[0]).toMatch(
    /^sources\[0\]\.params\.timespan: lets the service return members with less than 10s of lifetime left, .* set timespan to 1 to exclude them$/,
  );
  expect(warned('params: { timespan: 1 }')).toEqual([]);
  expect(warned('params: { timespan: 5 }', 'rotation: { maxUsesPerMember: 1 }')[0]).toContain(
    'asks for a lifetime of 5 minutes, but rotation.maxUsesPerMember: 1',
  );
  expect(warned('params: { timespan: 5 }', 'rotation: { maxUsesPerMember: 2 }')).toEqual([]);
});

test('warnings: warns of a lifetime within the safety margin', () => {
  expect(warned('lifetime: 3s\nsize: 1').map((warning) => warning.split(':')[0])).toEqual([
    'sources[0].lifetime',
    'sources[0].size',
  ]);
});

test('warnings: warns of two sources with the same instance', () => {
  const at = (name: string, more = '') => `name: ${name}, product: short-classic, instance: 1${more}`;
  expect(
    warnedAt('https://a.example', at('one'), at('two'), at('three', ', baseUrl: "https://b.example"')),
  ).toEqual([
    'sources[1].instance: is also the instance of source one; both share one pace and one quota, so the second source brings no more members',
  ]);
});

test('warnings: warns of a listener that is open to the network', () => {
  const users = 'users: [{ username: a, password: b }]';
  const open = (more: string) => warned('', `listeners: [{ address: "0.0.0.0:1", ${users}${more} }]`);
  expect(open('')[0]).toMatch(
    /^listeners\[0\]\.address: 0\.0\.0\.0:1 is open to the network; restrict it with allow, and set tls, because passwords arrive unencrypted without TLS$/,
  );
  expect(open(', allow: [10.0.0.0/8]')).toEqual([]);
  expect(open(', allow: [10.0.0.0/8], denyTargets: []')).toHaveLength(1);
  expect(warned('', 'listeners: [{ denyTargets: [] }]')).toEqual([]);
});

test('warnings: warns of an explicit SOCKS4 on a listener with users', () => {
  const users = 'users: [{ username: a, password: b }]';
  expect(warned('', `listeners: [{ ${users}, protocols: [http, socks4] }]`)[0]).toContain(
    'listeners[0].protocols: SOCKS4',
  );
  expect(warned('', `listeners: [{ ${users} }]`)).toEqual([]);
  expect(warned('', 'listeners: [{ protocols: [socks4] }]')).toEqual([]);
});

test('warnings: warns of an admin address that is open to the network', () => {
  expect(warned('', 'admin: { address: "0.0.0.0:1", token: t }')[0]).toContain(
    'admin.address: 0.0.0.0:1 is open to the network',
  );
});

test('warnings: warns of values that another value makes useless', () => {
  const dial = 'dial: { attemptTimeout: 40s, deadline: 20s, waitForMember: 30s, hedgeAfter: 50s }';
  expect(warned('', `pool: { minRemaining: 3s }\n${dial}`).map((warning) => warning.split(':')[0])).toEqual([
    'pool.minRemaining',
    'dial.attemptTimeout',
    'dial.waitForMember',
    'dial.hedgeAfter',
  ]);
  expect(warned('', 'pool: { minRemaining: 0s }')).toEqual([]);
  expect(warned('', 'workers: 2')).toEqual([]);
});

test('warnings: warns of an account without sources', () => {
  const text = 'service: { baseUrl: "https://a.example" }\naccount: { username: someone, password: x }';
  expect(parseConfig(text, 'noria.yaml', { env: {} }).warnings).toMatchObject([
    { path: 'account', line: 2, column: 1 },
  ]);
});

test('warnings: warns of a secret that a comment may have cut off, without showing the comment', () => {
  const load = (password: string) =>
    parseConfig(
      `service: { baseUrl: "https://a.example" }\nsources:\n  - name: a\n    product: short-classic # ok\n    instance: 1 #1\n    password: ${password}\n`,
      'noria.yaml',
      { env: { SECRET: 'abc #def' } },
    ).warnings;
  expect(load('abc #def')).toEqual([
    {
      path: 'sources[0].password',
      line: 6,
      column: 15,
      message: 'ends before the #, which begins a comment; put the value in quotes if the # belongs to it',
      excerpt: '    6 |     password: [secret]\n      |               ^',
    },
  ]);
  for (const password of ['"abc #def"', 'abc#def', 'abc # a comment', '${SECRET}', "'abc' #def"]) {
    expect(load(password), password).toEqual([]);
  }
});

test('warnings: each has a place in the file', () => {
  const [warning] = configOf('size: 3\nparams:\n  count: 5').warnings;
  expect(warning).toMatchObject({ line: 9, column: 7 });
  expect(warning?.excerpt).toBe('    9 |       count: 5\n      |       ^');
});
