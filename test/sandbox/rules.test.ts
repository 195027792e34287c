/** Rules that answer calls: each code, each fault of the transport, and how calls are counted. */
import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import type { ServiceFault } from '../../src/sandbox/scenario.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { ask, call, GOOD_CALLS, open, passThrough, readAll, send } from './client.ts';

const PRODUCT = 'short-classic';

async function spoiled(fault: ServiceFault, clock: Clock = systemClock): Promise<Sandbox> {
  return open({ clock, paceMs: 0, scenario: { rules: [{ answer: fault, times: 1 }] } });
}

/** The raw bytes of the answer to a valid call. */
async function rawAnswer(sandbox: Sandbox): Promise<string> {
  const { id, akey } = sandbox.instance(PRODUCT);
  const { path, params } = GOOD_CALLS[PRODUCT];
  const query = new URLSearchParams({ api: id, akey, ...params });
  const { hostname, port } = new URL(sandbox.url);
  const socket = connect({ host: hostname, port: Number(port) });
  onTestFinished(() => void socket.destroy());
  socket.write(`GET ${path}?${query} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\n\r\n`);
  return readAll(socket);
}

test('rules: answer any code, with its usual text or another one, and unknown codes', async () => {
  const sandbox = await open({ paceMs: 0 });
  sandbox.rules.add({ times: 1, answer: { code: '12009' } });
  sandbox.rules.add({ times: 1, answer: { code: '12002', msg: '调用频率过快，请至少10秒调用一次' } });
  sandbox.rules.add({ times: 1, answer: { code: '19999' } });
  expect(await ask(sandbox, PRODUCT)).toEqual({ code: '12009', msg: '该参数条件下当前没有任何代理IP' });
  expect(await ask(sandbox, PRODUCT)).toEqual({ code: '12002', msg: '调用频率过快，请至少10秒调用一次' });
  expect(await ask(sandbox, PRODUCT)).toEqual({ code: '19999', msg: '未知错误' });
  expect((await ask(sandbox, PRODUCT)).code).toBe('10001');
  expect(sandbox.members(), 'a refusal draws no member').toHaveLength(3);
});

test('rules: 10001 is success with an empty list', async () => {
  const sandbox = await open({ paceMs: 0, scenario: { rules: [{ answer: { code: '10001' } }] } });
  expect((await ask(sandbox, PRODUCT)).data).toEqual({ count: 0, proxy_list: [] });
  expect((await call(sandbox, PRODUCT, { type: '1' })).body).toBe('');
  const areas = await send(`${sandbox.url}/ExclusiveProxy/GetAddibleServerList/`, {});
  expect(JSON.parse(areas.body).serverList).toEqual([]);
  const instances = await send(`${sandbox.url}/ExclusiveProxy/GetInstanceList/`, {});
  expect(JSON.parse(instances.body).instance_list).toEqual([]);
});

test('rules: a refusal has the requested format', async () => {
  const sandbox = await open({ paceMs: 0, scenario: { rules: [{ answer: { code: '12006' } }] } });
  expect((await call(sandbox, PRODUCT, { type: '2' })).body).toContain('<code>12006</code>');
});

test('rules: answer any body, with any type and status', async () => {
  const body = '{"code":10001,"data":null}';
  const sandbox = await open({
    scenario: { rules: [{ answer: { body, contentType: 'text/html', status: 503 } }] },
  });
  expect(await call(sandbox, PRODUCT)).toEqual({ status: 503, contentType: 'text/html', body });
});

test('rules: match by operation, instance and number of calls; the first match answers', async () => {
  const sandbox = await open({ paceMs: 0 });
  const { id } = sandbox.instance(PRODUCT);
  const first = sandbox.rules.add({ operation: PRODUCT, after: 1, times: 2, answer: { code: '12009' } });
  sandbox.rules.add({ instance: id, answer: { code: '12006' } });
  const codes: string[] = [];
  for (let n = 0; n < 4; n += 1) codes.push((await ask(sandbox, PRODUCT)).code);
  expect(codes).toEqual(['12006', '12009', '12009', '12006']);
  expect((await ask(sandbox, 'shared')).code, 'of another operation').toBe('10001');
  expect(sandbox.rules.list(), 'a rule is removed after its last answer').toMatchObject([
    { instance: id, used: 2 },
  ]);
  expect(sandbox.rules.remove(first)).toBe(false);
  sandbox.rules.clear();
  expect((await ask(sandbox, PRODUCT)).code).toBe('10001');
});

test('rules: a call that comes too early is counted, whatever the rule answers', async () => {
  const sandbox = await open({ scenario: { rules: [{ answer: { code: '12009' } }] } });
  await ask(sandbox, PRODUCT);
  expect((await ask(sandbox, PRODUCT)).code).toBe('12009');
  expect(sandbox.stats()).toMatchObject({ calls: 2, paceBreaks: 1, codes: { '12009': 2 } });
});

test('calls: are recorded with parameters, moment and outcome, also for unknown instances', async () => {
  const sandbox = await open({ paceMs: 0 });
  await call(sandbox, PRODUCT, { count: '2' }, { method: 'POST' });
  await call(sandbox, PRODUCT, { api: 'nobody' });
  const { id, akey } = sandbox.instance(PRODUCT);
  const params = { api: id, akey, timespan: '0', type: '3', count: '2' };
  expect(sandbox.calls()).toMatchObject([
    {
      operation: PRODUCT,
      instance: id,
      method: 'POST',
      params,
      client: '127.0.0.1',
      early: false,
      outcome: '10001',
    },
    { instance: 'nobody', outcome: '12004' },
  ]);
  expect(sandbox.stats().instances['nobody']).toEqual({ calls: 1, paceBreaks: 0, codes: { '12004': 1 } });
  expect(sandbox.stats().instances[sandbox.instance('shared').id]?.calls).toBe(0);
});

