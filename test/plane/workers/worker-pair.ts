/**
 * A noria with two workers. A test chooses which worker accepts a connection: it stops the other one (SIGSTOP) during
 * that time.
 */
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished } from 'vitest';
import type { Clock } from '../../../src/core/clock.ts';
import {
  NO_HEDGE,
  type Noria,
  type NoriaOptions,
  openTestSandbox,
  sourceLine,
  startNoria,
  untilReady,
} from '../../support/noria.ts';
import { until } from '../../support/until.ts';

/** The pids of the workers of this process. */
export function workersOf(parent: number | undefined): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      const [, ppid] = /\) \S (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
      return (
        Number(ppid) === parent &&
        readFileSync(`/proc/${pid}/cmdline`, 'utf8').match(/\/worker(\.|\0|$)/) !== null // without a suffix in the single executable
      );
    } catch {
      return false; // ignored: the process ended while the list was read
    }
  });
}

/** The open sockets of a process. */
function socketsOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/${pid}/fd/${fd}`);
      return target.startsWith('socket:') ? [target] : [];
    } catch {
      return []; // ignored: the socket closed while the list was read
    }
  });
}

/** Whether a process has accepted this connection. A worker opens other sockets meanwhile, such as warm connections to members. */
export function hasAccepted(pid: number, { localPort = 0, remotePort = 0 }: Socket): boolean {
  const [local, remote] = [remotePort, localPort].map(
    (port) => `:${port.toString(16).padStart(4, '0').toUpperCase()} `,
  );
  const row = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .find((line) => line.includes(`${local}0100007F${remote}`));
  const inode = row?.trim().split(/\s+/)[9] ?? '0'; // 0 while no process has accepted the connection
  return socketsOf(pid).includes(`socket:[${inode}]`);
}

export const isStopped = (pid: number) => / \(.*\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

/** Calls `run` while only this worker can accept connections, because the others are stopped. */
export async function whileAlone<T>(
  worker: number,
  workers: readonly number[],
  run: () => Promise<T>,
): Promise<T> {
  const others = workers.filter((pid) => pid !== worker);
  for (const pid of others) process.kill(pid, 'SIGSTOP');
  try {
    await until('the other workers are stopped', () => others.every(isStopped));
    return await run();
  } finally {
    for (const pid of others) process.kill(pid, 'SIGCONT');
  }
}

/** A connection to a proxy at `host:port`. */
export async function connectTo(proxy: string): Promise<Socket> {
  const socket = connect(Number(proxy.split(':')[1]), '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {}); // ignored: the test resets the connection, or its worker exits
  await once(socket, 'connect');
  return socket;
}

export const basic = (user: string, password = 'x') =>
  `Proxy-Authorization: Basic ${Buffer.from(`${user}:${password}`).toString('base64')}\r\n`;

export async function ask(socket: Socket, request: string): Promise<string> {
  socket.write(request);
  const [answer] = await once(socket, 'data');
  return String(answer);
}

export const openTunnel = (socket: Socket, target: string, headers = '') =>
  ask(socket, `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${headers}\r\n`);

export const getIp = (socket: Socket) => ask(socket, 'GET /ip HTTP/1.1\r\nHost: target\r\n\r\n');

export interface Pair {
  readonly noria: Noria;
  readonly options: NoriaOptions;
  readonly workers: readonly [number, number];
  /** The `host:port` of a target that members reach. */
  readonly target: string;
  /** Opens a connection that this worker of `all` accepts. */
  connectToWorker(worker: number, all: readonly number[]): Promise<Socket>;
  /** Opens a connection that the first or the second worker accepts. */
  through(worker: 0 | 1): Promise<Socket>;
}

export async function startPair(more: Partial<NoriaOptions> = {}, clock?: Clock): Promise<Pair> {
  const before = workersOf(process.pid);
  const sandbox = await openTestSandbox({ members: 8, lifetimeMs: 600_000 });
  const options: NoriaOptions = {
    sources: [sourceLine(sandbox, 'pure', 'short-pure', 'size: 4, params: { count: 4 }')],
    more: `workers: 2\ndial: { ${NO_HEDGE} }`,
    ...more,
  };
  const noria = await startNoria(options, clock);
  await untilReady(noria, 4);
  const workers = workersOf(process.pid).filter((pid) => !before.includes(pid));
  const [first = 0, second = 0] = workers;
  expect(workers).toEqual([first, second]);
  const connectToWorker = (worker: number, all: readonly number[]) =>
    whileAlone(worker, all, async () => {
      const socket = await connectTo(noria.proxy);
      await until('the worker has accepted it', () => hasAccepted(worker, socket));
      return socket;
    });
  return {
    noria,
    options,
    workers: [first, second],
    target: new URL(sandbox.targetUrl).host,
    connectToWorker,
    through: (worker) => connectToWorker(worker === 0 ? first : second, workers),
  };
}

export const lines = ({ lines }: Noria, message: string) =>
  lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === message);

/** Until `count` workers were lost. That fewer run may be over before a busy machine looks. */
export const untilLost = (noria: Noria, count = 1) =>
  until('noria has lost the workers', () => lines(noria, LOST).length === count);

export const LOST = 'worker lost with its connections; starting another';

export async function untilStatus(
  { control }: Noria,
  holds: (status: ReturnType<Noria['control']['status']>) => boolean,
) {
  await until('the status says so', () => holds(control.status()));
  return control.status();
}
