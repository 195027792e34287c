/** Resolves one source: checks its keys against its product, and derives its other values from them. */
import { formatDuration, MINUTE_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { parseHostPort } from '../core/host-port.ts';
import { type Login, Secret } from '../core/secret.ts';
import { compileLayout } from '../service/decode-text.ts';
import { gatewayIdentity, SESSION_TAG } from '../service/gateway.ts';
import { layoutProblem } from '../service/link/address-text.ts';
import { linkIdentity, linkSecrets } from '../service/link/link-url.ts';
import type { EntryLogin } from '../service/link/rules.ts';
import {
  memberProtocol,
  OPERATIONS,
  PRODUCTS,
  type Product,
  type SourceProduct,
} from '../service/operations.ts';
import { checkParams } from '../service/params.ts';
import { keyFromPassword } from '../service/request.ts';
import { type CheckedConfig, expectedAt } from './check.ts';
import type {
  GatewaySource,
  LinkSource,
  ListSource,
  ServiceSource,
  SourceBase,
  SourceConfig,
  UpstreamAuth,
} from './config.ts';
import type { FileReader } from './files.ts';
import type { Problems } from './problems.ts';
import type { FileSource } from './schema-source.ts';

const EXTRACT_PORT = 8080;

/** Keys that a link cannot have, each with advice for the message. */
const IN_URL = 'remove it: the url already contains everything that the vendor needs';
const SERVICE_KEYS: Readonly<Record<string, string>> = {
  ...{ instance: IN_URL, password: IN_URL, passwordFile: IN_URL, akey: IN_URL, akeyFile: IN_URL },
  format: 'set answer.format',
  textLayout: 'set answer.address',
  host: 'remove it: the url contains the host',
  baseUrl: 'remove it: the url contains the address',
};
const PRODUCTS_OF_KEY: Readonly<Record<string, readonly SourceProduct[]>> = {
  url: ['link', 'list'],
  urlFile: ['link', 'list'],
  answer: ['link', 'list'],
  method: ['link'],
  headers: ['link'],
  body: ['link'],
  address: ['gateway'],
  file: ['list'],
  refresh: ['list'],
  rotate: ['list'],
  whitelist: [...PRODUCTS, 'link'],
};
const DEFAULT_GATEWAY_LIFE_MS = 10 * MINUTE_MS;
const DEFAULT_REFRESH_MS = 5 * MINUTE_MS;
const LIST_KEYS = ['url', 'urlFile', 'file'];

type Common = Omit<
  SourceBase,
  'instance' | 'secrets' | 'baseUrl' | 'extractHost' | 'upstream' | 'intervalMs'
>;

/** A source that makes no call to the service. */
const NO_CALL = { params: {}, intervalMs: 0, baseUrl: undefined, extractHost: undefined };

export class SourceResolver {
  readonly #source: FileSource;
  readonly #path: string;
  readonly #config: CheckedConfig;
  readonly #files: FileReader;
  readonly #problems: Problems;

  constructor(source: FileSource, path: string, config: CheckedConfig, files: FileReader) {
    this.#source = source;
    this.#path = path;
    this.#config = config;
    this.#files = files;
    this.#problems = files.problems;
  }

  resolve(): SourceConfig | undefined {
    const { product, name, lifetimeMs, dailyBudget, priority, price, whitelist } = this.#source;
    const { size = this.#config.pool.size } = this.#source;
    const { count: max, ...params } = this.#params();
    const count = typeof max === 'number' ? max : undefined;
    const common = { name, lifetimeMs, dailyBudget, priority, price, size, count, whitelist, params };
    this.#checkKeys(product);
    if (product === 'link') return this.#link(common);
    if (product === 'gateway') return this.#gateway(common);
    return product === 'list' ? this.#list(common) : this.#instance(product, common);
  }

  #checkKeys(product: SourceProduct): void {
    const given = (key: string) => this.#problems.isGiven(`${this.#path}.${key}`);
    for (const [key, products] of Object.entries(PRODUCTS_OF_KEY)) {
      const message = `works only with product: ${products.join(' or ')}, and the product is ${product}`;
      if (given(key) && !products.includes(product)) this.#error(key, message, 'key');
    }
    if (OPERATIONS[product].server !== 'url') return;
    const foreign = [...Object.keys(SERVICE_KEYS), ...(product === 'link' ? [] : ['interval', 'params'])];
    for (const key of foreign.filter(given)) {
      const advice = product === 'link' ? SERVICE_KEYS[key] : 'remove it';
      this.#error(key, `does not work with product: ${product}; ${advice}`, 'key');
    }
  }

  #error(key: string, message: string, side: 'key' | 'value' = 'value'): undefined {
    this.#problems.error(`${this.#path}.${key}`, message, side);
  }

  /** Reports that the source lacks a key, unless one of the keys that can solve this has another problem. */
  #missing(message: string, keys: readonly string[], at = this.#path): void {
    const wanted = keys.map((key) => `${this.#path}.${key}`);
    if (!wanted.some((one) => this.#problems.has(one))) this.#problems.missing(at, message, { wanted });
  }

  #instance(product: Product, common: Common): ServiceSource | undefined {
    const { password, akey, host, instance, format, textLayout, upstream } = this.#source;
    const key = resolveKey({ password, key: akey }, { path: this.#path, keyName: 'akey' }, this.#problems);
    const wanted = `${this.#path}.instance`;
    if (instance === undefined) this.#missing(`is missing; ${expectedAt(wanted)}`, ['instance'], wanted);
    this.#checkLayout(product);
    const auth = this.#auth(product);
    const byEntry = OPERATIONS[product].protocol === 'by-entry';
    const protocol = upstream.protocol ?? (byEntry ? undefined : memberProtocol(product, common.params));
    if (protocol === 'socks4') this.#checkSocks4(auth);
    this.#checkHost(product);
    const intervalMs = this.#interval(product);
    if (key === undefined || auth === undefined || instance === undefined) return undefined;
    const isAtBase = OPERATIONS[product].server === 'base';
    return {
      ...common,
      ...{ product, instance, format, textLayout, key, password, intervalMs },
      secrets: secretsOf(auth, key, password),
      baseUrl: this.#source.baseUrl ?? (isAtBase ? this.#config.service.baseUrl : undefined),
      extractHost: isAtBase ? undefined : host,
      upstream: { protocol, auth, handshake: upstream.handshake },
    };
  }

  #params(): Readonly<Record<string, string | number>> {
    const { product, params } = this.#source;
    const checked = checkParams(product, params);
    for (const { key: name, message, suggestion } of checked.problems) {
      const isKnown = name === 'count' || Object.hasOwn(OPERATIONS[product].params, name);
      const value = params[name];
      const at = `${this.#path}.params.${name}`;
      const quoted = isKnown && typeof value === 'string' ? this.#problems.quote(at, value) : '';
      const advice = suggestion === undefined ? '' : ` (did you mean ${suggestion}?)`;
      this.#problems.error(at, `${quoted} ${message}${advice}`.trim(), isKnown ? 'value' : 'key');
    }
    return checked.params;
  }

  #checkLayout(product: Product): void {
    const { format, textLayout } = this.#source;
    if (textLayout === undefined) return;
    if (format !== 'text' && !this.#problems.has(`${this.#path}.format`))
      this.#error('textLayout', `requires format: text, but the format is ${format}`, 'key');
    const { problem } = compileLayout(product, textLayout);
    if (problem !== undefined) this.#error('textLayout', problem);
  }

  #checkSocks4(auth: UpstreamAuth | undefined): void {
    if (auth?.kind === 'always')
      this.#error(
        'upstream.auth',
        'SOCKS4 has no password authentication; set auth: none, or another protocol',
      );
  }

  #auth(product: Product): UpstreamAuth | undefined {
    const { instance, password, upstream } = this.#source;
    const { auth } = upstream;
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
      return this.#error('upstream.auth', message);
    }
    if (auth === 'entry') {
      const message =
        'entry works only with product: link, because only its answers may contain credentials; use auto or instance';
      return this.#error('upstream.auth', message);
    }
    const credentials = resolveUser(auth, `${this.#path}.upstream.auth`, this.#problems);
    return credentials && { kind: 'always', credentials };
  }

  #checkHost(product: Product): void {
    const { host, baseUrl } = this.#source;
    if (OPERATIONS[product].server === 'base') {
      if (host !== undefined)
        this.#error('host', `works only with product: short-pure; set baseUrl for ${product}`, 'key');
      return;
    }
    if (host === undefined && baseUrl === undefined) {
      const message = 'has no host, which short-pure requires; set host, for example node7.example.com';
      this.#missing(message, ['host', 'baseUrl']);
    }
    if (host !== undefined && baseUrl !== undefined)
      this.#error('host', 'cannot be combined with baseUrl; keep one of them', 'key');
    if (host !== undefined && parseHostPort(host, EXTRACT_PORT) === undefined)
      this.#error('host', 'is not host or host:port; expected, for example, node7.example.com');
  }

  #interval(product: Product): number {
    const { intervalMs } = this.#source;
    const { minIntervalMs, defaultIntervalMs } = OPERATIONS[product];
    if (intervalMs !== undefined && intervalMs < minIntervalMs) {
      const [given, least] = [formatDuration(intervalMs), formatDuration(minIntervalMs)];
      this.#error(
        'interval',
        `${given} is below the minimum of ${product}, ${least}; the service blocks clients that call more often`,
      );
    }
    return intervalMs ?? defaultIntervalMs;
  }

  #link(common: Common): LinkSource | undefined {
    const { url, body, intervalMs, answer, method, upstream } = this.#source;
    if (url === undefined)
      this.#missing('has no url: a source with `product: link` requires url or urlFile', ['url', 'urlFile']);
    if (intervalMs === undefined)
      this.#missing(
        'has no interval: a source with `product: link` requires it; set the minimum time between two calls that the vendor allows, for example interval: 5s',
        ['interval'],
      );
    this.#checkAnswer();
    const access = this.#linkAccess();
    if (url === undefined || access === undefined || intervalMs === undefined) return undefined;
    const headers = Object.fromEntries(
      Object.entries(this.#source.headers).map(([name, value]) => [name, new Secret(value)]),
    );
    return {
      ...{ ...common, ...NO_CALL },
      ...{ intervalMs, answer, url, body, headers, login: access.login },
      product: 'link',
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      instance: linkIdentity(url, body),
      baseUrl: new URL(url.reveal()).origin,
      secrets: secretsOf(access.auth, ...linkSecrets(url, { headers, body })),
      upstream: { ...upstream, auth: access.auth },
    };
  }

  #checkAnswer(): void {
    const { answer } = this.#source;
    const problem = answer.address === undefined ? undefined : layoutProblem(answer.address);
    if (problem !== undefined) this.#error('answer.address', problem);
    if (answer.format === 'text' && answer.list !== undefined)
      this.#error('answer.list', 'has no effect with format: text; remove it', 'key');
  }

  #gateway(common: Common): GatewaySource | undefined {
    const { address: given, upstream, lifetimeMs = DEFAULT_GATEWAY_LIFE_MS } = this.#source;
    if (given === undefined)
      this.#missing(
        'has no address: a source with `product: gateway` requires it, for example gw.vendor.example:8000',
        ['address'],
      );
    const address = given === undefined ? undefined : parseHostPort(given);
    if (given !== undefined && address === undefined) this.#error('address', 'is not host:port');
    const { auth, protocol = 'http' } = upstream;
    if (typeof auth === 'string' || !auth.username.includes(SESSION_TAG)) {
      const message = `a source with \`product: gateway\` requires a user name with ${SESSION_TAG} and a password, for example { username: "me-session-${SESSION_TAG}", password: … }`;
      return this.#error('upstream.auth', message);
    }
    const account = resolveUser(auth, `${this.#path}.upstream.auth`, this.#problems);
    if (protocol === 'socks4') this.#checkSocks4(account && { kind: 'always', credentials: account });
    if (address === undefined || account === undefined) return undefined;
    return {
      ...{ ...common, ...NO_CALL },
      ...{ product: 'gateway', host: address.host, port: address.port, account, lifetimeMs },
      instance: gatewayIdentity(`${address.host}:${address.port}`, account.username),
      secrets: [account.password],
      upstream: { ...upstream, protocol, auth: { kind: 'none' } },
    };
  }

  #list(common: Common): ListSource | undefined {
    const { url, file, refreshMs = DEFAULT_REFRESH_MS, answer, upstream } = this.#source;
    if (url === undefined && file === undefined)
      this.#missing('has no list: a source with `product: list` requires url, urlFile or file', LIST_KEYS);
    if (url !== undefined && file !== undefined)
      this.#error('file', 'cannot be combined with url; keep one of them', 'key');
    this.#checkAnswer();
    const access = this.#linkAccess();
    const rotate = this.#rotate();
    if (access === undefined || (url === undefined && file === undefined)) return undefined;
    const absolute = file && this.#files.absolute(file);
    return {
      ...{ ...common, ...NO_CALL },
      ...{ product: 'list', url, file: absolute, refreshMs, answer, login: access.login, rotate },
      instance: linkIdentity(url ?? new Secret(absolute ?? ''), undefined),
      baseUrl: url && new URL(url.reveal()).origin,
      secrets: secretsOf(access.auth, ...(url ? linkSecrets(url, { headers: {}, body: undefined }) : [])),
      upstream: { ...upstream, auth: access.auth },
    };
  }

  #rotate(): ListSource['rotate'] {
    const { rotate } = this.#source;
    if (rotate === undefined) return undefined;
    const { check = this.#config.health.check?.url } = rotate;
    if (check !== undefined) return { ...rotate, check };
    const message =
      'has no page to verify the exit with; set rotate.check or health.check.url to a page that answers with the address of its client';
    return this.#error('rotate', message, 'key');
  }

  #linkAccess(): { readonly auth: UpstreamAuth; readonly login: EntryLogin } | undefined {
    const { auth, protocol } = this.#source.upstream;
    if (auth === 'instance') {
      const message = `instance does not work with product: ${this.#source.product}; use none, entry, or a user name and password of the vendor`;
      return this.#error('upstream.auth', message);
    }
    if (typeof auth === 'string') {
      const byAuth = { auto: 'use', entry: 'require', none: 'ignore' } as const;
      return { auth: { kind: 'none' }, login: byAuth[auth] };
    }
    const credentials = resolveUser(auth, `${this.#path}.upstream.auth`, this.#problems);
    if (credentials === undefined) return undefined;
    const always = { kind: 'always', credentials } as const;
    if (protocol === 'socks4') this.#checkSocks4(always);
    return { auth: always, login: 'ignore' };
  }
}

