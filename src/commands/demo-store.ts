/**
 * The store of `noria demo --replicas`: a Valkey or Redis server on a free loopback port. It runs as long as the demo.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pause, systemClock } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { openStoreClient } from '../fleet/redis/store-client.ts';

export interface DemoStore {
  readonly program: string;
  readonly port: number;
  readonly pid: number;
  /** Ends the server and removes its data. */
  close(): Promise<void>;
}

const HOST = '127.0.0.1';
/** The programs to try, in this order. The demo uses the first one in the search path. */
const PROGRAMS = ['valkey-server', 'redis-server'];
const START_LIMIT_MS = 10_000;
const RETRY_MS = 50;

/**
 * Starts the server. Returns undefined if neither Valkey nor Redis is installed.
 *
 * @throws NoriaError bad-usage if the program does not start.
 */
export async function openDemoStore(): Promise<DemoStore | undefined> {
  const port = await unusedPort();
  for (const program of PROGRAMS) {
    const folder = await mkdtemp(join(tmpdir(), 'noria-demo-'));
    const child = await start(program, port, folder);
    const close = async () => {
      if (child !== undefined) await end(child);
      await rm(folder, { recursive: true, force: true });
    };
    try {
      if (child?.pid === undefined) {
        await close();
        continue;
      }
      await untilAccepting(child, program, port);
      return { program, port, pid: child.pid, close };
    } catch (error) {
      await close();
      throw error;
    }
  }
  return undefined;
}

/**
 * Starts the program. Returns undefined if it is not installed. The process is detached: Ctrl-C in the terminal must
 * not end it before the norias have ended.
 */
async function start(program: string, port: number, folder: string): Promise<ChildProcess | undefined> {
  const listening = ['--port', String(port), '--bind', HOST, '--dir', folder];
  const keeping = ['--save', '', '--appendonly', 'yes', '--maxmemory-policy', 'noeviction'];
  const child = spawn(program, [...listening, ...keeping], { stdio: 'ignore', detached: true });
  try {
    await once(child, 'spawn');
    return child;
  } catch (error) {
    // EACCES: no folder of the search path has it, and one of them is closed to this user
    if (error instanceof Error && 'code' in error && /^(ENOENT|EACCES)$/.test(String(error.code)))
      return undefined;
    throw new NoriaError('bad-usage', `--replicas: ${program} does not start: ${describeError(error)}`);
  }
}

async function untilAccepting(child: ChildProcess, program: string, port: number): Promise<void> {
  const server = { host: HOST, port, login: {}, tls: undefined, database: 0 };
  const { signal } = new AbortController();
  const startedAt = systemClock.monotonic();
  while (child.exitCode === null && systemClock.monotonic() - startedAt < START_LIMIT_MS) {
    try {
      const options = { clock: systemClock, deadlineMs: START_LIMIT_MS, signal };
      const client = await openStoreClient(server, options);
      client.close();
      return;
    } catch {
      await pause(systemClock, RETRY_MS); // handled: the server does not answer yet, so noria tries again
    }
  }
  const how = child.exitCode === null ? `does not accept connections` : `ended with code ${child.exitCode}`;
  throw new NoriaError(
    'bad-usage',
    `--replicas: ${program} on port ${port} ${how}; run this program yourself to see why`,
  );
}

/** Ends the server. SIGKILL also ends a process that SIGSTOP has stopped; the server's data is no longer needed. */
async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

async function unusedPort(): Promise<number> {
  const probe = createServer();
  probe.listen(0, HOST);
  await once(probe, 'listening');
  const address = probe.address();
  probe.close();
  await once(probe, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}
