import { expect, test } from 'vitest';
import type { LinkSource } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { printConfig } from '../../src/config/print.ts';
import { filesOf, problemsOf } from './files.ts';

const URL_TEXT = 'https://share.example.com/get?key=abcdef123456&num={count}';

function configWith(keys: string, env = {}) {
  const files = filesOf({ '/link': `${URL_TEXT}\n` });
  return parseConfig(`sources:\n  - { name: other, product: link, ${keys} }`, '/etc/noria.yaml', {
    env,
    files,
  });
}

function linkOf(keys: string, env = {}): LinkSource {
  const [source] = configWith(keys, env).sources;
  if (source?.product !== 'link') throw new Error('no link');
  return source;
}

test('link source: needs a url and an interval, and nothing else', () => {
  const source = linkOf('url: "https://share.example.com/get?key=${KEY}&num={count}", interval: 2s', {
    KEY: 'abcdef123456',
  });
  expect(source).toMatchObject({
    baseUrl: 'https://share.example.com',
    method: 'GET',
    intervalMs: 2_000,
    count: undefined,
    params: {},
    login: 'use',
    upstream: { auth: { kind: 'none' } },
    answer: { format: 'auto' },
  });
  expect(source.url.reveal()).toBe(URL_TEXT);
  expect(source.instance).toMatch(/^link-[0-9a-f]{16}$/);
  expect(linkOf('urlFile: /link, interval: 2s').instance).toBe(source.instance);
});

test('link source: the whole address, method, headers, body, count and credentials can be set', () => {
  const source = linkOf(
    `url: "${URL_TEXT}", interval: 2s, params: { count: 9 }, headers: { X-Key: k }, body: '{"n": "{count}"}', lifetime: 3m, upstream: { protocol: socks5, auth: { username: u, password: p } }`,
  );
  expect(source).toMatchObject({ method: 'POST', count: 9, lifetimeMs: 180_000, login: 'ignore' });
  expect(source.headers['X-Key']?.reveal()).toBe('k');
  expect(source.upstream).toMatchObject({ protocol: 'socks5', auth: { kind: 'always' } });
});

test.each([
  ['entry', 'require'],
  ['none', 'ignore'],
  ['auto', 'use'],
])('link source: with auth %s the credentials of entries: %s', (auth, login) => {
  expect(linkOf(`url: "${URL_TEXT}", interval: 2s, upstream: { auth: ${auth} }`).login).toBe(login);
});

test('link source: is printed with masked secrets, and without the keys of other products', () => {
  const printed = printConfig(
    configWith(`url: "${URL_TEXT}", interval: 2s, headers: { X-Key: s3cret }, upstream: { auth: entry }`),
  );
  expect(printed).toContain('url: https://share.example.com/get?key=[secret]&num={count}');
  expect(printed).toContain('auth: entry');
  expect(printed).not.toMatch(/abcdef123456|s3cret|akey|textLayout|instance/);
});

