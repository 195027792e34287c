/**
 * Every key of noria's YAML: its type, range, default, and a line that describes it. Defaults are written as in YAML.
 *
 * Keys are declared only here and, for sources, in schema-source.ts. The loader, its messages, the type Config,
 * `noria check` and the JSON Schema come from this table. test/held/configuration.test.ts compares
 * config.example.yaml and docs/configuration.md with it. Rules about several keys are in resolve.ts and sources.ts.
 */
import { z } from 'zod';
import { HOUR_MS, SECOND_MS, WEEK_MS } from '../core/duration.ts';
import { NOTICE_EVENTS } from '../core/events.ts';
import { LOG_FORMATS, LOG_LEVELS } from '../core/log-options.ts';
import { LISTENER_PROTOCOLS } from '../core/protocol.ts';
import { STRATEGIES } from '../pool/options.ts';
import { METHODS } from '../service/operations.ts';
import { given, group, optional, optionalGroup, required, section, sectionOrOff } from './keys.ts';
import {
  baseAddress,
  byteSize,
  denyTarget,
  duration,
  filePath,
  flag,
  frontProxy,
  key,
  listenAddress,
  MAX,
  network,
  oneOf,
  pageAddress,
  password,
  portNumbers,
  rate,
  secretFile,
  sentinelAddress,
  shortName,
  sitePattern,
  storeUrl,
  text,
  token,
  username,
  webhookUrl,
  whole,
  wordOr,
} from './scalars.ts';
import { SOURCE } from './schema-source.ts';

const onlySource = (about: string) =>
  optional(text({ expected: 'the name of a source', example: 'city' }), about, 'all sources');

const throughProxy = (about: string, otherwise: string) => ({
  via: optional(frontProxy(), about, otherwise),
  viaFile: optional(secretFile('/run/secrets/via'), 'file that contains the URL of the front proxy'),
});

const USER = section({
  username: required(username(), 'name of the user; a client can append routing options to it'),
  password: optional(password(), 'password of the user'),
  passwordFile: optional(secretFile('/run/secrets/alice'), 'file that contains the password'),
  limits: optionalGroup('what the user may use; beyond it, requests get 429 `limit`', 'no limits', {
    tunnels: optional(whole(1, MAX.tunnels), 'maximum number of requests and tunnels at once', 'no limit'),
    rate: optional(rate(), 'maximum rate of requests', 'no limit'),
    bytesPerDay: optional(byteSize(), 'maximum number of bytes in a day, in both directions', 'no limit'),
    membersPerDay: optional(whole(1, MAX.members), 'maximum number of distinct members in a day', 'no limit'),
    source: onlySource('the only source whose members the user gets'),
  }),
});

export const LISTENER = section({
  address: given(
    listenAddress('range'),
    '127.0.0.1:8888',
    'address and port to listen on, or a range of ports',
  ),
  protocols: given(
    z.array(oneOf(LISTENER_PROTOCOLS)).min(1),
    [...LISTENER_PROTOCOLS],
    'protocols that clients may use',
  ),
  tls: optionalGroup('clients connect to the proxy with TLS (an https:// proxy)', 'no TLS', {
    cert: required(filePath('/etc/noria/cert.pem'), 'certificate with its chain, in PEM'),
    key: required(filePath('/etc/noria/key.pem'), 'private key of the certificate, in PEM'),
  }),
  users: given(
    z.array(USER),
    [],
    'who may use the listener; empty: everyone; required for an address that is not loopback',
  ),
  proxyProtocol: given(
    z.array(network()),
    [],
    'networks of balancers whose connections begin with a PROXY protocol header, version 1 or 2: the address of the client is read from it',
  ),
  allow: given(
    z.array(network()),
    [],
    'networks of the allowed clients, in CIDR form; empty: every client that can connect',
  ),
  denyTargets: given(
    z.array(denyTarget()),
    ['private', 'smtp'],
    'refused targets: hosts, networks, ports, `private` (this machine, private networks), `smtp` (mail ports)',
  ),
  idleTimeout: given(duration(SECOND_MS), '10m', 'time after which a tunnel without traffic is closed'),
  maxConnections: given(whole(1, MAX.tunnels), '10000', 'maximum number of client connections at once'),
  source: onlySource('the only source whose members this listener uses'),
  session: given(
    oneOf(['none', 'client-ip', 'port', 'target-host']),
    'none',
    'default session of clients that name no session: one per client address, local port or target host; `none`: no session',
  ),
});

