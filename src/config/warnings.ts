/** Warnings about a valid configuration: settings that cost money, expose secrets, or have no effect. */

import { formatDuration, MINUTE_MS } from '../core/duration.ts';
import { formatListenAddress, isLocalAddress } from '../core/listen-address.ts';
import { isLoopbackAddress, isPrivateAddress } from '../core/networks.ts';
import { defaultLifetimeMs, OPERATIONS } from '../service/operations.ts';
import type { Config, ListenerConfig, SourceConfig } from './config.ts';
import type { Problems } from './problems.ts';

type Resolved = Omit<Config, 'warnings'>;

/** `config` must have all sources and listeners, in the order of the file: warnings contain their indexes. */
export function checkWarnings(config: Resolved, problems: Problems): void {
  checkClearText(config, problems);
  config.sources.forEach((source, index) => {
    const path = `sources[${index}]`;
    checkSize(source, path, problems);
    checkLifetimes({ source, path }, config, problems);
    checkSharedInstance(config.sources, index, problems);
  });
  config.listeners.forEach((listener, index) => {
    checkListener(listener, `listeners[${index}]`, problems);
  });
  checkAdmin(config, problems);
  checkFleet(config, problems);
  for (const path of problems.cutOffSecrets) {
    const message =
      'ends before the #, which begins a comment; put the value in quotes if the # belongs to it';
    problems.warn(path, message, 'value');
  }
  if (config.sources.length === 0) {
    problems.warn('account', 'without sources, noria draws nothing and cannot serve clients');
  }
  checkNoEffect(config, problems);
}

/** Every call contains the key. URLs of this machine and of private networks are exempt. */
function checkClearText({ service, sources }: Resolved, problems: Problems): void {
  const urls: (readonly [path: string, url: string | undefined])[] = [
    ['service.baseUrl', service.baseUrl],
    ...sources.map((source, index) => {
      const key = source.product === 'link' || source.product === 'list' ? 'url' : 'baseUrl';
      return [`sources[${index}].${key}`, source.baseUrl] as const;
    }),
  ];
  for (const [path, url] of urls) {
    if (url === undefined || !problems.isGiven(path)) continue;
    const { protocol, hostname } = new URL(url);
    const host = hostname.replace(/^\[|\]$/g, '');
    if (protocol === 'https:' || host === 'localhost' || isPrivateAddress(host)) continue;
    const message =
      'noria sends the key over the network unencrypted; use https:// if the service offers HTTPS';
    problems.warn(path, message, 'value');
  }
}

/** Anybody on the network could read the password of the store, and then read and change the data. */
function checkFleet({ fleet }: Resolved, problems: Problems): void {
  if (fleet === undefined || fleet.url.tls) return;
  const hosts = fleet.sentinel?.addresses.map(({ host }) => host) ?? [fleet.url.host];
  if (hosts.every((host) => host === 'localhost' || isLoopbackAddress(host))) return;
  const message =
    'noria sends the addresses of the members and the password of the store over the network unencrypted; use rediss:// if the store offers TLS';
  problems.warn(problems.isGiven('fleet.url') ? 'fleet.url' : 'fleet', message);
}

function checkSize(source: SourceConfig, path: string, problems: Problems): void {
  const { count, size, params, product, intervalMs } = source;
  if (count !== undefined && count > size) {
    const message = `count ${count} is more than size ${size}; no call asks for more than ${size} members`;
    problems.warn(`${path}.params.count`, message);
  }
  // for a link, the check ends here: the vendor decides how many proxies a call brings, and how long they live
  if (product === 'link' || product === 'gateway' || product === 'list') return;
  const leastLifeMs = source.lifetimeMs ?? defaultLifetimeMs(product, params);
  const perCall = Math.min(count ?? OPERATIONS[product].count.defaultMax, size);
  const sustained = Math.floor((perCall * leastLifeMs) / intervalMs);
  if (sustained < size) {
    problems.warn(
      problems.isGiven(`${path}.size`) ? `${path}.size` : path,
      `the pool may hold only ${sustained} members instead of size ${size}: a call brings ${perCall} members, calls are ${formatDuration(intervalMs)} apart, and members live ${formatDuration(leastLifeMs)}; lower size, or raise params.count`,
    );
  }
}

