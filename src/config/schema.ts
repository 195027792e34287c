/**
 * Every key of noria's YAML: its kind, its range, its default, and a line of meaning.
 *
 * This table is the one source: the loader and its messages, `noria check`, the JSON Schema, config.example.yaml and
 * docs/configuration.md follow from it or are held to it (test/held/configuration.test.ts). Rules about several keys
 * at once stand in resolve.ts and beside it. Defaults are written as they stand in YAML.
 */
import { z } from 'zod';
import { LOG_LEVELS } from '../core/log.ts';
import { LISTENER_PROTOCOLS, MEMBER_PROTOCOLS } from '../core/protocol.ts';
import { STRATEGIES } from '../pool/options.ts';
import { FORMATS, METHODS, PRODUCTS } from '../service/operations.ts';
import { LOG_FORMATS, SESSION_MODES } from './config.ts';
import { given, leaf, optional, required } from './keys.ts';
import {
  baseAddress,
  duration,
  flag,
  key,
  listenAddress,
  oneOf,
  pageAddress,
  password,
  text,
  token,
  whole,
  wordOr,
} from './kinds.ts';
import { denyTarget, network } from './target-rules.ts';

const SECOND_MS = 1000;
const HOUR_MS = 3600 * SECOND_MS;
const WEEK_MS = 7 * 24 * HOUR_MS;
/** Largest numbers that make sense: what the pool, the dialer and a process are built for. */
const MOST = { members: 100_000, tunnels: 1_000_000, attempts: 10, processes: 256, priority: 1000 };
const MAX_PATH_BYTES = 4096;

const PATH = { wants: 'the path of a file', maxBytes: MAX_PATH_BYTES };
const USERNAME = {
  wants: 'a user name of 1 to 255 bytes without a colon',
  good: 'alice',
  pattern: /^[^:]*$/,
  wrong: 'holds a colon, which ends a user name in HTTP',
  private: true,
};
const OFF = leaf(oneOf(['off']));
const secretFile = (good: string) =>
  leaf(text({ ...PATH, wants: 'the path of a file that holds the secret alone', good }));

const UPSTREAM_AUTH = z.union([
  leaf(oneOf(['auto', 'none', 'instance'])),
  z.strictObject({
    username: required(leaf(text(USERNAME)), 'user name for the members'),
    password: optional(leaf(password()), 'its password'),
    passwordFile: optional(secretFile('/run/secrets/members'), 'file that holds the password'),
  }),
]);

/** One entry of `sources`. */
export const SOURCE = z.strictObject({
  name: required(
    leaf(
      text({
        wants: '1 to 64 letters, digits, `_` and `.`',
        good: 'city',
        pattern: /^[A-Za-z0-9_.]{1,64}$/,
        maxBytes: 64,
        wrong: 'is not made of letters, digits, `_` and `.` alone',
      }),
    ),
    'name in wishes, status and metrics',
  ),
  product: required(leaf(oneOf(PRODUCTS)), 'product family, which decides the operation'),
  instance: required(
    leaf(
      text({
        wants: 'the id of the instance or application, 1 to 64 letters, digits, `_` and `-`',
        good: '"202611210001"',
        pattern: /^[A-Za-z0-9_-]{1,64}$/,
        maxBytes: 64,
        private: true,
      }),
    ),
    'id of the instance (of the application for `free`), sent as api, inst_id or app_id',
  ),
  password: optional(leaf(password()), 'password of the instance; the key is derived from it'),
  passwordFile: optional(secretFile('/run/secrets/city'), 'file that holds the password'),
  akey: optional(leaf(key()), 'the 16-character key itself, where the password shall not be known here'),
  akeyFile: optional(secretFile('/run/secrets/city-key'), 'file that holds the key'),
  params: given(
    z.record(z.string(), z.union([z.string(), z.array(z.string())])),
    {},
    "the operation's own parameters, by the service's names; `count` is the most for one call",
  ),
  format: given(leaf(oneOf(FORMATS)), 'json', 'format of the answers'),
  textLayout: optional(
    leaf(
      text({
        wants: "the instance's own extraction format",
        good: '"{ip}:{port},{adr},{timeout}"',
        controls: true,
        maxBytes: 1000,
      }),
    ),
    'the custom extraction format of the instance, with `format: text`',
    '`{ip}:{port}` a line',
  ),
  host: optional(
    leaf(
      text({
        wants: 'a host, or host:port',
        good: 'node7.example.com',
        pattern: /^[^/@\s]+$/,
        wrong: 'is not a host, or host:port',
        private: true,
      }),
    ),
    'extraction server of the instance, {extract_host}; for `short-pure` alone',
  ),
  baseUrl: optional(leaf(baseAddress()), "this source's own address of the service", '`service.baseUrl`'),
  upstream: given(
    z.strictObject({
      protocol: optional(
        leaf(oneOf(MEMBER_PROTOCOLS)),
        'what members speak',
        'by the product and its params',
      ),
      auth: given(
        UPSTREAM_AUTH,
        'auto',
        '`auto`: the instance and its password once a member asks; `instance`: these from the start; `none`; or others',
      ),
    }),
    {},
    'how members are spoken to',
  ),
  interval: optional(
    leaf(duration(100, HOUR_MS)),
    'pace: least time from call to call',
    'the recommended one, 10s',
  ),
  dailyBudget: optional(leaf(whole(1, MOST.tunnels)), 'most distinct IPs drawn a day', 'no limit'),
  lifetime: optional(
    leaf(duration(SECOND_MS, WEEK_MS)),
    'how long members live whose lifetime the service does not tell, renewed by success',
    '10m for reverse-proxy members; else as docs/service.md says for the product',
  ),
  size: optional(leaf(whole(1, MOST.members)), 'usable members to hold for this source', '`pool.size`'),
  priority: given(
    leaf(whole(1, MOST.priority)),
    '1',
    'sources of a later priority are drawn from and used only while no earlier one can serve',
  ),
});

