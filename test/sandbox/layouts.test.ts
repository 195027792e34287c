/**
 * Each operation answers in the layout of the specification, in all its formats, by both methods. The layouts below are copied
 * from the specification (Endpoints 1 to 10, Resources and their fields).
 */
import { describe, expect, test } from 'vitest';
import { print } from '../../src/sandbox/answers.ts';
import { SANDBOX_PRODUCTS, type SandboxProduct } from '../../src/sandbox/operations.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { ask, call, GOOD_CALLS, open, send } from './client.ts';

const IP = /^127\.\d+\.\d+\.\d+$/;
const BASIC = { ip: IP, port: 'number', adr: 'string', timeout: 'number', cometime: 'number' };
const RESIDENTIAL = {
  ip: IP,
  port: 'number',
  adr: 'string',
  outip: IP,
  timeout: 'number',
  cometime: 'number',
};
const RESIDENTIAL_COUNTERS = ['update_count', 'active_count', 'today_count', 'surplus_count'];

const LAYOUTS: Readonly<
  Record<
    SandboxProduct,
    { readonly counters: readonly string[]; readonly entry: Readonly<Record<string, RegExp | string>> }
  >
> = {
  'long-residential': { counters: RESIDENTIAL_COUNTERS, entry: RESIDENTIAL },
  shared: { counters: [], entry: BASIC },
  'short-socks5': { counters: [], entry: BASIC },
  'short-classic': { counters: [], entry: BASIC },
  'residential-socks5': { counters: RESIDENTIAL_COUNTERS, entry: RESIDENTIAL },
  'short-pure': {
    counters: ['dedup_count', 'today_left_count'],
    entry: {
      ip: IP,
      port: 'number',
      adr: 'string',
      out_ip: IP,
      expired_seconds: 'number',
      is_new_dedup: 'boolean',
    },
  },
  free: {
    counters: [],
    entry: {
      ip: IP,
      port: 'number',
      adr: 'string',
      protocol: /^(http|https|socks4|socks5)$/,
      level: /^(高匿|普匿|匿名|透明|未知)$/,
    },
  },
  exclusive: {
    counters: [],
    entry: { ...BASIC, area: 'string', id: 'string', lastscore: 'number', yestodayscore: 'number' },
  },
};

/** The parameter that selects the format, and its values for text, XML and JSON, from the specification. */
function selector(product: SandboxProduct, format: 'text' | 'xml' | 'json'): Record<string, string> {
  if (product === 'short-pure') return { type: { text: '1', json: '2', xml: '3' }[format] };
  const value = { text: '1', xml: '2', json: '3' }[format];
  return product === 'free' ? { return_type: value } : { type: value };
}

function expectEntry(
  entry: Readonly<Record<string, unknown>>,
  layout: Readonly<Record<string, RegExp | string>>,
) {
  expect(Object.keys(entry)).toEqual(Object.keys(layout));
  for (const [name, shape] of Object.entries(layout)) {
    if (typeof shape === 'string') expect(typeof entry[name], name).toBe(shape);
    else expect(entry[name], name).toMatch(shape);
  }
}

/** Returns the contents of the elements with this name. */
function inside(xml: string, name: string): readonly string[] {
  return [...xml.matchAll(new RegExp(`<${name}>(.*?)</${name}>`, 'gs'))].map(([, content = '']) => content);
}

describe.each(['GET', 'POST'] as const)('sandbox by %s', (method) => {
  test.each(SANDBOX_PRODUCTS)(
    '%s: JSON carries code as a string, count, counters and the entries',
    async (product) => {
      const sandbox = await open();
      const answer = await call(sandbox, product, selector(product, 'json'), { method });
      expect([answer.status, answer.contentType]).toEqual([200, 'application/json; charset=utf-8']);
      const { code, msg, data } = JSON.parse(answer.body);
      expect([code, msg.startsWith('获取成功')]).toEqual(['10001', true]);
      const { counters, entry } = LAYOUTS[product];
      expect(Object.keys(data)).toEqual(['count', ...counters, 'proxy_list']);
      for (const name of ['count', ...counters]) expect(data[name], name).toBeTypeOf('number');
      expect([data.count, data.proxy_list.length]).toEqual([3, 3]);
      for (const one of data.proxy_list) expectEntry(one, entry);
    },
  );

  test.each(SANDBOX_PRODUCTS)('%s: XML has the same envelope and fields', async (product) => {
    const sandbox = await open();
    const answer = await call(sandbox, product, selector(product, 'xml'), { method });
    expect([answer.status, answer.contentType]).toEqual([200, 'text/xml; charset=utf-8']);
    expect(answer.body).toMatch(
      /^<\?xml version="1.0" encoding="utf-8"\?>\n<result><code>10001<\/code><msg>/,
    );
    const [data = ''] = inside(answer.body, 'data');
    const { counters, entry } = LAYOUTS[product];
    for (const name of ['count', ...counters])
      expect(inside(data, name), name).toEqual([expect.stringMatching(/^\d+$/)]);
    const proxies = inside(inside(data, 'proxy_list')[0] ?? '', 'proxy');
    expect(proxies).toHaveLength(3);
    for (const proxy of proxies) {
      expect([...proxy.matchAll(/<(\w+)>/g)].map(([, name]) => name)).toEqual(Object.keys(entry));
    }
  });

  test.each(SANDBOX_PRODUCTS)('%s: Text has one line per proxy, separated by CRLF', async (product) => {
    const sandbox = await open();
    const answer = await call(sandbox, product, selector(product, 'text'), { method });
    expect([answer.status, answer.contentType]).toEqual([200, 'text/plain; charset=utf-8']);
    const lines = answer.body.split('\r\n');
    expect(lines).toHaveLength(3);
    const shape =
      product === 'free'
        ? /^\[(高匿|普匿|匿名|透明|未知)\]127\.\d+\.\d+\.\d+:\d+@(http|https|socks4|socks5)#.+ .+$/
        : /^127\.\d+\.\d+\.\d+:\d+$/;
    for (const line of lines) expect(line).toMatch(shape);
  });

  test('areas: has code, msg and a serverList of area, count and score', async () => {
    const sandbox = await open();
    const { id, akey } = sandbox.instance('exclusive');
    const answer = await send(
      `${sandbox.url}/ExclusiveProxy/GetAddibleServerList/`,
      { api: id, akey, i: '1' },
      { method },
    );
    expect([answer.status, answer.contentType]).toEqual([200, 'application/json; charset=utf-8']);
    const body = JSON.parse(answer.body);
    expect(Object.keys(body)).toEqual(['code', 'msg', 'serverList']);
    expect(body.code).toBe('10001');
    expect(body.serverList.length).toBeGreaterThan(5);
    for (const line of body.serverList)
      expectEntry(line, { area: 'string', count: 'number', score: 'number' });
  });

  test('instances: has code, msg and an instance_list of records', async () => {
    const sandbox = await open();
    const { username, key } = sandbox.account;
    const answer = await send(
      `${sandbox.url}/ExclusiveProxy/GetInstanceList/`,
      { username, password: key },
      { method },
    );
    expect([answer.status, answer.contentType]).toEqual([200, 'application/json; charset=utf-8']);
    const body = JSON.parse(answer.body);
    expect(Object.keys(body)).toEqual(['code', 'msg', 'instance_list']);
    const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/;
    expect(body.instance_list).toHaveLength(1);
    expectEntry(body.instance_list[0], {
      instanceId: /^\d{18}$/,
      status: /^正常$/,
      createTime: time,
      expirationTime: time,
      serverMaxCount: 'number',
      serverCount: 'number',
      resetPeriod: 'number',
      authorizationMode: 'number',
    });
  });
});

