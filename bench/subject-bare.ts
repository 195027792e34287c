/**
 * The minimum cost of a tunnel in Node: two joined sockets with minimal parsers for CONNECT and SOCKS5, and members in
 * rotation. It has no checks, timeouts, counts or retries, so it is no proxy for real use.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { MEMBER_LOGIN } from './socks-member.ts';
import { type SubjectOptions, serveSubject } from './subject.ts';

const HOST = '127.0.0.1';
const ESTABLISHED = 'HTTP/1.1 200 Connection established\r\n\r\n';
const SOCKS5 = 5;
const SOCKS_NO_LOGIN = '\x05\x00';
const SOCKS_ESTABLISHED = '\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00';

serveSubject(async ({ world, protocol, login = false }) => {
  const ports = protocol === 'http' ? world.httpMembers : world.socksMembers;
  let turn = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    turn = (turn + 1) % ports.length;
    serve(client, { protocol, login, host: world.memberHost, port: ports[turn] ?? 0 });
  });
  server.listen(0, HOST, 4_096);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
});

interface Member {
  readonly protocol: SubjectOptions['protocol'];
  readonly login: boolean;
  readonly host: string;
  readonly port: number;
}

function serve(client: Socket, member: Member): void {
  client.on('error', () => client.destroy());
  client.once('data', (head) => {
    if (head[0] === SOCKS5) return serveSocks5(client, member);
    const authority = /^CONNECT (\S+) HTTP\/1\.1\r\n/.exec(head.toString('latin1'))?.[1];
    if (authority === undefined) return void client.destroy();
    reach(client, member, { authority, answer: ESTABLISHED });
  });
}

/** Answers the greeting, and reads the request. The address of the target is IPv4. */
function serveSocks5(client: Socket, member: Member): void {
  client.write(SOCKS_NO_LOGIN, 'latin1');
  client.once('data', (request) => {
    const authority = `${request.subarray(4, 8).join('.')}:${request.readUInt16BE(8)}`;
    reach(client, member, { authority, answer: SOCKS_ESTABLISHED });
  });
}

function reach(
  client: Socket,
  { protocol, login, host, port }: Member,
  { authority, answer }: { readonly authority: string; readonly answer: string },
): void {
  const messages = messagesTo(protocol, login, authority);
  const where = { host, port, allowHalfOpen: true, noDelay: true, autoSelectFamily: false };
  const member = connect(where, () => send());
  member.on('error', () => member.destroy());
  const send = () => {
    member.write(messages.shift() ?? '', 'latin1');
    member.once('data', () => {
      if (messages.length > 0) return send();
      client.write(answer, 'latin1');
      join(client, member);
    });
  };
}

/** The messages to a member. Each is sent when the previous one has been answered. */
function messagesTo(protocol: Member['protocol'], login: boolean, authority: string): string[] {
  if (protocol === 'http') return [`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`];
  const [host = '', port] = authority.split(':');
  const bytes = (...values: number[]) => String.fromCharCode(...values);
  const address = bytes(...host.split('.').map(Number));
  const portBytes = bytes(Number(port) >> 8, Number(port) & 255);
  if (protocol === 'socks4') return [`${bytes(4, 1)}${portBytes}${address}${bytes(0)}`];
  const { username, password } = MEMBER_LOGIN;
  const loginMessage = `${bytes(1, username.length)}${username}${bytes(password.length)}${password}`;
  const request = `${bytes(5, 1, 0, 1)}${address}${portBytes}`;
  return login ? [bytes(5, 1, 2), loginMessage, request] : [bytes(5, 1, 0), request];
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