test('fault refuse: closes the port for a time', async () => {
  const clock = new ManualClock();
  const sandbox = await spoiled({ fault: 'refuse', forMs: 100 }, clock);
  await expect(call(sandbox, PRODUCT)).rejects.toThrow(/ECONNRESET|socket hang up/);
  await expect(call(sandbox, PRODUCT)).rejects.toThrow(/ECONNREFUSED/);
  const isBack = () =>
    ask(sandbox, PRODUCT).then(
      ({ code }) => code === '10001',
      () => false,
    );
  clock.advance(100);
  await until('the port is open again', async () => {
    clock.advance(100); // if another program has taken the port, the sandbox tries again
    return isBack();
  });
  expect(sandbox.stats().codes).toEqual({ 'fault:refuse': 1, '10001': 1 });
});

test('fault reset: resets the connection', async () => {
  const sandbox = await spoiled({ fault: 'reset' });
  await expect(rawAnswer(sandbox)).rejects.toThrow(/ECONNRESET/);
});

test('fault close: ends the connection without an answer', async () => {
  expect(await rawAnswer(await spoiled({ fault: 'close' }))).toBe('');
});

test('fault hang: never answers; closing the sandbox ends the connection', async () => {
  const sandbox = await spoiled({ fault: 'hang' });
  const answer = rawAnswer(sandbox).catch(() => 'ended');
  await until('the call came', () => sandbox.stats().calls === 1);
  const quick = await ask(sandbox, PRODUCT);
  expect(quick.code, 'others are answered meanwhile').toBe('10001');
  await sandbox.close();
  expect(['', 'ended']).toContain(await answer);
});

test('fault status: answers the HTTP status with an HTML page', async () => {
  const answer = await call(await spoiled({ fault: 'status', status: 403 }), PRODUCT);
  expect([answer.status, answer.contentType]).toEqual([403, 'text/html']);
  expect(answer.body).toMatch(/^<html>/);
});

test('fault garbage: answers 200 with bytes that are not text', async () => {
  const answer = await call(await spoiled({ fault: 'garbage' }), PRODUCT);
  expect(answer.status).toBe(200);
  expect(answer.body).toContain('\uFFFD');
});

test('fault redirect: answers 302 to another path or to the given address', async () => {
  const here = await rawAnswer(await spoiled({ fault: 'redirect' }));
  expect(here).toMatch(/^HTTP\/1.1 302 Found\r\nLocation: \/moved\/ShortProxy\/GetIP\/\?api=/);
  const there = await rawAnswer(await spoiled({ fault: 'redirect', to: 'http://127.0.0.1:1/' }));
  expect(there).toContain('Location: http://127.0.0.1:1/\r\n');
});

test('fault huge: sends a body of the given size', async () => {
  const answer = await call(await spoiled({ fault: 'huge', bytes: 200_000 }), PRODUCT);
  expect(answer.body.length).toBeGreaterThanOrEqual(200_000);
  expect(answer.body).toMatch(/^\{"code":"10001"/);
});

test('fault delay: sends the whole answer after the delay', async () => {
  const clock = new ManualClock();
  const answer = ask(await spoiled({ fault: 'delay', ms: 120 }, clock), PRODUCT);
  await passThrough(clock, 120);
  expect((await answer).code).toBe('10001');
});

test('fault slow: sends the head at once, the body in pieces', async () => {
  const clock = new ManualClock();
  const sandbox = await spoiled({ fault: 'slow', ms: 300 }, clock);
  const { id, akey } = sandbox.instance(PRODUCT);
  const { path, params } = GOOD_CALLS[PRODUCT];
  const asked = request(`${sandbox.url}${path}?${new URLSearchParams({ api: id, akey, ...params })}`);
  asked.end();
  const [response] = await once(asked, 'response');
  let pieces = 0;
  let body = '';
  response.setEncoding('utf8').on('data', (chunk: string) => {
    pieces += 1;
    body += chunk;
  });
  for (let piece = 1; !response.complete; piece += 1) {
    await until('a piece of the body, or its end', () => pieces === piece || response.complete);
    clock.advance(15); // a twentieth of the whole time
  }
  expect(pieces).toBeGreaterThan(5);
  expect(clock.monotonic()).toBe(300);
  await until('the whole body', () => response.readableEnded);
  expect(JSON.parse(body).code).toBe('10001');
});

test('fault wrong-format: answers in a format other than the requested one', async () => {
  const xml = await call(await spoiled({ fault: 'wrong-format' }), PRODUCT);
  expect(xml.body).toMatch(/^<\?xml/);
  const json = await call(await spoiled({ fault: 'wrong-format' }), PRODUCT, { type: '2' });
  expect(JSON.parse(json.body).code).toBe('10001');
});

test('fault bom: starts the answer with a byte order mark', async () => {
  const { body } = await call(await spoiled({ fault: 'bom' }), PRODUCT);
  expect(body.charCodeAt(0)).toBe(0xfeff);
  expect(JSON.parse(body.slice(1)).code).toBe('10001');
});

test('fault truncated: sends less than the announced length', async () => {
  const raw = await rawAnswer(await spoiled({ fault: 'truncated' })).catch((error: Error) => error.message);
  expect(raw).toMatch(/^HTTP\/1.1 200 OK[\s\S]+\r\n\r\n\{"code":"10001"/);
  const length = Number(/Content-Length: (\d+)/.exec(raw)?.[1]);
  const body = raw.slice(raw.indexOf('\r\n\r\n') + 4);
  expect(body.length).toBe(Math.floor(length / 2));
});
