/**
 * Everything around the proxy under test, in a process of its own so that it is never the limit: HTTP and SOCKS5 members,
 * an echo and an HTTP target, and an extraction service that hands the members out. As cheap as it can be, on loopback.
 */
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

const HOST = '127.0.0.1';
const MEMBER_LIFE_SECONDS = 3_000;
const ANSWER_BODY = Buffer.alloc(1_024, 'n');
const PLAIN_ANSWER = Buffer.concat([
  Buffer.from(`HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${ANSWER_BODY.length}\r\n\r\n`),
  ANSWER_BODY,
]);
const SLOW_MS = 2_000;
/** From here on nobody listens; a port that was let go of would soon be somebody else's. */
const REFUSING_PORT = 40;
const BULK_CHUNK = Buffer.alloc(1 << 20, 'b');

export type Trouble = 'refusing' | 'silent' | '502' | 'slow';

export interface WorldOptions {
  readonly members: number;
  /** How the first ones misbehave; the others are good. */
  readonly troubles: readonly Trouble[];
}

export interface World {
  readonly httpMembers: readonly number[];
  readonly socksMembers: readonly number[];
  readonly echoPort: number;
  /** Sends as many bytes as the first line asks for. */
  readonly bulkPort: number;
  readonly httpPort: number;
  readonly servicePort: number;
}

const open: Server[] = [];

async function listen(server: Server): Promise<number> {
  open.push(server);
  server.listen(0, HOST, 4_096);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

const quiet = (socket: Socket): Socket => socket.on('error', () => socket.destroy()).setNoDelay(true);

/** Joins two sockets by the cheapest means there are. */
function join(one: Socket, other: Socket): void {
  one.pipe(other);
  other.pipe(one);
}

function reach(client: Socket, port: number, answer: Buffer, rest: Buffer): void {
  const target = quiet(
    connect({ port, host: HOST, allowHalfOpen: true }, () => {
      client.write(answer);
      if (rest.length > 0) target.write(rest);
      join(client, target);
    }),
  );
  client.on('close', () => target.destroy());
  target.on('error', () => client.destroy());
}

const ESTABLISHED = Buffer.from('HTTP/1.1 200 Connection established\r\n\r\n');

function serveHttpMember(client: Socket, trouble: Trouble | undefined): void {
  quiet(client);
  if (trouble === 'silent') return void client.resume();
  let pending = '';
  const onData = (chunk: Buffer) => {
    pending += chunk.toString('latin1');
    for (let end = pending.indexOf('\r\n\r\n'); end >= 0; end = pending.indexOf('\r\n\r\n')) {
      const head = pending.slice(0, end);
      pending = pending.slice(end + 4);
      if (trouble === '502') return void client.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n');
      if (!head.startsWith('CONNECT ')) {
        client.write(PLAIN_ANSWER); // absolute form, on a kept connection: answered as the target would
        continue;
      }
      client.off('data', onData);
      const rest = Buffer.from(pending, 'latin1');
      const go = () => reach(client, Number(/:(\d+) /.exec(head)?.[1]), ESTABLISHED, rest);
      return void (trouble === 'slow' ? setTimeout(go, SLOW_MS) : go());
    }
  };
  client.on('data', onData);
}

const SOCKS_NO_AUTH = Buffer.from([5, 0]);
const SOCKS_DONE = Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);

function serveSocksMember(client: Socket): void {
  quiet(client);
  client.once('data', () => {
    client.write(SOCKS_NO_AUTH);
    client.once('data', (request: Buffer) => {
      const at = request[3] === 1 ? 8 : 5 + (request[4] ?? 0);
      reach(client, request.readUInt16BE(at), SOCKS_DONE, request.subarray(at + 2));
    });
  });
}

async function build({ members, troubles }: WorldOptions): Promise<World> {
  const httpMembers: number[] = [];
  const socksMembers: number[] = [];
  for (let n = 0; n < members; n += 1) {
    const trouble = troubles[n];
    const server = createServer({ allowHalfOpen: true }, (client) => serveHttpMember(client, trouble));
    httpMembers.push(trouble === 'refusing' ? REFUSING_PORT + n : await listen(server));
    socksMembers.push(await listen(createServer({ allowHalfOpen: true }, serveSocksMember)));
  }
  const echoPort = await listen(
    createServer({ allowHalfOpen: true }, (socket) => void quiet(socket).pipe(socket)),
  );
  const bulkPort = await listen(
    createServer((socket) => quiet(socket).once('data', (line) => sendBulk(socket, Number(line)))),
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
        ip: HOST,
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
  return { httpMembers, socksMembers, echoPort, bulkPort, httpPort, servicePort };
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
  void build(options).then((world) => process.send?.(world));
});
process.on('disconnect', () => process.exit(0));
