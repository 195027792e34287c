import { describe, expect, test } from 'vitest';
import { hasCode } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import { FORMATS, OPERATIONS, PRODUCTS } from '../../src/service/operations.ts';
import {
  areasRequest,
  type ExtractCall,
  extractRequest,
  instancesRequest,
} from '../../src/service/request.ts';

const KEY = new Secret('83aa400af464c76d');
const BASE = 'http://extract.test';

function draw(more: Partial<ExtractCall>): ExtractCall {
  const { extractHost, ...rest } = more;
  const at = extractHost === undefined ? { baseUrl: BASE } : { extractHost };
  return {
    ...at,
    product: 'short-classic',
    method: 'GET',
    format: 'json',
    instance: '203001011200000001',
    key: KEY,
    params: {},
    ...rest,
  };
}

const WHO = '203001011200000001&akey=83aa400af464c76d';

// Whole URLs from "Endpoints" of the specification. The order of the parameters is noria's.
const REQUESTS: [call: Partial<ExtractCall>, url: string][] = [
  [
    { product: 'long-residential', params: { fitter: 1, timespan: 6, tunnel: 3, adr: '广东' }, count: 5 },
    `${BASE}/PrivateProxy/GetIP/?api=${WHO}&count=5&adr=%E5%B9%BF%E4%B8%9C&fitter=1&timespan=6&tunnel=3&type=3`,
  ],
  [
    { product: 'shared', params: { pro: 2, order: 1, nadr: '上海' }, format: 'xml' },
    `${BASE}/CotenancyProxy/GetIP/?api=${WHO}&nadr=%E4%B8%8A%E6%B5%B7&pro=2&order=1&type=2`,
  ],
  [
    { product: 'short-socks5', params: { timespan: 0 }, format: 'text' },
    `${BASE}/ShortS5Proxy/GetIP/?api=${WHO}&timespan=0&type=1`,
  ],
  [
    { product: 'short-classic', params: { timespan: 3, adr: '广东,江苏' }, count: 1 },
    `${BASE}/ShortProxy/GetIP/?api=${WHO}&count=1&adr=%E5%B9%BF%E4%B8%9C%2C%E6%B1%9F%E8%8B%8F&timespan=3&type=3`,
  ],
  [
    { product: 'residential-socks5', params: { fitter: 2, timespan: 29, tunnel: 2 } },
    `${BASE}/PrivateS5Proxy/GetIP/?api=${WHO}&fitter=2&timespan=29&tunnel=2&type=3`,
  ],
  [
    { product: 'short-pure', extractHost: 'node7.test', params: { dedup: 0, timespan: 1 }, count: 2 },
    `http://node7.test:8080/GetIP/?inst_id=${WHO}&count=2&dedup=0&timespan=1&type=2`,
  ],
  [
    { product: 'short-pure', params: { dedup: 1, timespan: 5 }, count: 2, format: 'xml' },
    `${BASE}/GetIP/?inst_id=${WHO}&count=2&dedup=1&timespan=5&type=3`,
  ],
  [
    {
      product: 'free',
      params: {
        dalu: 1,
        protocol_type: 4,
        level_type: 1,
        isp: '电信',
        lastcheck_type: 2,
        sleep_type: 3,
        alive_type: 7,
      },
    },
    `${BASE}/FreeProxy/Get/?app_id=${WHO}&dalu=1&protocol_type=4&level_type=1&isp=%E7%94%B5%E4%BF%A1&lastcheck_type=2&sleep_type=3&alive_type=7&return_type=3`,
  ],
  [
    { product: 'exclusive', params: { pro: 1, order: 2 }, count: 9 },
    `${BASE}/ExclusiveProxy/GetIP/?api=${WHO}&count=9&pro=1&order=2&type=3`,
  ],
];

describe('request: the whole URL of a draw with GET', () => {
  test.each(REQUESTS)('%o', (call, url) => {
    const request = extractRequest(draw(call));
    expect(request).toEqual({ method: 'GET', url: new URL(url) });
    expect(request.url.href).toBe(url);
  });
});

test('request: POST sends the same parameters as a form, and none in the URL', () => {
  expect(REQUESTS.length).toBeGreaterThan(8);
  for (const [call, href] of REQUESTS) {
    const request = extractRequest(draw({ ...call, method: 'POST' }));
    const [address, query] = href.split('?');
    expect({ href: request.url.href, body: request.body }).toEqual({ href: address, body: query });
  }
});

