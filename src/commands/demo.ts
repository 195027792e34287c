/** `noria demo`: runs the daemon on an embedded sandbox of the extraction service, and prints commands to try. */
import { createServer } from 'node:net';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { pause, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { createLog } from '../core/log.ts';
import type { LogLevel } from '../core/log-options.ts';
import { Ownership } from '../core/ownership.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { openSandbox } from '../sandbox/open-sandbox.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import { type CommandContext, fractionOption, integerOption, portOption, untilSignal } from './command.ts';
import { STORY_MEMBERS, tellStory } from './story.ts';
import { EXIT, type Terminal } from './terminal.ts';

const HOST = '127.0.0.1';
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
/** The lifetimes of members: short, so that a viewer soon sees some expire. */
const LIFETIME_MS = [60_000, 180_000] as const;

interface DemoFlags {
  readonly port?: number;
  readonly adminPort?: number;
  readonly targetPort?: number;
  readonly story?: boolean;
  readonly members: number;
  readonly dead: number;
  readonly slow: number;
}

export function addDemoCommand(program: Command, { action, terminal, logLevel }: CommandContext): void {
  program
    .command('demo')
    .description(
      'run the daemon on an embedded sandbox with real members and a target site; prints commands to try',
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
      '\nExamples:\n  noria demo\n  noria demo --story\n  noria demo --members 40 --dead 0.2 --slow 0.1\n  noria demo --port 9000 --admin-port 9001',
    )
    .action(action((flags: DemoFlags) => demo(flags, terminal, logLevel())));
}

async function demo(flags: DemoFlags, terminal: Terminal, level: LogLevel | undefined): Promise<number> {
  if (flags.story && flags.members < STORY_MEMBERS)
    throw new NoriaError('bad-usage', `--story needs --members ${STORY_MEMBERS} or more`);
  const owner = new Ownership();
  try {
    const sandbox = await owner.open('sandbox', openDemoSandbox(flags));
    const config = await demoConfig(flags, sandbox);
    const log = createLog({ level: level ?? (flags.story ? 'error' : config.log.level), format: 'pretty' });
    const daemon = await owner.open('daemon', startDaemon({ config, log }));
    if (flags.story) return await story(daemon, sandbox, terminal);
    for (const line of commandsToTry(daemon.addresses, targetOf(sandbox), flags.members))
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
    targetPort: targetPort ?? (await freePort(DEFAULT_TARGET_PORT)),
    instances: [
      { product: 'short-classic', members: http * 2, ...shared },
      { product: 'short-socks5', members: Math.max(1, socks) * 2, ...shared },
    ],
  });
}

async function demoConfig(flags: DemoFlags, sandbox: Sandbox): Promise<Config> {
  const port = flags.port ?? (await freePort(DEFAULT_PORT));
  const authPort = port === 0 ? 0 : await freePort(DEFAULT_AUTH_PORT);
  const adminPort = flags.adminPort ?? (await freePort(DEFAULT_ADMIN_PORT));
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
pool: { allowPrivateAddresses: true }   # the members are on loopback
listeners:
  - address: ${HOST}:${port}
    denyTargets: [smtp]                 # the target is on loopback too
  - address: ${HOST}:${authPort}
    users: [{ username: me, password: x }]
    denyTargets: [smtp]
admin: { address: "${HOST}:${adminPort}" }
state: off
`,
    'demo.yaml',
    { env: {} },
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

function commandsToTry(
  { listeners, admin }: { readonly listeners: readonly string[]; readonly admin: string | undefined },
  targetUrl: string,
  members: number,
): string[] {
  const proxy = listeners[0] ?? '';
  const python = `import urllib.request as u; print(u.build_opener(u.ProxyHandler({'http': 'http://${proxy}'})).open('${targetUrl}/ip').read().decode())`;
  return [
    '',
    `noria demo: a rotating proxy on ${proxy} (HTTP, SOCKS5, SOCKS4) with ${members} members`,
    `  target     ${targetUrl}/ip  answers with the exit address; only members resolve its name`,
    `  dashboard  http://${admin ?? ''}/`,
    '',
    'Try these in another terminal. Each call uses another exit:',
    '',
    `  curl -x http://${proxy} ${targetUrl}/ip`,
    `  curl -x socks5h://${proxy} ${targetUrl}/ip`,
    `  python3 -c "${python}"`,
    '',
    'A session keeps one member:',
    '',
    `  curl -x http://me-session-one:x@${proxy} ${targetUrl}/ip`,
    '',
    `Browsers send a user name only after a 407. For them, ${listeners[1] ?? ''} requires user me, password x (docs/clients.md).`,
    'Stop with Ctrl-C. Events:',
    '',
  ];
}

/** The preferred port if it is free, else 0. */
function freePort(preferred: number): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(0)); // handled: the port is taken
    probe.listen(preferred, HOST, () => probe.close(() => resolve(preferred)));
  });
}
