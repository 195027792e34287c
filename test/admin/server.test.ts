import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { openAdmin } from '../../src/admin/server.ts';
import { systemClock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { Secret } from '../../src/core/secret.ts';
import { until } from '../support/until.ts';
import { fakeWatched, MEMBER, SESSION, STATUS } from './fake-watched.ts';

async function openTestAdmin(options: { token?: string; status?: Partial<typeof STATUS> } = {}) {
  const watched = fakeWatched(options.status);
  const errors: unknown[] = [];
  const bus = makeBus();
  const admin = await openAdmin({
    host: '127.0.0.1',
    port: 0,
    version: '1.2.3',
    watched,
    onError: (error) => errors.push(error),
    bus,
    clock: systemClock,
    ...(options.token === undefined ? {} : { token: new Secret(options.token) }),
  });
  onTestFinished(() => admin.close());
  return { watched, errors, bus, url: `http://127.0.0.1:${admin.port}`, port: admin.port };
}

function makeBus(): EventBus {
  return new EventBus((_name, error) => {
    throw error;
  });
}

const QUIET = { watched: fakeWatched(), onError: () => {}, bus: makeBus(), clock: systemClock };

const JSON_TYPE = { 'content-type': 'application/json' };

/** fetch() refuses to set Host and Origin: attackers do not use it. */
function rawRequest(url: string, headers: Record<string, string>, method = 'GET'): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method, headers }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    request.on('error', reject);
    request.end();
  });
}

test('admin: healthz answers while the process works, readyz says why clients cannot be served', async () => {
  const ready = await openTestAdmin();
  expect((await fetch(`${ready.url}/healthz`)).status).toBe(200);
  expect((await fetch(`${ready.url}/readyz`)).status).toBe(200);
  const empty = await openTestAdmin({
    status: { ready: false, reason: 'the pool is empty: city is halted' },
  });
  const answer = await fetch(`${empty.url}/readyz`);
  expect([answer.status, await answer.text()]).toEqual([503, 'the pool is empty: city is halted\n']);
});

test('admin: reads are what the daemon says', async () => {
  const { url } = await openTestAdmin();
  expect(await (await fetch(`${url}/api/status`)).json()).toEqual(STATUS);
  expect(await (await fetch(`${url}/api/members`)).json()).toEqual([MEMBER]);
  expect(await (await fetch(`${url}/api/sessions`)).json()).toEqual([SESSION]);
});

const VERBS = [
  ['POST', '/api/members/m1/evict', undefined, 204, 'evict m1'],
  ['POST', '/api/members/m9/evict', undefined, 404, 'evict m9'],
  ['POST', '/api/sources/city/refill', undefined, 202, 'refill city'],
  ['POST', '/api/sources/city/pause', undefined, 202, 'pause city'],
  ['POST', '/api/sources/city/resume', undefined, 202, 'resume city'],
  ['POST', '/api/sources/town/resume', undefined, 404, 'resume town'],
  ['POST', '/api/sessions/abc/rotate', undefined, 202, 'rotate abc false'],
  ['POST', '/api/sessions/abc/rotate', { close: true }, 202, 'rotate abc true'],
  ['POST', '/api/sessions/user%3Aabc/rotate', {}, 404, 'rotate user:abc false'],
  ['DELETE', '/api/sessions/abc', undefined, 204, 'forget abc'],
  [
    'POST',
    '/api/reports',
    { session: 'abc', host: 'a.example', verdict: 'banned' },
    204,
    'report abc a.example banned',
  ],
  ['POST', '/api/reports', { member: 'm1', host: 'a.example', verdict: 'ok' }, 204, 'report m1 a.example ok'],
  ['POST', '/api/reports', { member: 'm9', host: 'a.example', verdict: 'ok' }, 404, 'report m9 a.example ok'],
  ['POST', '/api/reports', { host: 'a.example', verdict: 'ok' }, 400, undefined],
  ['POST', '/api/reports', { member: 'm1', host: 'a.example', verdict: 'bad' }, 400, undefined],
  ['PUT', '/api/log-level', { level: 'debug' }, 204, 'level debug'],
  ['PUT', '/api/log-level', { level: 'loud' }, 400, undefined],
] as const;

for (const [method, path, body, status, verb] of VERBS) {
  test(`admin: ${method} ${path} ${body === undefined ? '' : JSON.stringify(body)} answers ${status}`, async () => {
    const { url, watched } = await openTestAdmin();
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: JSON_TYPE,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    expect(answer.status).toBe(status);
    expect(watched.told).toEqual(verb === undefined ? [] : [verb]);
    if (status >= 400) {
      expect(await answer.json()).toEqual({
        error: { code: expect.any(String), message: expect.any(String) },
      });
    }
  });
}

test('admin: a body that is not JSON is refused in the one shape of errors', async () => {
  const { url, watched, errors } = await openTestAdmin();
  for (const path of ['/api/sessions/abc/rotate', '/api/reports']) {
    const answer = await fetch(`${url}${path}`, { method: 'POST', headers: JSON_TYPE, body: '{' });
    expect([answer.status, await answer.json()]).toEqual([
      400,
      { error: { code: 'bad-request', message: expect.any(String) } },
    ]);
  }
  expect([watched.told, errors]).toEqual([[], []]);
});

