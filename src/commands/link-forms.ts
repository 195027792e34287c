/**
 * What `noria link` accepts beside an extraction link: the address of a gateway, and a list in a file. It calls neither
 * of them: a gateway needs no call, and a file is only read.
 */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Document } from 'yaml';
import { systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import { escapeAll } from '../core/printable.ts';
import { SESSION_TAG } from '../service/gateway.ts';
import { decodeList, readListFile } from '../service/list.ts';
import { dropText } from './service.ts';

const SCHEME = /^(https?|socks5h?):\/\//i;
/** The words after which gateways expect the name of a session, longest first. */
const SESSION_WORD = /(sessionid|session|sessid|sid)([-_.=])([A-Za-z0-9]+)/i;

export async function otherForm(given: string): Promise<readonly string[] | undefined> {
  return gatewayOf(given) ?? (existsSync(given) ? await listOf(given) : undefined);
}

function gatewayOf(given: string): readonly string[] | undefined {
  const scheme = SCHEME.exec(given)?.[1]?.toLowerCase();
  const rest = given.replace(SCHEME, '').replace(/\/$/, '');
  const at = rest.lastIndexOf('@');
  const address = at < 0 ? undefined : parseHostPort(rest.slice(at + 1));
  const [username = '', ...password] = rest.slice(0, Math.max(0, at)).split(':');
  if (address === undefined || username === '' || password.length === 0) return undefined;
  if (!SESSION_WORD.test(username))
    throw new NoriaError(
      'bad-usage',
      `the user name of this address names no session, so noria cannot make other names of it; write it as in the vendor's documentation, for example ${username}-session-abc123`,
    );
  const source = {
    name: 'gateway',
    product: 'gateway',
    address: formatHostPort(address.host, address.port),
    upstream: {
      protocol: scheme === 'https' ? 'https' : scheme?.startsWith('socks5') ? 'socks5' : 'http',
      auth: {
        username: username.replace(SESSION_WORD, `$1$2${SESSION_TAG}`),
        password: '${GATEWAY_PASSWORD}',
      },
    },
    lifetime: '10m',
  };
  return [
    'This is the address of a gateway: noria makes a name for each member.',
    '',
    '# Set this variable, and lifetime to the time for which the vendor keeps the exit of a name:',
    "#   export GATEWAY_PASSWORD='…'  # the password of the address",
    ...yamlOf(source),
  ];
}

async function listOf(given: string): Promise<readonly string[]> {
  const file = resolve(given);
  const call = {
    ...({ product: 'list', instance: '', secrets: [], params: {}, url: undefined, file } as const),
    ...({ rules: { format: 'auto' }, login: 'use', protocol: undefined } as const),
  };
  const options = { refuses: () => undefined, wallAt: systemClock.now() };
  const { entries, dropped, message } = decodeList(await readListFile(file), call, options);
  const counts = Object.entries(dropped).map(([why, count]) => `${count} dropped: ${dropText(why)}`);
  const hasLogin = entries.some(({ login }) => login !== undefined);
  return [
    `This is a list with ${[`${entries.length} proxies`, ...counts].join(', ')}.`,
    ...(message === '' ? [] : [escapeAll(message)]),
    '',
    ...yamlOf({ name: 'list', product: 'list', file, upstream: { auth: hasLogin ? 'entry' : 'none' } }),
  ];
}

function yamlOf(source: object): string[] {
  return new Document({ sources: [source] }).toString({ lineWidth: 0 }).trimEnd().split('\n');
}
