/** Resolves a source with `product: link`: checks its keys, and derives its identity and its secrets from the URL. */
import { Secret } from '../core/secret.ts';
import { layoutProblem } from '../service/link/address-text.ts';
import { linkIdentity, linkSecrets } from '../service/link/link-url.ts';
import type { EntryLogin } from '../service/link/rules.ts';
import type { LinkSource, UpstreamAuth } from './config.ts';
import { type ResolveContext, resolveUser } from './credentials.ts';
import type { Problems } from './problems.ts';
import type { FileSource } from './schema-source.ts';
import { linkUrl } from './secret-scalars.ts';

/** Keys that a link cannot have, each with advice for the message. */
export const SERVICE_KEYS: Readonly<Record<string, string>> = {
  instance: 'remove it: the url already contains everything that the vendor needs',
  password: 'remove it: the url already contains everything that the vendor needs',
  passwordFile: 'remove it: the url already contains everything that the vendor needs',
  akey: 'remove it: the url already contains everything that the vendor needs',
  akeyFile: 'remove it: the url already contains everything that the vendor needs',
  format: 'set answer.format',
  textLayout: 'set answer.address',
  host: 'remove it: the url contains the host',
  baseUrl: 'remove it: the url contains the address',
};
/** Keys that only a link can have. */
export const LINK_KEYS: readonly string[] = ['url', 'urlFile', 'method', 'headers', 'body', 'answer'];

/** Reports keys that only a link can have. Call it for a source of the service. */
export function rejectLinkKeys({ product }: FileSource, path: string, problems: Problems): void {
  for (const key of LINK_KEYS) {
    if (problems.isGiven(`${path}.${key}`))
      problems.error(`${path}.${key}`, `works only with product: link, and the product is ${product}`, 'key');
  }
}

/** @returns undefined if the source is invalid; `problems` then says why. */
export function resolveLinkSource(
  source: FileSource,
  { path, size, count }: Pick<LinkSource, 'size' | 'count'> & { readonly path: string },
  context: ResolveContext,
): LinkSource | undefined {
  const { problems, files } = context;
  for (const [key, advice] of Object.entries(SERVICE_KEYS)) {
    if (problems.isGiven(`${path}.${key}`))
      problems.error(`${path}.${key}`, `does not work with product: link; ${advice}`, 'key');
  }
  const url = files.readSecret(`${path}.url`, { plain: source.url, file: source.urlFile }, linkUrl());
  const wanted = [`${path}.url`, `${path}.urlFile`];
  if (url === undefined && !wanted.some((one) => problems.has(one)))
    problems.missing(path, 'has no url: a source with `product: link` requires url or urlFile', { wanted });
  checkInterval(source, path, problems);
  checkAnswer(source, path, problems);
  const upstream = resolveLinkUpstream(source, `${path}.upstream`, context);
  if (url === undefined || upstream === undefined || source.intervalMs === undefined) return undefined;
  const headers = Object.fromEntries(
    Object.entries(source.headers).map(([name, value]) => [name, new Secret(value)]),
  );
  const { body, lifetimeMs, intervalMs, dailyBudget, priority, name, answer } = source;
  return {
    ...{ name, lifetimeMs, intervalMs, dailyBudget, priority, answer, url, body, headers },
    product: 'link',
    method: source.method ?? (body === undefined ? 'GET' : 'POST'),
    instance: linkIdentity(url, body),
    baseUrl: new URL(url.reveal()).origin,
    secrets: linkSecrets(url, { headers, body }),
    params: {},
    count,
    extractHost: undefined,
    upstream: upstream.upstream,
    entryLogin: upstream.entryLogin,
    size: source.size ?? size,
  };
}

function checkInterval({ intervalMs }: FileSource, path: string, problems: Problems): void {
  const wanted = `${path}.interval`;
  if (intervalMs !== undefined || problems.has(wanted)) return;
  const message =
    'has no interval: a source with `product: link` requires it; set the minimum time between two calls that the vendor allows, for example interval: 5s';
  problems.missing(path, message, { wanted: [wanted] });
}

function checkAnswer({ answer }: FileSource, path: string, problems: Problems): void {
  const { address, format, list } = answer;
  const problem = address === undefined ? undefined : layoutProblem(address);
  if (problem !== undefined) problems.error(`${path}.answer.address`, problem);
  if (format !== 'text') return;
  if (list !== undefined)
    problems.error(`${path}.answer.list`, 'has no effect with format: text; remove it', 'key');
}

interface LinkUpstream {
  readonly upstream: LinkSource['upstream'];
  readonly entryLogin: EntryLogin;
}

function resolveLinkUpstream(
  { upstream: { auth, ...rest } }: FileSource,
  path: string,
  context: ResolveContext,
): LinkUpstream | undefined {
  const none: UpstreamAuth = { kind: 'none' };
  if (auth === 'auto') return { upstream: { ...rest, auth: none }, entryLogin: 'use' };
  if (auth === 'entry') return { upstream: { ...rest, auth: none }, entryLogin: 'require' };
  if (auth === 'none') return { upstream: { ...rest, auth: none }, entryLogin: 'ignore' };
  if (auth === 'instance') {
    const message =
      'instance does not work with product: link; use none, entry, or a user name and password of the vendor';
    context.problems.error(`${path}.auth`, message);
    return undefined;
  }
  const credentials = resolveUser(auth, `${path}.auth`, context);
  if (credentials === undefined) return undefined;
  if (rest.protocol === 'socks4') {
    const message = 'SOCKS4 has no password authentication; set auth: none, or another protocol';
    context.problems.error(`${path}.auth`, message);
  }
  return { upstream: { ...rest, auth: { kind: 'always', credentials } }, entryLogin: 'ignore' };
}
