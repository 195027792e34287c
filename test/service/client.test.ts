import { expect, test } from 'vitest';
import { hasCode } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import { METHODS } from '../../src/service/operations.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { drawFrom, faultOf, KEY, openClient } from './calls.ts';
import { GOLDEN, goldenBody } from './golden.ts';
import { stubService } from './stub-service.ts';

test('client: every golden answer is decoded, with GET and POST', async () => {
  let body: Buffer | undefined;
  const service = await stubService((response) => response.end(body));
  const client = openClient();
  expect(GOLDEN.draws.length).toBeGreaterThan(24);
  for (const { file, product, format, textLayout, expected } of GOLDEN.draws) {
    body = goldenBody(file);
    for (const method of METHODS) {
      const layout = textLayout === undefined ? {} : { textLayout };
      const call = drawFrom(service.baseUrl, { product, format, method, params: {}, ...layout });
      expect(await client.extract(call)).toMatchObject(expected);
      expect(service.received.at(-1)?.method).toBe(method);
    }
  }
});

test('client: GET sends the parameters in the query, POST in a form', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const client = openClient();
  const form = `api=203001011200000001&akey=${KEY}&count=2&timespan=3&type=3`;

  await client.extract(drawFrom(service.baseUrl));
  expect(service.received[0]).toMatchObject({ method: 'GET', url: `/ShortProxy/GetIP/?${form}`, body: '' });

  await client.extract(drawFrom(service.baseUrl, { method: 'POST' }));
  expect(service.received[1]).toMatchObject({ method: 'POST', url: '/ShortProxy/GetIP/', body: form });
  expect(service.received[1]?.headers).toMatchObject({
    'content-type': 'application/x-www-form-urlencoded',
    'content-length': String(form.length),
  });
});

test('client: only the parameters identify the caller', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  await openClient().extract(drawFrom(service.baseUrl));
  const { headers } = service.received[0] ?? {};
  expect(headers).toEqual({ accept: '*/*', connection: 'close', host: service.host, 'user-agent': 'noria' });
});

test('client: sentAt is a moment before the request', async () => {
  const clock = new ManualClock();
  const service = await stubService((response) => {
    clock.advance(60);
    response.end('{"code":"12009"}');
  });
  clock.advance(1_000);
  const { sentAt } = await openClient({ clock }).extract(drawFrom(service.baseUrl));
  expect(sentAt).toBe(1_000);
});

test('client: a refused address is dropped', async () => {
  const body = '{"code":"10001","data":[{"ip":"127.0.0.1","port":80},{"ip":"192.0.2.1","port":80}]}';
  const service = await stubService((response) => response.end(body));
  const client = openClient({ refuses: (host) => (host === '127.0.0.1' ? 'private' : undefined) });
  expect(await client.extract(drawFrom(service.baseUrl))).toMatchObject({
    entries: [{ host: '192.0.2.1', port: 80 }],
    dropped: { private: 1 },
  });
});

test('client: key and password are masked in the text of the service', async () => {
  const body = `{"code":"12001","msg":"akey=${KEY} of hunter22 is wrong"}`;
  const service = await stubService((response) => response.end(body));
  const { message } = await openClient().extract(drawFrom(service.baseUrl), {
    secrets: [new Secret('hunter22')],
  });
  expect(message).toBe('akey=[secret] of [secret] is wrong');
});

test('client: operations 9 and 10 return the lists of the service', async () => {
  const service = await stubService((response, { url }) => {
    response.end(goldenBody(url.includes('GetAddible') ? '09-areas.json' : '10-instances.json'));
  });
  const client = openClient();
  const basis = { baseUrl: service.baseUrl, method: 'GET', key: new Secret(KEY) } as const;
  const areas = await client.areas({ ...basis, instance: '7', areaKeyword: '福建' });
  expect(areas).toMatchObject({
    code: '10001',
    records: [{ area: '福建福州电信' }, { area: '陕西西安移动' }],
  });
  const instances = await client.instances({ ...basis, username: 'someone', status: 3 });
  expect(instances.records.map(({ instanceId }) => instanceId)).toEqual([
    '203001011200000001',
    '202911011200000002',
  ]);
  expect(service.received.map(({ url }) => url)).toEqual([
    `/ExclusiveProxy/GetAddibleServerList/?api=7&akey=${KEY}&areaKeyword=%E7%A6%8F%E5%BB%BA`,
    `/ExclusiveProxy/GetInstanceList/?username=someone&password=${KEY}&status=3`,
  ]);
});

test('client: parallel calls have their own connections, which close with them', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const client = openClient();
  const calls = Array.from({ length: 20 }, () => client.extract(drawFrom(service.baseUrl)));
  const codes = (await Promise.all(calls)).map(({ code }) => code);
  expect(codes).toEqual(Array.from({ length: 20 }, () => '12009'));
  await until('all connections have ended', () => service.open.size === 0);
});

test("client: a caller's signal cancels its call at once, and no other", async () => {
  const service = await stubService((response, { url }) => {
    if (!url.includes('count=1&')) response.end('{"code":"12009"}');
  });
  const client = openClient();
  const controller = new AbortController();
  const silent = client.extract(drawFrom(service.baseUrl, { count: 1 }), { signal: controller.signal });
  await until('the request arrived', () => service.received.length === 1);
  controller.abort();
  const fault = await faultOf(silent);
  expect(hasCode(fault, 'shutting-down')).toBe(true);
  expect(fault.message).toBe(`the call to ${service.host} was cancelled`);
  await until('its connection has ended', () => service.open.size === 0);
  expect((await client.extract(drawFrom(service.baseUrl))).code).toBe('12009');
});

test('client: an aborted signal prevents the request', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const fault = await faultOf(
    openClient().extract(drawFrom(service.baseUrl), { signal: AbortSignal.abort() }),
  );
  expect(fault.code).toBe('shutting-down');
  expect(service.received).toEqual([]);
});

test('client: a signal cancels all its calls in flight', async () => {
  const service = await stubService(() => {});
  const client = openClient();
  const abort = new AbortController();
  const { signal } = abort;
  const calls = [1, 2, 3].map((count) =>
    faultOf(client.extract(drawFrom(service.baseUrl, { count }), { signal })),
  );
  await until('the requests arrived', () => service.received.length === 3);
  abort.abort();
  expect((await Promise.all(calls)).map(({ code }) => code)).toEqual(Array(3).fill('shutting-down'));
  await until('all connections have ended', () => service.open.size === 0);
});

test('client: an ended call leaves no timer and no listener', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  let armed = 0;
  const clock = {
    now: () => Date.now(),
    monotonic: () => performance.now(),
    after(): Disposable {
      armed += 1;
      return { [Symbol.dispose]: () => (armed -= 1) };
    },
  };
  const signal = new AbortController().signal;
  let listeners = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => {
    listeners += 1;
    add(...args);
  };
  signal.removeEventListener = (...args: Parameters<typeof remove>) => {
    listeners -= 1;
    remove(...args);
  };
  await openClient({ clock }).extract(drawFrom(service.baseUrl), { signal });
  expect({ armed, listeners }).toEqual({ armed: 0, listeners: 0 });
});

test('client: an unusable address is a configuration error', async () => {
  const fault = await faultOf(openClient().extract(drawFrom('ftp://extract.test')));
  expect(fault.code).toBe('bad-config');
});
