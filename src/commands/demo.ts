/**
 * `noria demo`: runs noria with an embedded sandbox of the extraction service, and prints commands to try. `noria
 * sandbox`: that sandbox alone.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { InvalidArgumentError } from 'commander';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { pause, systemBoot, systemClock } from '../core/clock.ts';
import { describeError, errnoOf } from '../core/faults.ts';
import { formatHostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import { isLocalAddress, localHostOf } from '../core/listen-address.ts';
import { createLog } from '../core/log.ts';
import type { LogLevel } from '../core/log-options.ts';
import { Ownership } from '../core/ownership.ts';
import { readVersion } from '../core/version.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { MemoryFleet } from '../fleet/memory-fleet.ts';
import { openStoreClient } from '../fleet/redis/connection.ts';
import { openSandbox, type Sandbox } from '../sandbox/sandbox.ts';
import { createTimekeeper } from '../state/moment.ts';
import { command, type Flag, fractionOption, integer, portOption, untilSignal } from './command.ts';
import { STORY_MEMBERS, tellStory } from './story.ts';
import { formatTable } from './table.ts';
import { badUsage, EXIT, type Terminal } from './terminal.ts';

const DEFAULT_HOST = '127.0.0.1';
const DEMO_FLEET = 'demo';
const MEMBERS = integer(1, 1_000, 20);
const FRACTION = { read: fractionOption, fallback: 0 };
const ANY_PORT = { read: portOption, fallback: 0 };
/** Only members resolve this name. So each answer shows that its request went through a member. */
const TARGET_NAME = 'target.example';
const SECRET_BYTES = 12;
const MAX_REPLICAS = 5;
const PORT_STEP = 10;
const LIFETIME_MS = [60_000, 180_000] as const;
/** No member expires during the story: that would change sessions and fault counts without a visible cause. */
const STORY_LIFETIME_MS = [600_000, 900_000] as const;

type PortFlags = Readonly<Partial<Record<'port' | 'browserPort' | 'adminPort' | 'targetPort', number>>>;
type DemoFlags = PortFlags &
  Readonly<Record<'replicas' | 'members' | 'dead' | 'slow', number>> & {
    readonly host: string;
    readonly story?: boolean;
  };
type DemoSecrets = Readonly<Record<'password' | 'token', string>>;

const PROXY = { flag: '--port', about: 'the proxy', what: 'proxy', preferred: 8888 };
/** Browsers need the listener with a password: they send a user name only after a 407. */
const BROWSER = {
  flag: '--browser-port',
  about: 'the second proxy, which asks for a user name as browsers need it',
  what: 'proxy for browsers',
  preferred: 8890,
};
const ADMIN = { flag: '--admin-port', about: 'the dashboard', what: 'dashboard', preferred: 8889 };
const TARGET = { flag: '--target-port', about: 'the target site', what: 'target site', preferred: 8080 };

export const demoCommand = command({
  name: 'demo',
  about: 'run the daemon on an embedded sandbox with real members and a target site; prints commands to try',
  flags: [
    [
      '--host <address>',
      'address to listen on, 0.0.0.0 in a container; if other machines can reach it, the demo requires a password and a token, which it prints',
      { read: hostOption, fallback: DEFAULT_HOST },
    ],
    ...[PROXY, BROWSER, ADMIN, TARGET].map(
      ({ flag, about, preferred }): Flag => [
        `${flag} <port>`,
        `port of ${about} (default: ${preferred}, or a free one if it is taken)`,
        { read: portOption },
      ],
    ),
    ['--story', 'demonstrate noria step by step, and say what to look at on the dashboard'],
    [
      '--replicas <count>',
      'number of norias in one fleet; its store is valkey-server or redis-server if one of them is installed',
      integer(1, MAX_REPLICAS, 1),
    ],
    ['--members <count>', 'size of the pool', MEMBERS],
    ['--dead <fraction>', 'fraction of members that are dead when drawn, 0 to 1', FRACTION],
    ['--slow <fraction>', 'fraction of members with a delay of 2 s, 0 to 1', FRACTION],
  ],
  examples: [
    'demo',
    'demo --story',
    'demo --replicas 3',
    'demo --members 40 --dead 0.2 --slow 0.1',
    'demo --port 9000 --admin-port 9001',
    'demo --host 0.0.0.0',
  ],
  help: 'With --host, NORIA_ADMIN_TOKEN sets the token.',
  run: ({ terminal, logLevel }, flags: DemoFlags) => demo(flags, terminal, logLevel()),
});

