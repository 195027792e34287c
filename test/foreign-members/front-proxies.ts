/** Proxies of other projects, as front proxies: with a login, and with the faults that operators encounter. */
import { createServer, type Server, type Socket } from 'node:net';
import { Server as ProxyChainServer } from 'proxy-chain';
import { onTestFinished } from 'vitest';
import { type FrontProxy, readFrontProxy } from '../../src/core/front-proxy.ts';
import { freePort } from '../support/free-port.ts';
import { configFile, FOREIGN_MEMBERS, run, untilListening } from './foreign-members.ts';

export interface FrontProxyProgram {
  readonly name: string;
  /** The program that the proxy needs; absent if the proxy is a package. */
  readonly command?: string;
  /** Starts the proxy. @returns its URL, with the login that it requires. */
  open(): Promise<string>;
}

const LOOPBACK = '127.0.0.1';
export const LOGIN = { username: 'corp', password: 'p@ss:word/1' };
const URL_LOGIN = `${LOGIN.username}:${encodeURIComponent(LOGIN.password)}@`;

/** The proxies that allow CONNECT to every port without a login. */
const OPEN_PROGRAMS: readonly FrontProxyProgram[] = FOREIGN_MEMBERS.filter(
  ({ connectOnlyTo443 }) => !connectOnlyTo443,
).map(({ name, command, open }) => ({
  name,
  ...(command !== undefined && { command }),
  open: async () => {
    const [proxy] = await open(1);
    return `${proxy?.protocol}://${proxy?.host}:${proxy?.port}`;
  },
}));

const microsocksWithLogin: FrontProxyProgram = {
  name: 'microsocks with a login',
  command: 'microsocks',
  async open() {
    const port = await freePort();
    run('microsocks', ['-i', LOOPBACK, '-p', String(port), '-u', LOGIN.username, '-P', LOGIN.password]);
    await untilListening(port);
    return `socks5://${URL_LOGIN}${LOOPBACK}:${port}`;
  },
};

/** tinyproxy with a login. Its configuration file allows no special characters in a password. */
const tinyproxyWithLogin: FrontProxyProgram = {
  name: 'tinyproxy with a login',
  command: 'tinyproxy',
  async open() {
    const port = await freePort();
    const lines = [`Port ${port}`, `Listen ${LOOPBACK}`, 'LogLevel Critical', 'BasicAuth corp secret42'];
    run('tinyproxy', ['-d', '-c', configFile(lines)]);
    await untilListening(port);
    return `http://corp:secret42@${LOOPBACK}:${port}`;
  },
};

const proxyChainWithLogin: FrontProxyProgram = {
  name: 'npm proxy-chain with a login',
  async open() {
    const server = new ProxyChainServer({
      host: LOOPBACK,
      port: 0,
      prepareRequestFunction: ({ username, password }) => ({
        requestAuthentication: username !== LOGIN.username || password !== LOGIN.password,
      }),
    });
    await server.listen();
    onTestFinished(() => server.close(true));
    return `http://${URL_LOGIN}${LOOPBACK}:${server.port}`;
  },
};

export const FRONT_PROXIES: readonly FrontProxyProgram[] = [
  ...OPEN_PROGRAMS,
  microsocksWithLogin,
  tinyproxyWithLogin,
  proxyChainWithLogin,
];

export function frontProxyAt(url: string): FrontProxy {
  const reading = readFrontProxy(url);
  if ('wrong' in reading) throw new TypeError(`${url} ${reading.wrong}`);
  return reading.value;
}

/** Opens a server that answers each first message with `answer`, or never. @returns its port. */
export async function openBrokenProxy(answer: string | undefined): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {}); // ignored: the client may reset it
    socket.once('data', () => {
      if (answer !== undefined) socket.end(answer);
    });
  });
  server.listen(0, LOOPBACK);
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}
