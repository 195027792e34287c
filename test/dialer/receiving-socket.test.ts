import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { hasFailedWrite, ReceivingSocket } from '../../src/dialer/receiving-socket.ts';
import { ReadMemory, TunnelSocket } from '../../src/dialer/tunnel-socket.ts';
import { until } from '../support/until.ts';

/** Connects a socket and pauses it. Returns the member's end of the connection. */
async function openPair(socket: ReceivingSocket): Promise<{ member: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  socket.on('error', () => {}); // ignored: the tests read `errored`
  socket.connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).pause();
  const [[member]] = await Promise.all([accepted, once(socket, 'connect')]);
  server.close();
  onTestFinished(() => {
    socket.destroy();
    member.destroy();
  });
  return { member };
}

test.each([
  ['a socket for a tunnel', () => new TunnelSocket(new ReadMemory())],
  ['a socket for requests', () => new ReceivingSocket({ allowHalfOpen: true })],
])(
  'receiving socket: %s delivers what arrived before a reset, although a write has failed',
  async (_what, open) => {
    const socket = open();
    const { member } = await openPair(socket);
    member.write('the answer');
    await until('the answer was sent', () => member.writableLength === 0);
    member.resetAndDestroy();
    await once(member, 'close');
    let received = '';
    const ended = new Promise<void>((resolve) => {
      socket.on('end', resolve).on('close', resolve);
    });
    // The socket has not read anything yet, so only the write can notice the reset.
    socket.write('more');
    socket.cork();
    socket.write('and');
    socket.write('more');
    socket.uncork();
    await until('the failed write', () => hasFailedWrite(socket));
    expect(socket.destroyed).toBe(false);
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString();
    });
    socket.resume();
    await ended;
    expect(received).toBe('the answer');
  },
);

test('receiving socket: writes succeed while the connection is open', async () => {
  const socket = new ReceivingSocket({ allowHalfOpen: true });
  const { member } = await openPair(socket);
  let received = '';
  member.on('data', (chunk: Buffer) => {
    received += chunk.toString();
  });
  socket.write('a');
  socket.cork();
  socket.write('b');
  socket.write('c');
  socket.uncork();
  socket.end('d');
  await once(member, 'end');
  expect([received, hasFailedWrite(socket)]).toEqual(['abcd', false]);
});
