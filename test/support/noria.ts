import { onTestFinished } from 'vitest';
import type { Config } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { createLog } from '../../src/core/log.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { openSandbox, type Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.ts';
import { until } from './until.ts';

export interface Noria extends Pick<Daemon, keyof Daemon> {
  /** `127.0.0.1:PORT` of the first listener. */
  readonly proxy: string;
  /** Base address of the admin API. */
  readonly admin: string;
  /** Every log line so far. */
  readonly lines: readonly string[];
}

/** A sandbox that closes with the test. */
export async function openTestSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const sandbox = await openSandbox(options);
  onTestFinished(() => sandbox.close());
  return sandbox;
}

/**
 * Returns the YAML of a source. `more`: further keys. `id`: the id of the instance; default: the first instance of the product.
 */
export function sourceLine(
  sandbox: Sandbox,
  name: string,
  product: Parameters<Sandbox['instance']>[0],
  more = '',
  id = sandbox.instance(product).id,
): string {
  const instance = sandbox.instances.find((known) => known.id === id);
  if (instance === undefined) throw new TypeError(`the sandbox has no instance ${id}`);
  const { password, baseUrl } = instance;
  return `  - { name: ${name}, product: ${product}, baseUrl: "${baseUrl}", instance: "${id}", password: "${password}"${more === '' ? '' : `, ${more}`} }`;
}

/** The option that switches hedging off, so that a slow moment of a busy machine does not change the exit of a session. */
export const NO_HEDGE = 'hedgeAfter: off';

/** The number of worker processes of each noria in this run of the tests. */
const WORKERS = Number(process.env['NORIA_TEST_WORKERS'] ?? 1);

/** The line of the configuration that sets the number of workers; empty for one worker, which is the default. */
export const WORKERS_LINE = WORKERS === 1 ? '' : `workers: ${WORKERS}`;

export interface NoriaOptions {
  /** The lines below `sources:`. */
  readonly sources: readonly string[];
  /** Further sections of the configuration, as YAML. */
  readonly more?: string;
  readonly pool?: string;
  /** Whether noria uses members at private addresses, such as the members of the sandbox. Default true. */
  readonly allowPrivate?: boolean;
  readonly listeners?: string;
  /** Further keys of the default listener. */
  readonly listener?: string;
  readonly logLevel?: 'debug' | 'info';
  /**
   * How long open tunnels may take to finish while noria closes. Default `1s`. A test that uses tunnels during this time needs a
   * longer value.
   */
  readonly drain?: string;
}

/** Most tests need a full pool, so `fill` is `size` unless the test sets it. */
function poolLine(pool: string): string {
  return /\bfill:/.test(pool) ? pool : `${pool}, fill: size`;
}

/** The configuration that `startNoria` starts with. */
export function testConfig(options: NoriaOptions): Config {
  const text = [
    'sources:',
    ...options.sources,
    `pool: { allowPrivateAddresses: ${options.allowPrivate ?? true}, ${poolLine(options.pool ?? 'safetyMargin: 200ms, minRemaining: 0s')} }`,
    options.listeners ??
      `listeners: [{ address: "127.0.0.1:0", denyTargets: [] ${options.listener === undefined ? '' : `, ${options.listener}`} }]`,
    'admin: { address: "127.0.0.1:0" }',
    `shutdown: { drainTimeout: ${options.drain ?? '1s'} }`,
    /^state:/m.test(options.more ?? '') ? '' : 'state: off',
    options.more ?? '',
    /^workers:/m.test(options.more ?? '') ? '' : WORKERS_LINE,
  ].join('\n');
  return parseConfig(text, 'test.yaml', { env: {} });
}

/** Starts a whole noria on free ports and closes it with the test. It keeps its log lines instead of printing them. */
export async function startNoria(options: NoriaOptions, clock: Clock = systemClock): Promise<Noria> {
  return startDaemonWith(testConfig(options), clock, options.logLevel);
}

/** Like `startNoria`, with a whole configuration. */
export async function startDaemonWith(
  config: Config,
  clock: Clock = systemClock,
  level: NoriaOptions['logLevel'] = 'debug',
): Promise<Noria> {
  const lines: string[] = [];
  const log = createLog({
    level,
    format: 'json',
    destination: { write: (line) => void lines.push(line) },
  });
  const daemon = await startDaemon({ config, log, clock });
  onTestFinished(() => daemon.close());
  return {
    bus: daemon.bus,
    control: daemon.control,
    failed: daemon.failed,
    config: daemon.config,
    startConfig: daemon.startConfig,
    get cutConnections() {
      return daemon.cutConnections;
    },
    addresses: daemon.addresses,
    reload: (config) => daemon.reload(config),
    close: () => daemon.close(),
    lines,
    proxy: daemon.addresses.listeners[0] ?? '',
    admin: `http://${daemon.addresses.admin}`,
  };
}

/** After this number of checks that found the source idle, `untilReady` requests a draw. The checks take at least a second. */
const LOOKS_AT_IDLE = 200;

/**
 * Waits until this many members are usable. Without a client, noria draws only once. On a busy machine that draw may fail, or its
 * members may expire. So this function then requests another draw, as an operator does.
 */
export function untilReady({ control }: Pick<Daemon, 'control'>, count: number): Promise<void> {
  const what = () => {
    const { pool, sources } = control.status();
    return `${count} members are ready; the status is ${JSON.stringify({ pool, sources })}`;
  };
  let looks = 0;
  return until(what, () => {
    const { pool, sources } = control.status();
    if (pool.ready >= count) return true;
    const idle = sources.filter(({ state }) => state === 'idle');
    looks = idle.length === 0 ? 0 : looks + 1;
    if (looks % LOOKS_AT_IDLE === LOOKS_AT_IDLE - 1) {
      for (const { name } of idle) control.refillSource(name);
    }
    return false;
  });
}