async function demo(flags: DemoFlags, terminal: Terminal, level: LogLevel | undefined): Promise<number> {
  if (flags.story && flags.members < STORY_MEMBERS)
    throw badUsage(`--story needs --members ${STORY_MEMBERS} or more`);
  const secrets = demoSecrets(flags, terminal);
  if (flags.story && secrets !== undefined) throw badUsage('--story works only on loopback: remove --host');
  const isFleet = flags.replicas > 1;
  if (isFleet && (flags.story || secrets !== undefined))
    throw badUsage('--replicas cannot be combined with --story or --host');
  // registered before the start: without a handler, a signal would end noria and leave the store running
  const signalled = untilSignal();
  const owner = new Ownership();
  let hasSucceeded = true;
  try {
    const sandbox = await owner.open('sandbox', openDemoSandbox(flags));
    const store = isFleet ? await openDemoStore() : undefined;
    if (store !== undefined) owner.own('store', () => store.close());
    const memory = isFleet && store === undefined ? openMemoryFleet() : undefined;
    const target = `http://${TARGET_NAME}:${sandbox.target.port}`;
    const daemons: Daemon[] = [];
    for (let number = 1; number <= flags.replicas; number += 1) {
      const name = replicaName(number);
      const config = await demoConfig(flags, sandbox, secrets, { number, storePort: store?.port });
      const usual = flags.story ? 'error' : config.log.level;
      const log = createLog({ level: level ?? usual, format: 'pretty', ...(isFleet && { replica: name }) });
      const joined = memory && { fleet: memory.connector(name) };
      const daemon = startDaemon({ config, log, testUrl: `${target}/ip`, ...joined });
      daemons.push(await owner.open(isFleet ? name : 'daemon', daemon));
    }
    const used = daemons.map(({ addresses }) => addresses);
    const taken = used.flatMap((each, at) => describeTakenPorts(flags, { ...each, target }, at + 1));
    for (const line of new Set(taken)) terminal.print(line);
    const [first] = daemons;
    if (flags.story && first !== undefined)
      hasSucceeded = await tellStory(first, sandbox, target, terminal, signalled);
    else {
      const { members } = flags;
      const lines = isFleet
        ? introduceFleet(used, target, members, store)
        : used.flatMap((each) => introduction(each, target, members, secrets));
      for (const line of lines) terminal.print(line);
      await signalled;
    }
  } finally {
    await owner.close();
  }
  // after the daemon has closed, so that these lines follow its log
  terminal.print('');
  terminal.print(
    'The demo has ended. To use your account, write a configuration (README.md shows one), then noria check and noria run.',
  );
  return hasSucceeded ? EXIT.fine : EXIT.failed;
}

function openMemoryFleet(): MemoryFleet {
  const timekeeper = createTimekeeper(systemClock, systemBoot());
  return new MemoryFleet(DEMO_FLEET, readVersion(), systemClock, timekeeper);
}

async function openDemoSandbox({ members, dead, slow, story, targetPort }: DemoFlags): Promise<Sandbox> {
  const [http, socks] = split(members);
  const lifetimeMs = story === true ? STORY_LIFETIME_MS : LIFETIME_MS;
  const shared = { lifetimeMs, dead, slow, singlePullLimit: Math.max(1, members) };
  // The service has twice as many proxies as the pool, so that later draws bring new members.
  return openSandbox({
    targetPort: targetPort ?? (await freePort(DEFAULT_HOST, TARGET.preferred)),
    instances: [
      { product: 'short-classic', members: http * 2, ...shared },
      { product: 'short-socks5', members: Math.max(1, socks) * 2, ...shared },
    ],
  });
}

