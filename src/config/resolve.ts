/** Turns a checked file into a Config: reads secrets, derives values, and checks the rules between sections. */
import { createSecureContext } from 'node:tls';
import { describeError } from '../core/faults.ts';
import { hostPort } from '../core/host-port.ts';
import {
  boundAddresses,
  formatListenAddress,
  hasPorts,
  isLocalAddress,
  isOwnMember,
  type ListenAddress,
  overlap,
} from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import { nearest } from '../core/words.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { CheckedConfig } from './check.ts';
import type { Config, FleetConfig, ListenerConfig, ProxyPoolConfig } from './config.ts';
import type { FileReader } from './files.ts';
import type { Problems } from './problems.ts';
import type { PortNumbers, StoreUrl } from './scalars.ts';
import { type FileFleet, type FileListener, LISTENER } from './schema.ts';
import { resolveKey, resolveUser, SourceResolver } from './sources.ts';

/** For a fleet with Sentinels and no `url`: host and port come from the Sentinels. */
const ANY_STORE: StoreUrl = {
  ...{ tls: false, host: 'localhost', port: 6379, database: 0 },
  ...{ username: undefined, password: undefined },
};

export function resolveConfig(
  checked: CheckedConfig,
  file: string,
  files: FileReader,
): Omit<Config, 'warnings'> {
  const { problems } = files;
  const { account, state, log } = checked;
  const key = account && resolveKey(account, { path: 'account', keyName: 'key' }, problems);
  const listeners = checked.listeners.map(
    (listener, index) => listener && resolveListener(listener, `listeners[${index}]`, files),
  );
  const config = {
    ...checked,
    file,
    account: account && key && { username: account.username, key },
    sources: checked.sources.flatMap(
      (source, index) =>
        (source && new SourceResolver(source, `sources[${index}]`, checked, files).resolve()) ?? [],
    ),
    listeners: addPortListener(checked.proxyPool, listeners, problems),
    admin: resolveAdmin(checked.admin, problems),
    log: { ...log, access: /^(?:off|stdout)$/.test(log.access) ? log.access : files.absolute(log.access) },
    state: state === undefined || state.dir === 'off' ? undefined : { dir: files.absolute(state.dir) },
    fleet: checked.fleet && resolveFleet(checked.fleet, files),
  };
  if (!problems.hasAt('')) checkAcross(checked, problems);
  checkVia('service', checked, problems);
  checkVia('dial', checked, problems);
  return config;
}

/** A front proxy at one of noria's own addresses would send each connection back to noria, without end. */
function checkVia(section: 'service' | 'dial', checked: CheckedConfig, problems: Problems): void {
  const { via } = checked[section];
  const target = via && hostPort(via.host, via.port);
  if (target === undefined) return;
  const own = ownAddresses(checked).find(
    ([, address]) => address !== undefined && isOwnMember(target, boundAddresses(address)),
  );
  if (own === undefined) return;
  const path = problems.isGiven(`${section}.viaFile`) ? `${section}.viaFile` : `${section}.via`;
  const message = `is an address of noria itself (${own[0]}), so noria would connect to itself without end; set it to the address of the front proxy`;
  problems.error(path, message);
}

function resolveAdmin(admin: CheckedConfig['admin'], problems: Problems): Config['admin'] {
  if (admin === undefined || admin.address === 'off') return undefined;
  const { address, token } = admin;
  const wanted = ['admin.token', 'admin.tokenFile'];
  if (token === undefined && !isLocalAddress(address) && !wanted.some((path) => problems.has(path))) {
    problems.missing(
      'admin.address',
      `other machines can reach ${formatListenAddress(address)}, and there is no token; set token or tokenFile, or listen on 127.0.0.1`,
      { wanted, side: 'value' },
    );
  }
  return { address, token };
}

function checkAcross(checked: CheckedConfig, problems: Problems): void {
  const { sources, account } = checked;
  if (sources.length === 0 && account === undefined && !problems.has('sources')) {
    problems.missing('sources', 'there is nothing to draw from; add at least one source', {
      wanted: ['sources', 'account'],
    });
  }
  checkBaseUrl(checked, problems);
  problems.duplicates(sources.map((source, index) => [`sources[${index}].name`, source?.name]));
  checkSourceNames(checked, problems);
  checkOverlaps(checked, problems);
}

