/** The two ends of a loopback connection that allows half-close. Destroyed when the test ends. */
import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

export interface SocketPair {
  /** The end for the code under test. */
  readonly near: Socket;
  /** The end for the test. */
  readonly far: Socket;
}

export async function socketPair(): Promise<SocketPair> {
  const server = createServer({ allowHalfOpen: true });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const far = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  const near = await accepted;
  server.close();
  for (const socket of [near, far]) {
    socket.on('error', () => {}); // ignored: tests reset connections on purpose
    onTestFinished(() => {
      socket.destroy();
    });
  }
  near.pause();
  return { near, far };
}

export interface Recording {
  text: string;
  bytes: number;
  ended: boolean;
  closed: boolean;
  error: string | undefined;
}

/** Records everything that a socket receives from now on, and how it has ended. */
export function record(socket: Socket): Recording {
  const seen: Recording = { text: '', bytes: 0, ended: false, closed: false, error: undefined };
  socket.on('data', (chunk: Buffer) => {
    seen.bytes += chunk.length;
    if (seen.text.length < 1_000_000) seen.text += chunk.toString('latin1');
  });
  socket.on('end', () => {
    seen.ended = true;
  });
  socket.on('error', ({ code }: NodeJS.ErrnoException) => {
    seen.error = code;
  });
  socket.on('close', () => {
    seen.closed = true;
  });
  return seen;
}