function demoSecrets({ host }: DemoFlags, { env }: Terminal): DemoSecrets | undefined {
  if (isLocalAddress({ kind: 'tcp', host, port: 0 })) return undefined;
  const random = () => randomBytes(SECRET_BYTES).toString('base64url');
  return { password: random(), token: env['NORIA_ADMIN_TOKEN'] || random() };
}

async function demoConfig(
  flags: DemoFlags,
  sandbox: Sandbox,
  secrets: DemoSecrets | undefined,
  { number, storePort }: Readonly<{ number: number; storePort: number | undefined }>,
): Promise<Config> {
  const { host, port } = flags;
  const step = PORT_STEP * (number - 1);
  const shifted = (wanted: number) => (wanted === 0 ? 0 : wanted + step);
  const found = (given: number | undefined, { preferred }: typeof PROXY) =>
    given === undefined ? freePort(host, shifted(preferred)) : shifted(given);
  const [http, socks] = split(flags.members);
  const source = (name: string, product: 'short-classic' | 'short-socks5', size: number) => {
    const { id, password } = sandbox.instance(product);
    return `  - { name: ${name}, product: ${product}, instance: "${id}", password: "${password}", params: { count: ${size} }, size: ${size} }`;
  };
  const sources = [source('city', 'short-classic', http)];
  if (socks > 0) sources.push(source('harbour', 'short-socks5', socks));
  const proxy = formatHostPort(host, await found(port, PROXY));
  const browser = formatHostPort(host, await found(browserPortOf(flags), BROWSER));
  const admin = formatHostPort(host, await found(flags.adminPort, ADMIN));
  const listeners =
    secrets === undefined
      ? `  - { address: "${proxy}", denyTargets: [smtp] }
  - { address: "${browser}", denyTargets: [smtp], users: [{ username: me, password: x }] }`
      : `  - { address: "${proxy}", users: [{ username: me, password: "\${DEMO_PASSWORD}" }] }`;
  const fleet = `{ url: "redis://${DEFAULT_HOST}:${storePort}", name: ${DEMO_FLEET}, replica: ${replicaName(number)} }`;
  return parseConfig(
    `
service: { baseUrl: "${sandbox.url}" }
sources:
${sources.join('\n')}
pool:
  allowPrivateAddresses: true   # the members are on loopback
  idleAfter: 0                  # the members are free: the dashboard shows a full pool also without clients
listeners:
${listeners}
admin: { address: "${admin}"${secrets === undefined ? '' : ', token: "${NORIA_ADMIN_TOKEN}"'} }
state: off
${storePort === undefined ? '' : `fleet: ${fleet}`}
`,
    'demo.yaml',
    { env: { DEMO_PASSWORD: secrets?.password, NORIA_ADMIN_TOKEN: secrets?.token } },
  );
}

function browserPortOf({ port, browserPort }: PortFlags): number | undefined {
  return browserPort ?? (port === 0 ? 0 : undefined);
}

function replicaName(number: number): string {
  return `replica-${number}`;
}

export function describeTakenPorts(
  flags: PortFlags,
  { listeners, admin, target }: Omit<Daemon['addresses'], 'proxyPool'> & { readonly target: string },
  number = 1,
): string[] {
  const step = PORT_STEP * (number - 1);
  const uses = [
    { ...PROXY, step, given: flags.port, address: listeners[0] },
    { ...BROWSER, step, given: browserPortOf(flags), address: listeners[1] },
    { ...ADMIN, step, given: flags.adminPort, address: admin },
    { ...TARGET, step: 0, given: flags.targetPort, address: target },
  ];
  return uses.flatMap(({ what, preferred, step, given, address }) => {
    const taken = address?.slice(address.lastIndexOf(':') + 1);
    const wanted = preferred + step;
    return given !== undefined || taken === undefined || taken === String(wanted)
      ? []
      : [`Port ${wanted} is in use, so the ${what} uses port ${taken} instead.`];
  });
}

function split(members: number): readonly [http: number, socks: number] {
  const socks = Math.floor(members / 2);
  return [members - socks, socks];
}

