/** A real redis-server (or valkey-server) for a test. It has its own port and folder, and is killed with the test. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import type { StoreAddress } from '../../src/fleet/redis/connection.ts';
import { openStoreClient, type Reply, type StoreClient } from '../../src/fleet/redis/connection.ts';
import { freePort } from './free-port.ts';
import { hasCommand } from './tools.ts';
import { until } from './until.ts';

/** The program of the store; undefined if none is installed. `NORIA_TEST_STORE` can name another program. */
export const STORE_PROGRAM = [process.env['NORIA_TEST_STORE'], 'redis-server', 'valkey-server'].find(
  (name) => name !== undefined && hasCommand(name),
);

/** Whether no store is installed: the condition for `test.skipIf`. */
export const NO_STORE = STORE_PROGRAM === undefined;

/** Whether the store was built with TLS. If so, it answers this value with the list of the right ones. */
export function storeHasTls(): boolean {
  if (STORE_PROGRAM === undefined) return false;
  const args = ['--port', '0', '--tls-auth-clients', '?'];
  return spawnSync(STORE_PROGRAM, args, { encoding: 'utf8' }).stderr.includes('one of the following');
}

export interface StoreServerOptions {
  /** Further arguments, such as `--appendonly yes`. */
  readonly args?: readonly string[];
  readonly password?: string;
  readonly port?: number;
  /** Whether to start a Sentinel. */
  readonly sentinel?: boolean;
}

export class TestStore {
  readonly port: number;
  readonly folder: string;
  readonly #args: readonly string[];
  readonly #password: string | undefined;
  readonly #isSentinel: boolean;
  #child: ChildProcess | undefined;

  constructor(port: number, { args = [], password, sentinel = false }: StoreServerOptions) {
    this.port = port;
    this.folder = mkdtempSync(join(tmpdir(), 'noria-store-'));
    this.#args = args;
    this.#isSentinel = sentinel;
    this.#password = password;
  }

  get url(): string {
    const login = this.#password === undefined ? '' : `:${this.#password}@`;
    return `redis://${login}127.0.0.1:${this.port}`;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new TypeError('the store does not run');
    return pid;
  }

  /** @param port - the port of a proxy in front of the store; default: the store's own. */
  address(port = this.port): StoreAddress {
    const login = this.#password === undefined ? {} : { password: new Secret(this.#password) };
    const server = { host: '127.0.0.1', port, login, tls: undefined, database: 0 };
    return { label: `127.0.0.1:${port}`, server };
  }

  /** Starts the store and waits until it answers. It has its previous data unless `empty` is true. */
  async start({ empty = false } = {}): Promise<void> {
    if (empty) {
      rmSync(this.folder, { recursive: true, force: true });
      mkdirSync(this.folder);
    }
    if (STORE_PROGRAM === undefined) throw new TypeError('this machine has no redis-server');
    const login = this.#password === undefined ? [] : ['--requirepass', this.#password];
    const place = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.folder];
    const args = this.#isSentinel
      ? this.#sentinelArguments()
      : [...place, '--save', '', ...login, ...this.#args];
    const child = spawn(STORE_PROGRAM, args, { stdio: ['ignore', 'pipe', 'ignore'] });
    this.#child = child;
    let log = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (log = (log + chunk).slice(-2_000)));
    await until('the store accepts connections', async () => {
      if (child.exitCode !== null)
        throw new Error(`the store ended with exit code ${child.exitCode}: ${log}`);
      return accepts(this.port);
    });
    await until('the store has loaded its data', () => this.command('PING').then(isPong, () => false));
  }

  /** A Sentinel keeps its state in its configuration. */
  #sentinelArguments(): string[] {
    const file = join(this.folder, 'sentinel.conf');
    writeFileSync(file, `port ${this.port}\nbind 127.0.0.1\ndir ${this.folder}\n`);
    return [file, '--sentinel'];
  }

  /** Runs one command over a separate connection. */
  async command(...command: readonly string[]): Promise<Reply> {
    const client = await this.client();
    try {
      return await client.call(command, LIMIT_MS);
    } finally {
      client.close();
    }
  }

  client(): Promise<StoreClient> {
    const { signal } = new AbortController();
    return openStoreClient(this.address().server, { clock: systemClock, deadlineMs: LIMIT_MS, signal });
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.pid, signal);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGCONT');
    child.kill('SIGKILL');
    await ended;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

const LIMIT_MS = 60_000;

/** Starts a store that ends with the test. */
export async function openStore(options: StoreServerOptions = {}): Promise<TestStore> {
  const store = new TestStore(options.port ?? (await freePort()), options);
  onTestFinished(() => store.close());
  await store.start();
  return store;
}

function isPong(reply: Reply): boolean {
  return reply === 'PONG';
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false; // handled: the store does not answer yet, so the loop tries again
  } finally {
    socket.destroy();
  }
}
