/** How `noria demo` is built: the configuration of each noria, and the store of its fleet. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { pause, systemClock } from '../core/clock.ts';
import { describeError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { Daemon } from '../daemon/daemon.ts';
import { openStoreClient } from '../fleet/redis/connection.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import { badUsage } from './terminal.ts';

export const DEFAULT_HOST = '127.0.0.1';
/** Browsers need the listener with a password: they send a user name only after a 407. */
export const PORTS = { proxy: 8888, admin: 8889, browser: 8890, target: 8080 };
export const DEMO_FLEET = 'demo';
const PORT_STEP = 10;

export type DemoSecrets = Readonly<Record<'password' | 'token', string>>;
export type PortFlags = Readonly<
  Partial<Record<'port' | 'adminPort' | 'targetPort' | 'browserPort', number>>
>;
type DemoReplica = Readonly<{ number: number; storePort: number | undefined }>;

export async function demoConfig(
  setup: {
    readonly flags: PortFlags & { readonly host: string; readonly members: number };
    readonly sandbox: Sandbox;
    readonly secrets: DemoSecrets | undefined;
  },
  replica: DemoReplica | undefined,
): Promise<Config> {
  const { flags, sandbox, secrets } = setup;
  const { host } = flags;
  const step = PORT_STEP * ((replica?.number ?? 1) - 1);
  const shifted = (port: number) => (port === 0 ? 0 : port + step);
  const found = (given: number | undefined, preferred: number) =>
    given === undefined ? freePort(host, shifted(preferred)) : shifted(given);
  const port = await found(flags.port, PORTS.proxy);
  const authPort = await found(flags.browserPort ?? (flags.port === 0 ? 0 : undefined), PORTS.browser);
  const adminPort = await found(flags.adminPort, PORTS.admin);
  const [http, socks] = split(flags.members);
  const sources = [
    sourceText('city', 'short-classic', http, sandbox),
    ...(socks === 0 ? [] : [sourceText('harbour', 'short-socks5', socks, sandbox)]),
  ];
  return parseConfig(
    `
service: { baseUrl: "${sandbox.url}" }
sources:
${sources.join('\n')}
pool:
  allowPrivateAddresses: true   # the members are on loopback
  idleAfter: 0                  # the members are free: the dashboard shows a full pool also without clients
listeners:
${listenersText((at) => formatHostPort(host, at), port, authPort, secrets)}
admin: { address: "${formatHostPort(host, adminPort)}"${secrets === undefined ? '' : ', token: "${NORIA_ADMIN_TOKEN}"'} }
state: off
${fleetText(replica)}
`,
    'demo.yaml',
    { env: { DEMO_PASSWORD: secrets?.password, NORIA_ADMIN_TOKEN: secrets?.token } },
  );
}

export function describeTakenPorts(
  { port, adminPort, targetPort, browserPort }: PortFlags,
  used: Pick<Daemon['addresses'], 'listeners' | 'admin'> & { readonly target: string },
  number = 1,
): string[] {
  const { listeners, admin, target } = used;
  const shift = PORT_STEP * (number - 1);
  const uses = [
    { what: 'proxy', given: port, preferred: PORTS.proxy + shift, address: listeners[0] },
    {
      what: 'proxy for browsers',
      given: browserPort ?? (port === 0 ? 0 : undefined),
      preferred: PORTS.browser + shift,
      address: listeners[1],
    },
    { what: 'dashboard', given: adminPort, preferred: PORTS.admin + shift, address: admin },
    { what: 'target site', given: targetPort, preferred: PORTS.target, address: target },
  ];
  return uses.flatMap(({ what, given, preferred, address }) => {
    const taken = address?.slice(address.lastIndexOf(':') + 1);
    return given !== undefined || taken === undefined || taken === String(preferred)
      ? []
      : [`Port ${preferred} is in use, so the ${what} uses port ${taken} instead.`];
  });
}

function fleetText(replica: DemoReplica | undefined): string {
  if (replica?.storePort === undefined) return '';
  const { number, storePort } = replica;
  return `fleet: { url: "redis://${DEFAULT_HOST}:${storePort}", name: ${DEMO_FLEET}, replica: ${replicaName(number)} }`;
}

export function replicaName(number: number): string {
  return `replica-${number}`;
}

function sourceText(
  name: string,
  product: 'short-classic' | 'short-socks5',
  size: number,
  sandbox: Sandbox,
): string {
  const { id, password } = sandbox.instance(product);
  return `  - { name: ${name}, product: ${product}, instance: "${id}", password: "${password}", params: { count: ${size} }, size: ${size} }`;
}

export function split(members: number): readonly [http: number, socks: number] {
  const socks = Math.floor(members / 2);
  return [members - socks, socks];
}

function listenersText(
  address: (port: number) => string,
  port: number,
  authPort: number,
  secrets: DemoSecrets | undefined,
): string {
  if (secrets !== undefined)
    return `  - { address: "${address(port)}", users: [{ username: me, password: "\${DEMO_PASSWORD}" }] }`;
  return [
    `  - { address: "${address(port)}", denyTargets: [smtp] }`,
    `  - { address: "${address(authPort)}", denyTargets: [smtp], users: [{ username: me, password: x }] }`,
  ].join('\n');
}

export function freePort(host: string, preferred: number): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(0)); // handled: the port is taken
    probe.listen(preferred, host, () => probe.close(() => resolve(preferred)));
  });
}

export interface DemoStore {
  readonly program: string;
  readonly port: number;
  readonly pid: number;
  close(): Promise<void>;
}

const HOST = '127.0.0.1';
const PROGRAMS = ['valkey-server', 'redis-server'];
const START_LIMIT_MS = 10_000;
const RETRY_MS = 50;

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

/** Undefined if it is not installed. Detached: Ctrl-C must not end it before the norias have ended. */
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
    throw badUsage(`--replicas: ${program} does not start: ${describeError(error)}`);
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
  throw badUsage(`--replicas: ${program} on port ${port} ${how}; run this program yourself to see why`);
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
