/**
 * Resolves one source of the service: checks its keys against its product, and derives its other values from them.
 */

import { formatDuration } from '../core/duration.ts';
import { parseHostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { compileLayout } from '../service/decode-text.ts';
import { memberProtocol, OPERATIONS, type Product } from '../service/operations.ts';
import { checkParams } from '../service/params.ts';
import { expectedAt } from './check.ts';
import type { ServiceSource, SourceConfig, UpstreamAuth, UpstreamConfig } from './config.ts';
import { type ResolveContext, resolveKey, resolveUser } from './credentials.ts';
import { rejectLinkKeys, resolveLinkSource } from './link-source.ts';
import type { Problems } from './problems.ts';
import type { FileSource } from './schema-source.ts';

/** The defaults that other sections set: `service.baseUrl` and `pool.size`. A source may override them. */
interface SourceDefaults {
  readonly baseUrl: string | undefined;
  readonly size: number;
}

type InstanceSource = FileSource & { readonly product: Product };

/** The default port of `host`. */
const EXTRACT_PORT = 8080;

/**
 * @param path - the path of the source in the file: `sources[0]`.
 * @returns undefined if the source is invalid; `problems` then says why.
 */
export function resolveSource(
  source: FileSource,
  { path, defaults }: { readonly path: string; readonly defaults: SourceDefaults },
  context: ResolveContext,
): SourceConfig | undefined {
  const { count, ...params } = resolveParams(source, path, context.problems);
  const max = typeof count === 'number' ? count : undefined;
  const { product } = source;
  return product === 'link'
    ? resolveLinkSource(source, { path, size: defaults.size, count: max }, context)
    : resolveInstance({ ...source, product }, { path, defaults, params, count: max }, context);
}

interface InstanceFacts extends Pick<ServiceSource, 'params' | 'count'> {
  /** The path of the source in the file. */
  readonly path: string;
  readonly defaults: SourceDefaults;
}

function resolveInstance(
  source: InstanceSource,
  { path, defaults, params, count }: InstanceFacts,
  context: ResolveContext,
): ServiceSource | undefined {
  rejectLinkKeys(source, path, context.problems);
  const { password, passwordFile, akey, akeyFile, host, instance } = source;
  const secrets = resolveKey(
    { password, passwordFile, key: akey, keyFile: akeyFile },
    { path, keyName: 'akey' },
    context,
  );
  checkInstance(source, path, context.problems);
  checkLayout(source, path, context.problems);
  const upstream = resolveUpstream(source, { path, params, password: secrets?.password }, context);
  checkHost(source, path, context.problems);
  const intervalMs = resolveInterval(source, path, context.problems);
  if (secrets === undefined || upstream === undefined || instance === undefined) return undefined;
  const { name, product, format, textLayout, lifetimeMs, dailyBudget, priority } = source;
  const isAtBase = OPERATIONS[product].server === 'base';
  return {
    ...{ name, product, instance, format, textLayout, lifetimeMs, dailyBudget, priority },
    ...secrets,
    params,
    count,
    baseUrl: source.baseUrl ?? (isAtBase ? defaults.baseUrl : undefined),
    extractHost: isAtBase ? undefined : host,
    upstream,
    intervalMs,
    size: source.size ?? defaults.size,
  };
}

function checkInstance({ instance }: InstanceSource, path: string, problems: Problems): void {
  const wanted = `${path}.instance`;
  if (instance === undefined && !problems.has(wanted))
    problems.missing(wanted, `is missing; ${expectedAt(wanted)}`);
}

function resolveParams(
  { product, params }: FileSource,
  path: string,
  problems: Problems,
): Readonly<Record<string, string | number>> {
  const checked = checkParams(product, params);
  for (const { key: name, message, suggestion } of checked.problems) {
    const at = `${path}.params.${name}`;
    const isKnown = name === 'count' || Object.hasOwn(OPERATIONS[product].params, name);
    const value = params[name];
    const quoted = isKnown && typeof value === 'string' ? problems.quote(at, value) : '';
    const advice = suggestion === undefined ? '' : ` (did you mean ${suggestion}?)`;
    problems.error(at, `${quoted} ${message}${advice}`.trim(), isKnown ? 'value' : 'key');
  }
  return checked.params;
}

function checkLayout(
  { product, format, textLayout }: InstanceSource,
  path: string,
  problems: Problems,
): void {
  if (textLayout === undefined) return;
  if (format !== 'text' && !problems.has(`${path}.format`)) {
    problems.error(`${path}.textLayout`, `requires format: text, but the format is ${format}`, 'key');
  }
  const { problem } = compileLayout(product, textLayout);
  if (problem !== undefined) problems.error(`${path}.textLayout`, problem);
}

interface UpstreamFacts extends Pick<SourceConfig, 'params'> {
  /** The path of the source in the file. */
  readonly path: string;
  readonly password: Secret | undefined;
}

function resolveUpstream(
  source: InstanceSource,
  { path, params, password }: UpstreamFacts,
  context: ResolveContext,
): UpstreamConfig | undefined {
  const byEntry = OPERATIONS[source.product].protocol === 'by-entry';
  const protocol = source.upstream.protocol ?? (byEntry ? undefined : memberProtocol(source.product, params));
  const auth = resolveAuth(source, { path: `${path}.upstream.auth`, password }, context);
  if (auth?.kind === 'always' && protocol === 'socks4') {
    const message = 'SOCKS4 has no password authentication; set auth: none, or another protocol';
    context.problems.error(`${path}.upstream.auth`, message);
  }
  return auth === undefined ? undefined : { protocol, auth, handshake: source.upstream.handshake };
}

function resolveAuth(
  { product, instance, upstream: { auth } }: InstanceSource,
  { path, password }: Omit<UpstreamFacts, 'params'>,
  context: ResolveContext,
): UpstreamAuth | undefined {
  // never sends the credentials of an instance to free proxies, because their operators are unknown
  const isFree = product === 'free';
  const isUnknown = password === undefined || instance === undefined;
  const own = isUnknown || isFree ? undefined : { username: instance, password };
  if (auth === 'none') return { kind: 'none' };
  if (auth === 'auto') return { kind: 'auto', credentials: own };
  if (auth === 'instance') {
    if (own !== undefined) return { kind: 'always', credentials: own };
    const message = isFree
      ? 'instance does not work with product: free, whose members have no credentials; use auto or none'
      : 'instance requires the plain password, and the key is not enough; set password or passwordFile';
    context.problems.error(path, message);
    return undefined;
  }
  if (auth === 'entry') {
    const message =
      'entry works only with product: link, because only its answers may contain credentials; use auto or instance';
    context.problems.error(path, message);
    return undefined;
  }
  const credentials = resolveUser(auth, path, context);
  return credentials && { kind: 'always', credentials };
}

/** An instance of `short-pure` has its own extraction server. All other products use a base URL. */
function checkHost({ product, host, baseUrl }: InstanceSource, path: string, problems: Problems): void {
  const hostPath = `${path}.host`;
  if (OPERATIONS[product].server === 'base') {
    if (host !== undefined)
      problems.error(hostPath, `works only with product: short-pure; set baseUrl for ${product}`, 'key');
    return;
  }
  if (host === undefined && baseUrl === undefined) {
    const wanted = [hostPath, `${path}.baseUrl`];
    if (wanted.some((one) => problems.has(one))) return;
    const message = 'has no host, which short-pure requires; set host, for example node7.example.com';
    problems.missing(path, message, { wanted });
  }
  if (host !== undefined && baseUrl !== undefined) {
    problems.error(hostPath, 'cannot be combined with baseUrl; keep one of them', 'key');
  }
  if (host !== undefined && parseHostPort(host, EXTRACT_PORT) === undefined) {
    problems.error(hostPath, 'is not host or host:port; expected, for example, node7.example.com');
  }
}

function resolveInterval({ product, intervalMs }: InstanceSource, path: string, problems: Problems): number {
  const { minIntervalMs, defaultIntervalMs } = OPERATIONS[product];
  if (intervalMs !== undefined && intervalMs < minIntervalMs) {
    const least = formatDuration(minIntervalMs);
    problems.error(
      `${path}.interval`,
      `${formatDuration(intervalMs)} is below the minimum of ${product}, ${least}; the service blocks clients that call more often`,
    );
  }
  return intervalMs ?? defaultIntervalMs;
}