/** One entry of `listeners`. */
export const LISTENER = z.strictObject({
  address: given(leaf(listenAddress('range')), '127.0.0.1:8888', 'address and port, or a range of ports'),
  protocols: given(
    z.array(leaf(oneOf(LISTENER_PROTOCOLS))).min(1),
    [...LISTENER_PROTOCOLS],
    'what clients may speak',
  ),
  tls: optional(
    z.strictObject({
      cert: required(
        leaf(text({ ...PATH, good: '/etc/noria/cert.pem' })),
        'certificate, with its chain, in PEM',
      ),
      key: required(leaf(text({ ...PATH, good: '/etc/noria/key.pem' })), 'its private key, in PEM'),
    }),
    'clients speak TLS to the proxy (an https:// proxy)',
    'no TLS',
  ),
  users: given(
    z.array(
      z.strictObject({
        username: required(leaf(text(USERNAME)), 'user name: the BASE of routing options'),
        password: optional(leaf(password()), 'its password'),
        passwordFile: optional(secretFile('/run/secrets/alice'), 'file that holds the password'),
      }),
    ),
    [],
    'who may use it; none: everyone; needed for an address that is not loopback',
  ),
  allow: given(z.array(leaf(network())), [], 'client networks in CIDR form; none: all that can reach it'),
  denyTargets: given(
    z.array(leaf(denyTarget())),
    ['private', 'smtp'],
    'targets refused: hosts, networks, ports, `private` (this machine, private networks), `smtp` (mail ports)',
  ),
  idleTimeout: given(
    leaf(duration(SECOND_MS)),
    '10m',
    'a tunnel on which nothing moves for so long is closed',
  ),
  maxConnections: given(leaf(whole(1, MOST.tunnels)), '10000', 'client connections at once'),
  source: optional(
    leaf(text({ wants: 'the name of a source', good: 'city' })),
    'the one source that it gives members of',
    'all',
  ),
  session: given(
    leaf(oneOf(SESSION_MODES)),
    'none',
    'what keeps a client that names no session on one member: its address, the port it came to, its target, or none',
  ),
});

const CHECK = z.union([
  OFF,
  z.strictObject({
    url: required(leaf(pageAddress()), 'what is fetched through each member'),
    every: given(leaf(duration(SECOND_MS)), '30s', 'how often each member is checked'),
    timeout: given(leaf(duration(100)), '5s', 'longest time for the answer'),
    expectStatus: given(leaf(whole(100, 599)), '200', 'status of a healthy answer'),
  }),
]);

