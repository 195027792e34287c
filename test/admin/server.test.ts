import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { openAdmin } from '../../src/admin/server.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { fakeBackend, MEMBER, SESSION, SITE, STATUS } from './fake-backend.ts';
import { adminOptions, JSON_TYPE, openTestAdmin, rawRequest } from './open-test-admin.ts';

test('admin: /healthz answers 200, /readyz 503 with the reason and what to do when not ready', async () => {
  const ready = await openTestAdmin();
  expect((await fetch(`${ready.url}/healthz`)).status).toBe(200);
  expect((await fetch(`${ready.url}/readyz`)).status).toBe(200);
  const empty = await openTestAdmin({
    status: {
      state: 'not-serving',
      ready: false,
      reason: 'source city: 12001: The key is wrong',
      advice: 'Check the password.',
      nextAttemptSeconds: 4,
    },
  });
  const answer = await fetch(`${empty.url}/readyz`);
  expect([answer.status, await answer.text()]).toEqual([
    503,
    'not serving: source city: 12001: The key is wrong\nnoria has been in this state for 10 s; noria tries again in 4 s.\nWhat to do: Check the password.\n',
  ]);
});

test('admin: reads return the snapshots of the backend', async () => {
  const { url } = await openTestAdmin();
  expect(await (await fetch(`${url}/api/status`)).json()).toEqual(STATUS);
  expect(await (await fetch(`${url}/api/members`)).json()).toEqual([MEMBER]);
  expect(await (await fetch(`${url}/api/sessions`)).json()).toEqual([SESSION]);
  expect(await (await fetch(`${url}/api/sites`)).json()).toEqual([SITE]);
});

const COMMANDS = [
  ['POST', '/api/members/m1/evict', undefined, 204, 'evict m1'],
  ['POST', '/api/members/m9/evict', undefined, 404, 'evict m9'],
  ['POST', '/api/sources/city/refill', undefined, 202, 'refill city'],
  ['POST', '/api/sources/city/pause', undefined, 202, 'pause city'],
  ['POST', '/api/sources/city/resume', undefined, 202, 'resume city'],
  ['POST', '/api/sources/town/resume', undefined, 404, 'resume town'],
  ['POST', '/api/sessions/abc/rotate', undefined, 202, 'rotate abc false'],
  ['POST', '/api/sessions/abc/rotate', { close: true }, 202, 'rotate abc true'],
  ['POST', '/api/sessions/user%3Aabc/rotate', {}, 404, 'rotate user:abc false'],
  ['POST', '/api/reload', undefined, 200, 'reload'],
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
  ['POST', '/api/reports', { member: 'm1', host: 'a.example', verdict: 'ok', for: '30' }, 400, undefined],
  ['PUT', '/api/log-level', { level: 'debug' }, 204, 'level debug'],
  ['PUT', '/api/log-level', { level: 'loud' }, 400, undefined],
] as const;

for (const [method, path, body, status, command] of COMMANDS) {
  test(`admin: ${method} ${path} ${body === undefined ? '' : JSON.stringify(body)} answers ${status}`, async () => {
    const { url, backend } = await openTestAdmin();
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: JSON_TYPE,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    expect(answer.status).toBe(status);
    expect(backend.commands).toEqual(command === undefined ? [] : [command]);
    if (status >= 400) {
      expect(await answer.json()).toEqual({
        error: { code: expect.any(String), message: expect.any(String) },
      });
    }
  });
}

const REFUSED_RELOADS = [
  ['bad-config', 400],
  ['listen-failed', 409],
  ['shutting-down', 409],
] as const;