function checkBaseUrl({ sources, account, service }: CheckedConfig, problems: Problems): void {
  if (service.baseUrl !== undefined || problems.has('service.baseUrl')) return;
  const users = sources.flatMap((source) =>
    source !== undefined && OPERATIONS[source.product].server === 'base' && source.baseUrl === undefined
      ? [source.name]
      : [],
  );
  if (account !== undefined) users.push('account');
  if (users.length > 0) {
    const message = `is missing, but required by ${users.join(', ')}; set it, for example to http://extract.example.com`;
    problems.missing('service.baseUrl', message);
  }
}

function checkSourceNames({ sources, listeners, targets }: CheckedConfig, problems: Problems): void {
  const names = sources.map((source) => source?.name);
  const known = names.filter((name) => name !== undefined);
  // `known` lacks the names of invalid sources, and a listener may use one of them. So if any source is invalid, noria
  // checks no name.
  if (known.length < names.length) return;
  for (const [section, entries] of Object.entries({ listeners, targets })) {
    entries.forEach((entry, index) => {
      if (entry?.source === undefined || known.includes(entry.source)) return;
      const path = `${section}[${index}].source`;
      const meant = nearest(entry.source, known);
      const advice = meant === undefined ? '' : ` (did you mean ${meant}?)`;
      const quoted = problems.quote(path, entry.source);
      const choice = known.length === 0 ? 'there are no sources' : `expected one of ${known.join(', ')}`;
      problems.error(path, `${quoted} is not a source${advice}; ${choice}`.trim());
    });
  }
}

type OwnAddress = readonly [path: string, address: ListenAddress | undefined];

function ownAddresses({ listeners, admin, proxyPool }: CheckedConfig): OwnAddress[] {
  const addresses = listeners.map(
    (listener, index): OwnAddress => [`listeners[${index}].address`, listener?.address],
  );
  if (admin !== undefined && admin.address !== 'off') addresses.push(['admin.address', admin.address]);
  if (proxyPool !== undefined) {
    addresses.push(['proxyPool.address', proxyPool.address]);
    const { ports } = proxyPool;
    if (!listeners.some((listener) => listener && hasPorts(listener.address, ports))) {
      addresses.push(['proxyPool.ports', addressOfPorts(ports)]);
    }
  }
  return addresses;
}

function checkOverlaps(checked: CheckedConfig, problems: Problems): void {
  const addresses = ownAddresses(checked);
  addresses.forEach(([path, address], index) => {
    const earlier = addresses
      .slice(0, index)
      .find(([, other]) => address && other && overlap(address, other));
    if (address === undefined || earlier === undefined) return;
    if (problems.has(path) || problems.has(earlier[0])) return;
    problems.error(path, `${formatListenAddress(address)} conflicts with ${earlier[0]}; use another port`);
  });
}

function resolveListener(
  listener: FileListener,
  path: string,
  files: FileReader,
): ListenerConfig | undefined {
  const { problems } = files;
  const { address, protocols } = listener;
  const users = listener.users.map((user, index) => {
    const login = resolveUser(user, `${path}.users[${index}]`, problems);
    return login && { ...login, limits: user.limits };
  });
  problems.duplicates(
    listener.users.map(({ username }, index) => [`${path}.users[${index}].username`, username]),
  );
  problems.duplicates(protocols.map((protocol, index) => [`${path}.protocols[${index}]`, protocol]));
  if (users.length === 0 && !isLocalAddress(address) && !problems.has(`${path}.users`)) {
    problems.missing(
      `${path}.address`,
      `other machines can reach ${formatListenAddress(address)}, and without users anyone could use this proxy; add users, or listen on 127.0.0.1`,
      { wanted: [`${path}.users`], side: 'value' },
    );
  }
  const tls = listener.tls && resolveTls(listener.tls, `${path}.tls`, files);
  const valid = users.filter((user) => user !== undefined);
  if (valid.length < users.length || (listener.tls !== undefined && tls === undefined)) return undefined;
  return { ...listener, tls, users: valid };
}

