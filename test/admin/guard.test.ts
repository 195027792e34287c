import { expect, test } from 'vitest';
import { JSON_TYPE, openTestAdmin, rawRequest } from './open-test-admin.ts';

test('guard: refuses a Host other than its own (DNS rebinding)', async () => {
  const { url, port } = await openTestAdmin();
  expect(await rawRequest(`${url}/api/status`, { host: `evil.example:${port}` })).toBe(421);
  expect(await rawRequest(`${url}/api/status`, { host: 'localhost:1' })).toBe(421);
  expect(await rawRequest(`${url}/api/status`, { host: `localhost:${port}` })).toBe(200);
  expect(await rawRequest(`${url}/api/status`, { host: `[::1]:${port}` })).toBe(200);
});

test('guard: refuses requests from other web pages, by Origin and fetch metadata (CSRF)', async () => {
  const { url, port, backend } = await openTestAdmin();
  const path = `${url}/api/sources/city/pause`;
  expect(await rawRequest(path, { ...JSON_TYPE, origin: 'http://evil.example' }, 'POST')).toBe(403);
  expect(await rawRequest(path, { ...JSON_TYPE, origin: 'null' }, 'POST')).toBe(403);
  expect(await rawRequest(path, { ...JSON_TYPE, 'sec-fetch-site': 'cross-site' }, 'POST')).toBe(403);
  expect(backend.commands).toEqual([]);
  expect(await rawRequest(path, { ...JSON_TYPE, origin: `http://127.0.0.1:${port}` }, 'POST')).toBe(202);
});

test('guard: refuses requests that an HTML form can send (CSRF)', async () => {
  const { url, backend } = await openTestAdmin();
  for (const type of ['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data; boundary=x']) {
    const headers = { 'content-type': type };
    expect((await fetch(`${url}/api/sources/city/pause`, { method: 'POST', headers, body: '' })).status).toBe(
      415,
    );
  }
  expect((await fetch(`${url}/api/sources/city/pause`)).status).toBe(405);
  expect(backend.commands).toEqual([]);
});

test('guard: only the page and the probes need no token', async () => {
  const { url } = await openTestAdmin({ token: 'correct horse'.replace(' ', '-') });
  const status = async (authorization?: string) =>
    (await fetch(`${url}/api/status`, authorization === undefined ? {} : { headers: { authorization } }))
      .status;
  expect(await status()).toBe(401);
  expect(await status('Bearer wrong')).toBe(401);
  expect(await status('Basic correct-horse')).toBe(401);
  expect(await status('Bearer correct-horse')).toBe(200);
  for (const path of ['/healthz', '/readyz', '/proxy.pac', '/', '/page/main.js']) {
    expect((await fetch(`${url}${path}`)).status, path).toBe(200);
  }
  for (const path of [
    '/metrics',
    '/openapi.json',
    '/api/events',
    '/api/members',
    '/api/history',
    '/nowhere',
  ]) {
    expect((await fetch(`${url}${path}`)).status, path).toBe(401);
  }
});

test('guard: accepts links from other sites to the page, and to nothing else', async () => {
  const { url } = await openTestAdmin();
  const link = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
  expect(await rawRequest(`${url}/`, link)).toBe(200);
  expect(await rawRequest(`${url}/`, { ...link, 'sec-fetch-dest': 'iframe' })).toBe(403);
  expect(await rawRequest(`${url}/api/status`, link)).toBe(403);
});

test('guard: every response has the security headers', async () => {
  const { url } = await openTestAdmin({ token: 'correct-horse' });
  for (const [path, status] of [
    ['/healthz', 200],
    ['/api/status', 401],
    ['/nowhere', 401],
    ['/', 200],
  ] as const) {
    const answer = await fetch(`${url}${path}`);
    expect(answer.status, path).toBe(status);
    expect(answer.headers.get('content-security-policy'), path).toMatch(/^default-src 'none'/);
    expect(answer.headers.get('content-security-policy'), path).toContain("frame-ancestors 'none'");
    expect(answer.headers.get('x-content-type-options'), path).toBe('nosniff');
    expect(answer.headers.get('referrer-policy'), path).toBe('no-referrer');
    expect(answer.headers.get('access-control-allow-origin'), path).toBeNull();
  }
});

test.each([
  ['DELETE', '/api/nowhere', 404, null],
  ['POST', '/nowhere', 404, null],
  ['DELETE', '/api/members', 405, 'GET, HEAD'],
  ['POST', '/healthz', 405, 'GET, HEAD'],
  ['OPTIONS', '/', 405, 'GET, HEAD'],
  ['GET', '/api/members/m1/evict', 405, 'POST'],
  ['PUT', '/api/sessions/abc', 405, 'DELETE'],
] as const)('admin: %s %s answers %i, whatever its content type', async (method, path, status, allow) => {
  const { url, backend } = await openTestAdmin();
  for (const headers of [{}, JSON_TYPE]) {
    const answer = await fetch(`${url}${path}`, { method, headers });
    expect([answer.status, answer.headers.get('allow')]).toEqual([status, allow]);
    const code = status === 404 ? 'not-found' : 'method-not-allowed';
    expect(await answer.json()).toEqual({ error: { code, message: expect.any(String) } });
  }
  expect(backend.commands).toEqual([]);
});

test('guard: reveals no routes without the token', async () => {
  const { url } = await openTestAdmin({ token: 'correct-horse' });
  for (const path of ['/api/nowhere', '/api/members', '/api/reports']) {
    expect((await fetch(`${url}${path}`, { method: 'POST' })).status, path).toBe(401);
  }
});

test('admin: refuses a body that is too large, with or without Content-Length', async () => {
  const { url, backend } = await openTestAdmin();
  const body = JSON.stringify({ session: 'abc', host: 'a'.repeat(20_000), verdict: 'banned' });
  const chunked = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(body));
      controller.close();
    },
  });
  for (const one of [{ body }, { body: chunked, duplex: 'half' as const }]) {
    const answer = await fetch(`${url}/api/reports`, { method: 'POST', headers: JSON_TYPE, ...one });
    expect([answer.status, await answer.json()]).toEqual([
      413,
      { error: { code: 'too-large', message: expect.any(String) } },
    ]);
  }
  expect(backend.commands).toEqual([]);
});