for (const [code, status] of REFUSED_RELOADS) {
  test(`admin: a reload that fails with ${code} answers ${status} with every error`, async () => {
    const message = 'noria.yaml:1:1: sorces: unknown key\nnoria.yaml:2:1: pol: unknown key';
    const backend = {
      ...fakeBackend(),
      reload: async () => {
        throw new NoriaError(code, message);
      },
    };
    const admin = await openAdmin(adminOptions({ backend }));
    onTestFinished(() => admin.close());
    const url = `http://127.0.0.1:${admin.port}/api/reload`;
    const answer = await fetch(url, { method: 'POST', headers: JSON_TYPE });
    expect([answer.status, await answer.json()]).toEqual([status, { error: { code, message } }]);
  });
}

test('admin: a reload that replaces the server is answered first', async () => {
  const outcome = { changed: ['admin'], restart: [], warnings: [] };
  const replaced = Promise.withResolvers<void>();
  const backend = {
    ...fakeBackend(),
    reload: async (answered: Promise<void>) => {
      void answered.then(() => admin.close()).then(replaced.resolve);
      return { ...outcome, applied: false };
    },
  };
  const admin = await openAdmin(adminOptions({ backend }));
  const url = `http://127.0.0.1:${admin.port}/api/reload`;
  const answer = await fetch(url, { method: 'POST', headers: JSON_TYPE });
  expect([answer.status, await answer.json()]).toEqual([202, outcome]);
  await replaced.promise;
});

test('admin: refuses a body that is not JSON with a JSON error', async () => {
  const { url, backend, errors } = await openTestAdmin();
  for (const path of ['/api/sessions/abc/rotate', '/api/reports']) {
    const answer = await fetch(`${url}${path}`, { method: 'POST', headers: JSON_TYPE, body: '{' });
    expect([answer.status, await answer.json()]).toEqual([
      400,
      { error: { code: 'bad-request', message: expect.any(String) } },
    ]);
  }
  expect([backend.commands, errors]).toEqual([[], []]);
});

test('admin: `limit` shortens a list, and an invalid limit is refused', async () => {
  const backend = { ...fakeBackend(), members: () => [MEMBER, { ...MEMBER, id: 'm2' }] };
  const admin = await openAdmin(adminOptions({ backend }));
  onTestFinished(() => admin.close());
  const url = `http://127.0.0.1:${admin.port}/api/members`;
  expect(await (await fetch(`${url}?limit=1`)).json()).toEqual([MEMBER]);
  expect(await (await fetch(`${url}?limit=9`)).json()).toHaveLength(2);
  for (const limit of ['0', '-1', 'all', '1.5']) {
    const answer = await fetch(`${url}?limit=${limit}`);
    expect([answer.status, await answer.json()], limit).toEqual([
      400,
      { error: { code: 'bad-request', message: expect.stringMatching(/^limit: /) } },
    ]);
  }
});

test('admin: the first read after a change is fresh, however expensive reads are', async () => {
  const members = [MEMBER, { ...MEMBER, id: 'm2' }];
  const clock = new ManualClock();
  const backend = {
    ...fakeBackend(),
    members() {
      clock.advance(50);
      return [...members];
    },
    evictMember: () => members.pop() !== undefined,
  };
  const admin = await openAdmin(adminOptions({ clock, backend }));
  onTestFinished(() => admin.close());
  const url = `http://127.0.0.1:${admin.port}`;
  const read = async () => (await (await fetch(`${url}/api/members`)).json()) as unknown[];
  expect(await read()).toHaveLength(2);
  members.push(MEMBER);
  expect(await read(), 'cached while reads are expensive').toHaveLength(2);
  await fetch(`${url}/api/members/m1/evict`, { method: 'POST', headers: JSON_TYPE });
  members.push(MEMBER);
  expect(await read()).toHaveLength(3);
});

test('admin: history and failures follow the events', async () => {
  const { url, bus } = await openTestAdmin();
  bus.emit('client.refused', {
    client: '192.0.2.1',
    listener: '127.0.0.1:8888',
    protocol: 'http',
    code: 'forbidden',
    detail: 'target 10.0.0.1',
  });
  expect(await (await fetch(`${url}/api/failures`)).json()).toMatchObject([
    { kind: 'refusal', code: 'forbidden', times: 1, detail: 'target 10.0.0.1' },
  ]);
  expect(await (await fetch(`${url}/api/history`)).json()).toMatchObject({ span: '15m', stepSeconds: 5 });
  expect(await (await fetch(`${url}/api/history?span=24h`)).json()).toMatchObject({ stepSeconds: 120 });
  expect((await fetch(`${url}/api/history?span=1h`)).status).toBe(400);
});