test.each<[keys: string, problems: readonly string[]]>([
  ['interval: 2s', ['sources[0]: has no url: a source with `product: link` requires url or urlFile']],
  [
    `url: "${URL_TEXT}"`,
    [
      'sources[0]: has no interval: a source with `product: link` requires it; set the minimum time between two calls that the vendor allows, for example interval: 5s',
    ],
  ],
  [
    'url: "share.example.com/get?key=abcdef123456", interval: 2s',
    [
      'sources[0].url: is not an http:// or https:// URL; expected an http:// or https:// URL without user name, password and fragment, for example "https://share.example.com/get?key=${OTHER_KEY}&num={count}"',
    ],
  ],
  [
    `url: "${URL_TEXT}", interval: 2s, instance: 1, akey: 83aa400af464c76d, format: text`,
    [
      'sources[0].instance: does not work with product: link; remove it: the url already contains everything that the vendor needs',
      'sources[0].akey: does not work with product: link; remove it: the url already contains everything that the vendor needs',
      'sources[0].format: does not work with product: link; set answer.format',
    ],
  ],
  [
    `url: "${URL_TEXT}", interval: 2s, params: { adr: x }`,
    ['sources[0].params.adr: is not a parameter of a link, whose only parameter is count; add adr to url'],
  ],
  [
    `url: "${URL_TEXT}", interval: 2s, upstream: { auth: instance }`,
    [
      'sources[0].upstream.auth: instance does not work with product: link; use none, entry, or a user name and password of the vendor',
    ],
  ],
  [
    `url: "${URL_TEXT}", interval: 2s, answer: { address: "ip:port", expiry: { field: e, as: datetime, zone: CST } }`,
    [
      'sources[0].answer.address: contains no field in braces, such as {ip}:{port}',
      'sources[0].answer.expiry.zone: "CST" is not a zone; expected an offset from UTC such as +08:00, or Z, for example "+08:00"',
    ],
  ],
  [
    `url: "${URL_TEXT}", interval: 2s, answer: { ok: { field: code, is: 0 } }`,
    ['sources[0].answer.ok.is: is a text; expected a list, each entry a value of the field'],
  ],
])('link source: { %s } has exactly these problems', (keys, problems) => {
  expect(problemsOf(() => configWith(keys))).toEqual(problems);
});

test('link source: other products have none of its keys', () => {
  const text = `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: short-classic, instance: 1, akey: 83aa400af464c76d, url: "${URL_TEXT}", upstream: { auth: entry } }]`;
  expect(
    problemsOf(() => parseConfig(text, 'noria.yaml', { env: {} })).map((problem) => problem.split(':')[0]),
  ).toEqual(['sources[0].url', 'sources[0].upstream.auth']);
});

test('link source: warns of an unencrypted link, and of a second source with the same link', () => {
  const text = `sources:
  - { name: a, product: link, url: "http://share.example.com/get?key=abcdef123456&n={count}", interval: 2s }
  - { name: b, product: link, url: "http://share.example.com/get?key=abcdef123456&n={count}", interval: 2s }`;
  const { warnings } = parseConfig(text, 'noria.yaml', { env: {} });
  expect(warnings.map(({ path }) => path)).toEqual(['sources[0].url', 'sources[1].url', 'sources[1].url']);
  expect(JSON.stringify(warnings)).not.toContain('abcdef123456');
});

test('list source: rotate needs a page to verify the exit with, its own or that of the health check', () => {
  const list = (more: string, sections = '') =>
    `sources:\n  - { name: ours, product: list, file: p.txt${more} }\n${sections}`;
  const rotate = (keys: string) => `, rotate: { url: "http://modem.example/r?id={port}"${keys} }`;
  const checkOf = (text: string) => {
    const [source] = parseConfig(text, '/etc/noria.yaml', { env: {} }).sources;
    return source?.product === 'list' ? source.rotate?.check : undefined;
  };
  const health = 'health: { check: { url: "http://health.example/ip" } }';
  expect(checkOf(list(rotate(', check: "http://own.example/ip"'), health))).toBe('http://own.example/ip');
  expect(checkOf(list(rotate(''), health))).toBe('http://health.example/ip');
  expect(problemsOf(() => parseConfig(list(rotate('')), '/etc/noria.yaml', { env: {} }))).toEqual([
    expect.stringContaining('sources[0].rotate: has no page to verify the exit with; set rotate.check'),
  ]);
});

test('whitelist: works only with products that have calls', () => {
  const whitelist = 'whitelist: { url: "http://vendor.example/bind?ip={ip}" }';
  const text = `sources:\n  - { name: ours, product: list, file: p.txt, ${whitelist} }`;
  expect(problemsOf(() => parseConfig(text, '/etc/noria.yaml', { env: {} }))).toEqual([
    expect.stringMatching(
      /sources\[0\]\.whitelist: works only with product: .* or link, and the product is list/,
    ),
  ]);
  const link = configWith(`url: "${URL_TEXT}", interval: 2s, ${whitelist}`);
  expect(link.sources[0]?.whitelist).toMatchObject({ everyMs: 600_000 });
});
