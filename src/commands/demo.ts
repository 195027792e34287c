/** `noria demo`: runs noria with an embedded sandbox of the extraction service, and prints commands to try. */
import { randomBytes } from 'node:crypto';
import { InvalidArgumentError } from 'commander';
import { pause, systemBoot, systemClock } from '../core/clock.ts';
import { formatHostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import { isLocalAddress, localHostOf } from '../core/listen-address.ts';
import { createLog } from '../core/log.ts';
import type { LogLevel } from '../core/log-options.ts';
import { Ownership } from '../core/ownership.ts';
import { readVersion } from '../core/version.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { MemoryFleet } from '../fleet/memory-fleet.ts';
import { openSandbox, type Sandbox } from '../sandbox/sandbox.ts';
import { createTimekeeper } from '../state/moment.ts';
import { command, type Flag, fractionOption, integer, portOption, untilSignal } from './command.ts';
import {
  DEFAULT_HOST,
  DEMO_FLEET,
  type DemoSecrets,
  type DemoStore,
  demoConfig,
  describeTakenPorts,
  freePort,
  openDemoStore,
  PORTS,
  type PortFlags,
  replicaName,
  split,
} from './demo-setup.ts';
import { STORY_MEMBERS, tellStory } from './story.ts';
import { formatTable } from './table.ts';
import { badUsage, EXIT, type Terminal } from './terminal.ts';

const MEMBERS = integer(1, 1_000, 20);
const FRACTION = { read: fractionOption, fallback: 0 };
const ANY_PORT = { read: portOption, fallback: 0 };
/** Only members resolve this name. So each answer shows that its request went through a member. */
const TARGET_NAME = 'target.example';
const STORY_PAUSE_MS = 4_000;
const SECRET_BYTES = 12;
const MAX_REPLICAS = 5;
const LIFETIME_MS = [60_000, 180_000] as const;
/** No member expires during the story: that would change sessions and fault counts without a visible cause. */
const STORY_LIFETIME_MS = [600_000, 900_000] as const;

interface DemoFlags extends PortFlags {
  readonly host: string;
  readonly story?: boolean;
  readonly replicas: number;
  readonly members: number;
  readonly dead: number;
  readonly slow: number;
}

export const demoCommand = command({
  name: 'demo',
  about: 'run the daemon on an embedded sandbox with real members and a target site; prints commands to try',
  flags: [
    [
      '--host <address>',
      'address to listen on, 0.0.0.0 in a container; if other machines can reach it, the demo requires a password and a token, which it prints',
      { read: hostOption, fallback: DEFAULT_HOST },
    ],
    portFlag('--port', 'the proxy', PORTS.proxy),
    portFlag(
      '--browser-port',
      'the second proxy, which asks for a user name as browsers need it',
      PORTS.browser,
    ),
    portFlag('--admin-port', 'the dashboard', PORTS.admin),
    portFlag('--target-port', 'the target site', PORTS.target),
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

function portFlag(name: string, what: string, preferred: number): Flag {
  return [
    `${name} <port>`,
    `port of ${what} (default: ${preferred}, or a free one if it is taken)`,
    { read: portOption },
  ];
}

async function demo(flags: DemoFlags, terminal: Terminal, level: LogLevel | undefined): Promise<number> {
  if (flags.story && flags.members < STORY_MEMBERS)
    throw badUsage(`--story needs --members ${STORY_MEMBERS} or more`);
  const secrets = demoSecrets(flags, terminal);
  if (flags.story && secrets !== undefined) throw badUsage('--story works only on loopback: remove --host');
  if (flags.replicas > 1 && (flags.story || secrets !== undefined))
    throw badUsage('--replicas cannot be combined with --story or --host');
  // registered before the start: without a handler, a signal would end noria and leave the store running
  const signalled = untilSignal();
  const owner = new Ownership();
  let exitCode: number;
  try {
    const sandbox = await owner.open('sandbox', openDemoSandbox(flags));
    const context = { flags, sandbox, terminal, level, owner, signalled };
    exitCode = await (flags.replicas > 1 ? demoFleet(context) : demoNoria(context, secrets));
  } finally {
    await owner.close();
  }
  // after the daemon has closed, so that these lines follow its log
  terminal.print('');
  terminal.print(
    'The demo has ended. To use your account, write a configuration (README.md shows one), then noria check and noria run.',
  );
  return exitCode;
}

interface DemoContext {
  readonly flags: DemoFlags;
  readonly sandbox: Sandbox;
  readonly terminal: Terminal;
  readonly level: LogLevel | undefined;
  readonly owner: Ownership;
  readonly signalled: Promise<unknown>;
}

async function demoNoria(
  { flags, sandbox, terminal, level, owner, signalled }: DemoContext,
  secrets: DemoSecrets | undefined,
): Promise<number> {
  const target = targetOf(sandbox);
  const config = await demoConfig({ flags, sandbox, secrets }, undefined);
  const log = createLog({ level: level ?? (flags.story ? 'error' : config.log.level), format: 'pretty' });
  const daemon = await owner.open('daemon', startDaemon({ config, log, testUrl: `${target}/ip` }));
  const addresses = { ...daemon.addresses, target };
  for (const line of describeTakenPorts(flags, addresses)) terminal.print(line);
  if (flags.story) return story(daemon, { sandbox, terminal, signalled });
  const facts = { targetUrl: target, members: flags.members, secrets };
  for (const line of introduction(daemon.addresses, facts)) terminal.print(line);
  await signalled;
  return EXIT.fine;
}

async function demoFleet(context: DemoContext): Promise<number> {
  const { flags, sandbox, terminal, level, owner, signalled } = context;
  const store = await openDemoStore();
  if (store !== undefined) owner.own('store', () => store.close());
  const memory = store === undefined ? openMemoryFleet() : undefined;
  const target = targetOf(sandbox);
  const daemons: Daemon[] = [];
  for (let number = 1; number <= flags.replicas; number += 1) {
    const name = replicaName(number);
    const setup = { flags, sandbox, secrets: undefined };
    const config = await demoConfig(setup, { number, storePort: store?.port });
    const log = createLog({ level: level ?? config.log.level, format: 'pretty', replica: name });
    const joined = memory && { fleet: memory.connector(name) };
    daemons.push(await owner.open(name, startDaemon({ config, log, testUrl: `${target}/ip`, ...joined })));
  }
  const addresses = daemons.map((daemon) => daemon.addresses);
  const taken = addresses.flatMap((used, index) => describeTakenPorts(flags, { ...used, target }, index + 1));
  for (const line of new Set(taken)) terminal.print(line);
  const facts = { targetUrl: target, members: flags.members, store };
  for (const line of introduceFleet(addresses, facts)) terminal.print(line);
  await signalled;
  return EXIT.fine;
}

function openMemoryFleet(): MemoryFleet {
  const timekeeper = createTimekeeper(systemClock, systemBoot());
  return new MemoryFleet(DEMO_FLEET, readVersion(), systemClock, timekeeper);
}

async function story(
  daemon: Daemon,
  { sandbox, terminal, signalled }: Pick<DemoContext, 'sandbox' | 'terminal' | 'signalled'>,
): Promise<number> {
  const { listeners, admin } = daemon.addresses;
  const [proxy = ''] = listeners;
  const page = `http://${admin ?? ''}/`;
  const interruption = new AbortController();
  const { signal } = interruption;
  const interrupted = signalled.then(() => interruption.abort());
  const succeeded = await tellStory({
    proxy,
    page,
    target: targetOf(sandbox),
    sandbox,
    control: daemon.control,
    print: (line) => terminal.print(line),
    pause: () => (terminal.interactive ? pause(systemClock, STORY_PAUSE_MS, signal) : Promise.resolve()),
    signal,
  }).catch((error: unknown) => {
    if (signal.aborted) return true; // ignored: Ctrl-C aborted a request of the story
    throw error;
  });
  if (terminal.interactive && !signal.aborted) {
    terminal.print('');
    terminal.print(`The story has ended. The proxy ${proxy} and the dashboard ${page} run until Ctrl-C.`);
    await interrupted;
  }
  return succeeded || signal.aborted ? EXIT.fine : EXIT.failed;
}

function targetOf(sandbox: Sandbox): string {
  return `http://${TARGET_NAME}:${sandbox.target.port}`;
}

async function openDemoSandbox({ members, dead, slow, story, targetPort }: DemoFlags): Promise<Sandbox> {
  const [http, socks] = split(members);
  const lifetimeMs = story === true ? STORY_LIFETIME_MS : LIFETIME_MS;
  const shared = { lifetimeMs, dead, slow, singlePullLimit: Math.max(1, members) };
  // The service has twice as many proxies as the pool, so that later draws bring new members.
  return openSandbox({
    targetPort: targetPort ?? (await freePort(DEFAULT_HOST, PORTS.target)),
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

type DemoFacts = Readonly<{ targetUrl: string; members: number }>;

function introduction(
  { listeners, admin = '' }: Daemon['addresses'],
  { targetUrl, members, secrets }: DemoFacts & { readonly secrets: DemoSecrets | undefined },
): string[] {
  const proxy = reachable(listeners[0] ?? '');
  const password = secrets?.password ?? 'x';
  const rotating = `http://${secrets === undefined ? '' : `me:${password}@`}${proxy}`;
  const python = `import urllib.request as u; print(u.build_opener(u.ProxyHandler({'http': '${rotating}'})).open('${targetUrl}/ip').read().decode())`;
  return [
    '',
    `noria demo: a rotating proxy on ${proxy} (HTTP, SOCKS5, SOCKS4) with ${members} members`,
    `  target     ${targetUrl}/ip  answers with the exit address; only members resolve its name`,
    `  dashboard  http://${reachable(admin)}/${secrets === undefined ? '' : `  token ${secrets.token}`}`,
    '',
    'Try these commands in another terminal. Each request uses another exit IP:',
    '',
    `  curl -x ${rotating} ${targetUrl}/ip`,
    `  curl -x ${rotating.replace('http:', 'socks5h:')} ${targetUrl}/ip`,
    `  python3 -c "${python}"`,
    '',
    'A session keeps one member:',
    '',
    `  curl -x http://me-session-one:${password}@${proxy} ${targetUrl}/ip`,
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
  { targetUrl, members, store }: DemoFacts & { readonly store: DemoStore | undefined },
): string[] {
  const proxies = norias.map(({ listeners }) => listeners[0] ?? '');
  return [
    '',
    `noria demo: ${norias.length} norias in one fleet with ${members} members, ${store === undefined ? 'in memory' : `through ${store.program} on port ${store.port}`}`,
    ...norias.map(
      ({ admin = '' }, index) =>
        `  replica ${index + 1}  proxy ${proxies[index]}  dashboard  http://${admin}/`,
    ),
    `  target     ${targetUrl}/ip  answers with the exit address; only members resolve its name`,
    '',
    'Try these commands in another terminal. A session has the same exit IP through every replica:',
    '',
    ...proxies.map((proxy) => `  curl -x http://me-session-one:x@${proxy} ${targetUrl}/ip`),
    '',
    'Without a session, each replica rotates through the members of all replicas:',
    '',
    ...proxies.map((proxy) => `  curl -x http://${proxy} ${targetUrl}/ip`),
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
