/** Ill-behaved clients, which would disturb the others if noria let them. The answers that they get do not matter. */
import { connect, type Socket } from 'node:net';
import { type Random, randomBelow } from '../../src/core/random.ts';

const LONGEST_STAY_MS = 4_000;

type Mischief = (socket: Socket, random: Random) => void;

const MISCHIEF: readonly Mischief[] = [
  // Sends nothing.
  () => {},
  // Never ends its head.
  (socket) => socket.write('GET http://127.0.0.1:1/ HTTP/1.1\r\nX-Slow: '),
  // Sends noise.
  (socket, random) => socket.write(Buffer.from(Array.from({ length: 200 }, () => randomBelow(random, 256)))),
  // Resets in the middle of a request.
  (socket) => {
    socket.write('CONNECT 127.0.0.1:1 HTTP/1.1\r\n');
    socket.resetAndDestroy();
  },
  // Guesses passwords.
  (socket) =>
    socket.write(
      `GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nProxy-Authorization: Basic ${Buffer.from('someone:guess').toString('base64')}\r\n\r\n`,
    ),
  // Frames a body in two ways.
  (socket) =>
    socket.write(
      'POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ),
  // Sends one-byte chunks.
  (socket) => {
    socket.write(
      'POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    socket.write('1\r\nx\r\n'.repeat(2_000));
  },
  // Asks for many targets that refuse.
  (socket) => socket.write('CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n'),
  // Opens a SOCKS greeting and stays.
  (socket) => socket.write(Buffer.from([5, 255])),
];

/** Lets one hostile client connect. @returns a function that removes it. */
export function disturb(port: number, random: Random): () => void {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {}); // ignored: noria may refuse it at any time
  socket.resume();
  const mischief = MISCHIEF[randomBelow(random, MISCHIEF.length)];
  socket.once('connect', () => mischief?.(socket, random));
  const timer = setTimeout(() => socket.destroy(), randomBelow(random, LONGEST_STAY_MS));
  return () => {
    clearTimeout(timer);
    socket.destroy();
  };
}