function resolveTls(
  tls: NonNullable<FileListener['tls']>,
  path: string,
  files: FileReader,
): ListenerConfig['tls'] {
  const cert = files.readText(`${path}.cert`, tls.cert, { isSecret: false });
  const key = files.readText(`${path}.key`, tls.key, { isSecret: true });
  if (cert === undefined || key === undefined) return undefined;
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    const reason = describeError(error);
    files.problems.error(path, `the certificate and the key cannot be used together: ${reason}`, 'key');
    return undefined;
  }
  const paths = { cert: files.absolute(tls.cert), key: files.absolute(tls.key) };
  return { files: paths, cert, key: new Secret(key) };
}

function resolveFleet(fleet: FileFleet, files: FileReader): FleetConfig | undefined {
  const { problems } = files;
  const { sentinel } = fleet;
  const wanted = ['fleet.url', 'fleet.urlFile'];
  if (
    fleet.url === undefined &&
    sentinel === undefined &&
    ![...wanted, 'fleet.sentinel'].some((path) => problems.has(path))
  ) {
    problems.missing('fleet', 'names no store; set url or urlFile', { wanted });
  }
  const url = fleet.url ?? (sentinel && ANY_STORE);
  const tls = fleet.tls && resolveStoreTls(fleet.tls, files);
  if (url === undefined || problems.has('fleet.tls')) return undefined;
  if (tls !== undefined && !url.tls) {
    problems.error('fleet.tls', 'has no effect without TLS; begin the URL with rediss://', 'key');
    return undefined;
  }
  return { ...fleet, url, tls };
}

function resolveStoreTls(tls: NonNullable<FileFleet['tls']>, files: FileReader): FleetConfig['tls'] {
  const { problems } = files;
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    problems.error('fleet.tls', 'needs both cert and key, or neither', 'key');
    return undefined;
  }
  const read = (name: 'ca' | 'cert' | 'key') =>
    tls[name] && files.readText(`fleet.tls.${name}`, tls[name], { isSecret: name === 'key' });
  const [ca, cert, key] = [read('ca'), read('cert'), read('key')];
  if (problems.has('fleet.tls')) return undefined;
  try {
    createSecureContext({ ca, cert, key });
  } catch (error) {
    problems.error('fleet.tls', `these files cannot be used: ${describeError(error)}`, 'key');
    return undefined;
  }
  const absolute = (path: string | undefined) => path && files.absolute(path);
  const paths = { ca: absolute(tls.ca), cert: absolute(tls.cert), key: absolute(tls.key) };
  return { files: paths, ca, cert, key: key === undefined ? undefined : new Secret(key) };
}

function addPortListener(
  proxyPool: ProxyPoolConfig | undefined,
  listeners: readonly (ListenerConfig | undefined)[],
  problems: Problems,
): readonly ListenerConfig[] {
  const known = listeners.filter((listener) => listener !== undefined);
  if (proxyPool === undefined) return known;
  const { ports } = proxyPool;
  const index = listeners.findIndex((listener) => listener && hasPorts(listener.address, ports));
  const found = listeners[index];
  if (found !== undefined && found.session !== 'port') {
    problems.error(
      'proxyPool.ports',
      `listeners[${index}] has these ports, but not session: port; set session: port in that listener`,
    );
  }
  if ((found?.users.length ?? 0) === 0) checkReach(proxyPool, index, problems);
  if (found !== undefined) return known;
  const defaults = LISTENER.parse({ session: 'port' });
  return [...known, { ...defaults, address: addressOfPorts(ports), users: [], tls: undefined }];
}

function addressOfPorts({ first, last }: PortNumbers): ListenAddress {
  return { kind: 'tcp', host: '127.0.0.1', port: first, lastPort: last };
}

/** Without users of the listener on `proxyPool.ports`, the API needs no password. */
function checkReach({ address }: ProxyPoolConfig, index: number, problems: Problems): void {
  if (isLocalAddress(address)) return;
  const solution =
    index < 0
      ? 'add a listener on these ports, with users and session: port'
      : `add users to listeners[${index}]`;
  problems.error(
    'proxyPool.address',
    `other machines can reach ${formatListenAddress(address)}, and the listener on proxyPool.ports has no users; ${solution}, or listen on 127.0.0.1`,
  );
}
