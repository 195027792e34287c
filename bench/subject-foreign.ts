/**
 * Proxies written in C, if they are installed. Each runs as a child of the subject's process; its CPU time is added to
 * that of the subject.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { serveSubject } from './subject.ts';
import type { World } from './world.ts';

const HOST = '127.0.0.1';
const START_TRIES = 100;
const TRY_MS = 100;

export type ForeignName = 'tinyproxy' | 'squid';

export function isInstalled(name: ForeignName): boolean {
  try {
    execFileSync('which', [name], { stdio: 'ignore' });
    return true;
  } catch {
    return false; // handled: the benchmark leaves it out
  }
}

/** The command of each proxy and the files of its configuration. @param port - the port on which the proxy listens. */
const COMMANDS: Record<ForeignName, (world: World, port: number) => [string[], string[]]> = {
  // tinyproxy has one upstream for all targets
  tinyproxy: ({ httpMembers: [member] }, port) => [
    ['-d', '-c'],
    [
      `Port ${port}`,
      `Listen ${HOST}`,
      'Timeout 60',
      'MaxClients 1000',
      'LogLevel Critical',
      `Upstream http ${HOST}:${member}`,
    ],
  ],
  squid: ({ httpMembers }, port) => [
    ['-N', '-n', `norias${process.pid}`, '-f'],
    [
      `http_port ${HOST}:${port}`,
      ...httpMembers.map(
        (member) => `cache_peer ${HOST} parent ${member} 0 no-query round-robin name=m${member}`,
      ),
      'never_direct allow all',
      'http_access allow all',
      'cache deny all',
      'access_log none',
      'cache_log /dev/null',
      'pid_filename none',
      'pinger_enable off',
      'shutdown_lifetime 0 seconds',
    ],
  ],
};

/** Serves this process as the subject: it starts the program and ends it. */
export function serveForeign(name: ForeignName): void {
  serveSubject(async ({ world }) => {
    const port = await freePort();
    const [flags, lines] = COMMANDS[name](world, port);
    const folder = mkdtempSync(join(tmpdir(), `noria-bench-${name}-`));
    const config = join(folder, 'config');
    writeFileSync(config, `${lines.join('\n')}\n`);
    const child = spawn(name, [...flags, config], { stdio: 'ignore' });
    process.on('exit', () => {
      child.kill('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    });
    process.on('SIGTERM', () => process.exit(0));
    for (let tries = 0; tries < START_TRIES; tries += 1) {
      if (await accepts(port)) return port;
      await new Promise((next) => setTimeout(next, TRY_MS));
    }
    throw new Error(`${name} does not listen`);
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, HOST);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: HOST });
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}
