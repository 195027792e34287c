/** `noria demo`: runs the daemon on an embedded sandbox of the extraction service, and prints commands to try. */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:net';
import { type Command, InvalidArgumentError } from 'commander';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { pause, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import { isLocalAddress, localHostOf } from '../core/listen-address.ts';
import { createLog } from '../core/log.ts';
import type { LogLevel } from '../core/log-options.ts';
import { Ownership } from '../core/ownership.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { openSandbox } from '../sandbox/open-sandbox.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import { type CommandContext, fractionOption, integerOption, portOption, untilSignal } from './command.ts';
import { STORY_MEMBERS, tellStory } from './story.ts';
import { EXIT, type Terminal } from './terminal.ts';

const DEFAULT_HOST = '127.0.0.1';
const DEFAULT_PORT = 8888;
const DEFAULT_ADMIN_PORT = 8889;
/** A second listener with a user, for clients that send credentials only after a 407. */
const DEFAULT_AUTH_PORT = 8890;
const DEFAULT_TARGET_PORT = 8080;
const DEFAULT_MEMBERS = 20;
/** Only members resolve this name, so every request for it goes through one. */
const TARGET_NAME = 'target.example';
/** Pause between two chapters of the story, so that a person can look at the dashboard. */
const STORY_PAUSE_MS = 4_000;
const SECRET_BYTES = 12;
/** The lifetimes of members: short, so that a viewer soon sees some expire. */
const LIFETIME_MS = [60_000, 180_000] as const;

interface DemoFlags {
  readonly host: string;
  readonly port?: number;
  readonly adminPort?: number;
  readonly targetPort?: number;
  readonly story?: boolean;
  readonly members: number;
  readonly dead: number;
  readonly slow: number;
}

/** What clients and the dashboard must send when other machines can reach the demo. */
interface DemoSecrets {
  readonly password: string;
  readonly token: string;
}

export function addDemoCommand(program: Command, { action, terminal, logLevel }: CommandContext): void {
  program
    .command('demo')
    .description(
      'run the daemon on an embedded sandbox with real members and a target site; prints commands to try',
    )
    .option(
      '--host <address>',
      'address to listen on; with another than loopback, 0.0.0.0 in a container, the demo requires a password and a token, which it prints',
      hostOption,
      DEFAULT_HOST,
    )
    .option(
      '--port <port>',
      `port of the proxy (default: ${DEFAULT_PORT}, or a free one if it is taken)`,
      portOption,
    )
    .option(
      '--admin-port <port>',
      `port of the dashboard (default: ${DEFAULT_ADMIN_PORT}, or a free one)`,
      portOption,
    )
    .option(
      '--target-port <port>',
      `port of the target site (default: ${DEFAULT_TARGET_PORT}, or a free one)`,
      portOption,
    )
    .option('--story', 'demonstrate noria step by step, and say what to look at on the dashboard')
    .option('--members <count>', 'pool size', integerOption(1, 1_000), DEFAULT_MEMBERS)
    .option('--dead <fraction>', 'fraction of members that are dead when drawn, 0 to 1', fractionOption, 0)
    .option('--slow <fraction>', 'fraction of members with a delay of 2 s, 0 to 1', fractionOption, 0)
    .addHelpText(
      'after',
      '\nExamples:\n  noria demo\n  noria demo --story\n  noria demo --members 40 --dead 0.2 --slow 0.1\n  noria demo --port 9000 --admin-port 9001\n  noria demo --host 0.0.0.0\n\nWith --host, NORIA_ADMIN_TOKEN sets the token.',
    )
    .action(action((flags: DemoFlags) => demo(flags, terminal, logLevel())));
}

async function demo(flags: DemoFlags, terminal: Terminal, level: LogLevel | undefined): Promise<number> {
  if (flags.story && flags.members < STORY_MEMBERS)
    throw new NoriaError('bad-usage', `--story needs --members ${STORY_MEMBERS} or more`);
  const secrets = demoSecrets(flags, terminal);
  if (flags.story && secrets !== undefined)
    throw new NoriaError('bad-usage', '--story works on loopback: leave out --host');
  const owner = new Ownership();
  try {
    const sandbox = await owner.open('sandbox', openDemoSandbox(flags));
    const config = await demoConfig(flags, sandbox, secrets);
    const log = createLog({ level: level ?? (flags.story ? 'error' : config.log.level), format: 'pretty' });
    const daemon = await owner.open('daemon', startDaemon({ config, log }));
    if (flags.story) return await story(daemon, sandbox, terminal);
    for (const line of introduction(daemon.addresses, targetOf(sandbox), flags, secrets))
      terminal.print(line);
    await untilSignal();
    printGoodbye(terminal);
    return EXIT.fine;
  } finally {
    await owner.close();
  }
}

/** On a terminal, the demo runs on after the story until Ctrl-C; otherwise it ends. */
async function story(daemon: Daemon, sandbox: Sandbox, terminal: Terminal): Promise<number> {
  const { listeners, admin } = daemon.addresses;
  const [proxy = ''] = listeners;
  const page = `http://${admin ?? ''}/`;
  const interruption = new AbortController();
  const { signal } = interruption;
  const interrupted = untilSignal().then(() => interruption.abort());
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
    if (signal.aborted) return true; // the signal aborted a request
    throw error;
  });
  if (terminal.interactive && !signal.aborted) {
    terminal.print('');
    terminal.print(`The story has ended. The proxy ${proxy} and the dashboard ${page} run until Ctrl-C.`);
    await interrupted;
  }
  printGoodbye(terminal);
  return succeeded || signal.aborted ? EXIT.fine : EXIT.failed;
}