function freePort(host: string, preferred: number): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(0)); // handled: the port is taken
    probe.listen(preferred, host, () => probe.close(() => resolve(preferred)));
  });
}

function introduction(
  { listeners, admin = '' }: Daemon['addresses'],
  target: string,
  members: number,
  secrets: DemoSecrets | undefined,
): string[] {
  const proxy = reachable(listeners[0] ?? '');
  const password = secrets?.password ?? 'x';
  const rotating = `http://${secrets === undefined ? '' : `me:${password}@`}${proxy}`;
  const python = `import urllib.request as u; print(u.build_opener(u.ProxyHandler({'http': '${rotating}'})).open('${target}/ip').read().decode())`;
  return [
    '',
    `noria demo: a rotating proxy on ${proxy} (HTTP, SOCKS5, SOCKS4) with ${members} members`,
    `  target     ${target}/ip  answers with the exit address; only members resolve its name`,
    `  dashboard  http://${reachable(admin)}/${secrets === undefined ? '' : `  token ${secrets.token}`}`,
    '',
    'Try these commands in another terminal. Each request uses another exit IP:',
    '',
    `  curl -x ${rotating} ${target}/ip`,
    `  curl -x ${rotating.replace('http:', 'socks5h:')} ${target}/ip`,
    `  python3 -c "${python}"`,
    '',
    'A session keeps one member:',
    '',
    `  curl -x http://me-session-one:${password}@${proxy} ${target}/ip`,
    '',
    secrets === undefined
      ? `Browsers send a user name only after a 407. So in a browser, use ${listeners[1] ?? ''} with user me, password x (docs/clients.md).`
      : `The demo listens on ${listeners[0] ?? ''}: other machines can use it with this password until the demo ends.`,
    'Stop the demo with Ctrl-C. Its log:',
    '',
  ];
}

function introduceFleet(
  norias: readonly Daemon['addresses'][],
  target: string,
  members: number,
  store: DemoStore | undefined,
): string[] {
  const proxies = norias.map(({ listeners }) => listeners[0] ?? '');
  return [
    '',
    `noria demo: ${norias.length} norias in one fleet with ${members} members, ${store === undefined ? 'in memory' : `through ${store.program} on port ${store.port}`}`,
    ...norias.map(
      ({ admin = '' }, index) =>
        `  replica ${index + 1}  proxy ${proxies[index]}  dashboard  http://${admin}/`,
    ),
    `  target     ${target}/ip  answers with the exit address; only members resolve its name`,
    '',
    'Try these commands in another terminal. A session has the same exit IP through every replica:',
    '',
    ...proxies.map((proxy) => `  curl -x http://me-session-one:x@${proxy} ${target}/ip`),
    '',
    'Without a session, each replica rotates through the members of all replicas:',
    '',
    ...proxies.map((proxy) => `  curl -x http://${proxy} ${target}/ip`),
    '',
    'All members are on every dashboard, whichever replica drew them.',
    ...aboutStore(store),
    '',
    'Stop the demo with Ctrl-C. Its log:',
    '',
  ];
}

function aboutStore(store: DemoStore | undefined): string[] {
  if (store === undefined)
    return [
      'Neither valkey-server nor redis-server is in the search path, so the norias share their pool in the memory of this process.',
      'With one of these programs installed, the demo shows how a fleet works through a store.',
    ];
  const { pid } = store;
  return [
    'noria also serves clients while the store hangs. Stop the store, then let it continue:',
    '',
    `  kill -STOP ${pid}`,
    `  kill -CONT ${pid}`,
  ];
}

function reachable(address: string): string {
  const parsed = parseHostPort(address);
  return parsed === undefined ? address : formatHostPort(localHostOf(parsed.host), parsed.port);
}

function hostOption(text: string): string {
  const host = hostPort(text.replace(/^\[(.*)\]$/, '$1'), 1)?.host;
  if (host !== undefined) return host;
  throw new InvalidArgumentError('Expected an address without a port, for example 0.0.0.0.');
}

