/**
 * An HTTP member that counts what passes after its handshake, by target host, and answers itself for every target: it is
 * the outside view of what a noria relays. Its tunnels carry one line `BYTES\n` from the client, which it answers with so
 * many bytes, and then anything, which it swallows. A request in absolute form or inside a tunnel gets `ok`, or a 101 if
 * it asks for another protocol.
 */
import { createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Passed {
  tunnels: number;
  /** Received from noria. */
  up: number;
  /** Written to noria. */
  down: number;
}

export interface CountingMember {
  readonly address: string;
  readonly passed: ReadonlyMap<string, Passed>;
  /** The open tunnels, for a test that cuts them. */
  readonly open: ReadonlySet<Socket>;
}

const HEAD_END = '\r\n\r\n';
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok';
const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n';

export async function openCountingMember(refuses: (host: string) => boolean = () => false) {
  const passed = new Map<string, Passed>();
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    open.add(socket);
    socket.on('error', () => {}).on('close', () => open.delete(socket)); // ignored: the test resets connections
    let head = '';
    const onHead = (chunk: Buffer) => {
      head += chunk.toString('latin1');
      const end = head.indexOf(HEAD_END);
      if (end < 0) return;
      socket.off('data', onHead);
      const connect = /^CONNECT (\S+):\d+ /.exec(head)?.[1];
      const host = connect ?? /^\w+ http:\/\/([^:/ ]+)/.exec(head)?.[1] ?? '';
      if (refuses(host)) {
        socket.end(`HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0${HEAD_END}`);
        return;
      }
      const counts = passed.get(host) ?? { tunnels: 0, up: 0, down: 0 };
      passed.set(host, counts);
      counts.tunnels += 1;
      if (connect !== undefined) socket.write(`HTTP/1.1 200 OK${HEAD_END}`);
      const inside = connect === undefined ? head : head.slice(end + HEAD_END.length);
      answer(socket, Buffer.from(inside, 'latin1'), counts);
    };
    socket.on('data', onHead);
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('the member has no port');
  return { address: `127.0.0.1:${address.port}`, passed, open } satisfies CountingMember;
}

function answer(socket: Socket, first: Buffer, counts: Passed): void {
  let asked = '';
  let answered = false;
  const send = (bytes: Buffer | string) => {
    counts.down += bytes.length;
    socket.write(bytes);
  };
  const onData = (chunk: Buffer) => {
    counts.up += chunk.length;
    if (answered) return;
    asked += chunk.toString('latin1');
    const bytes = /^(\d+)\n/.exec(asked)?.[1];
    if (bytes === undefined && !asked.includes(HEAD_END)) return;
    answered = true;
    if (bytes !== undefined) send(Buffer.alloc(Number(bytes), 'x'));
    else {
      send(/\r\nUpgrade: /i.test(asked) ? SWITCHED : OK);
      socket.end();
    }
  };
  if (first.length > 0) onData(first);
  socket.on('data', onData).on('end', () => socket.end());
}
