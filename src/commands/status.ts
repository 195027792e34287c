/** `noria status`: prints the state of a running daemon: a summary, its sources, its members. */
import type { Command } from 'commander';
import { holdingClock, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { Secret } from '../core/secret.ts';
import { AdminClient } from './admin-client.ts';
import type { CommandContext } from './command.ts';
import { formatStatus } from './status-format.ts';
import { watchStatus } from './status-watch.ts';
import { EXIT, type Terminal } from './terminal.ts';

const DEFAULT_ADMIN = 'http://127.0.0.1:8889';
/** A server bound to a wildcard address is reached through loopback. */
const WILDCARDS: ReadonlyMap<string, string> = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

interface StatusFlags {
  readonly watch?: boolean;
  readonly json?: boolean;
  readonly admin?: string;
  readonly config?: string;
}

interface AdminTarget {
  readonly url: string;
  readonly token: Secret | undefined;
}

export function addStatusCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('status')
    .description('print the state of a running daemon, its sources and its members')
    .option('--admin <url>', `admin address of the daemon (default: NORIA_ADMIN, else ${DEFAULT_ADMIN})`)
    .option('-c, --config <file>', 'take admin address and token from this configuration file')
    .option('--watch', 'refresh every second until Ctrl-C')
    .option('--json', 'print the answer of /api/status')
    .addHelpText(
      'after',
      '\nExamples:\n  noria status\n  noria status --watch\n  noria status -c /etc/noria/noria.yaml\n  noria status --json | jq .pool\n\nThe token is NORIA_ADMIN_TOKEN, else that of the configuration. Exit codes: 0 ready, 1 not ready, 3 unreachable.',
    )
    .action(action((flags: StatusFlags) => showStatus(flags, terminal)));
}

async function showStatus(flags: StatusFlags, terminal: Terminal): Promise<number> {
  if (flags.watch === true && flags.json === true) {
    throw new NoriaError('bad-usage', 'use either --watch or --json: --json prints one answer');
  }
  const { url, token } = await findTarget(flags, terminal);
  const client = new AdminClient(url, token);
  if (flags.watch === true) return (await watch(client, url, terminal)) ? EXIT.fine : EXIT.failed;
  const status = await client.status();
  if (flags.json === true) terminal.print(JSON.stringify(status, undefined, 2));
  else {
    const format = { now: systemClock.now(), colour: terminal.colour };
    for (const line of formatStatus(status, await client.members(), format)) terminal.print(line);
  }
  return status.ready ? EXIT.fine : EXIT.failed;
}

async function watch(client: AdminClient, url: string, terminal: Terminal): Promise<boolean> {
  const ending = new AbortController();
  const stop = () => ending.abort();
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    return await watchStatus({
      fetch: async () => ({ status: await client.status(), members: await client.members() }),
      url,
      terminal,
      clock: holdingClock,
      signal: ending.signal,
    });
  } finally {
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}

/** For the address, the command line comes before the file, and the file before the environment. For the token, the environment comes first. */
async function findTarget({ admin, config }: StatusFlags, { env }: Terminal): Promise<AdminTarget> {
  const configured = config === undefined ? undefined : await readTarget(config, env);
  const given = admin ?? configured?.url ?? env['NORIA_ADMIN'] ?? DEFAULT_ADMIN;
  const token = env['NORIA_ADMIN_TOKEN'];
  return { url: adminUrl(given), token: token === undefined ? configured?.token : new Secret(token) };
}

async function readTarget(file: string, env: Terminal['env']): Promise<AdminTarget> {
  const { loadConfig } = await import('../config/load.ts'); // slow to load, and a health check needs no configuration
  const { admin } = loadConfig(file, { env });
  if (admin?.address.kind !== 'tcp') {
    throw new NoriaError('bad-usage', `${file} has no admin address: admin is off`);
  }
  const { host, port } = admin.address;
  return { url: `http://${formatHostPort(WILDCARDS.get(host) ?? host, port)}`, token: admin.token };
}

function adminUrl(text: string): string {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new NoriaError('bad-usage', `--admin ${text} is not a URL`);
  return url.href;
}