test('admin: serves the page and its files without a token, and no other files', async () => {
  const { url } = await openTestAdmin({ token: 'correct-horse' });
  const page = await fetch(`${url}/`);
  expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
  const html = await page.text();
  const named = [...html.matchAll(/(?:src|href)="(\/page\/[^"]+)"/g)].map(([, path]) => path);
  expect(named.length).toBeGreaterThan(5);
  for (const path of named) expect((await fetch(`${url}${path}`)).status, path).toBe(200);
  expect(html, 'the policy forbids it').not.toMatch(/<style|style=|<script>|javascript:|https?:/);
  for (const path of [
    '/page/../server.ts',
    '/page/%2e%2e%2fserver.ts',
    '/page/uplot.d.ts',
    '/page/nothing.js',
  ]) {
    expect(await rawRequest(`${url}${path}`, {}), path).toBeOneOf([401, 404]);
  }
});

test('admin: answers 304 for an unchanged page file', async () => {
  const { url } = await openTestAdmin();
  const first = await fetch(`${url}/page/main.js`);
  const etag = first.headers.get('etag') ?? '';
  const again = await fetch(`${url}/page/main.js`, { headers: { 'if-none-match': etag } });
  expect([again.status, await again.text()]).toEqual([304, '']);
  expect(first.headers.get('content-type')).toBe('text/javascript; charset=utf-8');
  await first.text();
});

test('admin: the PAC file has no DIRECT fallback', async () => {
  const { url } = await openTestAdmin();
  const answer = await fetch(`${url}/proxy.pac`);
  expect(answer.headers.get('content-type')).toBe('application/x-ns-proxy-autoconfig');
  const find = new Function(`${await answer.text()}; return FindProxyForURL;`)();
  expect(find('http://a.example/', 'a.example')).toBe('PROXY 127.0.0.1:8888');
  expect(find('http://localhost/', 'localhost')).toBe('DIRECT');
});

test('admin: reports an address in use, and what to do', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const opening = openAdmin(adminOptions({ port }));
  await expect(opening).rejects.toMatchObject({
    code: 'listen-failed',
    message: `cannot listen on the admin address 127.0.0.1:${port}: another program listens there (address in use); stop it, or choose another port`,
  });
});

test('admin: closing ends open connections and is safe to call twice', async () => {
  const admin = await openAdmin(adminOptions());
  await fetch(`http://127.0.0.1:${admin.port}/healthz`);
  await Promise.all([admin.close(), admin.close()]);
  await expect(fetch(`http://127.0.0.1:${admin.port}/healthz`)).rejects.toThrow();
});

test('admin: reasons and advice are in the language that the client prefers', async () => {
  const { url } = await openTestAdmin({
    status: { ready: false, state: 'not-serving', reason: 'source city: 12001: The key is wrong' },
  });
  const read = async (path: string, language?: string) => {
    const headers = language === undefined ? {} : { 'accept-language': language };
    const response = await fetch(`${url}${path}`, { headers });
    return { text: await response.text(), vary: response.headers.get('vary') };
  };
  expect(JSON.parse((await read('/api/status', 'zh-CN,zh;q=0.9')).text).reason).toBe(
    '来源 city：12001：密钥错误',
  );
  const english = await read('/api/status');
  expect(JSON.parse(english.text).reason).toBe('source city: 12001: The key is wrong');
  expect(english.vary).toBe('Accept-Language');
  expect((await read('/readyz', 'zh')).text).toContain('无法为客户端服务：来源 city：12001：密钥错误');
});
