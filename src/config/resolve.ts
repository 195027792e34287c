/** Turns a checked file into a Config: reads secrets, derives values, and checks the rules between sections. */
import { formatListenAddress, isLocalAddress, type ListenAddress, overlap } from '../core/listen-address.ts';
import { nearest } from '../core/nearest.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { CheckedConfig } from './check.ts';
import type { AccountConfig, AdminConfig, Config } from './config.ts';
import { type ResolveContext, resolveKey } from './credentials.ts';
import { resolveFleet } from './fleet.ts';
import { resolveListener } from './listeners.ts';
import { frontProxy } from './network-scalars.ts';
import type { Problems } from './problems.ts';
import { addPortListener, addressOfPorts, hasPorts } from './proxy-pool.ts';
import { token } from './secret-scalars.ts';
import { resolveSource } from './sources.ts';

/** Reports problems to `context.problems`. The result is valid only if it has no errors. */
export function resolveConfig(
  checked: CheckedConfig,
  file: string,
  context: ResolveContext,
): Omit<Config, 'warnings'> {
  const defaults = { baseUrl: checked.service.baseUrl, size: checked.pool.size };
  const sources = checked.sources.map(
    (source, index) => source && resolveSource(source, `sources[${index}]`, defaults, context),
  );
  const listeners = checked.listeners.map(
    (listener, index) => listener && resolveListener(listener, `listeners[${index}]`, context),
  );
  const dir = checked.state?.dir ?? 'off';
  const config = {
    ...checked,
    service: resolveVia(checked.service, 'service', context),
    dial: resolveVia(checked.dial, 'dial', context),
    file,
    account: checked.account && resolveAccount(checked.account, context),
    sources: sources.filter((source) => source !== undefined),
    listeners: addPortListener(checked.proxyPool, listeners, context.problems),
    admin: resolveAdmin(checked.admin, context),
    state: dir === 'off' ? undefined : { dir: context.files.absolute(dir) },
    fleet: checked.fleet && resolveFleet(checked.fleet, context),
  };
  if (!context.problems.hasAt('')) checkAcross(checked, context.problems);
  return config;
}

function resolveAccount(
  account: NonNullable<CheckedConfig['account']>,
  context: ResolveContext,
): AccountConfig | undefined {
  const found = resolveKey(account, 'account', 'key', context);
  return found && { username: account.username, key: found.key };
}

function resolveVia<Section extends Pick<CheckedConfig['service'], 'via' | 'viaFile'>>(
  section: Section,
  name: string,
  { files }: ResolveContext,
): Section {
  const keys = { plain: section.via, file: section.viaFile };
  return { ...section, via: files.readSecret(`${name}.via`, keys, frontProxy()), viaFile: undefined };
}

function resolveAdmin(
  admin: CheckedConfig['admin'],
  { problems, files }: ResolveContext,
): AdminConfig | undefined {
  if (admin === undefined || admin.address === 'off') return undefined;
  const { address } = admin;
  const found = files.readSecret('admin.token', { plain: admin.token, file: admin.tokenFile }, token());
  const wanted = ['admin.token', 'admin.tokenFile'];
  if (found === undefined && !isLocalAddress(address) && !wanted.some((path) => problems.has(path))) {
    problems.missing(
      'admin.address',
      `other machines can reach ${formatListenAddress(address)}, and there is no token; set token or tokenFile, or listen on 127.0.0.1`,
      { wanted, side: 'value' },
    );
  }
  return { address, token: found };
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
  checkListenerSources(checked, problems);
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
    const example = 'http://extract.example.com';
    const message = `is missing, but required by ${users.join(', ')}; set it, for example to ${example}`;
    problems.missing('service.baseUrl', message);
  }
}

function checkListenerSources({ sources, listeners }: CheckedConfig, problems: Problems): void {
  const names = sources.map((source) => source?.name);
  const known = names.filter((name) => name !== undefined);
  if (known.length < names.length) return; // invalid sources are not in `known`, so a listener may name one of them
  listeners.forEach((listener, index) => {
    if (listener?.source === undefined || known.includes(listener.source)) return;
    const path = `listeners[${index}].source`;
    const meant = nearest(listener.source, known);
    const advice = meant === undefined ? '' : ` (did you mean ${meant}?)`;
    const quoted = problems.quote(path, listener.source);
    const choice = known.length === 0 ? 'there are no sources' : `expected one of ${known.join(', ')}`;
    problems.error(path, `${quoted} is not a source${advice}; ${choice}`.trim());
  });
}

function checkOverlaps({ listeners, admin, proxyPool }: CheckedConfig, problems: Problems): void {
  const addresses: (readonly [path: string, address: ListenAddress | undefined])[] = listeners.map(
    (listener, index) => [`listeners[${index}].address`, listener?.address],
  );
  if (admin !== undefined && admin.address !== 'off') addresses.push(['admin.address', admin.address]);
  if (proxyPool !== undefined) {
    addresses.push(['proxyPool.address', proxyPool.address]);
    const { ports } = proxyPool;
    if (!listeners.some((listener) => listener && hasPorts(listener.address, ports))) {
      addresses.push(['proxyPool.ports', addressOfPorts(ports)]);
    }
  }
  addresses.forEach(([path, address], index) => {
    const earlier = addresses
      .slice(0, index)
      .find(([, other]) => address && other && overlap(address, other));
    if (address === undefined || earlier === undefined) return;
    if (problems.has(path) || problems.has(earlier[0])) return;
    problems.error(path, `${formatListenAddress(address)} conflicts with ${earlier[0]}; use another port`);
  });
}