/** The whole file. */
export const SCHEMA = z.strictObject({
  service: given(
    z.strictObject({
      baseUrl: optional(
        leaf(baseAddress()),
        'address of the extraction service, {base_url}',
        'each source has its own',
      ),
      method: given(leaf(oneOf(METHODS)), 'GET', 'how parameters are sent: in the query, or as a form'),
      timeout: given(leaf(duration(100, 600 * SECOND_MS)), '10s', 'longest time for one call'),
    }),
    {},
    'the extraction service',
  ),
  account: optional(
    z.strictObject({
      username: required(
        leaf(text({ wants: 'the login name', good: 'someone' })),
        'login name of the account',
      ),
      password: optional(leaf(password()), 'its password; the key is derived from it'),
      passwordFile: optional(secretFile('/run/secrets/account'), 'file that holds the password'),
      key: optional(leaf(key()), 'the 16-character key itself'),
      keyFile: optional(secretFile('/run/secrets/account-key'), 'file that holds the key'),
    }),
    'the account, for `noria instances` alone',
    'none',
  ),
  sources: given(z.array(SOURCE), [], 'the instances to draw from; at least one, unless there is an account'),
  pool: given(
    z.strictObject({
      size: given(
        leaf(whole(1, MOST.members)),
        '20',
        'usable members to hold for each source while there is demand for it',
      ),
      idleAfter: given(
        leaf(duration(0, WEEK_MS)),
        '5m',
        'without a client for so long, drawing stops; 0 never stops it; start-up counts as a client',
      ),
      safetyMargin: given(
        leaf(duration(0, HOUR_MS)),
        '3s',
        'a member counts as expired so long before it does',
      ),
      minRemaining: given(
        leaf(duration(0, HOUR_MS)),
        '10s',
        'new tunnels avoid members with less than this left, if others exist',
      ),
      allowPrivateAddresses: given(
        leaf(flag()),
        'false',
        'accept members on loopback, private and link-local addresses',
      ),
    }),
    {},
    'the members held ready',
  ),
  rotation: given(
    z.strictObject({
      strategy: given(leaf(oneOf(STRATEGIES)), 'round-robin', 'how a member is picked'),
      maxTunnelsPerMember: given(
        leaf(whole(0, MOST.tunnels)),
        '0',
        'tunnels at once on one member; 0 is no limit',
      ),
      maxUsesPerMember: given(
        leaf(whole(0, MOST.tunnels)),
        '0',
        'a member is retired after so many uses; 0 is never',
      ),
      perHostSpacing: given(
        leaf(duration(0, HOUR_MS)),
        '0s',
        'least time between two uses of one member for one target host',
      ),
      sessionTtl: given(
        leaf(duration(SECOND_MS, WEEK_MS)),
        '10m',
        'how long an idle session keeps its member',
      ),
    }),
    {},
    'who gets which member',
  ),
  dial: given(
    z.strictObject({
      attempts: given(leaf(whole(1, MOST.attempts)), '3', 'members tried for one client request'),
      attemptTimeout: given(leaf(duration(100)), '5s', 'TCP connect and proxy handshake with one member'),
      hedgeAfter: given(
        leaf(wordOr(['auto', 'off'], duration(10))),
        'auto',
        'when a second attempt starts beside a slow first one; `auto` goes by what was measured',
      ),
      deadline: given(leaf(duration(100)), '30s', 'everything, waiting for a member included'),
      waitForMember: given(leaf(duration(0)), '15s', 'how long a client may wait while the pool is empty'),
    }),
    {},
    'how a target is reached',
  ),
  health: given(
    z.strictObject({
      maxFailures: given(leaf(whole(1, 1000)), '2', 'member faults in a row before it is evicted'),
      quarantine: given(
        leaf(duration(0)),
        '10s',
        'how long a faulty member rests before it may be tried again',
      ),
      check: given(CHECK, 'off', 'an active check of every member, or `off`'),
    }),
    {},
    'which members are trusted',
  ),
  listeners: given(z.array(LISTENER).min(1), [{}], 'where clients connect'),
  admin: given(
    z.union([
      OFF,
      z.strictObject({
        address: given(
          leaf(wordOr(['off'], listenAddress('one'))),
          '127.0.0.1:8889',
          'where the dashboard, the API and the metrics are; `off` disables them',
        ),
        token: optional(
          leaf(token()),
          'token that its clients must show; needed for an address that is not loopback',
          'none is asked for',
        ),
        tokenFile: optional(secretFile('/run/secrets/admin-token'), 'file that holds the token'),
      }),
    ]),
    {},
    'watching and steering a running noria',
  ),
  log: given(
    z.strictObject({
      level: given(leaf(oneOf(LOG_LEVELS)), 'info', 'least level that is logged'),
      format: given(
        leaf(oneOf(LOG_FORMATS)),
        'auto',
        'JSON lines, or pretty; `auto` is pretty on a terminal',
      ),
    }),
    {},
    'the log, on standard error',
  ),
  state: given(
    z.union([
      OFF,
      z.strictObject({
        dir: given(
          leaf(wordOr(['off'], text({ ...PATH, wants: 'the path of a folder', good: '/var/lib/noria' }))),
          './.noria',
          'folder for the pace and the snapshot of the pool, for one noria at a time; `off` keeps nothing',
        ),
      }),
    ]),
    {},
    'what outlives a restart',
  ),
  shutdown: given(
    z.strictObject({
      drainTimeout: given(leaf(duration(0)), '30s', 'how long open tunnels may go on after a signal to stop'),
    }),
    {},
    'how noria stops',
  ),
  workers: given(
    leaf(wordOr(['auto'], whole(1, MOST.processes))),
    '1',
    'processes sharing the listeners; `auto` is one for each core',
  ),
});

/** What the file says, with the defaults of the table filled in. */
export type RawConfig = z.output<typeof SCHEMA>;
/** One of its sources. */
export type RawSource = z.output<typeof SOURCE>;
/** One of its listeners. */
export type RawListener = z.output<typeof LISTENER>;
