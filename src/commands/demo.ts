/** `noria demo`: the daemon on an embedded sandbox of the extraction service, with what to try printed first. */
import { createServer } from 'node:net';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { pause, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { createLog, type LogLevel } from '../core/log.ts';
import { Ownership } from '../core/ownership.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { openSandbox, type Sandbox } from '../sandbox/sandbox.ts';
import { readFraction, readPort, readWhole } from './arguments.ts';
import type { CommandContext } from './context.ts';
import { untilSignalled } from './lifecycle.ts';
import { STORY_MEMBERS, tellStory } from './story.ts';
import { EXIT, type Terminal } from './terminal.ts';

const HOST = '127.0.0.1';
const DEFAULT_PORT = 8888;
const DEFAULT_ADMIN_PORT = 8889;
/** A second listener with a user, for clients that send credentials only when they are asked for them. */
const DEFAULT_ASKING_PORT = 8890;
const DEFAULT_TARGET_PORT = 8080;
const DEFAULT_MEMBERS = 20;
/** Members alone resolve this name: what reaches it went through one. */
const TARGET_NAME = 'target.example';
/** Time to look at the dashboard between two chapters of the story, for a person. */
const STORY_PAUSE_MS = 4_000;
/** The demo's members live as long as short-lived ones do, at the short end: there is something to see. */
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
      'the daemon on an embedded sandbox with real loopback members and a target; prints what to try',
    )
    .option(
      '--port <port>',
      `the proxy's port (default: ${DEFAULT_PORT}, or a free one when that is taken)`,
      readPort,
    )
    .option(
      '--admin-port <port>',
      `the dashboard's port (default: ${DEFAULT_ADMIN_PORT}, or a free one)`,
      readPort,
    )
    .option(
      '--target-port <port>',
      `the target site's port (default: ${DEFAULT_TARGET_PORT}, or a free one)`,
      readPort,
    )
    .option('--story', 'show what noria does, step by step, with what to watch on the dashboard')
    .option('--members <count>', 'members to hold', readWhole(1, 1_000), DEFAULT_MEMBERS)
    .option('--dead <share>', 'share of members that are dead on arrival, from 0 to 1', readFraction, 0)
    .option('--slow <share>', 'share of members that are slow by 2 s, from 0 to 1', readFraction, 0)
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
    for (const line of whatToTry(daemon.addresses, targetOf(sandbox), flags.members)) terminal.print(line);
    await untilSignalled();
    farewell(terminal);
    return EXIT.fine;
  } finally {
    await owner.close();
  }
}

/** Ends by itself where nobody watches; on a terminal the demo goes on until Ctrl-C. */
async function story(daemon: Daemon, sandbox: Sandbox, terminal: Terminal): Promise<number> {
  const { listeners, admin } = daemon.addresses;
  const [proxy = ''] = listeners;
  const page = `http://${admin ?? ''}/`;
  const left = new AbortController();
  const { signal } = left;
  const leaving = untilSignalled().then(() => left.abort());
  const told = await tellStory({
    proxy,
    page,
    target: targetOf(sandbox),
    sandbox,
    control: daemon.control,
    print: (line) => terminal.print(line),
    pause: () => (terminal.interactive ? pause(systemClock, STORY_PAUSE_MS, signal) : Promise.resolve()),
    signal,
  }).catch((error: unknown) => {
    if (signal.aborted) return true; // a request that the signal cut short
    throw error;
  });
  if (terminal.interactive && !signal.aborted) {
    terminal.print('');
    terminal.print(`That was the story. The proxy ${proxy} and ${page} stay until Ctrl-C.`);
    await leaving;
  }
  farewell(terminal);
  return told || signal.aborted ? EXIT.fine : EXIT.failed;
}

/** The target's address with a name that only members resolve. */
function targetOf(sandbox: Sandbox): string {
  return `http://${TARGET_NAME}:${sandbox.target.port}`;
}

function farewell(terminal: Terminal): void {
  terminal.print('');
  terminal.print(
    'The demo has ended. With an account: noria check, then noria run; README.md shows the configuration.',
  );
}

async function openDemoSandbox({ members, dead, slow, targetPort }: DemoFlags): Promise<Sandbox> {
  const [http, socks] = split(members);
  const shared = { lifetimeMs: LIFETIME_MS, dead, slow, singlePullLimit: Math.max(1, members) };
  // Twice as many exist as are held, so that replaced ones are other ones.
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
  const askingPort = port === 0 ? 0 : await freePort(DEFAULT_ASKING_PORT);
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
  - address: ${HOST}:${askingPort}
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

/** Two kinds of members: HTTP and SOCKS5. */
function split(members: number): readonly [http: number, socks: number] {
  const socks = Math.floor(members / 2);
  return [members - socks, socks];
}

function whatToTry(
  { listeners, admin }: { readonly listeners: readonly string[]; readonly admin: string | undefined },
  targetUrl: string,
  members: number,
): string[] {
  const proxy = listeners[0] ?? '';
  const python = `import urllib.request as u; print(u.build_opener(u.ProxyHandler({'http': 'http://${proxy}'})).open('${targetUrl}/ip').read().decode())`;
  return [
    '',
    `noria demo: a rotating proxy on ${proxy} (HTTP, SOCKS5, SOCKS4), ${members} members behind it`,
    `  target     ${targetUrl}/ip  tells which exit it saw; members alone know its name`,
    `  dashboard  http://${admin ?? ''}/`,
    '',
    'Try in another terminal; each call shows another exit:',
    '',
    `  curl -x http://${proxy} ${targetUrl}/ip`,
    `  curl -x socks5h://${proxy} ${targetUrl}/ip`,
    `  python3 -c "${python}"`,
    '',
    'One member for as long as a session lasts:',
    '',
    `  curl -x http://me-session-one:x@${proxy} ${targetUrl}/ip`,
    '',
    `Browsers send a user name only when asked: ${listeners[1] ?? ''} asks for user me, password x (docs/clients.md).`,
    'Ctrl-C ends it. What happens meanwhile:',
    '',
  ];
}

/** `wanted` when it is free, else any. */
function freePort(wanted: number): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(0)); // handled: taken, so any free one will do
    probe.listen(wanted, HOST, () => probe.close(() => resolve(wanted)));
  });
}
