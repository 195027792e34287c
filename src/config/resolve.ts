/** The checked file as a Config: everything derived, and the rules that hold between its parts. */

import { formatListenAddress, isLocalAddress, type ListenAddress, overlap } from '../core/listen-address.ts';
import { nearest } from '../core/nearest.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { CheckedConfig } from './check.ts';
import type { AccountConfig, AdminConfig, Config, HealthCheckConfig } from './config.ts';
import { besideConfig, type ConfigFiles } from './files.ts';
import { key, password, token } from './kinds.ts';
import { type ListenerContext, resolveListener, tellTwins } from './listeners.ts';
import type { Problems } from './problems.ts';
import { SecretReader } from './secrets.ts';
import { deriveKey, resolveSource } from './sources.ts';

/** What a file is resolved with. */
export interface ResolveContext {
  /** As it was named. */
  readonly file: string;
  readonly files: ConfigFiles;
  readonly problems: Problems;
}

/** A configuration but for its warnings, and what they are made from. */
export interface Resolved {
  readonly config: Omit<Config, 'warnings'>;
  /** The first key whose secret stands in the file itself. */
  readonly firstLiteral: string | undefined;
}

/** Completes a checked file. What comes out is to be used only when there are no problems; they are told to `problems`. */
export function resolveConfig(checked: CheckedConfig, given: ResolveContext): Resolved {
  const { file, files, problems } = given;
  const secrets = new SecretReader(file, files, problems);
  const context: ListenerContext = { file, files, problems, secrets };
  const shared = { ...context, baseUrl: checked.service.baseUrl, size: checked.pool.size };
  const sources = checked.sources.map((raw, index) => raw && resolveSource(raw, `sources[${index}]`, shared));
  const listeners = checked.listeners.map(
    (raw, index) => raw && resolveListener(raw, `listeners[${index}]`, context),
  );
  const account = checked.account && resolveAccount(checked.account, context);
  const admin = resolveAdmin(checked.admin, context);
  tellAcross(checked, problems);
  const config = {
    file,
    service: {
      baseUrl: checked.service.baseUrl,
      method: checked.service.method,
      timeoutMs: checked.service.timeout,
    },
    account,
    sources: sources.filter((source) => source !== undefined),
    pool: {
      size: checked.pool.size,
      idleAfterMs: checked.pool.idleAfter,
      safetyMarginMs: checked.pool.safetyMargin,
      minRemainingMs: checked.pool.minRemaining,
      allowPrivateAddresses: checked.pool.allowPrivateAddresses,
    },
    rotation: {
      strategy: checked.rotation.strategy,
      maxTunnelsPerMember: checked.rotation.maxTunnelsPerMember,
      maxUsesPerMember: checked.rotation.maxUsesPerMember,
      perHostSpacingMs: checked.rotation.perHostSpacing,
      sessionTtlMs: checked.rotation.sessionTtl,
    },
    dial: {
      attempts: checked.dial.attempts,
      attemptTimeoutMs: checked.dial.attemptTimeout,
      hedgeAfter: checked.dial.hedgeAfter,
      deadlineMs: checked.dial.deadline,
      waitForMemberMs: checked.dial.waitForMember,
    },
    health: {
      maxFailures: checked.health.maxFailures,
      quarantineMs: checked.health.quarantine,
      check: resolveCheck(checked.health.check),
    },
    listeners: listeners.filter((listener) => listener !== undefined),
    admin,
    log: checked.log,
    state:
      checked.state === 'off' || checked.state.dir === 'off'
        ? undefined
        : { dir: besideConfig(file, checked.state.dir) },
    shutdown: { drainTimeoutMs: checked.shutdown.drainTimeout },
    workers: checked.workers,
  };
  return { config, firstLiteral: secrets.firstLiteral };
}

