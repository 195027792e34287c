/** `noria demo`: the daemon on an embedded sandbox of the extraction service, with what to try printed first. */
import { createServer } from 'node:net';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { createLog } from '../core/log.ts';
import { Ownership } from '../core/ownership.ts';
import { startDaemon } from '../daemon.ts';
import { openSandbox, type Sandbox } from '../sandbox/sandbox.ts';
import { readFraction, readPort, readWhole } from './arguments.ts';
import type { CommandContext } from './context.ts';
import { untilSignalled } from './lifecycle.ts';
import { EXIT, type Terminal } from './terminal.ts';

const HOST = '127.0.0.1';
const DEFAULT_PORT = 8888;
const DEFAULT_ADMIN_PORT = 8889;
const DEFAULT_MEMBERS = 20;
/** The demo's members live as long as short-lived ones do, at the short end: there is something to see. */
const LIFETIME_MS = [60_000, 180_000] as const;

interface DemoFlags {
  readonly port?: number;
  readonly adminPort?: number;
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
    .option('--members <count>', 'members to hold', readWhole(1, 1_000), DEFAULT_MEMBERS)
    .option('--dead <share>', 'share of members that are dead on arrival, from 0 to 1', readFraction, 0)
    .option('--slow <share>', 'share of members that are slow by 2 s, from 0 to 1', readFraction, 0)
    .addHelpText(
      'after',
      '\nExamples:\n  noria demo\n  noria demo --members 40 --dead 0.2 --slow 0.1\n  noria demo --port 9000 --admin-port 9001',
    )
    .action(
      action(async (flags: DemoFlags) => {
        const owner = new Ownership();
        try {
          const sandbox = await owner.open('sandbox', openDemoSandbox(flags));
          const config = await demoConfig(flags, sandbox);
          const log = createLog({ level: logLevel() ?? config.log.level, format: 'pretty' });
          const daemon = await owner.open('daemon', startDaemon({ config, log }));
          for (const line of whatToTry(daemon.addresses, sandbox.targetUrl, flags.members))
            terminal.print(line);
          await untilSignalled();
          farewell(terminal);
          return EXIT.fine;
        } finally {
          await owner.close();
        }
      }),
    );
}

function farewell(terminal: Terminal): void {
  terminal.print('');
  terminal.print(
    'The demo has ended. With an account: noria check, then noria run; README.md shows the configuration.',
  );
}

function openDemoSandbox({ members, dead, slow }: DemoFlags): Promise<Sandbox> {
  const [http, socks] = split(members);
  const shared = { lifetimeMs: LIFETIME_MS, dead, slow, singlePullLimit: Math.max(1, members) };
  // Twice as many exist as are held, so that replaced ones are other ones.
  return openSandbox({
    instances: [
      { product: 'short-classic', members: http * 2, ...shared },
      { product: 'short-socks5', members: Math.max(1, socks) * 2, ...shared },
    ],
  });
}

async function demoConfig(flags: DemoFlags, sandbox: Sandbox): Promise<Config> {
  const port = flags.port ?? (await freePort(DEFAULT_PORT));
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
    `  target     ${targetUrl}/ip  tells which exit it saw`,
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
