/** A server that speaks the protocol of Redis and answers what a test says: for answers that a real store gives rarely or never. */
import { createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import type { Reply, StoreAddress } from '../../../src/fleet/redis/connection.ts';
import { listen, portOf } from '../../chaos/delaying-proxy.ts';

/** An `Error` is the store's own error; undefined: no answer. */
export type Answer = Reply | Error | undefined;

export interface ScriptedStore {
  readonly port: number;
  /** All commands so far, of all connections. */
  readonly commands: (readonly string[])[];
  readonly address: StoreAddress;
  /** The number of open connections. */
  readonly open: number;
  /** Ends all connections. */
  cut(): void;
}

/** @param answer - also gets the number of the connection, counted from 1. */
export async function openScriptedStore(
  answer: (command: readonly string[], connection: number) => Answer | Promise<Answer>,
): Promise<ScriptedStore> {
  const sockets = new Set<Socket>();
  const commands: (readonly string[])[] = [];
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    const connection = connections;
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket)); // ignored: the client or the test ends it
    let bytes = '';
    socket.setEncoding('latin1').on('data', async (chunk: string) => {
      bytes += chunk;
      for (let read = readCommand(bytes); read !== undefined; read = readCommand(bytes)) {
        bytes = bytes.slice(read.length);
        commands.push(read.command);
        const reply = await answer(read.command, connection);
        if (reply !== undefined) socket.write(encoded(reply), 'latin1');
      }
    });
  });
  await listen(server);
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(() => {
    server.close();
    cut();
  });
  const port = portOf(server);
  return {
    ...{ port, commands, cut },
    address: {
      label: 'the store',
      server: { host: '127.0.0.1', port, login: {}, tls: undefined, database: 0 },
    },
    get open() {
      return sockets.size;
    },
  };
}

/** Reads the first command of the bytes; undefined while it is incomplete. */
function readCommand(bytes: string): { readonly command: string[]; readonly length: number } | undefined {
  const head = /^\*(\d+)\r\n/.exec(bytes);
  if (head === null) return undefined;
  let at = head[0].length;
  const command: string[] = [];
  for (let left = Number(head[1]); left > 0; left -= 1) {
    const size = /^\$(\d+)\r\n/.exec(bytes.slice(at, at + 20));
    if (size === null) return undefined;
    const from = at + size[0].length;
    at = from + Number(size[1]) + 2;
    if (at > bytes.length) return undefined;
    command.push(bytes.slice(from, at - 2));
  }
  return { command, length: at };
}

function encoded(reply: Exclude<Answer, undefined>): string {
  if (reply instanceof Error) return `-${reply.message}\r\n`;
  if (reply === null) return '$-1\r\n';
  if (typeof reply === 'number') return `:${reply}\r\n`;
  if (typeof reply === 'string')
    return `$${Buffer.byteLength(reply)}\r\n${Buffer.from(reply).toString('latin1')}\r\n`;
  return `*${reply.length}\r\n${reply.map(encoded).join('')}`;
}
