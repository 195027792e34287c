import { describe, expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { openSandbox, type Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.ts';
import { CODES, SUCCESS } from '../../src/service/codes.ts';
import { FORMATS, METHODS, OPERATIONS, PRODUCTS, type Product } from '../../src/service/operations.ts';
import { checkParams } from '../../src/service/params.ts';
import { type ExtractCall, keyFromPassword } from '../../src/service/request.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { faultOf, openClient, type TestClient } from './calls.ts';

// The sandbox was written from the specification and shares no table and no parser with the client, so these tests compare
// two independent readings of the specification.

async function open(options: SandboxOptions = {}): Promise<{ sandbox: Sandbox; client: TestClient }> {
  const sandbox = await openSandbox({ paceMs: 0, aliases: false, ...options });
  onTestFinished(() => sandbox.close());
  return { sandbox, client: openClient() };
}

/** A call that draws three proxies from the sandbox's instance of a product, with default parameters. */
function drawOf(sandbox: Sandbox, product: Product, more: Partial<ExtractCall> = {}): ExtractCall {
  const { id, password, baseUrl } = sandbox.instance(product);
  return {
    product,
    baseUrl,
    method: 'GET',
    format: 'json',
    instance: id,
    key: keyFromPassword(new Secret(password)),
    params: checkParams(product, {}).params,
    count: 3,
    ...more,
  };
}

describe('against the sandbox: each operation returns three proxies', () => {
  test.each(PRODUCTS)('%s, in every format and with every method', async (product) => {
    const { sandbox, client } = await open();
    for (const format of FORMATS) {
      for (const method of METHODS) {
        const answer = await client.extract(drawOf(sandbox, product, { format, method }));
        expect(answer).toEqual(expect.objectContaining({ code: SUCCESS, dropped: {} }));
        expect(answer.entries).toHaveLength(3);
        const ports = new Set(sandbox.members().map(({ host, port }) => `${host}:${port}`));
        expect(answer.entries.filter(({ host, port }) => !ports.has(`${host}:${port}`))).toEqual([]);
      }
    }
    expect(sandbox.calls()).toHaveLength(6);
  });
});

describe('against the sandbox: every format has the same fields of an entry', () => {
  test.each(PRODUCTS)('%s', async (product) => {
    const { fields } = OPERATIONS[product];
    const textLayout = fields.map((field) => `{${field}}`).join(';');
    const own = product === 'free' ? {} : { textLayout };
    const instances = [{ product, members: 3, lifetimeMs: 600_000, ...own }] as const;
    const { sandbox, client } = await open({ instances });
    const answers = [];
    for (const format of FORMATS) {
      const layout = format === 'text' && product !== 'free' ? { textLayout } : {};
      const { entries } = await client.extract(drawOf(sandbox, product, { format, ...layout }));
      expect(entries).toHaveLength(3);
      // Leaves out the values that change with time or between two draws.
      const lasting = entries.map(({ lifetimeMs, onlineMs, isNew, ...rest }) => ({
        ...rest,
        hasLifetime: lifetimeMs !== undefined,
        hasOnline: onlineMs !== undefined,
        hasNew: isNew !== undefined,
      }));
      answers.push(lasting.toSorted((a, b) => a.port - b.port));
    }
    const [json, xml, text] = answers;
    expect(xml).toEqual(json);
    expect(text).toEqual(json);
  });
});

describe('against the sandbox: every code is decoded in every format', () => {
  test.each(PRODUCTS)('%s', async (product) => {
    const { sandbox, client } = await open();
    const codes = [...Object.keys(CODES[OPERATIONS[product].number]), '19999'];
    expect(codes.length).toBeGreaterThan(6);
    for (const code of codes) {
      for (const format of FORMATS) {
        const rule = sandbox.rules.add({ answer: { code, msg: 'as the rule says' } });
        const answer = await client.extract(drawOf(sandbox, product, { format }));
        expect(answer).toEqual(expect.objectContaining({ code, entries: [], dropped: {} }));
        if (code !== SUCCESS) expect(answer.message).toBe('as the rule says');
        sandbox.rules.remove(rule);
      }
    }
  });
});

describe('against the sandbox: each condition of an instance has its own code', () => {
  const cases: [product: Product, condition: object, code: string][] = [
    ['short-classic', { expired: true }, '12005'],
    ['shared', { frozen: true }, '12006'],
    ['exclusive', { deviceAuthorised: false }, '17008'],
    ['short-pure', { deviceAuthorised: false }, '12019'],
    ['short-socks5', { deviceAuthorised: false }, '12010'],
    ['short-classic', { terminalIpBound: false }, '12007'],
    ['short-pure', { terminalIpBound: false }, '12007'],
    ['short-pure', { restricted: true }, '12008'],
    ['shared', { usageLimit: 0 }, '12008'],
    ['long-residential', { distinctLimit: 0 }, '12010'],
    ['residential-socks5', { distinctLimit: 0 }, '12010'],
    ['short-classic', { singlePullLimit: 2 }, '12003'],
  ];
  test.each(cases)('%s with %o: %s', async (product, condition, code) => {
    const { sandbox, client } = await open();
    sandbox.setCondition(sandbox.instance(product).id, condition);
    expect((await client.extract(drawOf(sandbox, product))).code).toBe(code);
  });

  test('a wrong key, an unknown instance and a broken pace', async () => {
    const { sandbox, client } = await open({ instances: [{ product: 'short-classic', paceMs: 60_000 }] });
    const good = drawOf(sandbox, 'short-classic');
    expect((await client.extract({ ...good, key: new Secret('0000000000000000') })).code).toBe('12001');
    expect((await client.extract({ ...good, instance: '1' })).code).toBe('12004');
    const second = await client.extract(good);
    const third = await client.extract(good);
    expect([second.code, third.code]).toContain('12002');
  });
});

test('against the sandbox: counters of distinct IPs are decoded for the products that have them', async () => {
  const { sandbox, client } = await open();
  for (const product of ['long-residential', 'residential-socks5'] as const) {
    const { quota } = await client.extract(drawOf(sandbox, product));
    expect(Object.keys(quota).toSorted()).toEqual(['active', 'added', 'remaining', 'today']);
  }
  const { quota } = await client.extract(drawOf(sandbox, 'short-pure'));
  expect(Object.keys(quota).toSorted()).toEqual(['added', 'remaining']);
});

test('against the sandbox: every transport failure has its fault', async () => {
  const clock = new LoopClock();
  const { sandbox, client } = await open({ clock });
  const hasty = openClient({ clock, timeoutMs: 2_000 });
  const cases = [
    [{ fault: 'reset' }, 'service-transport', /closed the connection/],
    [{ fault: 'close' }, 'service-transport', /closed the connection/],
    [{ fault: 'hang' }, 'service-transport', /did not answer within 2s/],
    [{ fault: 'slow', ms: 5_000 }, 'service-transport', /waiting for the end of the answer/],
    [{ fault: 'delay', ms: 5_000 }, 'service-transport', /waiting for the start of the answer/],
    [{ fault: 'status', status: 403 }, 'service-blocked', /status 403/],
    [{ fault: 'redirect' }, 'service-blocked', /redirects to .* follows no redirect/],
    [{ fault: 'garbage' }, 'service-protocol', /is not in the requested format json/],
    [{ fault: 'huge' }, 'service-protocol', /more than 1 MiB/],
    [{ fault: 'wrong-format' }, 'service-protocol', /is not in the requested format json/],
    [{ fault: 'truncated' }, 'service-transport', /closed the connection/],
    [{ body: '<html>blocked</html>' }, 'service-blocked', /web page/],
  ] as const;
  for (const [answer, code, message] of cases) {
    const rule = sandbox.rules.add({ answer });
    const waits = /did not answer|waiting for/.test(message.source);
    const fault = await faultOf((waits ? hasty : client).extract(drawOf(sandbox, 'short-classic')));
    expect({ answer, code: fault.code }).toEqual({ answer, code });
    expect(fault.message).toMatch(message);
    sandbox.rules.remove(rule);
  }
  sandbox.rules.add({ answer: { fault: 'bom' } });
  expect((await client.extract(drawOf(sandbox, 'short-classic'))).entries).toHaveLength(3);
});

test('against the sandbox: operation 9 lists area lines with every method, and its codes are decoded', async () => {
  const { sandbox, client } = await open();
  const { id, password, baseUrl } = sandbox.instance('exclusive');
  const key = keyFromPassword(new Secret(password));
  for (const method of METHODS) {
    const { code, records } = await client.areas({ baseUrl, method, instance: id, key });
    expect(code).toBe(SUCCESS);
    expect(records.length).toBeGreaterThan(0);
    const fields = Object.keys(OPERATIONS.areas.fields);
    for (const record of records) expect(Object.keys(record)).toEqual(fields);
  }
  const none = await client.areas({ baseUrl, method: 'GET', instance: id, key, areaKeyword: 'nowhere' });
  expect(none).toMatchObject({ code: '14006', records: [] });
  for (const code of Object.keys(CODES[9])) {
    const rule = sandbox.rules.add({ operation: 'areas', answer: { code } });
    expect((await client.areas({ baseUrl, method: 'GET', instance: id, key })).code).toBe(code);
    sandbox.rules.remove(rule);
  }
});

test('against the sandbox: operation 10 lists instances with every method, and its codes are decoded', async () => {
  const { sandbox, client } = await open();
  const { username, password } = sandbox.account;
  const account = { baseUrl: sandbox.url, username, key: keyFromPassword(new Secret(password)) };
  for (const method of METHODS) {
    const { code, records } = await client.instances({ ...account, method });
    expect(code).toBe(SUCCESS);
    expect(records.map(({ instanceId }) => instanceId)).toEqual([sandbox.instance('exclusive').id]);
    expect(Object.keys(records[0] ?? {})).toEqual(Object.keys(OPERATIONS.instances.fields));
  }
  const none = await client.instances({ ...account, method: 'GET', status: 3 });
  expect(none).toMatchObject({ code: '18003', records: [] });
  const wrong = { ...account, key: new Secret('0000000000000000') };
  expect((await client.instances({ ...wrong, method: 'GET' })).code).toBe('18002');
  for (const code of Object.keys(CODES[10])) {
    const rule = sandbox.rules.add({ operation: 'instances', answer: { code } });
    expect((await client.instances({ ...account, method: 'GET' })).code).toBe(code);
    sandbox.rules.remove(rule);
  }
});
