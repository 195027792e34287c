/**
 * The only client of noria chooses targets that misbehave on purpose: they serve some members and fail others. The
 * client gets no member evicted, and once the pool is full, its requests cause no draw, like as many honest requests.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { type Noria, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

const SIZE = 20;
const REQUESTS = 144;
const CONCURRENCY = 12;
/** How many distinct names the client uses. All of them lead to its one target. */
const NAMES = 24;
const SILENCE_MS = 200;

type Trick = 'answers' | 'closes' | 'resets' | 'is silent' | 'refuses';

const TRICKS: Readonly<Record<Trick, (socket: Socket) => void>> = {
  answers: answer,
  closes: (socket) => socket.end(),
  resets: (socket) => socket.resetAndDestroy(),
  'is silent': () => {},
  refuses: answer,
};

function answer(socket: Socket): void {
  socket.on('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok'));
}

/**
 * Opens the target. It plays the trick on every second exit from which it is reached, and answers all other exits. With
 * `refuses`, nothing listens on the port. @returns the port.
 */
async function openTarget(trick: Trick): Promise<number> {
  if (trick === 'refuses') return freePort();
  const exits: string[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {}); // ignored: noria may reset it
    onTestFinished(() => void socket.destroy());
    const exit = socket.remoteAddress ?? '';
    if (!exits.includes(exit)) exits.push(exit);
    if (exits.indexOf(exit) % 2 === 0) TRICKS[trick](socket);
    else answer(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** What a client sends to request `host:port`. It waits for an answer before it sends the next message. */
const PROTOCOLS = {
  CONNECT: (host: string, port: number) => [
    `CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
  ],
  SOCKS5: (host: string, port: number) => [
    '\x05\x01\x00',
    `\x05\x01\x00\x03${String.fromCharCode(host.length)}${host}${String.fromCharCode(port >> 8, port & 255)}`,
    `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
  ],
  'absolute form': (host: string, port: number) => [
    `GET http://${host}:${port}/ HTTP/1.1\r\nHost: ${host}:${port}\r\nConnection: close\r\n\r\n`,
  ],
} as const;
type Protocol = keyof typeof PROTOCOLS;

/** Sends one request. Resolves when its connection ends, or when nothing arrives for `SILENCE_MS`. */
async function request(noria: Noria, protocol: Protocol, host: string, port: number): Promise<void> {
  const [proxyHost = '', proxyPort] = noria.proxy.split(':');
  const socket = connect(Number(proxyPort), proxyHost);
  socket.on('error', () => {}); // ignored: noria resets a refused or cut tunnel
  const ended = new Promise((resolve) => socket.on('close', resolve));
  socket.setTimeout(SILENCE_MS * 10, () => socket.destroy());
  const messages = [...PROTOCOLS[protocol](host, port)];
  const next = () => {
    const message = messages.shift();
    if (message !== undefined) socket.write(message, 'latin1');
    if (messages.length === 0) socket.setTimeout(SILENCE_MS, () => socket.destroy());
  };
  socket.on('connect', next);
  socket.on('data', next);
  socket.on('end', () => socket.destroy());
  await ended;
}

async function attack(protocol: Protocol, trick: Trick) {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-pure', members: 60, lifetimeMs: 600_000 }],
  });
  const noria = await startNoria({
    sources: [
      sourceLine(sandbox, 'pure', 'short-pure', `interval: 100ms, size: ${SIZE}, params: { count: 5 }`),
    ],
    pool: 'idleAfter: 0s',
  });
  const left: string[] = [];
  noria.bus.on('member.left', ({ member, fault = '' }) => left.push(`${member} ${fault}`));
  await untilReady(noria, SIZE);
  const { calls } = sandbox.stats();
  const port = await openTarget(trick);
  let sent = 0;
  const client = async () => {
    while (sent < REQUESTS) {
      const name = sent % NAMES;
      sent += 1;
      await request(noria, protocol, `t${name}.example`, port);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, client));
  await until('noria has enough members', () => noria.control.status().sources[0]?.state === 'ready');
  return { left, furtherCalls: sandbox.stats().calls - calls };
}

const CASES = (Object.keys(PROTOCOLS) as Protocol[]).flatMap((protocol) =>
  (Object.keys(TRICKS) as Trick[]).map((trick) => [protocol, trick] as const),
);

test.each(CASES)(
  'lone client: by %s, a target that %s gets no member evicted and causes no further draw',
  async (protocol, trick) => {
    expect(await attack(protocol, trick)).toEqual({ left: [], furtherCalls: 0 });
  },
);
