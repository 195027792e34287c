/** Clients that keep connections or streams open do not prevent a probe from getting its answer. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { MAX_ADMIN_CONNECTIONS } from '../../src/admin/http-server.ts';
import { until } from '../support/until.ts';
import { openTestAdmin, rawRequest } from './open-test-admin.ts';

interface Opening {
  /** The text that each connection sends. */
  readonly text?: string;
  /** The loopback address of the client. */
  readonly from?: string;
  readonly onData?: (data: string, socket: Socket) => void;
}

async function openMany(port: number, count: number, opening: Opening = {}): Promise<Socket[]> {
  const { text = '', from = '127.0.0.1', onData = () => {} } = opening;
  const sockets = Array.from({ length: count }, () => {
    const socket = connect({ port, host: '127.0.0.1', localAddress: from });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {}); // ignored: the server resets the connection
    socket.on('data', (data) => onData(String(data), socket));
    if (text !== '') socket.write(text);
    return socket;
  });
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  return sockets;
}

const countClosed = (sockets: readonly Socket[]) => sockets.filter(({ closed }) => closed).length;

async function answersProbes(url: string): Promise<void> {
  for (const path of ['/healthz', '/metrics', '/readyz'])
    expect((await fetch(url + path)).status, path).toBe(200);
}

const readEvents = (port: number) => `GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`;

test.each<[string, (port: number) => string]>([
  ['send nothing', () => ''],
  ['send half a head', (port) => `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n`],
  [
    'send half a body',
    (port) =>
      `POST /api/reports HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{`,
  ],
])('admin: 600 connections that %s do not keep a probe waiting', async (_, textFor) => {
  const { url, port } = await openTestAdmin();
  const sockets = await openMany(port, 600, { text: textFor(port) });
  await answersProbes(url);
  await until('the oldest are closed', () => countClosed(sockets) >= 600 - MAX_ADMIN_CONNECTIONS);
});

test('admin: 600 event streams do not keep a probe waiting, and at most 16 of them are open', async () => {
  const { url, port } = await openTestAdmin();
  const answers: { readonly data: string; readonly socket: Socket }[] = [];
  const onData = (data: string, socket: Socket) => void answers.push({ data, socket });
  const sockets = await openMany(port, 600, { text: readEvents(port), onData });
  await answersProbes(url);
  await until('the oldest are closed', () => countClosed(sockets) >= 600 - MAX_ADMIN_CONNECTIONS);
  const refused = answers.filter(({ data }) => data.startsWith('HTTP/1.1 503'));
  expect(refused.length, 'refused').toBeGreaterThan(0);
  const reading = answers.filter(({ data, socket }) => data.includes('event: hello') && !socket.closed);
  expect(reading.length).toBeLessThanOrEqual(16);
});

test('admin: the client with the highest number of connections loses its oldest one, and another client keeps its stream', async () => {
  const { port, bus } = await openTestAdmin();
  const [stream] = await openMany(port, 1, { text: readEvents(port) });
  await until('the stream is open', () => bus.hasSubscribers('source.warned'));
  const flood = await openMany(port, 600, { from: '127.0.0.2' });
  await until('the flood is limited', () => countClosed(flood) >= 600 - MAX_ADMIN_CONNECTIONS);
  expect(stream?.closed).toBe(false);
  expect(bus.hasSubscribers('source.warned')).toBe(true);
});

test('admin: TRACE is refused with 405 and without an error', async () => {
  const { url, errors } = await openTestAdmin();
  for (const path of ['/', '/healthz', '/api/status', '/nothing']) {
    expect(await rawRequest(url + path, {}, 'TRACE')).toBe(405);
  }
  expect(errors).toEqual([]);
});
