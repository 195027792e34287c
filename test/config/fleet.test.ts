import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { printConfig } from '../../src/config/print.ts';
import { configOf, filesOf, problemsOf } from './files.ts';

const TLS = 'test/fixtures/tls';
const PASSWORD = 'hunter2@store';
const URL_LINE = 'url: rediss://me:hunter2%40store@store.example:7000/3';
const fleetOf = (lines: string, files = filesOf({})) => configOf('', `fleet: { ${lines} }`, files).fleet;
const problemsIn = (lines: string, files = filesOf({})) => problemsOf(() => fleetOf(lines, files));

test('fleet config: a URL has host, port, user, password and database', () => {
  const fleet = fleetOf(URL_LINE);
  expect(fleet).toMatchObject({
    name: 'noria',
    url: { tls: true, host: 'store.example', port: 7000, username: 'me', database: 3 },
  });
  expect(fleet?.url.password?.reveal()).toBe(PASSWORD);
  expect(fleetOf('url: redis://STORE.example')?.url).toEqual({
    tls: false,
    host: 'store.example',
    port: 6379,
    username: undefined,
    password: undefined,
    database: 0,
  });
  expect(fleetOf('url: "redis://[::1]:7000/"')?.url).toMatchObject({ host: '::1', port: 7000, database: 0 });
});

test.each([
  ['http://store.example', 'is not a redis:// or rediss:// URL'],
  ['redis://store.example/hunter2', 'has a path that is not the number of a database'],
  ['redis://store.example/1/hunter2', 'has a path that is not the number of a database'],
  ['redis://store.example?password=hunter2', 'has a query or a fragment'],
  ['redis://:hunter2%zz@store.example', 'has a % that is not part of an encoded character'],
  ['redis:hunter2', 'has no valid host and port'],
])('fleet config: %s is an error that does not show it', (url, wrong) => {
  const [problem = '', ...others] = problemsIn(`url: "${url}"`);
  expect(problem).toContain(`fleet.url: ${wrong}`);
  expect(problem).not.toContain('hunter2');
  expect(others).toEqual([]);
});

test('fleet config: the URL may be in a file, which others must not read', () => {
  const path = '/etc/noria/url';
  const files = filesOf({ [path]: 'redis://:secret@10.0.0.1\n' }, [path]);
  const { fleet, warnings } = configOf('', 'fleet: { urlFile: url }', files);
  expect(fleet?.url.password?.reveal()).toBe('secret');
  expect(warnings.map(({ message }) => message)).toContainEqual(expect.stringContaining('chmod 600'));
  expect(problemsIn('url: redis://one, urlFile: url', files)).toEqual([
    'fleet.urlFile: cannot be combined with url; keep one of them',
  ]);
});

test('fleet config: needs a store, or Sentinels that know it', () => {
  expect(problemsIn('name: crawl')).toEqual(['fleet: names no store; set url or urlFile']);
  const sentinel = 'sentinel: { primary: mymaster, addresses: ["10.0.0.1", "[::1]:7000"] }';
  expect(fleetOf(sentinel)?.sentinel).toMatchObject({
    primary: 'mymaster',
    addresses: [
      { host: '10.0.0.1', port: 26_379 },
      { host: '::1', port: 7000 },
    ],
  });
  expect(problemsIn('sentinel: { primary: mymaster, addresses: ["a b"] }')).toEqual([
    expect.stringContaining('fleet.sentinel.addresses[0]: "a b" is not host:port'),
  ]);
});

test('fleet config: certificates are read and must belong together', () => {
  const read = (name: string) => readFileSync(`${TLS}/${name}`, 'utf8');
  const files = filesOf({
    '/etc/noria/cert.pem': read('first.cert.pem'),
    '/etc/noria/key.pem': read('first.key.pem'),
    '/etc/noria/other.pem': read('second.key.pem'),
  });
  const tls = fleetOf(`${URL_LINE}, tls: { ca: cert.pem, cert: cert.pem, key: key.pem }`, files)?.tls;
  expect(tls).toMatchObject({ files: { ca: '/etc/noria/cert.pem' }, ca: read('first.cert.pem') });
  expect(tls?.key?.reveal()).toBe(read('first.key.pem'));
  expect(problemsIn(`${URL_LINE}, tls: { cert: cert.pem }`, files)).toEqual([
    'fleet.tls: needs both cert and key, or neither',
  ]);
  expect(problemsIn(`${URL_LINE}, tls: { cert: cert.pem, key: other.pem }`, files)).toEqual([
    expect.stringContaining('fleet.tls: these files cannot be used'),
  ]);
  expect(problemsIn('url: redis://store.example, tls: { ca: cert.pem }', files)).toEqual([
    'fleet.tls: has no effect without TLS; begin the URL with rediss://',
  ]);
});

test('fleet config: the printed configuration masks the password', () => {
  const config = configOf('', `fleet: { ${URL_LINE}, replica: one }`);
  expect(printConfig(config)).toContain('url: rediss://me:[secret]@store.example:7000/3');
  expect(printConfig(config)).not.toContain('hunter2');
  expect(JSON.stringify(config)).not.toContain('hunter2');
});

test('fleet config: a store on another machine without TLS is a warning', () => {
  const warned = (url: string) =>
    configOf('', `fleet: { url: "${url}" }`).warnings.filter(({ path }) => path === 'fleet.url');
  expect(warned('redis://10.0.0.1')).toHaveLength(1);
  for (const url of ['rediss://10.0.0.1', 'redis://127.0.0.1', 'redis://localhost']) {
    expect(warned(url), url).toEqual([]);
  }
});

test('fleet config: can be combined with workers', () => {
  expect(configOf('', 'workers: 2\nfleet: { url: redis://127.0.0.1 }')).toMatchObject({
    workers: 2,
    fleet: { name: 'noria' },
  });
});