test('admin: a name that an attacker pointed at us is refused (DNS rebinding)', async () => {
  const { url, port } = await openTestAdmin();
  expect(await rawRequest(`${url}/api/status`, { host: `evil.example:${port}` })).toBe(421);
  expect(await rawRequest(`${url}/api/status`, { host: 'localhost:1' })).toBe(421);
  expect(await rawRequest(`${url}/api/status`, { host: `localhost:${port}` })).toBe(200);
  expect(await rawRequest(`${url}/api/status`, { host: `[::1]:${port}` })).toBe(200);
});

test("admin: another page's requests are refused, by origin and by fetch metadata (CSRF)", async () => {
  const { url, port, watched } = await openTestAdmin();
  const path = `${url}/api/sources/city/pause`;
  expect(await rawRequest(path, { ...JSON_TYPE, origin: 'http://evil.example' }, 'POST')).toBe(403);
  expect(await rawRequest(path, { ...JSON_TYPE, origin: 'null' }, 'POST')).toBe(403);
  expect(await rawRequest(path, { ...JSON_TYPE, 'sec-fetch-site': 'cross-site' }, 'POST')).toBe(403);
  expect(watched.told).toEqual([]);
  expect(await rawRequest(path, { ...JSON_TYPE, origin: `http://127.0.0.1:${port}` }, 'POST')).toBe(202);
});

test('admin: what a plain form can send changes nothing', async () => {
  const { url, watched } = await openTestAdmin();
  for (const type of ['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data; boundary=x']) {
    const headers = { 'content-type': type };
    expect((await fetch(`${url}/api/sources/city/pause`, { method: 'POST', headers, body: '' })).status).toBe(
      415,
    );
  }
  expect((await fetch(`${url}/api/sources/city/pause`)).status).toBe(404);
  expect(watched.told).toEqual([]);
});

test('admin: with a token, only what is open to all answers without it', async () => {
  const { url } = await openTestAdmin({ token: 'correct horse'.replace(' ', '-') });
  const status = async (authorization?: string) =>
    (await fetch(`${url}/api/status`, authorization === undefined ? {} : { headers: { authorization } }))
      .status;
  expect(await status()).toBe(401);
  expect(await status('Bearer wrong')).toBe(401);
  expect(await status('Basic correct-horse')).toBe(401);
  expect(await status('Bearer correct-horse')).toBe(200);
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
});

test('admin: the description names every route', async () => {
  const { url } = await openTestAdmin();
  const description = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: object };
  expect(Object.keys(description.paths)).toEqual(
    expect.arrayContaining([
      '/healthz',
      '/readyz',
      '/api/status',
      '/api/members',
      '/api/members/{id}/evict',
      '/api/reports',
      '/api/sources/{name}/refill',
      '/api/sources/{name}/pause',
      '/api/sources/{name}/resume',
      '/api/sessions',
      '/api/sessions/{id}',
      '/api/sessions/{id}/rotate',
      '/api/log-level',
    ]),
  );
});

test('admin: a PAC file never lets a browser go around noria', async () => {
  const { url } = await openTestAdmin();
  const answer = await fetch(`${url}/proxy.pac`);
  expect(answer.headers.get('content-type')).toBe('application/x-ns-proxy-autoconfig');
  const find = new Function(`${await answer.text()}; return FindProxyForURL;`)();
  expect(find('http://a.example/', 'a.example')).toBe('PROXY 127.0.0.1:8888');
  expect(find('http://localhost/', 'localhost')).toBe('DIRECT');
});

test('admin: events reach a reader as they happen, and closing ends its stream', async () => {
  const { url, bus } = await openTestAdmin();
  const answer = await fetch(`${url}/api/events`);
  expect(answer.headers.get('content-type')).toContain('text/event-stream');
  const reader = (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  const readUntil = async (wanted: string) => {
    while (!text.includes(wanted)) {
      const { value, done } = await reader.read();
      if (done) throw new Error(`the stream ended before ${wanted}: ${text}`);
      text += value;
    }
  };
  await readUntil('event: hello');
  bus.emit('source.warned', { source: 'city', message: 'slow down' });
  await readUntil('event: source.warned\ndata: {"source":"city","message":"slow down"}\n\n');
  await reader.cancel();
  await until('the reader is forgotten', () => !bus.hears('source.warned'));
});

test('admin: an address in use is told in one line, with the address', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const opening = openAdmin({
    host: '127.0.0.1',
    port,
    version: '1',
    ...QUIET,
  });
  await expect(opening).rejects.toMatchObject({
    code: 'listen-failed',
    message: `admin address 127.0.0.1:${port} cannot be listened on: EADDRINUSE`,
  });
});

test('admin: closing ends open connections', async () => {
  const admin = await openAdmin({
    host: '127.0.0.1',
    port: 0,
    version: '1',
    ...QUIET,
  });
  await fetch(`http://127.0.0.1:${admin.port}/healthz`);
  await Promise.all([admin.close(), admin.close()]);
  await expect(fetch(`http://127.0.0.1:${admin.port}/healthz`)).rejects.toThrow();
});