function secretsOf(auth: UpstreamAuth, ...own: readonly (Secret | undefined)[]): Secret[] {
  const credentials = auth.kind === 'none' ? undefined : auth.credentials;
  return [...own, credentials?.password].filter((secret) => secret !== undefined);
}

/** Returns undefined if there is no valid password; `problems` then says why. */
export function resolveUser(
  { username, password }: { readonly username: string; readonly password: Secret | undefined },
  path: string,
  problems: Problems,
): Login | undefined {
  if (password !== undefined) return { username, password };
  if (!problems.has(path)) {
    const wanted = [`${path}.password`, `${path}.passwordFile`];
    problems.missing(path, 'has no password; set password or passwordFile', { wanted });
  }
  return undefined;
}

/** The key, given or derived from the password. Undefined if there is no valid key; `problems` then says why. */
export function resolveKey(
  { password, key }: { readonly password: Secret | undefined; readonly key: Secret | undefined },
  { path, keyName }: { readonly path: string; readonly keyName: 'key' | 'akey' },
  problems: Problems,
): Secret | undefined {
  const derived = password && deriveKey(password, `${path}.password`, problems);
  if (key !== undefined && derived !== undefined && key.reveal() !== derived.reveal()) {
    problems.error(`${path}.${keyName}`, 'does not match the password; keep one of them');
  }
  const found = key ?? derived;
  const names = ['password', 'passwordFile', keyName, `${keyName}File`];
  const wanted = names.map((name) => `${path}.${name}`);
  if (found === undefined && !wanted.some((one) => problems.has(one))) {
    problems.missing(path, `has no key; set one of ${names.join(', ')}`, { wanted });
  }
  return found;
}

function deriveKey(plain: Secret, path: string, problems: Problems): Secret | undefined {
  try {
    return keyFromPassword(plain);
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    problems.error(path, error.message);
    return undefined;
  }
}
