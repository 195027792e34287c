/** `noria status`: the state of a running daemon: one sentence, its sources, its members. */
import type { Command } from 'commander';
import { holdingClock, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { Secret } from '../core/secret.ts';
import { type AdminClient, connectAdmin } from './admin-client.ts';
import type { CommandContext } from './context.ts';
import { drawStatus } from './status-picture.ts';
import { watchStatus } from './status-watch.ts';
import { EXIT, type Terminal } from './terminal.ts';

const DEFAULT_ADMIN = 'http://127.0.0.1:8889';
const ANYWHERE: ReadonlyMap<string, string> = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

interface StatusFlags {
  readonly watch?: boolean;
  readonly json?: boolean;
  readonly admin?: string;
  readonly config?: string;
}

/** Where to ask, and with which token. */
interface Where {
  readonly url: string;
  readonly token: Secret | undefined;
}

export function addStatusCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('status')
    .description('show the state of a running daemon: does it work, its sources, its members')
    .option('--admin <url>', `its admin address (default: NORIA_ADMIN, else ${DEFAULT_ADMIN})`)
    .option('-c, --config <file>', 'take admin address and token from its configuration')
    .option('--watch', 'show it again every second until Ctrl-C')
    .option('--json', 'print /api/status as it is')
    .addHelpText(
      'after',
      '\nExamples:\n  noria status\n  noria status --watch\n  noria status -c /etc/noria/noria.yaml\n  noria status --json | jq .pool\n\nThe token is NORIA_ADMIN_TOKEN, else that of the configuration. Exit code: 0 ready, 1 not ready, 3 unreachable.',
    )
    .action(action((flags: StatusFlags) => showStatus(flags, terminal)));
}

async function showStatus(flags: StatusFlags, terminal: Terminal): Promise<number> {
  if (flags.watch === true && flags.json === true) {
    throw new NoriaError('bad-usage', '--watch draws a picture, --json prints one answer: choose');
  }
  const { url, token } = await findDaemon(flags, terminal);
  const client = connectAdmin(url, token);
  try {
    if (flags.watch === true) return (await watch(client, url, terminal)) ? EXIT.fine : EXIT.failed;
    const status = await client.status();
    if (flags.json === true) terminal.print(JSON.stringify(status, undefined, 2));
    else {
      const picture = { now: systemClock.now(), colour: terminal.colour };
      for (const line of drawStatus(status, await client.members(), picture)) terminal.print(line);
    }
    return status.ready ? EXIT.fine : EXIT.failed;
  } finally {
    await client.close();
  }
}

async function watch(client: AdminClient, where: string, terminal: Terminal): Promise<boolean> {
  const ending = new AbortController();
  const stop = () => ending.abort();
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    return await watchStatus({
      ask: async () => ({ status: await client.status(), members: await client.members() }),
      where,
      terminal,
      clock: holdingClock,
      signal: ending.signal,
    });
  } finally {
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}

/** What was said on the command line wins over the file, the file over the environment; only the token is safest there. */
async function findDaemon({ admin, config }: StatusFlags, { env }: Terminal): Promise<Where> {
  const configured = config === undefined ? undefined : await readWhere(config, env);
  const given = admin ?? configured?.url ?? env['NORIA_ADMIN'] ?? DEFAULT_ADMIN;
  const token = env['NORIA_ADMIN_TOKEN'];
  return { url: adminUrl(given), token: token === undefined ? configured?.token : new Secret(token) };
}

async function readWhere(file: string, env: Terminal['env']): Promise<Where> {
  const { loadConfig } = await import('../config/load.ts'); // a health check without -c shall not wait for it
  const { admin } = loadConfig(file, { env });
  if (admin?.address.kind !== 'tcp') {
    throw new NoriaError('bad-usage', `${file} has no admin address to ask: admin is off in it`);
  }
  const { host, port } = admin.address;
  return { url: `http://${formatHostPort(ANYWHERE.get(host) ?? host, port)}`, token: admin.token };
}

function adminUrl(text: string): string {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new NoriaError('bad-usage', `--admin ${text} is not a URL`);
  return url.href;
}