const FLEET = section({
  url: optional(
    storeUrl(),
    'address of the store: Valkey, or Redis 7.0 or later',
    'required, unless `fleet.sentinel` is set',
  ),
  urlFile: optional(secretFile('/run/secrets/fleet-url'), 'file that contains the address of the store'),
  name: given(
    shortName('letters, digits, `-` and `_`', /^[A-Za-z0-9_-]{1,64}$/, 'crawl'),
    'noria',
    'norias with the same name share one pool',
  ),
  replica: optional(
    shortName('letters, digits, `.`, `-` and `_`', /^[A-Za-z0-9._-]{1,64}$/, '${HOSTNAME}'),
    'name of this noria, unique in the fleet',
    'the host name with a random suffix',
  ),
  tls: optionalGroup(
    'how noria checks the store and identifies itself, for `rediss://`',
    'noria trusts the authorities that Node trusts, and presents no certificate',
    {
      ca: optional(
        filePath('/etc/noria/ca.pem'),
        'certificates of the authorities to trust, in PEM',
        'the authorities that Node trusts',
      ),
      cert: optional(filePath('/etc/noria/client.pem'), "noria's own certificate for the store, in PEM"),
      key: optional(filePath('/etc/noria/client.key'), "private key of noria's own certificate, in PEM"),
    },
  ),
  sentinel: optionalGroup(
    'Sentinels that know the address of the store, in place of the host in `url`',
    'none',
    {
      primary: required(
        text({ expected: 'the name of a primary', example: 'mymaster' }),
        'name of the primary, as the Sentinels know it',
      ),
      addresses: required(
        z.array(sentinelAddress()).min(1),
        'addresses of the Sentinels; noria asks them in this order',
      ),
    },
  ),
});

const TARGET = section({
  match: required(
    z.array(sitePattern()).min(1),
    'hosts that form one site; it gets the name of the first one; the first rule that matches a host applies',
  ),
  spacing: given(
    wordOr(['auto'], duration(0, HOUR_MS)),
    'auto',
    'least time between two uses of one exit at this site; `auto`: learnt from bans, at most 5m',
  ),
  tunnelsPerMember: given(
    whole(0, MAX.tunnels),
    '0',
    'maximum number of tunnels to this site through one exit at once; 0: no other limit than `rotation.maxTunnelsPerMember`',
  ),
  rate: given(
    wordOr(['off'], rate()),
    'off',
    'most requests to this site through all exits together; more requests wait, then get 429',
  ),
  ban: group('when an exit counts as banned by this site, and for how long', {
    for: given(
      duration(SECOND_MS, WEEK_MS),
      '10m',
      'how long a ban lasts; each further ban of an exit lasts twice as long',
    ),
    max: given(
      duration(SECOND_MS, WEEK_MS),
      '24h',
      'maximum length of a ban, also of one whose time a client or the site names',
    ),
    onStatus: given(
      z.union([oneOf(['auto', 'off']), z.array(whole(400, 599)).min(1)]),
      'auto',
      'HTTP statuses (plain HTTP) that mean a ban; `auto`: noria compares exits; `off`: none; a list: always these',
    ),
  }),
  drawsForBans: given(
    whole(0, 100_000),
    '60',
    'maximum number of IPs an hour that noria draws for each source because of bans of this site',
  ),
  source: onlySource('the only source whose members noria uses for this site'),
});

const NOTICE = section({
  url: required(webhookUrl(), 'where the notice is sent, with POST'),
  on: given(
    z.array(oneOf(NOTICE_EVENTS)).min(1),
    [...NOTICE_EVENTS],
    'what noria tells: once when it begins and once when it ends',
  ),
  body: optional(
    text({
      expected: 'a text',
      example: '\'{"text":"noria {event} {state}: {reason} {advice}"}\'',
      maxBytes: 4096,
    }),
    'a template, in which {event}, {state}, {at}, {instance}, {reason} and {advice} are replaced',
    'a JSON object with these fields',
  ),
});

