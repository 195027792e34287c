/** The client that calls the operations also calls links: what it sends, and what an HTTP status means. */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../../src/core/secret.ts';
import { linkSecrets } from '../../../src/service/link/link-url.ts';
import type { LinkCall } from '../../../src/service/request.ts';
import { openClient } from '../calls.ts';

interface Received {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Calls a vendor that gives this answer. */
async function call(answer: string, changes: Partial<LinkCall> = {}, status = 200) {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    const { method, url, headers } = request;
    let body = '';
    for await (const chunk of request) body += chunk;
    received.push({ method, url, headers, body });
    response.writeHead(status).end(answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  onTestFinished(() => {
    server.close();
  });
  const url = new Secret(`${baseUrl}/get?key=abcdef123456&num={count}&city=%E8%8B%8F`);
  const { headers = {}, body } = changes;
  const link: LinkCall = {
    ...{ product: 'link', method: 'GET', baseUrl, instance: 'link-1', url, headers, params: {} },
    ...{ answer: { format: 'auto' }, login: 'use', protocol: undefined },
    secrets: linkSecrets(url, { headers, body }),
    ...changes,
  };
  return { received, answer: await openClient({ timeoutMs: 5_000 }).extract(link) };
}

test('link: the call has the count in its URL, and is a GET without a body', async () => {
  const { received, answer } = await call('192.0.2.1:80', { count: 7 });
  expect(received).toMatchObject([
    { method: 'GET', url: '/get?key=abcdef123456&num=7&city=%E8%8B%8F', body: '' },
  ]);
  expect(received[0]?.headers).toMatchObject({ 'user-agent': 'noria' });
  expect(answer).toMatchObject({ code: '10001', entries: [{ host: '192.0.2.1', port: 80 }] });
});

test('link: the call has the configured headers and the body with the count', async () => {
  const headers = { Authorization: new Secret('Bearer t0ken'), 'User-Agent': new Secret('mine') };
  const body = new Secret('{"n":{count}}');
  const { received } = await call('192.0.2.1:80', { method: 'POST', count: 3, headers, body });
  expect(received).toMatchObject([
    {
      method: 'POST',
      body: '{"n":3}',
      headers: { authorization: 'Bearer t0ken', 'user-agent': 'mine', 'content-type': 'application/json' },
    },
  ]);
});

test('link: status 429 says that the call came too early', async () => {
  const { answer } = await call('wait, abcdef123456', {}, 429);
  expect(answer).toMatchObject({ code: 'too-fast', message: 'status 429: wait, [secret]', entries: [] });
});

test('link: a code counts with any status, and an address only with 200', async () => {
  const rules = { format: 'auto', ok: { field: 'code', is: ['0'] } } as const;
  const { answer } = await call('{"code":9,"msg":"no"}', { answer: rules }, 400);
  expect(answer).toMatchObject({ code: 'refused', message: 'code 9: no' });
  await expect(call('192.0.2.1:80', {}, 500)).rejects.toThrow(/failed with status 500/);
});

test('link: an answer that cannot be read is quoted without the secrets of the call', async () => {
  const headers = { 'X-Key': new Secret('k3y-in-header') };
  const failed = call('{"msg":"abcdef123456 k3y-in-header"}', { headers });
  await expect(failed).rejects.toMatchObject({ code: 'link-unreadable' });
  await expect(failed).rejects.toThrow('{"msg":"[secret] [secret]"}');
});
