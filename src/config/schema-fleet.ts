/** The section `fleet`, and the type of the store's URL. */
import { z } from 'zod';
import { formatHostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import { MASK, Secret } from '../core/secret.ts';
import { given, optional, required, section } from './keys.ts';
import { type Scalar, scalar, text } from './scalars.ts';
import { filePath, secretFile } from './schema-values.ts';

/** The parts of a `redis://` or `rediss://` URL. */
export interface StoreUrl {
  readonly tls: boolean;
  readonly host: string;
  readonly port: number;
  readonly username: string | undefined;
  readonly password: Secret | undefined;
  readonly database: number;
}

const DEFAULT_PORT = 6379;
const MAX_DATABASE = 999;

/** The URL with a masked password, for messages. */
export function formatStoreUrl({ tls, host, port, username, password, database }: StoreUrl): string {
  const secret = password === undefined ? '' : `:${MASK}`;
  const login =
    username === undefined && secret === '' ? '' : `${encodeURIComponent(username ?? '')}${secret}@`;
  const path = database === 0 ? '' : `/${database}`;
  return `${tls ? 'rediss' : 'redis'}://${login}${formatHostPort(host, port)}${path}`;
}

/** The URL may contain a password, so no message quotes it. */
export function storeUrl(): Scalar<StoreUrl> {
  return scalar({
    expected:
      'redis://host:port or rediss://host:port (TLS), with user name, password and database number if needed',
    example: 'redis://valkey.example.com:6379',
    json: { type: 'string', pattern: '^rediss?://' },
    quoted: 'never',
    read: readStoreUrl,
    write: formatStoreUrl,
  });
}

function readStoreUrl(given: string): { readonly value: StoreUrl } | { readonly wrong: string } {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !['redis:', 'rediss:'].includes(url.protocol)) {
    return { wrong: 'is not a redis:// or rediss:// URL' };
  }
  if (url.search + url.hash !== '') return { wrong: 'has a query or a fragment' };
  const port = url.port === '' ? DEFAULT_PORT : Number(url.port);
  const address = hostPort(url.hostname.replace(/^\[|\]$/g, ''), port);
  if (address === undefined) return { wrong: 'has no valid host and port' };
  const [, path = '0'] = /^\/?(\d{1,3})?$/.exec(url.pathname) ?? [undefined, ''];
  const database = Number(path === '' ? Number.NaN : path);
  if (!(database <= MAX_DATABASE)) return { wrong: 'has a path that is not the number of a database' };
  try {
    const [username, password] = [url.username, url.password].map(decodeURIComponent);
    return {
      value: {
        tls: url.protocol === 'rediss:',
        host: address.host,
        port,
        username: username === '' ? undefined : username,
        password: password === '' || password === undefined ? undefined : new Secret(password),
        database,
      },
    };
  } catch {
    // handled: decodeURIComponent throws only for an invalid use of %, which the returned message explains
    return { wrong: 'has a % that is not part of an encoded character; write %25 for it' };
  }
}

export interface SentinelAddress {
  readonly host: string;
  readonly port: number;
}

function sentinelAddress(): Scalar<SentinelAddress> {
  return scalar<SentinelAddress>({
    expected: 'host:port or [v6]:port',
    example: '"10.0.0.1:26379"',
    json: { type: 'string' },
    quoted: 'always',
    read(given) {
      const address = parseHostPort(given, SENTINEL_PORT);
      return address === undefined ? { wrong: 'is not host:port' } : { value: address };
    },
    write: ({ host, port }) => formatHostPort(host, port),
  });
}

const SENTINEL_PORT = 26_379;

export const FLEET = section({
  url: optional(
    storeUrl(),
    'address of the store: Valkey, or Redis 7.0 or later',
    'required, unless `fleet.sentinel` is set',
  ),
  urlFile: optional(secretFile('/run/secrets/fleet-url'), 'file that contains the address of the store'),
  name: given(
    text({
      expected: '1 to 64 letters, digits, `-` and `_`',
      example: 'crawl',
      pattern: /^[A-Za-z0-9_-]{1,64}$/,
      maxBytes: 64,
      wrong: 'contains a character other than letters, digits, `-` and `_`',
    }),
    'noria',
    'norias with the same name share one pool',
  ),
  replica: optional(
    text({
      expected: '1 to 64 letters, digits, `.`, `-` and `_`',
      example: '${HOSTNAME}',
      pattern: /^[A-Za-z0-9._-]{1,64}$/,
      maxBytes: 64,
      wrong: 'contains a character other than letters, digits, `.`, `-` and `_`',
    }),
    'name of this noria, unique in the fleet',
    'the host name with a random suffix',
  ),
  tls: optional(
    section({
      ca: optional(
        filePath('/etc/noria/ca.pem'),
        'certificates of the authorities to trust, in PEM',
        'the authorities that Node trusts',
      ),
      cert: optional(filePath('/etc/noria/client.pem'), "noria's own certificate for the store, in PEM"),
      key: optional(filePath('/etc/noria/client.key'), "private key of noria's own certificate, in PEM"),
    }),
    'how noria checks the store and identifies itself, for `rediss://`',
    'noria trusts the authorities that Node trusts, and presents no certificate',
  ),
  sentinel: optional(
    section({
      primary: required(
        text({ expected: 'the name of a primary', example: 'mymaster' }),
        'name of the primary, as the Sentinels know it',
      ),
      addresses: required(
        z.array(sentinelAddress()).min(1),
        'addresses of the Sentinels; noria asks them in this order',
      ),
    }),
    'Sentinels that know the address of the store, in place of the host in `url`',
    'none',
  ),
});

export type FileFleet = z.output<typeof FLEET>;
