import { expect, test } from 'vitest';
import {
  defaultLifetimeMs,
  memberProtocol,
  OPERATIONS,
  PRODUCTS,
  type Product,
} from '../../src/service/operations.ts';
import { checkParams } from '../../src/service/params.ts';

// Copied from the specification and noria's contract, to detect mistakes in the table.
const TOLD: Record<
  Product,
  { number: number; path: string; instance: string; interval: number; minimum: number; protocol: string }
> = {
  'long-residential': {
    number: 1,
    path: '/PrivateProxy/GetIP/',
    instance: 'api',
    interval: 10_000,
    minimum: 1_000,
    protocol: 'http',
  },
  shared: {
    number: 2,
    path: '/CotenancyProxy/GetIP/',
    instance: 'api',
    interval: 10_000,
    minimum: 1_000,
    protocol: 'http',
  },
  'short-socks5': {
    number: 3,
    path: '/ShortS5Proxy/GetIP/',
    instance: 'api',
    interval: 10_000,
    minimum: 10_000,
    protocol: 'socks5',
  },
  'short-classic': {
    number: 4,
    path: '/ShortProxy/GetIP/',
    instance: 'api',
    interval: 10_000,
    minimum: 10_000,
    protocol: 'http',
  },
  'residential-socks5': {
    number: 5,
    path: '/PrivateS5Proxy/GetIP/',
    instance: 'api',
    interval: 10_000,
    minimum: 1_000,
    protocol: 'socks5',
  },
  'short-pure': {
    number: 6,
    path: '/GetIP/',
    instance: 'inst_id',
    interval: 10_000,
    minimum: 100,
    protocol: 'http',
  },
  free: {
    number: 7,
    path: '/FreeProxy/Get/',
    instance: 'app_id',
    interval: 10_000,
    minimum: 1_000,
    protocol: 'http',
  },
  exclusive: {
    number: 8,
    path: '/ExclusiveProxy/GetIP/',
    instance: 'api',
    interval: 10_000,
    minimum: 1_000,
    protocol: 'http',
  },
};

test.each(PRODUCTS)('operations: %s has its number, path, identity, pace and protocol', (product) => {
  const { number, path, identity, defaultIntervalMs, minIntervalMs } = OPERATIONS[product];
  expect({
    number,
    path,
    instance: identity.name,
    interval: defaultIntervalMs,
    minimum: minIntervalMs,
    protocol: memberProtocol(product, checkParams(product, {}).params),
  }).toEqual(TOLD[product]);
  expect(identity.key).toBe('akey');
});

test('operations: each of the ten numbers occurs once', () => {
  const numbers = Object.values(OPERATIONS).flatMap(({ number }) => (number === 'link' ? [] : [number]));
  expect(numbers.toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test('operations: only short-pure has its own format selector and host', () => {
  for (const product of PRODUCTS) {
    const { selector, server: at } = OPERATIONS[product];
    const pure = product === 'short-pure';
    const values = pure ? { text: 1, json: 2, xml: 3 } : { text: 1, xml: 2, json: 3 };
    expect(selector).toEqual({ name: product === 'free' ? 'return_type' : 'type', ...values });
    expect(at).toBe(pure ? 'extract-host' : 'base');
  }
});

test.each([
  { product: 'long-residential', params: { timespan: 6 }, ms: 360_000 },
  { product: 'residential-socks5', params: { timespan: 29 }, ms: 1_740_000 },
  { product: 'shared', params: {}, ms: 60_000 },
  { product: 'shared', params: { timespan: 3 }, ms: 180_000 },
  { product: 'shared', params: { timespan: 0 }, ms: 60_000 },
  { product: 'short-socks5', params: { timespan: 0 }, ms: 60_000 },
  { product: 'short-classic', params: { timespan: 5 }, ms: 300_000 },
  { product: 'short-pure', params: { timespan: 1 }, ms: 60_000 },
  { product: 'short-pure', params: { timespan: 2 }, ms: 120_000 },
  { product: 'free', params: { timespan: 9 }, ms: 60_000 },
  { product: 'exclusive', params: {}, ms: 60_000 },
] as const)(
  'operations: the default lifetime of $product with $params is $ms ms',
  ({ product, params, ms }) => {
    expect(defaultLifetimeMs(product, params)).toBe(ms);
  },
);

test.each([
  { product: 'shared', params: { pro: 1 }, protocol: 'http' },
  { product: 'shared', params: { pro: 2 }, protocol: 'socks5' },
  { product: 'exclusive', params: { pro: 2 }, protocol: 'socks5' },
  { product: 'free', params: { protocol_type: 1 }, protocol: 'http' },
  { product: 'free', params: { protocol_type: 2 }, protocol: 'socks4' },
  { product: 'free', params: { protocol_type: 3 }, protocol: 'socks5' },
  { product: 'free', params: { protocol_type: 4 }, protocol: 'http' },
] as const)(
  'operations: members of $product with $params speak $protocol',
  ({ product, params, protocol }) => {
    expect(memberProtocol(product, params)).toBe(protocol);
  },
);
