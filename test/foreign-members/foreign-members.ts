/** Proxies of other projects, as members. Each starts on free ports and ends with the test. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createProxy } from 'proxy';
import { Server as ProxyChainServer } from 'proxy-chain';
import { onTestFinished } from 'vitest';
import type { MemberProtocol } from '../../src/core/protocol.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';

export interface ForeignMember {
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
}

export interface ForeignMembers {
  readonly name: string;
  /** The program that the proxy needs; absent if the proxy is a package. */
  readonly command?: string;
  /** Whether it refuses CONNECT to every port but 443, as its usual configuration does. */
  readonly connectOnlyTo443: boolean;
  open(count: number): Promise<readonly ForeignMember[]>;
}

const LOOPBACK = '127.0.0.1';

const tinyproxy = (connectOnlyTo443: boolean): ForeignMembers => ({
  name: connectOnlyTo443 ? 'tinyproxy with ConnectPort 443' : 'tinyproxy',
  command: 'tinyproxy',
  connectOnlyTo443,
  open: (count) =>
    openEach('http', count, (port) => {
      const lines = [
        `Port ${port}`,
        `Listen ${LOOPBACK}`,
        'Timeout 60',
        'MaxClients 50',
        'LogLevel Critical',
      ];
      if (connectOnlyTo443) lines.push('ConnectPort 443');
      run('tinyproxy', ['-d', '-c', configFile(lines)]);
    }),
});

/** The folder in which a squid keeps its shared memory, in files whose names begin with the name of its service. */
const SHARED_MEMORY = '/dev/shm';
let squids = 0;

/** One squid with a port for each member. Its service has a name of its own: squids with one name share files, also of other users. */
const squid = (connectOnlyTo443: boolean, isNamed = true): ForeignMembers => ({
  name: `squid${connectOnlyTo443 ? ' with SSL_ports 443' : ''}${isNamed ? '' : ' without Server and Via'}`,
  command: 'squid',
  connectOnlyTo443,
  async open(count) {
    const ports: number[] = [];
    const members = await openEach('http', count, (port) => {
      ports.push(port);
      if (ports.length < count) return;
      const rules = ['acl ssl port 443', 'http_access deny CONNECT !ssl'];
      squids += 1;
      const service = `noria${process.pid}x${squids}`;
      onTestFinished(() => {
        for (const file of readdirSync(SHARED_MEMORY))
          if (file.startsWith(`${service}-`)) rmSync(join(SHARED_MEMORY, file), { force: true });
      });
      run('squid', [
        '-N',
        '-d1', // writes problems to standard error
        '-n',
        service,
        '-f',
        configFile([
          ...ports.map((each) => `http_port ${LOOPBACK}:${each}`),
          ...(connectOnlyTo443 ? rules : []),
          ...(isNamed ? [] : ['via off', 'reply_header_access Server deny all']),
          'http_access allow all',
          'access_log none',
          'cache_log /dev/null',
          'cache deny all',
          'pid_filename none',
          'pinger_enable off',
          'dns_nameservers 127.0.0.1',
          'shutdown_lifetime 0 seconds',
        ]),
      ]);
    });
    return members;
  },
});

const microsocks: ForeignMembers = {
  name: 'microsocks',
  command: 'microsocks',
  connectOnlyTo443: false,
  open: (count) =>
    openEach('socks5', count, (port) => {
      run('microsocks', ['-i', LOOPBACK, '-p', String(port)]);
    }),
};

const proxyPackage: ForeignMembers = {
  name: 'npm proxy',
  connectOnlyTo443: false,
  open: (count) => openServers(count, () => createProxy(createHttpServer())),
};

const proxyChain: ForeignMembers = {
  name: 'npm proxy-chain',
  connectOnlyTo443: false,
  open: (count) =>
    openEach('http', count, async (port) => {
      const server = new ProxyChainServer({ host: LOOPBACK, port });
      await server.listen();
      onTestFinished(() => server.close(true));
    }),
};

/** Answers a dead target with 404, and a request in absolute form with 405. */
const connectOnlyProxy: ForeignMembers = {
  name: 'a proxy that only knows CONNECT',
  connectOnlyTo443: false,
  open: (count) =>
    openServers(count, () => {
      const server = createHttpServer((_, response) => response.writeHead(405).end('no'));
      return server.on('connect', ({ url = '' }, client) => {
        const { hostname, port } = new URL(`http://${url}`);
        const upstream = connect(Number(port), hostname);
        client.on('error', () => upstream.destroy());
        upstream.on('error', () => client.end('HTTP/1.1 404 Not Found\r\n\r\n'));
        upstream.on('connect', () => {
          client.write('HTTP/1.1 200 OK\r\n\r\n');
          upstream.pipe(client);
          client.pipe(upstream);
        });
      });
    }),
};

export const FOREIGN_MEMBERS = [
  tinyproxy(false),
  tinyproxy(true),
  squid(false),
  squid(true),
  squid(true, false),
  microsocks,
  proxyPackage,
  proxyChain,
  connectOnlyProxy,
];

async function openEach(
  protocol: MemberProtocol,
  count: number,
  open: (port: number) => void | Promise<void>,
): Promise<readonly ForeignMember[]> {
  const members: ForeignMember[] = [];
  for (let index = 0; index < count; index += 1) {
    const port = await freePort();
    await open(port);
    members.push({ protocol, host: LOOPBACK, port });
  }
  for (const { port } of members) await untilListening(port);
  return members;
}

async function openServers(count: number, make: () => Server): Promise<readonly ForeignMember[]> {
  const members: ForeignMember[] = [];
  for (let index = 0; index < count; index += 1) {
    const server = make();
    server.listen(0, LOOPBACK);
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    members.push({ protocol: 'http', host: LOOPBACK, port: (server.address() as AddressInfo).port });
  }
  return members;
}

/** @throws Error with the output of a program of this test that has ended instead. */
export async function untilListening(port: number): Promise<void> {
  let listening = false;
  const knock = () => {
    const socket = connect(port, LOOPBACK);
    socket.on('connect', () => {
      listening = true;
      socket.destroy();
    });
    socket.on('error', () => setTimeout(knock, 5));
  };
  knock();
  await until(`port ${port} listens`, () => {
    for (const { command, child, output } of running)
      if (child.exitCode !== null) throw new Error(`${command} ended with ${child.exitCode}: ${output()}`);
    return listening;
  });
}

export function configFile(lines: readonly string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'noria-foreign-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'proxy.conf');
  writeFileSync(path, `${lines.join('\n')}\n`);
  return path;
}

/** The programs of the tests that run now. */
const running = new Set<{
  readonly command: string;
  readonly child: ChildProcess;
  readonly output: () => string;
}>();

export function run(command: string, options: readonly string[]): void {
  const child = spawn(command, options, { stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text = (text + chunk).slice(-2_000)));
  const program = { command, child, output: () => text.trim() || 'it printed nothing' };
  running.add(program);
  onTestFinished(async () => {
    running.delete(program);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  });
}
