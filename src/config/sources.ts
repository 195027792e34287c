/** One source: its keys checked against its product, and everything derived from both. */
import { NoriaError } from '../core/faults.ts';
import { parseHostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { keyFromPassword } from '../service/key.ts';
import { memberProtocol, OPERATIONS } from '../service/operations.ts';
import { checkParams } from '../service/params.ts';
import { compileLayout } from '../service/text-layout.ts';
import type { SourceConfig, UpstreamAuth, UpstreamConfig } from './config.ts';
import { key, password } from './kinds.ts';
import type { Problems } from './problems.ts';
import type { RawSource } from './schema.ts';
import type { SecretReader } from './secrets.ts';
import { formatDuration } from './units.ts';

/** What sources share. */
export interface SourceContext {
  readonly problems: Problems;
  readonly secrets: SecretReader;
  /** Of `service`. */
  readonly baseUrl: string | undefined;
  /** Of `pool`. */
  readonly size: number;
}

/** Port of an extraction server that names none; only to have the host judged. */
const EXTRACT_PORT = 8080;
const QUOTED_START = 20;

/** @param path - where the source stands: `sources[0]`. @returns undefined when there is a problem that leaves nothing to build. */
export function resolveSource(
  raw: RawSource,
  path: string,
  context: SourceContext,
): SourceConfig | undefined {
  const secrets = readKey(raw, path, context);
  const { count, ...params } = readParams(raw, path, context);
  checkLayout(raw, path, context);
  const upstream = resolveUpstream(raw, path, params, secrets?.password, context);
  const place = resolvePlace(raw, path, context);
  const intervalMs = resolveInterval(raw, path, context);
  if (secrets === undefined || upstream === undefined) return undefined;
  return {
    name: raw.name,
    product: raw.product,
    instance: raw.instance,
    ...secrets,
    params,
    count: typeof count === 'number' ? count : undefined,
    format: raw.format,
    textLayout: raw.textLayout,
    ...place,
    upstream,
    intervalMs,
    dailyBudget: raw.dailyBudget,
    lifetimeMs: raw.lifetime,
    size: raw.size ?? context.size,
    priority: raw.priority,
  };
}

function readKey(
  raw: RawSource,
  path: string,
  { problems, secrets }: SourceContext,
): { readonly key: Secret; readonly password: Secret | undefined } | undefined {
  const plain = secrets.read(
    { path, name: 'password', plain: raw.password, file: raw.passwordFile },
    password(),
  );
  const given = secrets.read({ path, name: 'akey', plain: raw.akey, file: raw.akeyFile }, key());
  const derived = plain === undefined ? undefined : deriveKey(plain, path, problems);
  if (given !== undefined && derived !== undefined && given.reveal() !== derived.reveal()) {
    problems.error(`${path}.akey`, 'is not the key of the password beside it; give one of them');
  }
  const found = given ?? derived;
  if (found !== undefined) return { key: found, password: plain };
  const wanted = ['password', 'passwordFile', 'akey', 'akeyFile'].map((name) => `${path}.${name}`);
  if (!wanted.some((one) => problems.has(one))) {
    problems.missing(path, 'has no key; wants password or akey, or passwordFile or akeyFile', { wanted });
  }
  return undefined;
}

/** The key of a password; a problem where this Node refuses MD5. */
export function deriveKey(plain: Secret, path: string, problems: Problems): Secret | undefined {
  try {
    return keyFromPassword(plain);
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    problems.error(`${path}.password`, error.message);
    return undefined;
  }
}

function readParams(
  raw: RawSource,
  path: string,
  { problems }: SourceContext,
): Readonly<Record<string, string | number>> {
  const checked = checkParams(raw.product, raw.params);
  for (const { key: name, message, suggestion } of checked.problems) {
    const at = `${path}.params.${name}`;
    const isKnown = name === 'count' || Object.hasOwn(OPERATIONS[raw.product].params, name);
    const told = quotingSafely(message, raw.params[name], (value) => problems.quote(at, value));
    const advice = suggestion === undefined ? '' : ` (did you mean ${suggestion}?)`;
    problems.error(at, told + advice, isKnown ? 'value' : 'key');
  }
  return checked.params;
}

/** A message that ends by quoting the value, quoting it as a configuration may: one from the environment by its variable. */
function quotingSafely(
  message: string,
  value: RawSource['params'][string] | undefined,
  quote: (value: string) => string,
): string {
  if (typeof value !== 'string') return message;
  // Long values are cut in the message, so that their beginning is what they are found by.
  const at = message.indexOf(JSON.stringify(value).slice(0, QUOTED_START));
  return at < 0 ? message : message.slice(0, at) + (quote(value) || 'this');
}

function checkLayout(
  { product, format, textLayout }: RawSource,
  path: string,
  { problems }: SourceContext,
): void {
  if (textLayout === undefined) return;
  if (format !== 'text' && !problems.has(`${path}.format`)) {
    problems.error(`${path}.textLayout`, `goes with format: text, and the format here is ${format}`, 'key');
  }
  const { problem } = compileLayout(product, textLayout);
  if (problem !== undefined) problems.error(`${path}.textLayout`, problem);
}

function resolveUpstream(
  raw: RawSource,
  path: string,
  params: Readonly<Record<string, string | number>>,
  plain: Secret | undefined,
  context: SourceContext,
): UpstreamConfig | undefined {
  const byEntry = OPERATIONS[raw.product].protocol === 'by-entry';
  const protocol = raw.upstream.protocol ?? (byEntry ? undefined : memberProtocol(raw.product, params));
  const auth = resolveAuth(raw, `${path}.upstream.auth`, plain, context);
  if (auth?.kind === 'always' && protocol === 'socks4') {
    context.problems.error(
      `${path}.upstream.auth`,
      'SOCKS4 carries no password; use none, or another protocol',
    );
  }
  return auth === undefined ? undefined : { protocol, auth };
}

function resolveAuth(
  { product, instance, upstream }: RawSource,
  path: string,
  plain: Secret | undefined,
  { problems, secrets }: SourceContext,
): UpstreamAuth | undefined {
  const { auth } = upstream;
  // Free proxies belong to nobody we know: they never see the credentials of an instance.
  const own = plain === undefined || product === 'free' ? undefined : { username: instance, password: plain };
  if (auth === 'none') return { kind: 'none' };
  if (auth === 'auto') return { kind: 'auto', credentials: own };
  if (auth === 'instance') {
    if (own !== undefined) return { kind: 'always', credentials: own };
    const advice =
      product === 'free'
        ? 'is for products with an instance; free proxies have no credentials'
        : 'needs the plain password: give password or passwordFile; the key alone is not enough';
    problems.error(path, `instance ${advice}`);
    return undefined;
  }
  const given = secrets.read(
    { path, name: 'password', plain: auth.password, file: auth.passwordFile },
    password(),
  );
  if (given !== undefined)
    return { kind: 'always', credentials: { username: auth.username, password: given } };
  if (!problems.has(path))
    problems.missing(path, 'has no password; wants password or passwordFile beside username', {
      wanted: [`${path}.password`, `${path}.passwordFile`],
      side: 'value',
    });
  return undefined;
}

/** Where the calls of a source go. */
function resolvePlace(
  raw: RawSource,
  path: string,
  { problems, baseUrl }: SourceContext,
): { readonly baseUrl: string | undefined; readonly extractHost: string | undefined } {
  const hostPath = `${path}.host`;
  if (OPERATIONS[raw.product].server === 'base') {
    if (raw.host !== undefined)
      problems.error(hostPath, `is for short-pure alone; give baseUrl for ${raw.product}`, 'key');
    return { baseUrl: raw.baseUrl ?? baseUrl, extractHost: undefined };
  }
  if (
    raw.host === undefined &&
    raw.baseUrl === undefined &&
    !problems.has(hostPath) &&
    !problems.has(`${path}.baseUrl`)
  ) {
    problems.missing(
      path,
      'short-pure is asked at the server of its instance: wants host, for example node7.example.com',
      { wanted: [hostPath, `${path}.baseUrl`] },
    );
  }
  if (raw.host !== undefined && raw.baseUrl !== undefined) {
    problems.error(hostPath, 'stands beside baseUrl; give one of them', 'key');
  }
  if (raw.host !== undefined && parseHostPort(raw.host, EXTRACT_PORT) === undefined) {
    problems.error(hostPath, 'is not a host, or host:port; wants, for example, node7.example.com');
  }
  return { baseUrl: raw.baseUrl, extractHost: raw.host };
}

function resolveInterval(raw: RawSource, path: string, { problems }: SourceContext): number {
  const { minIntervalMs, defaultIntervalMs } = OPERATIONS[raw.product];
  const intervalMs = raw.interval ?? defaultIntervalMs;
  if (intervalMs < minIntervalMs) {
    problems.error(
      `${path}.interval`,
      `${formatDuration(intervalMs)} is below the least interval of ${raw.product}, ${formatDuration(minIntervalMs)}; calling more often gets the address blocked`,
    );
  }
  return intervalMs;
}