function checkLifetimes(
  { source, path }: { readonly source: SourceConfig; readonly path: string },
  config: Resolved,
  problems: Problems,
): void {
  const timespan = source.params['timespan'];
  const { minRemainingMs, safetyMarginMs } = config.pool;
  const margin = Math.max(minRemainingMs, safetyMarginMs);
  const timespanPath = `${path}.params.timespan`;
  if (source.lifetimeMs !== undefined && source.lifetimeMs <= safetyMarginMs) {
    const message = 'is not longer than pool.safetyMargin, so every new member already counts as expired';
    problems.warn(`${path}.lifetime`, message);
  }
  if (typeof timespan !== 'number' || !problems.isGiven(timespanPath)) return;
  if (timespan * MINUTE_MS < margin) {
    problems.warn(
      timespanPath,
      `lets the service return members with less than ${formatDuration(margin)} of lifetime left, and noria avoids such members; set timespan to ${Math.ceil(margin / MINUTE_MS)} to exclude them`,
    );
  } else if (config.rotation.maxUsesPerMember === 1 && timespan > 1) {
    problems.warn(
      timespanPath,
      `asks for a lifetime of ${timespan} minutes, but rotation.maxUsesPerMember: 1 retires a member after one use; with a smaller timespan, the service has more IPs to offer`,
    );
  }
}

function checkSharedInstance(sources: readonly SourceConfig[], index: number, problems: Problems): void {
  const source = sources[index];
  const first = sources.findIndex(
    (other) =>
      other.instance === source?.instance &&
      other.baseUrl === source.baseUrl &&
      other.extractHost === source.extractHost,
  );
  if (source === undefined || first === index) return;
  const [key, what] = source.product === 'link' ? ['url', 'link'] : ['instance', 'instance'];
  const message = `is also the ${what} of source ${sources[first]?.name}; both share one pace and one quota, so the second source brings no more members`;
  problems.warn(`sources[${index}].${key}`, message, 'value');
}

function checkListener(listener: ListenerConfig, path: string, problems: Problems): void {
  const { address, protocols, users } = listener;
  if (users.length > 0 && protocols.includes('socks4') && problems.isGiven(`${path}.protocols`)) {
    const message = 'SOCKS4 has no passwords, so SOCKS4 clients are refused by a listener with users';
    problems.warn(`${path}.protocols`, message);
  }
  if (isLocalAddress(address)) return;
  if (listener.allow.length === 0) {
    const clear =
      listener.tls === undefined ? ', and set tls, because passwords arrive unencrypted without TLS' : '';
    const message = `${formatListenAddress(address)} is open to the network; restrict it with allow${clear}`;
    problems.warn(`${path}.address`, message, 'value');
  }
  if (listener.denyTargets.length === 0) {
    const message =
      'noria refuses no target, so clients may send mail and reach private addresses through members; set denyTargets: [private, smtp] to prevent this';
    problems.warn(`${path}.denyTargets`, message);
  }
}

function checkAdmin({ admin }: Resolved, problems: Problems): void {
  if (admin === undefined || isLocalAddress(admin.address)) return;
  const message = `${formatListenAddress(admin.address)} is open to the network, and the token is sent unencrypted; put a TLS proxy in front of it, or listen on 127.0.0.1`;
  problems.warn('admin.address', message, 'value');
}

function checkNoEffect({ pool, dial }: Resolved, problems: Problems): void {
  const hedgeMs = typeof dial.hedgeAfter === 'number' ? dial.hedgeAfter : 0;
  const isShort = pool.minRemainingMs > 0 && pool.minRemainingMs <= pool.safetyMarginMs;
  for (const [key, hasNone, why] of [
    ['pool.minRemaining', isShort, 'it is not longer than pool.safetyMargin'],
    ['dial.attemptTimeout', dial.attemptTimeoutMs > dial.deadlineMs, 'dial.deadline is shorter'],
    ['dial.waitForMember', dial.waitForMemberMs > dial.deadlineMs, 'dial.deadline is shorter'],
    ['dial.hedgeAfter', hedgeMs >= dial.attemptTimeoutMs, 'dial.attemptTimeout is shorter'],
  ] as const)
    if (hasNone) problems.warn(key, `has no effect, because ${why}`);
}
