/**
 * Builds the HTTP request of a call: method, URL and form body. All functions are pure. No other file puts a key into a request.
 *
 * GET sends the parameters in the query; POST sends them as a form in the body. Both are percent-encoded UTF-8. The specification
 * does not define the body of POST; related services use a form.
 */
import { NoriaError } from '../core/faults.ts';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { withCount } from './link/link-url.ts';
import type { EntryOptions } from './link/read-entry.ts';
import type { Format, Method, Product } from './operation.ts';
import { OPERATIONS } from './operations.ts';

/** The address of the service: `baseUrl`, `extractHost` or both. */
export interface ServiceAddress {
  /**
   * {base_url} of the specification: `http://` or `https://`, optionally with a path. It takes precedence over
   * `extractHost`.
   */
  readonly baseUrl?: string;
  /** {extract_host} of the specification, only for `short-pure`: a host, or host and port. The default port is 8080. */
  readonly extractHost?: string;
}

interface CallBase extends ServiceAddress {
  readonly method: Method;
  /** The 16-character key; key.ts derives it from the password. */
  readonly key: Secret;
}

/** One draw: operations 1 to 8. */
export interface ExtractCall extends CallBase {
  readonly product: Product;
  readonly format: Format;
  /** For the format `text`: the custom extraction format of the instance, such as `{ip}:{port},{adr}`. */
  readonly textLayout?: string;
  /** The id of the instance. The service calls the parameter api, inst_id or app_id. */
  readonly instance: string;
  /**
   * The result of `checkParams`. `params.count` is the maximum number of proxies per call. noria does not send this
   * maximum: it sends the field `count` below.
   */
  readonly params: Readonly<Record<string, string | number>>;
  /** How many proxies to request. If absent, the service decides. */
  readonly count?: number;
}

/** One draw from an extraction link of any vendor. */
export interface LinkCall extends ServiceAddress, Pick<EntryOptions, 'rules' | 'login' | 'protocol'> {
  readonly product: 'link';
  readonly method: Method;
  /** The origin of `url`. */
  readonly baseUrl: string;
  /** The name of the link, from `linkIdentity`. It does not reveal the URL. */
  readonly instance: string;
  /** The URL, which may contain a placeholder for the number of proxies. */
  readonly url: Secret;
  readonly headers: Readonly<Record<string, Secret>>;
  readonly body?: Secret;
  /** The secrets in the URL, the headers and the body. noria masks them in every text that the vendor sends. */
  readonly secrets: readonly Secret[];
  readonly params: Readonly<Record<string, string | number>>;
  readonly count?: number;
}

export type DrawCall = ExtractCall | LinkCall;
/** A call without the number of proxies to request. Refill sets the number later. */
export type CountlessCall = Omit<ExtractCall, 'count'> | Omit<LinkCall, 'count'>;

/** A call of operation 9. */
export interface AreasCall extends CallBase {
  readonly instance: string;
  readonly areaKeyword?: string;
}

/** A call of operation 10. */
export interface InstancesCall extends CallBase {
  readonly username: string;
  /** One of the numbers in `INSTANCE_STATUSES`. If absent, the answer lists instances of any status. */
  readonly status?: number;
}

export interface ServiceRequest {
  readonly method: Method;
  /** The URL of the request. With GET, it contains the key, so never log or show it. */
  readonly url: URL;
  /** The body of a POST request: a form, JSON, or the type that the header `content-type` names. */
  readonly body?: string;
  /** The header fields. Their names are in lower case; their values may contain secrets. */
  readonly headers?: Readonly<Record<string, string>>;
}

const EXTRACT_PORT = 8080;

type Pairs = readonly (readonly [name: string, value: string | number | Secret])[];

/** @throws NoriaError bad-config if the address is unusable. */
export function extractRequest(call: DrawCall): ServiceRequest {
  if (call.product === 'link') return linkRequest(call);
  const { identity, params, path, selector } = OPERATIONS[call.product];
  const given = Object.keys(params).flatMap((name) => pair(name, call.params[name]));
  return request(call, path, [
    [identity.name, call.instance],
    [identity.key, call.key],
    ...pair('count', call.count),
    ...given,
    [selector.name, selector[call.format]],
  ]);
}

/**
 * The request of operation 9.
 *
 * @throws NoriaError bad-config if the address is unusable.
 */
export function areasRequest(call: AreasCall): ServiceRequest {
  const { identity, path } = OPERATIONS.areas;
  const filter = pair('areaKeyword', call.areaKeyword);
  return request(call, path, [[identity.name, call.instance], [identity.key, call.key], ...filter]);
}

/**
 * The request of operation 10.
 *
 * @throws NoriaError bad-config if the address is unusable.
 */
export function instancesRequest(call: InstancesCall): ServiceRequest {
  const { identity, path } = OPERATIONS.instances;
  const filter = pair('status', call.status);
  return request(call, path, [[identity.name, call.username], [identity.key, call.key], ...filter]);
}

/**
 * The URL to which noria connects.
 *
 * @throws NoriaError bad-config if the address is unusable.
 */
export function serviceUrl(address: ServiceAddress): URL {
  return new URL(rootOf(address));
}

function linkRequest({ method, url, headers, body, count = 1 }: LinkCall): ServiceRequest {
  const revealed = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value.reveal()]);
  return {
    method,
    url: new URL(withCount(url.reveal(), count)),
    headers: Object.fromEntries(revealed),
    ...(body === undefined ? {} : { body: withCount(body.reveal(), count) }),
  };
}

function pair(name: string, value: string | number | undefined): Pairs {
  return value === undefined ? [] : [[name, value]];
}

function request(call: CallBase, path: string, pairs: Pairs): ServiceRequest {
  const url = new URL(rootOf(call) + path);
  const form = encodeForm(pairs);
  if (call.method === 'POST') return { method: 'POST', url, body: form };
  url.search = form;
  return { method: 'GET', url };
}

function encodeForm(pairs: Pairs): string {
  return pairs
    .map(([name, value]) => {
      const text = typeof value === 'object' ? value.reveal() : String(value).toWellFormed();
      return `${encodeURIComponent(name)}=${encodeURIComponent(text)}`;
    })
    .join('&');
}

/** The address that precedes the path of the operation, without a trailing slash. */
function rootOf({ baseUrl, extractHost }: ServiceAddress): string {
  if (baseUrl !== undefined) return baseRoot(baseUrl);
  if (extractHost === undefined) throw new TypeError('a call needs baseUrl or extractHost');
  const address = parseHostPort(extractHost, EXTRACT_PORT);
  if (address === undefined)
    throw new NoriaError(
      'bad-config',
      `${extractHost} is not a host name or host:port; correct host of the source`,
    );
  return `http://${formatHostPort(address.host, address.port)}`;
}

function baseRoot(baseUrl: string): string {
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  const isUsable =
    url !== undefined &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.username + url.password + url.search + url.hash === '';
  // The message does not quote the address, because it may contain a password.
  if (!isUsable)
    throw new NoriaError(
      'bad-config',
      'the base address of the service is unusable; it must be http:// or https:// with a host and optionally a path, without credentials, query and fragment',
    );
  return url.origin + url.pathname.replace(/^((?:\/+[^/]+)*)\/*$/, '$1');
}