export const SCHEMA = z.strictObject({
  service: group('the extraction service', {
    baseUrl: optional(
      baseAddress(),
      'address of the extraction service (base_url in its documentation)',
      'none; then every source needs its own `baseUrl`',
    ),
    method: given(oneOf(METHODS), 'GET', 'how parameters are sent: in the query (GET) or as a form (POST)'),
    timeout: given(duration(100, 600 * SECOND_MS), '10s', 'timeout of one call'),
    ...throughProxy(
      'front proxy through which noria calls the service',
      'noria connects directly to the service',
    ),
  }),
  account: optionalGroup('the account, only for `noria instances`', 'none', {
    username: required(text({ expected: 'a login name', example: 'someone' }), 'login name of the account'),
    password: optional(password(), 'password of the account; noria derives the key from it'),
    passwordFile: optional(secretFile('/run/secrets/account'), 'file that contains the password'),
    key: optional(key(), 'the 16-character key, in place of the password'),
    keyFile: optional(secretFile('/run/secrets/account-key'), 'file that contains the key'),
  }),
  sources: given(z.array(SOURCE), [], 'the instances to draw from; at least one, unless there is an account'),
  pool: group('the pool of members that noria keeps ready', {
    size: given(whole(1, MAX.members), '20', 'the most usable members to hold for each source'),
    fill: given(
      oneOf(['demand', 'size']),
      'demand',
      '`demand`: hold as many members as the measured demand uses, at most `size`; `size`: hold `size` members while there is demand',
    ),
    idleAfter: given(
      duration(0, WEEK_MS),
      '5m',
      'noria stops drawing this long after the last client request; 0: never, so that the pool is always full; before the first client, noria draws once',
    ),
    safetyMargin: given(
      duration(0, HOUR_MS),
      '3s',
      'a member counts as expired this long before its lifetime ends',
    ),
    minRemaining: given(
      duration(0, HOUR_MS),
      '10s',
      'new tunnels use a member with less lifetime left than this only if no other member is available',
    ),
    allowPrivateAddresses: given(
      flag(),
      'false',
      'whether noria accepts members on loopback, private and link-local addresses',
    ),
  }),
  rotation: group('which member a client gets', {
    strategy: given(oneOf(STRATEGIES), 'round-robin', 'how the pool picks a member'),
    maxTunnelsPerMember: given(
      whole(0, MAX.tunnels),
      '0',
      'maximum number of tunnels through one member at once; 0: no limit',
    ),
    maxUsesPerMember: given(
      whole(0, MAX.tunnels),
      '0',
      'number of uses after which a member is retired; 0: never',
    ),
    perHostSpacing: given(
      duration(0, HOUR_MS),
      '0s',
      'minimum time between two uses of one exit for the same site; a `spacing` of `targets` replaces it',
    ),
    sessionTtl: given(duration(SECOND_MS, WEEK_MS), '10m', 'how long an idle session keeps its member'),
    maxSessionTtl: given(
      duration(SECOND_MS, WEEK_MS),
      '24h',
      'maximum `ttl` that a client may set; longer ones are refused',
    ),
    maxSessionsPerClient: given(
      whole(1, MAX.sessions),
      '1000',
      'maximum number of sessions of one user (of one client address if there are no users); at the limit, the session that has been idle longest ends',
    ),
  }),
  dial: group('how noria connects to a target', {
    attempts: given(
      whole(1, MAX.attempts),
      '3',
      'maximum number of members that noria tries for one client request; members that fail within 100 ms do not count, but noria never tries more than 10 members in total',
    ),
    attemptTimeout: given(duration(100), '5s', 'timeout of TCP connect and proxy handshake with one member'),
    hedgeAfter: given(
      wordOr(['auto', 'off'], duration(10)),
      'auto',
      'time after which a second attempt starts in parallel with a slow first one; `auto`: noria derives it from measured latency',
    ),
    deadline: given(duration(100), '30s', 'time limit for one request, including the wait for a member'),
    waitForMember: given(duration(0), '15s', 'how long a request may wait while the pool is empty'),
    warm: given(
      wordOr(['auto', 'off'], whole(1, MAX.warm)),
      'auto',
      'maximum number of warm connections to the members of each source; noria opens them before tunnels need them; `off`: none; `auto`: as many as the current rate of tunnels needs',
    ),
    ...throughProxy(
      'front proxy through which noria connects to the members',
      'noria connects to the members itself',
    ),
  }),
  health: group('when a member counts as faulty', {
    maxFailures: given(whole(1, 1000), '2', 'consecutive failures after which a member is evicted'),
    quarantine: given(duration(0), '10s', 'how long a member is not used after a failure'),
    check: given(
      sectionOrOff({
        url: required(pageAddress(), 'page to fetch through each member'),
        every: given(duration(SECOND_MS), '30s', 'how often each member is checked'),
        timeout: given(duration(100), '5s', 'timeout of one check'),
        expectStatus: given(whole(100, 599), '200', 'HTTP status of a healthy answer'),
      }),
      'off',
      'active health check of every member, or `off`',
    ),
  }),
  targets: given(
    z.array(TARGET),
    [],
    'rules for sites; a site without a rule is a registrable domain or an IP address, with the defaults of the keys below',
  ),
  listeners: given(z.array(LISTENER).min(1), [{}], 'where clients connect'),
  admin: given(
    sectionOrOff({
      address: given(
        wordOr(['off'], listenAddress('one')),
        '127.0.0.1:8889',
        'address of the dashboard, the API and the metrics; `off` disables them',
      ),
      token: optional(
        token(),
        'token that API clients must send; required for an address that is not loopback',
        'no token is needed',
      ),
      tokenFile: optional(secretFile('/run/secrets/admin-token'), 'file that contains the token'),
    }),
    {},
    'the server to monitor and control a running noria',
  ),
  log: group('the log, on standard error', {
    level: given(oneOf(LOG_LEVELS), 'info', 'lowest level that is logged'),
    format: given(
      oneOf(LOG_FORMATS),
      'auto',
      'JSON lines or pretty text; `auto`: pretty on a terminal, JSON elsewhere',
    ),
    access: given(
      wordOr(['off', 'stdout'], filePath('/var/log/noria/access.log')),
      'off',
      'one JSON line for each client request, with its target, to a file or to standard output',
    ),
  }),
  notify: given(z.array(NOTICE), [], 'who is told when noria has a problem'),
  state: given(
    sectionOrOff({
      dir: given(
        wordOr(['off'], filePath('/var/lib/noria', 'the path of a folder')),
        './.noria',
        'folder for the pace, the members and the sessions, used by one noria at a time; `off` stores nothing',
      ),
    }),
    {},
    'the state that noria keeps across a restart',
  ),
  shutdown: group('how noria stops', {
    drainTimeout: given(duration(0), '30s', 'how long open tunnels may continue after a stop signal'),
  }),
  workers: given(
    wordOr(['auto'], whole(1, MAX.processes)),
    '1',
    'number of processes that share the listeners; `auto`: one for each CPU core',
  ),
  fleet: optional(FLEET, 'norias on several machines that share one pool', 'this noria shares nothing'),
  proxyPool: optionalGroup(
    'an HTTP API that hands out local ports, each of which uses one member; it is compatible with raw proxy pools (proxy-pool.md)',
    'none',
    {
      address: given(
        listenAddress('one'),
        '127.0.0.1:5010',
        'address of the API; if other machines can reach it, the listener on proxyPool.ports must have users',
      ),
      ports: given(
        portNumbers(),
        '24000-24019',
        'local ports that the API hands out; if no listener with `session: port` has them, noria opens them on 127.0.0.1',
      ),
    },
  ),
});

/** After check.ts: defaults are added; the rules that concern several keys are not checked yet. */
export type FileConfig = z.output<typeof SCHEMA>;
export type FileListener = z.output<typeof LISTENER>;
export type FileFleet = z.output<typeof FLEET>;
