/** Finds the admin address and the token of the running noria that a command talks to. */
import { isIPv6 } from 'node:net';
import { type Command, Option } from 'commander';
import { type AdminSection, readAdminSection } from '../config/admin-section.ts';
import { findDefaultFile } from '../config/files.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { formatHostPort, hostPort, parseHostPort, parsePort } from '../core/host-port.ts';
import { localHostOf } from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import { AdminClient, type AdminTarget } from './admin-client.ts';
import type { Terminal } from './terminal.ts';

export interface AdminFlags {
  readonly admin?: string;
  readonly config?: string;
}

const DEFAULT_HOST = '127.0.0.1';
const DEFAULT_PORT = 8889;
const EXAMPLES = '8889, 127.0.0.1:8889 or https://noria.example.com';
export function addAdminOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--admin <address>',
        `admin address of the daemon: port, host:port or URL (default: NORIA_ADMIN, else admin.address of the configuration, else ${DEFAULT_HOST}:${DEFAULT_PORT})`,
      ),
    )
    .option('-c, --config <file>', 'take admin address and token from this configuration file');
}

export const TOKEN_HELP =
  'The token comes from NORIA_ADMIN_TOKEN, else from admin.token in the configuration.';

export function openAdminClient(flags: AdminFlags, { env }: Terminal): AdminClient {
  return new AdminClient(findAdminTarget(flags, env));
}

/**
 * Finds the address in the first of these that is given: --admin, the file of -c, NORIA_ADMIN, the default file. Finds
 * the token in NORIA_ADMIN_TOKEN, or else in the file of -c. The token of the default file
 * applies only if the address comes from the default file, too.
 *
 * @throws NoriaError bad-usage, bad-config
 */
export function findAdminTarget({ admin, config }: AdminFlags, env: Terminal['env']): AdminTarget {
  const named = config === undefined ? undefined : readTarget(config, env);
  const given = { ...NO_TOKEN, ...named };
  const address = env['NORIA_ADMIN']?.trim();
  const target =
    admin !== undefined
      ? { ...given, origin: originOf(admin, '--admin'), givenBy: '--admin' }
      : (named ??
        (address
          ? { ...NO_TOKEN, origin: originOf(address, 'NORIA_ADMIN'), givenBy: 'NORIA_ADMIN' }
          : defaultTarget(env)));
  const token = env['NORIA_ADMIN_TOKEN']?.trim();
  if (!token) return target;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new NoriaError('bad-usage', 'NORIA_ADMIN_TOKEN contains white space or a character outside ASCII');
  }
  return { ...target, token: new Secret(token), tokenNote: 'NORIA_ADMIN_TOKEN' };
}

const NO_TOKEN = { token: undefined, tokenNote: 'NORIA_ADMIN_TOKEN is not set' };

const DEFAULT_TARGET: AdminTarget = {
  ...NO_TOKEN,
  origin: `http://${DEFAULT_HOST}:${DEFAULT_PORT}`,
  givenBy: 'the default address',
};

/**
 * If the default file is invalid, returns the default address and throws no error: noria may still run with an earlier
 * version of the file.
 */
function defaultTarget(env: Terminal['env']): AdminTarget {
  const file = findDefaultFile();
  if (file === undefined) return DEFAULT_TARGET;
  try {
    return readTarget(file, env);
  } catch (error) {
    return { ...DEFAULT_TARGET, givenBy: `the default address, because ${describeError(error)}` };
  }
}

function readTarget(file: string, env: Terminal['env']): AdminTarget {
  const section = readAdminSection(file, env);
  const { address } = section;
  const token = { token: section.token, tokenNote: tokenNote(file, section) };
  if (address === undefined) return { ...DEFAULT_TARGET, ...token };
  if (address === 'off')
    throw new NoriaError('bad-usage', `admin is off in ${file}: the daemon has no admin API`);
  if (address.kind === 'fd' || address.port === 0) {
    const message = `admin.address of ${file} has no fixed port: give --admin the address that the daemon's log shows`;
    throw new NoriaError('bad-usage', message);
  }
  return { ...token, origin: httpOrigin(address.host, address.port), givenBy: `admin.address of ${file}` };
}

function tokenNote(file: string, { token, tokenProblem }: AdminSection): string {
  if (token !== undefined) return `admin.token of ${file}`;
  return tokenProblem === undefined
    ? `${file} has no admin.token`
    : `admin.token of ${file}: ${tokenProblem}`;
}

function originOf(text: string, givenBy: string): string {
  const refuse = (why: string) => {
    // A text with @ may contain a password, so the message does not quote it.
    const quoted = text.includes('@') ? '' : ` ${text}`;
    return new NoriaError('bad-usage', `${givenBy}${quoted}: ${why}; expected for example ${EXAMPLES}`);
  };
  const trimmed = text.trim().replace(/^\/\//, '');
  const digits = /^:?(\d+)$/.exec(trimmed)?.[1];
  if (digits !== undefined) {
    const port = parsePort(digits);
    if (port === undefined) throw refuse('a port is from 1 to 65535');
    return httpOrigin(DEFAULT_HOST, port);
  }
  if (!trimmed.includes('://')) {
    const [address = ''] = trimmed.split('/', 1);
    const read = isIPv6(address) ? hostPort(address, DEFAULT_PORT) : parseHostPort(address, DEFAULT_PORT);
    if (read === undefined) throw refuse('this is not a host with a port from 1 to 65535');
    return httpOrigin(read.host, read.port);
  }
  const url = URL.parse(trimmed);
  if (url === null) throw refuse('this is not a URL');
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw refuse('the scheme must be http or https');
  if (url.username !== '' || url.password !== '') {
    throw refuse('remove the user name and password; noria reads the token from NORIA_ADMIN_TOKEN');
  }
  return url.origin;
}

function httpOrigin(host: string, port: number): string {
  return `http://${formatHostPort(localHostOf(host), port)}`;
}
