import { expect, test } from 'vitest';
import type { SourceConfig } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { OPERATIONS, PRODUCTS } from '../../src/service/operations.ts';
import { FILE, filesOf, problemsOf } from './files.ts';

/** The source with these YAML keys and a name, an instance and a service. */
function sourceOf(keys: string): SourceConfig | undefined {
  const text = `service: { baseUrl: https://extract.example.com/api/ }
sources: [{ name: city, instance: 1, ${keys} }]`;
  return parseConfig(text, FILE, { env: {}, files: filesOf({ '/p': '12345678\n' }) }).sources[0];
}

const KEY = '83aa400af464c76d';

test('source config: a key is enough for every product', () => {
  const seen = PRODUCTS.map((product) => {
    const host = product === 'short-pure' ? ', host: node7.example.com' : '';
    const source = sourceOf(`product: ${product}, akey: ${KEY}${host}`);
    return [product, source?.upstream.protocol, source?.params, source?.intervalMs, source?.baseUrl];
  });
  const base = 'https://extract.example.com/api';
  expect(seen).toEqual([
    ['long-residential', 'http', { fitter: 2, timespan: 6, tunnel: 1 }, 10_000, base],
    ['shared', 'http', { pro: 1, order: 2 }, 10_000, base],
    ['short-socks5', 'socks5', { timespan: 0 }, 10_000, base],
    ['short-classic', 'http', { timespan: 0 }, 10_000, base],
    ['residential-socks5', 'socks5', { fitter: 2, timespan: 6, tunnel: 1 }, 10_000, base],
    ['short-pure', 'http', { dedup: 0, timespan: 1 }, 10_000, undefined],
    ['free', undefined, { dalu: 1 }, 10_000, base],
    ['exclusive', 'http', { pro: 1, order: 2 }, 10_000, base],
  ]);
});

test('source config: accepts the minimum interval of each product and rejects less', () => {
  for (const product of PRODUCTS) {
    const { minIntervalMs } = OPERATIONS[product];
    const host = product === 'short-pure' ? ', host: node7.example.com' : '';
    const at = (ms: number) =>
      sourceOf(`product: ${product}, akey: ${KEY}${host}, interval: ${ms}ms`)?.intervalMs;
    expect(at(minIntervalMs), product).toBe(minIntervalMs);
    expect(
      problemsOf(() => at(minIntervalMs - 1)),
      product,
    ).toHaveLength(1);
  }
});

test('source config: the protocol of members follows pro, and the configuration overrides it', () => {
  expect(sourceOf(`product: shared, akey: ${KEY}, params: { pro: 2 }`)?.upstream.protocol).toBe('socks5');
  expect(sourceOf(`product: free, akey: ${KEY}, upstream: { protocol: socks4 }`)?.upstream.protocol).toBe(
    'socks4',
  );
});

test('source config: count is separate from the other parameters', () => {
  const source = sourceOf(`product: short-classic, akey: ${KEY}, params: { count: "5", adr: [a, b] }`);
  expect(source).toMatchObject({ count: 5, params: { timespan: 0, adr: 'a,b' } });
  expect(source?.params).not.toHaveProperty('count');
});

test('source config: the key is derived from the password, and both are kept', () => {
  for (const given of [
    'password: 12345678',
    'passwordFile: /p',
    `password: 12345678, akey: ${KEY.toUpperCase()}`,
  ]) {
    const source = sourceOf(`product: short-classic, ${given}`);
    expect([source?.key?.reveal(), source?.password?.reveal()], given).toEqual([KEY, '12345678']);
  }
  expect(sourceOf(`product: short-classic, akey: ${KEY}`)?.password).toBeUndefined();
});

test('source config: short-pure has a host or a base URL', () => {
  const at = (place: string) => {
    const { baseUrl, extractHost } = sourceOf(`product: short-pure, akey: ${KEY}, ${place}`) ?? {};
    return { baseUrl, extractHost };
  };
  expect(at('host: "node7.example.com:9000"')).toEqual({
    baseUrl: undefined,
    extractHost: 'node7.example.com:9000',
  });
  expect(at('baseUrl: "http://127.0.0.1:9000/"')).toEqual({
    baseUrl: 'http://127.0.0.1:9000',
    extractHost: undefined,
  });
});

test.each([
  [
    'auto',
    'short-classic',
    'password: 12345678',
    { kind: 'auto', credentials: { username: '1', password: '12345678' } },
  ],
  ['auto', 'short-classic', `akey: ${KEY}`, { kind: 'auto', credentials: undefined }],
  ['auto', 'free', 'password: 12345678', { kind: 'auto', credentials: undefined }],
  ['none', 'short-classic', 'password: 12345678', { kind: 'none' }],
  [
    'instance',
    'short-classic',
    'password: 12345678',
    { kind: 'always', credentials: { username: '1', password: '12345678' } },
  ],
  [
    '{ username: u, password: p }',
    'free',
    `akey: ${KEY}`,
    { kind: 'always', credentials: { username: 'u', password: 'p' } },
  ],
  [
    '{ username: u, passwordFile: /p }',
    'shared',
    `akey: ${KEY}`,
    { kind: 'always', credentials: { username: 'u', password: '12345678' } },
  ],
])(
  'source config: auth %s of a %s source with %s selects the right credentials',
  (auth, product, secret, expected) => {
    const read = sourceOf(`product: ${product}, ${secret}, upstream: { auth: ${auth} }`)?.upstream.auth;
    const credentials = read?.kind === 'none' ? undefined : read?.credentials;
    const shown = credentials && { username: credentials.username, password: credentials.password.reveal() };
    expect(read && (read.kind === 'none' ? read : { kind: read.kind, credentials: shown })).toEqual(expected);
  },
);

test('source config: credentials have 1 to 255 bytes each, the limits of RFC 1929', () => {
  const long = 'é'.repeat(128);
  const auth = (username: string, password: string) =>
    problemsOf(() =>
      sourceOf(
        `product: shared, akey: ${KEY}, upstream: { auth: { username: ${username}, password: ${password} } }`,
      ),
    );
  expect(auth('a'.repeat(255), 'b'.repeat(255))).toEqual([]);
  expect(auth(long, long)).toEqual([
    'sources[0].upstream.auth.username: is longer than 255 bytes; expected a user name of 1 to 255 bytes without a colon, for example alice',
    'sources[0].upstream.auth.password: is longer than 255 bytes; expected a password of 1 to 255 bytes without line breaks, for example ${NORIA_PASSWORD}',
  ]);
  expect(auth('""', '""')).toHaveLength(2);
});

test('source config: messages name the variable of an invalid parameter, not its value', () => {
  const text = `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: short-classic, instance: 1, akey: ${KEY}, params: { timespan: "\${S}" } }]`;
  for (const value of ['hunter2', 'hunter2'.repeat(20)]) {
    expect(problemsOf(() => parseConfig(text, FILE, { env: { S: value } }))).toEqual([
      'sources[0].params.timespan: the value of ${S} is not a whole number from 0 to 5',
    ]);
  }
});

test('source config: the size of the source overrides pool.size', () => {
  const text = (size: string) => `service: { baseUrl: https://extract.example.com }
pool: { size: 7 }
sources: [{ name: city, product: free, instance: 1, akey: ${KEY}${size} }]`;
  const sizes = ['', ', size: 3'].map((size) => parseConfig(text(size), FILE, { env: {} }).sources[0]?.size);
  expect(sizes).toEqual([7, 3]);
});