test('request: every operation selects the format with its own parameter', () => {
  for (const product of PRODUCTS) {
    for (const format of FORMATS) {
      const { selector, path } = OPERATIONS[product];
      const { url } = extractRequest(draw({ product, format }));
      expect(url.pathname).toBe(path);
      expect(url.searchParams.getAll(selector.name)).toEqual([String(selector[format])]);
    }
  }
});

test('request: parameters of other operations and the count among the parameters are not sent', () => {
  const { url } = extractRequest(draw({ params: { fitter: 1, timespan: 2, count: 50 } }));
  expect([...url.searchParams.keys()]).toEqual(['api', 'akey', 'timespan', 'type']);
});

test('request: special characters in a value are encoded', () => {
  const instance = 'a&b=c d+e/ü%?#\ud800';
  const { url } = extractRequest(draw({ instance }));
  expect(url.searchParams.get('api')).toBe('a&b=c d+e/ü%?#\ufffd');
  expect([...url.searchParams.keys()]).toEqual(['api', 'akey', 'type']);
});

test.each([
  ['http://extract.test/', 'http://extract.test/ShortProxy/GetIP/'],
  ['http://extract.test/gate//', 'http://extract.test/gate/ShortProxy/GetIP/'],
  ['https://extract.test:8443', 'https://extract.test:8443/ShortProxy/GetIP/'],
  ['http://[2001:db8::1]:81', 'http://[2001:db8::1]:81/ShortProxy/GetIP/'],
])('request: the base address %s gives the URL %s', (baseUrl, href) => {
  expect(extractRequest(draw({ baseUrl, method: 'POST' })).url.href).toBe(href);
});

test.each([
  ['node7.test', 'http://node7.test:8080/GetIP/'],
  ['node7.test:9090', 'http://node7.test:9090/GetIP/'],
  ['192.0.2.7', 'http://192.0.2.7:8080/GetIP/'],
  ['[2001:db8::7]', 'http://[2001:db8::7]:8080/GetIP/'],
])('request: the extraction host %s gives the URL %s', (extractHost, href) => {
  const call = draw({ product: 'short-pure', extractHost, method: 'POST' });
  expect(extractRequest(call).url.href).toBe(href);
});

test.each([
  'extract.test',
  'ftp://extract.test',
  'http://someone:hunter2@extract.test',
  'http://x.test/?a=1',
  '',
])('request: the base address %j is rejected, and its password not quoted', (baseUrl) => {
  const attempt = () => extractRequest(draw({ baseUrl }));
  expect(attempt).toThrow(expect.toSatisfy((error) => hasCode(error, 'bad-config')));
  expect(attempt).not.toThrow(/hunter2/);
});

test.each(['a b', 'node7.test/path', 'user@node7.test', ''])(
  'request: the extraction host %j is rejected',
  (extractHost) => {
    const attempt = () => extractRequest(draw({ product: 'short-pure', extractHost }));
    expect(attempt).toThrow(expect.toSatisfy((error) => hasCode(error, 'bad-config')));
  },
);

test('request: operation 9 sends the instance, its key and the keywords', () => {
  const call = { baseUrl: BASE, method: 'GET', instance: '7', key: KEY } as const;
  const path = `${BASE}/ExclusiveProxy/GetAddibleServerList/?api=7&akey=83aa400af464c76d`;
  expect(areasRequest(call).url.href).toBe(path);
  expect(areasRequest({ ...call, areaKeyword: '福建,江苏' }).url.href).toBe(
    `${path}&areaKeyword=%E7%A6%8F%E5%BB%BA%2C%E6%B1%9F%E8%8B%8F`,
  );
});

test('request: operation 10 sends the account, its key and the status', () => {
  const call = { baseUrl: BASE, method: 'POST', username: 'someone', key: KEY } as const;
  const all = instancesRequest(call);
  expect(all.url.href).toBe(`${BASE}/ExclusiveProxy/GetInstanceList/`);
  expect(all.body).toBe('username=someone&password=83aa400af464c76d');
  expect(instancesRequest({ ...call, status: 2 }).body).toBe(`${all.body}&status=2`);
});
