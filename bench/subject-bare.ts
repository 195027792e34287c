/**
 * The lowest cost of a tunnel in Node: two joined sockets with a minimal CONNECT parser, and members in rotation. It has no
 * checks, timeouts, counts or retries, so it is no proxy for real use.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { serveSubject } from './subject.ts';

const HOST = '127.0.0.1';
const ESTABLISHED = 'HTTP/1.1 200 Connection established\r\n\r\n';

serveSubject(async ({ world }) => {
  let turn = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    turn = (turn + 1) % world.httpMembers.length;
    serve(client, world.httpMembers[turn] ?? 0);
  });
  server.listen(0, HOST, 4_096);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
});

function serve(client: Socket, port: number): void {
  client.on('error', () => client.destroy());
  client.once('data', (head) => {
    const authority = /^CONNECT (\S+) HTTP\/1\.1\r\n/.exec(head.toString('latin1'))?.[1];
    if (authority === undefined) return void client.destroy();
    const where = { host: HOST, port, allowHalfOpen: true, noDelay: true, autoSelectFamily: false };
    const member = connect(where, () =>
      member.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`, 'latin1'),
    );
    member.on('error', () => member.destroy());
    member.once('data', () => {
      client.write(ESTABLISHED, 'latin1');
      join(client, member);
    });
  });
}

function join(one: Socket, other: Socket): void {
  for (const [from, to] of [[one, other] as const, [other, one] as const]) {
    from.on('data', (chunk) => {
      if (!to.write(chunk)) from.pause();
    });
    to.on('drain', () => from.resume());
    from.on('end', () => to.end());
    from.on('close', () => to.destroy());
  }
}
