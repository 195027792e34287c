/**
 * Everything around the proxy under test: HTTP and SOCKS5 members, an echo target, an HTTP target, and an extraction service
 * that hands out the members. It runs in a separate process and costs as little as possible, so that the proxy is the limit.
 */
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { serveSocksMember } from './socks-member.ts';
import { COUNT_ACCEPTED } from './subject.ts';

const HOST = '127.0.0.1';
const MEMBER_LIFE_SECONDS = 3_000;
const ANSWER_BODY = Buffer.alloc(1_024, 'n');
const PLAIN_ANSWER = Buffer.concat([
  Buffer.from(`HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${ANSWER_BODY.length}\r\n\r\n`),
  ANSWER_BODY,
]);
const SLOW_MS = 2_000;
/** The first of the ports without a listener. A port that was only closed could be reused by another program. */
const REFUSING_PORT = 40;
const BULK_CHUNK = Buffer.alloc(1 << 20, 'b');

export type MemberFault = 'refusing' | 'silent' | '502' | 'slow';

export interface WorldOptions {
  readonly members: number;
  /** The faults of the first members; all others work. */
  readonly faults: readonly MemberFault[];
  /** The address on which members listen, and the address by which others reach them; loopback by default. */
  readonly memberHosts?: { readonly listen: string; readonly reach: string };
  /** Whether SOCKS5 members require a login. */
  readonly memberLogin?: boolean;
}

export interface World {
  readonly memberHost: string;
  readonly httpMembers: readonly number[];
  readonly socksMembers: readonly number[];
  readonly echoPort: number;
  /** The port of a target that sends the number of bytes that the first line requests. */
  readonly bulkPort: number;
  readonly httpPort: number;
  readonly servicePort: number;
}

async function listen(server: Server, host = HOST): Promise<number> {
  server.listen(0, host, 4_096);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

function destroyOnError(socket: Socket): Socket {
  return socket.on('error', () => socket.destroy());
}

function join(one: Socket, other: Socket): void {
  one.pipe(other);
  other.pipe(one);
}

/** Joins a member's client with its target. Ends this process if the target is unreachable, for example without descriptors. */
function reach(client: Socket, port: number, answer: Buffer, rest: Buffer): void {
  if (client.destroyed) return; // the client did not wait for a slow member
  client.allowHalfOpen = true; // from now on, `join` forwards the end of each side
  const target = connect({ port, host: HOST, allowHalfOpen: true, noDelay: true });
  const fail = (cause: Error) => {
    throw new Error('a member cannot reach its target', { cause });
  };
  target.once('error', fail).once('connect', () => {
    target.off('error', fail).on('error', () => client.destroy());
    client.write(answer);
    if (rest.length > 0) target.write(rest);
    join(client, target);
  });
  client.on('close', () => target.destroy());
}

const ESTABLISHED = Buffer.from('HTTP/1.1 200 Connection established\r\n\r\n');

function serveHttpMember(client: Socket, fault: MemberFault | undefined): void {
  destroyOnError(client);
  if (fault === 'silent') return void client.resume();
  let pending = '';
  const onData = (chunk: Buffer) => {
    pending += chunk.toString('latin1');
    for (let end = pending.indexOf('\r\n\r\n'); end >= 0; end = pending.indexOf('\r\n\r\n')) {
      const head = pending.slice(0, end);
      pending = pending.slice(end + 4);
      if (fault === '502') return void client.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n');
      if (!head.startsWith('CONNECT ')) {
        // In absolute form on a persistent connection, the member answers in place of the target.
        client.write(PLAIN_ANSWER);
        continue;
      }
      client.off('data', onData);
      const rest = Buffer.from(pending, 'latin1');
      const go = () => reach(client, Number(/:(\d+) /.exec(head)?.[1]), ESTABLISHED, rest);
      return void (fault === 'slow' ? setTimeout(go, SLOW_MS) : go());
    }
  };
  client.on('data', onData);
}

let accepted = 0;

async function build({ members, faults, memberHosts, memberLogin = false }: WorldOptions): Promise<World> {
  const memberHost = memberHosts?.reach ?? HOST;
  // Without allowHalfOpen, a member closes an idle connection that its client has closed. Otherwise, all descriptors would be used up.
  const openMember = (serve: (client: Socket) => void) =>
    listen(
      createServer({ noDelay: true }, (client) => {
        accepted += 1;
        serve(client);
      }),
      memberHosts?.listen,
    );
  const httpMembers: number[] = [];
  const socksMembers: number[] = [];
  for (let n = 0; n < members; n += 1) {
    const fault = faults[n];
    httpMembers.push(
      fault === 'refusing' ? REFUSING_PORT + n : await openMember((client) => serveHttpMember(client, fault)),
    );
    socksMembers.push(
      await openMember((client) => serveSocksMember(destroyOnError(client), memberLogin, reach)),
    );
  }
  const echoPort = await listen(
    createServer(
      { allowHalfOpen: true, noDelay: true },
      (socket) => void destroyOnError(socket).pipe(socket),
    ),
  );
  const bulkPort = await listen(
    createServer({ noDelay: true }, (socket) =>
      destroyOnError(socket).once('data', (line) => sendBulk(socket, Number(line))),
    ),
  );
  const httpPort = await listen(
    createHttpServer({ keepAliveTimeout: 60_000 }, (_request, response) =>
      response
        .writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': ANSWER_BODY.length })
        .end(ANSWER_BODY),
    ),
  );
  const servicePort = await listen(
    createHttpServer((request, response) => {
      const ports = request.url?.startsWith('/ShortS5Proxy') === true ? socksMembers : httpMembers;
      const list = ports.map((port) => ({
        ip: memberHost,
        port,
        adr: 'bench',
        timeout: MEMBER_LIFE_SECONDS,
        cometime: 1,
      }));
      response.end(
        JSON.stringify({ code: '10001', msg: '', data: { count: list.length, proxy_list: list } }),
      );
    }),
  );
  return { memberHost, httpMembers, socksMembers, echoPort, bulkPort, httpPort, servicePort };
}

function sendBulk(socket: Socket, bytes: number): void {
  let left = bytes;
  const more = () => {
    while (left > 0) {
      const chunk = left >= BULK_CHUNK.length ? BULK_CHUNK : BULK_CHUNK.subarray(0, left);
      left -= chunk.length;
      if (!socket.write(chunk)) return void socket.once('drain', more);
    }
    socket.end();
  };
  more();
}

process.once('message', (options: WorldOptions) => {
  process.on('message', (message) => {
    if (message === COUNT_ACCEPTED) process.send?.({ accepted });
  });
  void build(options).then((world) => process.send?.(world));
});
process.on('disconnect', () => process.exit(0));