function resolveAccount(
  raw: NonNullable<CheckedConfig['account']>,
  { problems, secrets }: ListenerContext,
): AccountConfig | undefined {
  const path = 'account';
  const plain = secrets.read(
    { path, name: 'password', plain: raw.password, file: raw.passwordFile },
    password(),
  );
  const given = secrets.read({ path, name: 'key', plain: raw.key, file: raw.keyFile }, key());
  const found = given ?? (plain && deriveKey(plain, path, problems));
  if (given !== undefined && plain !== undefined) {
    problems.error(`${path}.key`, 'stands beside the password; give one of them', 'key');
  }
  if (found !== undefined) return { username: raw.username, key: found };
  if (!problems.has(path)) {
    const wanted = ['password', 'passwordFile', 'key', 'keyFile'].map((name) => `${path}.${name}`);
    problems.missing(path, 'has no password; wants password or key, or passwordFile or keyFile', { wanted });
  }
  return undefined;
}

function resolveAdmin(
  raw: CheckedConfig['admin'],
  { problems, secrets }: ListenerContext,
): AdminConfig | undefined {
  if (raw === 'off' || raw.address === 'off') return undefined;
  const { address, token: plain, tokenFile: file } = raw;
  const given = secrets.read({ path: 'admin', name: 'token', plain, file }, token());
  if (
    given === undefined &&
    !isLocalAddress(address) &&
    !problems.has('admin.token') &&
    !problems.has('admin.tokenFile')
  ) {
    problems.missing(
      'admin.address',
      `${formatListenAddress(address)} can be reached from other machines, and there is no token; add one, or listen on 127.0.0.1`,
      { wanted: ['admin.token', 'admin.tokenFile'], side: 'value' },
    );
  }
  return { address, token: given };
}

function resolveCheck(raw: CheckedConfig['health']['check']): HealthCheckConfig | undefined {
  if (raw === 'off') return undefined;
  return { url: raw.url, everyMs: raw.every, timeoutMs: raw.timeout, expectStatus: raw.expectStatus };
}

/** The rules that hold between sections. */
function tellAcross(
  { sources, listeners, account, service, admin }: CheckedConfig,
  problems: Problems,
): void {
  if (problems.hasAt('')) return; // the file is nothing at all
  if (sources.length === 0 && account === undefined && !problems.has('sources')) {
    const wanted = ['sources', 'account'];
    problems.missing('sources', 'there is nothing to draw from; wants at least one source', { wanted });
  }
  const homeless = sources.filter(
    (source) =>
      source !== undefined && OPERATIONS[source.product].server === 'base' && source.baseUrl === undefined,
  );
  const needy = [...homeless.map((source) => source?.name), ...(account === undefined ? [] : ['account'])];
  if (needy.length > 0 && service.baseUrl === undefined && !problems.has('service.baseUrl')) {
    problems.missing('service.baseUrl', `is missing, and needed by ${needy.join(', ')}`);
  }
  const names = sources.map((source) => source?.name);
  tellTwins(names, (index) => `sources[${index}].name`, problems);
  listeners.forEach((listener, index) => {
    if (listener?.source === undefined || names.includes(listener.source) || names.includes(undefined))
      return;
    const path = `listeners[${index}].source`;
    const known = names.filter((name) => name !== undefined);
    const meant = nearest(listener.source, known);
    const advice = meant === undefined ? '' : ` (did you mean ${meant}?)`;
    const quoted = problems.quote(path, listener.source);
    problems.error(path, `${quoted} is no source${advice}; there is ${known.join(', ') || 'none'}`.trim());
  });
  const open: (readonly [path: string, address: ListenAddress | undefined])[] = listeners.map(
    (listener, index) => [`listeners[${index}].address`, listener?.address],
  );
  if (admin !== 'off' && admin.address !== 'off') open.push(['admin.address', admin.address]);
  tellOverlaps(open, problems);
}

/** Tells every address that cannot be listened on because an earlier one is in the way. */
function tellOverlaps(
  open: readonly (readonly [path: string, address: ListenAddress | undefined])[],
  problems: Problems,
): void {
  open.forEach(([path, address], index) => {
    const taken = open.slice(0, index).find(([, other]) => address && other && overlap(address, other));
    if (address === undefined || taken === undefined || problems.has(path) || problems.has(taken[0])) return;
    problems.error(
      path,
      `${formatListenAddress(address)} is taken by ${taken[0]} already; give it another one`,
    );
  });
}