export interface DemoStore {
  readonly program: string;
  readonly port: number;
  readonly pid: number;
  close(): Promise<void>;
}

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
  const listening = ['--port', String(port), '--bind', DEFAULT_HOST, '--dir', folder];
  const keeping = ['--save', '', '--appendonly', 'yes', '--maxmemory-policy', 'noeviction'];
  const child = spawn(program, [...listening, ...keeping], { stdio: 'ignore', detached: true });
  try {
    await once(child, 'spawn');
    return child;
  } catch (error) {
    // EACCES: no folder of the search path has it, and one of them is closed to this user
    if (/^(ENOENT|EACCES)$/.test(errnoOf(error) ?? '')) return undefined;
    throw badUsage(`--replicas: ${program} does not start: ${describeError(error)}`);
  }
}

async function untilAccepting(child: ChildProcess, program: string, port: number): Promise<void> {
  const server = { host: DEFAULT_HOST, port, login: {}, tls: undefined, database: 0 };
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
  probe.listen(0, DEFAULT_HOST);
  await once(probe, 'listening');
  const address = probe.address();
  probe.close();
  await once(probe, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

type SandboxFlags = Readonly<
  Record<'port' | 'extractPort' | 'targetPort' | 'members' | 'dead' | 'slow', number>
> & { readonly repeats: boolean; readonly pace?: number; readonly scenario?: string };

export const sandboxCommand = command({
  name: 'sandbox',
  about:
    'run the sandbox of the extraction service: all ten operations, links of other vendors, real members on loopback, a target site',
  flags: [
    ['--port <port>', 'port of the service; 0 takes a free port', ANY_PORT],
    ['--extract-port <port>', 'port of the extraction server for short-pure; 0 takes a free port', ANY_PORT],
    ['--target-port <port>', 'port of the target site; 0 takes a free port', ANY_PORT],
    ['--members <count>', 'number of proxies that exist at a time for each instance', MEMBERS],
    ['--no-repeats', 'every call gets new proxies, whatever --members says'],
    ['--dead <fraction>', 'fraction of proxies that are dead when drawn, 0 to 1', FRACTION],
    ['--slow <fraction>', 'fraction of proxies with a delay of 2 s, 0 to 1', FRACTION],
    [
      '--pace <ms>',
      'minimum time in ms between two calls (default: the minimum of each operation)',
      integer(0, 600_000),
    ],
    ['--scenario <file>', 'a YAML or JSON file that says what fails, and when'],
  ],
  examples: ['sandbox --port 9090', 'sandbox --dead 0.2 --pace 1000', 'sandbox --scenario scenario.yaml'],
  help: 'docs/sandbox.md explains how to make the sandbox answer with any code.',
  run: async ({ terminal }, { pace, ...flags }: SandboxFlags) => {
    const signalled = untilSignal();
    const sandbox = await openSandbox({ ...flags, ...(pace === undefined ? {} : { paceMs: pace }) });
    try {
      for (const line of describeSandbox(sandbox)) terminal.print(line);
      await signalled;
    } finally {
      await sandbox.close();
    }
  },
});

function describeSandbox(sandbox: Sandbox): string[] {
  return [
    `sandbox of the extraction service: ${sandbox.url}`,
    `  target   ${sandbox.targetUrl}/ip  answers with the client's exit address`,
    `  control  ${sandbox.url}/_control/  lists calls and sets faults`,
    `  account  ${sandbox.account.username}, password ${sandbox.account.password}  (for the command "noria instances")`,
    '',
    ...formatTable(sandbox.instances, [
      { title: 'PRODUCT', cell: ({ product }) => product },
      { title: 'INSTANCE', cell: ({ id }) => id },
      { title: 'PASSWORD', cell: ({ password }) => password },
      { title: 'KEY', cell: ({ akey }) => akey },
      { title: 'BASE URL', cell: ({ baseUrl }) => baseUrl },
    ]),
    '',
    'Extraction links of other vendors:',
    ...sandbox.links.map(({ url }) => `  ${url}`),
    '',
    'The passwords are public. A configuration that uses the sandbox needs pool.allowPrivateAddresses: true. Stop the sandbox with Ctrl-C.',
  ];
}