function targetOf(sandbox: Sandbox): string {
  return `http://${TARGET_NAME}:${sandbox.target.port}`;
}

function printGoodbye(terminal: Terminal): void {
  terminal.print('');
  terminal.print(
    'The demo has ended. To use your account, write a configuration (README.md shows one), then noria check and noria run.',
  );
}

async function openDemoSandbox({ members, dead, slow, targetPort }: DemoFlags): Promise<Sandbox> {
  const [http, socks] = split(members);
  const shared = { lifetimeMs: LIFETIME_MS, dead, slow, singlePullLimit: Math.max(1, members) };
  // Twice the pool size, so that a draw brings new members.
  return openSandbox({
    targetPort: targetPort ?? (await freePort(DEFAULT_HOST, DEFAULT_TARGET_PORT)),
    instances: [
      { product: 'short-classic', members: http * 2, ...shared },
      { product: 'short-socks5', members: Math.max(1, socks) * 2, ...shared },
    ],
  });
}

/** Undefined on loopback, where nobody else can connect. */
function demoSecrets({ host }: DemoFlags, { env }: Terminal): DemoSecrets | undefined {
  if (isLocalAddress({ kind: 'tcp', host, port: 0 })) return undefined;
  const random = () => randomBytes(SECRET_BYTES).toString('base64url');
  return { password: random(), token: env['NORIA_ADMIN_TOKEN'] || random() };
}

async function demoConfig(
  flags: DemoFlags,
  sandbox: Sandbox,
  secrets: DemoSecrets | undefined,
): Promise<Config> {
  const { host } = flags;
  const port = flags.port ?? (await freePort(host, DEFAULT_PORT));
  const authPort = port === 0 ? 0 : await freePort(host, DEFAULT_AUTH_PORT);
  const adminPort = flags.adminPort ?? (await freePort(host, DEFAULT_ADMIN_PORT));
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
${listenersText((at) => formatHostPort(host, at), { port, authPort, secrets })}
admin: { address: "${formatHostPort(host, adminPort)}"${secrets === undefined ? '' : ', token: "${NORIA_ADMIN_TOKEN}"'} }
state: off
`,
    'demo.yaml',
    { env: { DEMO_PASSWORD: secrets?.password, NORIA_ADMIN_TOKEN: secrets?.token } },
  );
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

/** Splits the pool into HTTP and SOCKS5 members. */
function split(members: number): readonly [http: number, socks: number] {
  const socks = Math.floor(members / 2);
  return [members - socks, socks];
}

/** On loopback the target may also be named by its address; other machines must not reach loopback through the demo. */
function listenersText(
  address: (port: number) => string,
  {
    port,
    authPort,
    secrets,
  }: { readonly port: number; readonly authPort: number; readonly secrets: DemoSecrets | undefined },
): string {
  if (secrets !== undefined)
    return `  - { address: "${address(port)}", users: [{ username: me, password: "\${DEMO_PASSWORD}" }] }`;
  return [
    `  - { address: "${address(port)}", denyTargets: [smtp] }`,
    `  - { address: "${address(authPort)}", denyTargets: [smtp], users: [{ username: me, password: x }] }`,
  ].join('\n');
}

/** What the demo is, and commands to try. */
function introduction(
  { listeners, admin = '' }: Daemon['addresses'],
  targetUrl: string,
  { members }: DemoFlags,
  secrets: DemoSecrets | undefined,
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
    'Try these in another terminal. Each call uses another exit:',
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
      ? `Browsers send a user name only after a 407. For them, ${listeners[1] ?? ''} requires user me, password x (docs/clients.md).`
      : `It listens on ${listeners[0] ?? ''}: other machines can use it with this password, until it ends.`,
    'Stop with Ctrl-C. Events:',
    '',
  ];
}

/** An address as clients on this machine reach it. */
function reachable(address: string): string {
  const parsed = parseHostPort(address);
  return parsed === undefined ? address : formatHostPort(localHostOf(parsed.host), parsed.port);
}

/** Reads an IP address or a host name, with or without brackets. */
function hostOption(text: string): string {
  const host = hostPort(text.replace(/^\[(.*)\]$/, '$1'), 1)?.host;
  if (host !== undefined) return host;
  throw new InvalidArgumentError('Expected an address without a port, for example 0.0.0.0.');
}

/** The preferred port if it is free, else 0. */
function freePort(host: string, preferred: number): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(0)); // handled: the port is taken
    probe.listen(preferred, host, () => probe.close(() => resolve(preferred)));
  });
}
