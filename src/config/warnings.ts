/** What is worth saying about a configuration that is valid: what costs money, leaks, or has no effect. */

import { formatListenAddress, isLocalAddress } from '../core/listen-address.ts';
import { isPrivateAddress } from '../core/networks.ts';
import { defaultLifetimeMs, OPERATIONS } from '../service/operations.ts';
import type { Config, ListenerConfig, SourceConfig } from './config.ts';
import type { Problems } from './problems.ts';
import { formatDuration } from './units.ts';

type Resolved = Omit<Config, 'warnings'>;

const MINUTE_MS = 60_000;

/** Tells every warning, each at its place. Only for a configuration without problems, whose entries are those of the file. */
export function logWarnings(config: Resolved, problems: Problems): void {
  warnOfClearText(config, problems);
  config.sources.forEach((source, index) => {
    warnOfSource(source, `sources[${index}]`, config, problems);
    warnOfTwin(config.sources, index, problems);
  });
  config.listeners.forEach((listener, index) => {
    warnOfListener(listener, `listeners[${index}]`, problems);
  });
  warnOfAdmin(config, problems);
  if (config.sources.length === 0) {
    problems.warn('account', 'is all there is: without sources nothing is drawn, and no client is served');
  }
  warnOfNoEffect(config, problems);
}

/** The key goes with every call; on this machine and in private networks nobody is told. */
function warnOfClearText({ service, sources }: Resolved, problems: Problems): void {
  const places = [
    ['service.baseUrl', service.baseUrl],
    ...sources.map((source, index) => [`sources[${index}].baseUrl`, source.baseUrl]),
  ];
  for (const [path, baseUrl] of places) {
    if (path === undefined || baseUrl === undefined || !problems.isGiven(path)) continue;
    const { protocol, hostname } = new URL(baseUrl);
    const host = hostname.replace(/^\[|\]$/g, '');
    if (protocol === 'https:' || host === 'localhost' || isPrivateAddress(host)) continue;
    problems.warn(
      path,
      'the key goes over the network in clear text; use https:// if the service offers it',
      'value',
    );
  }
}

function warnOfSource(source: SourceConfig, path: string, config: Resolved, problems: Problems): void {
  const { count, size, params } = source;
  if (count !== undefined && count > size) {
    problems.warn(
      `${path}.params.count`,
      `count ${count} is more than size ${size}: no call will ask for more than ${size}`,
    );
  }
  const leastLifeMs = source.lifetimeMs ?? defaultLifetimeMs(source.product, params);
  const perCall = Math.min(count ?? OPERATIONS[source.product].count.defaultMax, size);
  const sustained = Math.floor((perCall * leastLifeMs) / source.intervalMs);
  if (sustained < size) {
    problems.warn(
      problems.isGiven(`${path}.size`) ? `${path}.size` : path,
      `size ${size} may not be reached: ${perCall} members every ${formatDuration(source.intervalMs)} that live ${formatDuration(leastLifeMs)} make ${sustained}`,
    );
  }
  warnOfLifetimes(source, path, config, problems);
}

/** Lifetimes that are paid for and cannot be used. */
function warnOfLifetimes(source: SourceConfig, path: string, config: Resolved, problems: Problems): void {
  const timespan = source.params['timespan'];
  const { minRemainingMs, safetyMarginMs } = config.pool;
  const margin = Math.max(minRemainingMs, safetyMarginMs);
  const at = `${path}.params.timespan`;
  if (source.lifetimeMs !== undefined && source.lifetimeMs <= safetyMarginMs) {
    problems.warn(
      `${path}.lifetime`,
      'is not longer than pool.safetyMargin: every member would be expired when it comes',
    );
  }
  if (typeof timespan !== 'number' || !problems.isGiven(at)) return;
  if (timespan * MINUTE_MS < margin) {
    problems.warn(
      at,
      `draws members, too, that have less than ${formatDuration(margin)} to live, which are hardly used; ${Math.ceil(margin / MINUTE_MS)} leaves them out`,
    );
  } else if (config.rotation.maxUsesPerMember === 1 && timespan > 1) {
    problems.warn(
      at,
      `asks for ${timespan} minutes of life, and rotation.maxUsesPerMember: 1 retires a member after one use; a smaller timespan has more IPs to draw from`,
    );
  }
}

function warnOfTwin(sources: readonly SourceConfig[], index: number, problems: Problems): void {
  const source = sources[index];
  const first = sources.findIndex(
    (other) =>
      other.instance === source?.instance &&
      other.baseUrl === source.baseUrl &&
      other.extractHost === source.extractHost,
  );
  if (source === undefined || first === index) return;
  problems.warn(
    `sources[${index}].instance`,
    `is drawn from by ${sources[first]?.name} as well: both share one pace and one quota, so neither gets more`,
    'value',
  );
}

function warnOfListener(listener: ListenerConfig, path: string, problems: Problems): void {
  const { address, protocols, users } = listener;
  if (users.length > 0 && protocols.includes('socks4') && problems.isGiven(`${path}.protocols`)) {
    problems.warn(
      `${path}.protocols`,
      'SOCKS4 clients are refused where there are users: SOCKS4 carries no password',
    );
  }
  if (isLocalAddress(address)) return;
  const clear = listener.tls === undefined ? ', and passwords reach it in clear text unless tls is set' : '';
  if (listener.allow.length === 0) {
    problems.warn(
      `${path}.address`,
      `${formatListenAddress(address)} is open to the network: allow narrows it to the clients' networks${clear}`,
      'value',
    );
  }
  if (listener.denyTargets.length === 0) {
    problems.warn(
      `${path}.denyTargets`,
      'nothing is refused: clients may send mail and reach private addresses through every member',
    );
  }
}

function warnOfAdmin({ admin }: Resolved, problems: Problems): void {
  if (admin === undefined || isLocalAddress(admin.address)) return;
  problems.warn(
    'admin.address',
    `${formatListenAddress(admin.address)} is open to the network, and the token goes over it in clear text; put a TLS proxy before it, or listen on 127.0.0.1`,
    'value',
  );
}

/** Values that another one makes pointless. */
function warnOfNoEffect({ pool, dial }: Resolved, problems: Problems): void {
  if (pool.minRemainingMs > 0 && pool.minRemainingMs <= pool.safetyMarginMs) {
    problems.warn('pool.minRemaining', 'has no effect: it is not more than pool.safetyMargin');
  }
  if (dial.attemptTimeoutMs > dial.deadlineMs) {
    problems.warn('dial.attemptTimeout', 'has no effect: dial.deadline is shorter');
  }
  if (dial.waitForMemberMs > dial.deadlineMs) {
    problems.warn('dial.waitForMember', 'has no effect: dial.deadline is shorter');
  }
  if (typeof dial.hedgeAfter === 'number' && dial.hedgeAfter >= dial.attemptTimeoutMs) {
    problems.warn('dial.hedgeAfter', 'has no effect: dial.attemptTimeout is shorter');
  }
}
