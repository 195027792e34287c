/**
 * A target that answers an upload early and closes resets the connection, because part of the upload is unread. The
 * client must nevertheless get the answer, as it would on a direct connection.
 */
import { expect, test } from 'vitest';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, RawClient } from './harness.ts';
import { rawOrigin } from './origin.ts';

const UPLOAD_BYTES = 8 * 1024 * 1024;
const READ_BYTES = 256 * 1024;
const ANSWER = 'HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large';
const TRIES = 12;

/** Reads the beginning of each upload, answers and closes. */
function refusingOrigin() {
  return rawOrigin((socket) => {
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes < READ_BYTES) return;
      socket.pause();
      socket.write(ANSWER, () => socket.destroy());
    });
  });
}

test.each([
  ['through CONNECT', (port: number) => `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\n\r\n`, '/'],
  ['in absolute form', () => '', 'http://127.0.0.1:PORT/'],
])(
  'early answer: it reaches the client of an upload %s, and the member is not blamed',
  async (_how, connect, path) => {
    const origin = await refusingOrigin();
    const dialer = directDialer();
    const { port, events } = await listen(dialer);
    for (let nth = 1; nth <= TRIES; nth += 1) {
      const client = await RawClient.open(port);
      const head = connect(origin.port);
      client.send(head);
      if (head !== '') await client.until('the tunnel', (text) => text.includes('\r\n\r\n'));
      const target = path.replace('PORT', `${origin.port}`);
      client.send(`PUT ${target} HTTP/1.1\r\nHost: x\r\nContent-Length: ${UPLOAD_BYTES}\r\n\r\n`);
      client.sendBytes(UPLOAD_BYTES);
      await client.until('the answer', (text) => text.includes('413') && text.endsWith('too large'));
      client.socket.destroy();
    }
    await until('the leases ended', () => dialer.ended.length === TRIES);
    expect(dialer.ended.filter(({ cut }) => cut)).toEqual([]);
    expect(events('client.refused')).toEqual([]);
  },
);

test.each([
  ['with a length', 'Content-Length: 4\r\n\r\ndone', 'done'],
  ['in chunks', 'Transfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n', '0\r\n\r\n'],
])(
  'early answer: the connection closes %s if the target closes before the end of the upload',
  async (_how, answer, end) => {
    const origin = await rawOrigin((socket) => {
      socket.once('data', () => socket.end(`HTTP/1.1 200 OK\r\nConnection: close\r\n${answer}`));
    });
    const { port } = await listen(directDialer());
    const client = await RawClient.open(port);
    client.send(
      `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    const text = await client.until('the answer', (received) => received.endsWith(end));
    expect(text).toContain('Connection: close\r\n');
    await until('noria ends the connection', () => client.socket.readableEnded);
  },
);

test('early answer: the connection stays open if the target reads the rest of the upload', async () => {
  const origin = await rawOrigin((socket) => {
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone'));
  });
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  const request = `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const answers = (count: number) => (text: string) => text.split('\r\n\r\ndone').length === count + 1;
  client.send(request);
  const text = await client.until('the first answer', answers(1));
  expect(text).not.toContain('Connection: close');
  client.send(`0\r\n\r\n${request}`);
  await client.until('the second answer', answers(2));
});
