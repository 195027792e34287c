/** The target site: its pages, and the exits that it reports. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { connectThrough, draw, getOver, getThrough, open, passThrough, socksThrough } from './client.ts';

test('target: /ip answers with the exit; a client without a member is a stranger', async () => {
  const sandbox = await open();
  const [entry] = await draw(sandbox, 'short-classic', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).body).toBe(`${entry.ip}\n`);
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).status).toBe(200);
  expect(sandbox.strangers()).toEqual([]);
  expect(await (await fetch(`${sandbox.targetUrl}/ip`)).text()).toBe('127.0.0.1\n');
  expect(sandbox.strangers()).toEqual(['127.0.0.1']);
  expect(Object.fromEntries(sandbox.target.connections)).toEqual({ [entry.ip]: 2, '127.0.0.1': 1 });
  expect(sandbox.target.requests).toBe(3);
});

test('target: members that share one address still have separate exits', async () => {
  const sandbox = await open({ aliases: false });
  const target = `127.0.0.1:${sandbox.target.port}`;
  const seen: string[] = [];
  for (const entry of await draw(sandbox, 'long-residential')) {
    expect(entry.ip).toBe('127.0.0.1');
    const { socket } = await connectThrough(entry, target);
    seen.push(await getOver(socket, '/ip'));
    expect(seen.at(-1)).toBe(`${entry['outip']}\n`);
    expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).body).toBe(`${entry['outip']}\n`);
  }
  const [socks] = await draw(sandbox, 'short-socks5', { count: '1' });
  if (socks === undefined) throw new Error('nothing was drawn');
  seen.push(await getOver(await socksThrough(socks, target, 5), '/ip'));
  expect(new Set(seen).size).toBe(4);
  expect(sandbox.strangers()).toEqual([]);
});

test('target: /bytes/N sends N bytes, also more than any buffer holds', async () => {
  const sandbox = await open();
  for (const count of [0, 1, 70_000, 5_000_000]) {
    const response = await fetch(`${sandbox.targetUrl}/bytes/${count}`);
    expect((await response.arrayBuffer()).byteLength).toBe(count);
  }
});

test('target: /echo returns the request unchanged', async () => {
  const sandbox = await open();
  const response = await fetch(`${sandbox.targetUrl}/echo?a=1`, {
    method: 'PUT',
    body: 'häuser',
    headers: { 'X-Case': 'Kept' },
  });
  const received = await response.json();
  expect(received).toMatchObject({ method: 'PUT', url: '/echo?a=1', httpVersion: '1.1', body: 'häuser' });
  expect((received as { rawHeaders: string[] }).rawHeaders.join()).toContain('X-Case,Kept');
});

test('target: /delay/MS answers after MS, /status/N with N, other paths with the list of pages', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock });
  const late = fetch(`${sandbox.targetUrl}/delay/60`);
  await passThrough(clock, 60);
  expect((await late).status).toBe(200);
  for (const status of [204, 304, 404, 503]) {
    expect((await fetch(`${sandbox.targetUrl}/status/${status}`)).status).toBe(status);
  }
  const unknown = await fetch(`${sandbox.targetUrl}/status/999`);
  expect([unknown.status, await unknown.text()]).toEqual([404, expect.stringContaining('/bytes/N')]);
});

test('target: /ws echoes messages of every size and closes', async () => {
  const sandbox = await open();
  const socket = new WebSocket(`${sandbox.targetUrl.replace('http', 'ws')}/ws`);
  onTestFinished(() => socket.close());
  await once(socket, 'open');
  for (const text of ['hello', 'x'.repeat(1_000), 'y'.repeat(100_000)]) {
    socket.send(text);
    const [event] = await once(socket, 'message');
    expect(event.data).toBe(text);
  }
  socket.binaryType = 'arraybuffer';
  socket.send(new Uint8Array([1, 2, 3]));
  const [binary] = await once(socket, 'message');
  expect([...new Uint8Array(binary.data)]).toEqual([1, 2, 3]);
  socket.close(1000, 'done');
  const [closed] = await once(socket, 'close');
  expect([closed.code, closed.reason, closed.wasClean]).toEqual([1000, 'done', true]);
});

test('target: /ws answers a ping with a pong', async () => {
  const sandbox = await open();
  const key = 'dGhlIHNhbXBsZSBub25jZQ==';
  const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': key };
  const asked = request(`${sandbox.targetUrl}/ws`, { headers });
  asked.end();
  const [response, socket, head] = await once(asked, 'upgrade');
  onTestFinished(() => socket.destroy());
  const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
  expect([response.headers['sec-websocket-accept'], head.length]).toEqual([accept, 0]);
  const heard: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => heard.push(chunk));
  socket.write(Buffer.from([0x89, 0x82, 1, 2, 3, 4, 0x61 ^ 1, 0x62 ^ 2])); // a masked ping with the payload "ab"
  await until('the pong came', () => Buffer.concat(heard).equals(Buffer.from([0x8a, 0x02, 0x61, 0x62])));
});

test('target: refuses an upgrade at other paths', async () => {
  const sandbox = await open();
  const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'x' };
  const asked = request(`${sandbox.targetUrl}/other`, { headers });
  asked.end();
  const [response] = await once(asked, 'response');
  response.resume();
  expect(response.statusCode).toBe(404);
});

test('target: an offer of h2c is answered as HTTP/1.1', async () => {
  const sandbox = await open();
  const call = request(`${sandbox.targetUrl}/ip`, {
    headers: {
      connection: 'Upgrade, HTTP2-Settings',
      upgrade: 'h2c',
      'http2-settings': 'AAMAAABkAAQAoAAAAAIAAAAA',
    },
  });
  call.end();
  const [response] = await once(call, 'response');
  expect(response.statusCode).toBe(200);
  expect(String(await response.toArray())).toBe('127.0.0.1\n');
});