test('sandbox: a refusal has only code and msg, in the requested format', async () => {
  const sandbox = await open();
  const json = await call(sandbox, 'short-classic', { akey: 'wrong' });
  expect(JSON.parse(json.body)).toEqual({ code: '12001', msg: 'akey错误' });
  const xml = await call(sandbox, 'short-classic', { akey: 'wrong', type: '2' });
  expect(xml.body).toMatch(/<result><code>12001<\/code><msg>akey错误<\/msg><\/result>\n$/);
  const text = await call(sandbox, 'short-classic', { akey: 'wrong', type: '1' });
  expect([text.contentType, JSON.parse(text.body).code]).toEqual(['text/plain; charset=utf-8', '12001']);
});

test('sandbox: an extraction format selects the fields of JSON and XML, and the line of Text', async () => {
  const sandbox = await open({
    paceMs: 0,
    instances: [
      { product: 'short-classic', fields: ['ip', 'port'], textLayout: '{ip}:{port},{adr},{timeout}' },
    ],
  });
  const { data } = await ask(sandbox, 'short-classic');
  expect(Object.keys(data?.proxy_list[0] ?? {})).toEqual(['ip', 'port']);
  expect((await call(sandbox, 'short-classic', { type: '2' })).body).not.toContain('<adr>');
  const { body } = await call(sandbox, 'short-classic', { type: '1', count: '1' });
  expect(body).toMatch(/^127\.\d+\.\d+\.\d+:\d+,.+ .+,\d+$/);
});

test('pure edition: its proxies share one address, and out_ip can be switched off', async () => {
  const sandbox = await open({ instances: [{ product: 'short-pure', showOutIp: false }] });
  const { data } = await ask(sandbox, 'short-pure');
  const list = data?.proxy_list ?? [];
  expect(new Set(list.map(({ ip }) => ip)).size).toBe(1);
  expect(new Set(list.map(({ port }) => port)).size).toBe(3);
  for (const entry of list) expect(entry).not.toHaveProperty('out_ip');
});

test('pure edition: only its extraction server has it, and only the base address has the others', async () => {
  const sandbox: Sandbox = await open();
  const { path } = GOOD_CALLS['short-pure'];
  expect((await send(`${sandbox.url}${path}`, {})).status).toBe(404);
  expect((await send(`${sandbox.extractUrl}/ShortProxy/GetIP/`, {})).status).toBe(404);
  expect(sandbox.extractUrl).toBe(`http://${sandbox.extractHost}`);
});

test('sandbox: other methods and unknown paths get 405 and 404', async () => {
  const sandbox = await open();
  const put = await call(sandbox, 'short-classic', {}, { method: 'PUT' });
  expect([put.status, put.contentType]).toEqual([405, 'text/html']);
  expect((await send(`${sandbox.url}/ShortProxy/GetIP`, {})).status).toBe(404);
  expect(sandbox.stats().calls).toBe(0);
});

test('sandbox: escapes markup in XML', () => {
  const entries = [{ adr: '<a> & "b"' }];
  const layout = { format: 'xml', line: String } as const;
  const { body } = print({ code: '10001', msg: '<&>', data: { counters: {}, entries } }, layout, false);
  expect(body).toContain('<msg>&lt;&amp;&gt;</msg>');
  expect(body).toContain('<adr>&lt;a&gt; &amp; &quot;b&quot;</adr>');
});
