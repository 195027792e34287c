/** A raw target that records what it receives and answers as a test says. */
import { createServer, type Server, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A complete response with the body `hi`. */
export const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi';

export interface RawOrigin {
  readonly port: number;
  /** What each connection received so far, in Latin-1. */
  readonly seen: string[];
  readonly sockets: Socket[];
}

/** Calls `onConnection` for each connection and records what it receives. Closed when the test ends. */
export async function rawOrigin(
  onConnection: (socket: Socket, index: number) => void = () => {},
): Promise<RawOrigin> {
  const seen: string[] = [];
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const index = sockets.push(socket) - 1;
    seen.push('');
    socket.on('data', (chunk: Buffer) => {
      seen[index] += chunk.toString('latin1');
    });
    socket.on('error', () => {}); // ignored: tests reset connections on purpose
    onConnection(socket, index);
  });
  await listening(server);
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: portOf(server), seen, sockets };
}

/** Sends `response` for each request head. `end`: then half-closes. */
export function answering(response: string, end = false): (socket: Socket) => void {
  return (socket) => {
    let head = '';
    socket.on('data', (chunk: Buffer) => {
      head += chunk.toString('latin1');
      const at = head.indexOf('\r\n\r\n');
      if (at < 0) return;
      head = head.slice(at + 4);
      socket.write(response, 'latin1');
      if (end) socket.end();
    });
  };
}

async function listening(server: Server): Promise<void> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}

function portOf(server: Server): number {
  const address = server.address();
  return address !== null && typeof address === 'object' ? address.port : 0;
}

/** An origin that returns every byte. */
export const echo = () => rawOrigin((socket) => socket.pipe(socket));
