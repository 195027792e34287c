/**
 * What goes over the wire for a call: method, address, form body. Pure; the only place that opens a key.
 *
 * GET carries the parameters in the query, POST as a form in the body; both in UTF-8, percent-encoded. The specification
 * does not show where POST wants them: a form is what sister services document.
 */
import { NoriaError } from '../core/faults.ts';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import { MASK, type Secret } from '../core/secret.ts';
import { type Format, type ListName, type Method, OPERATIONS, type Product } from './operations.ts';

/** Where the service is: one of the two. */
export interface ServiceAddress {
  /** {base_url}, `http://` or `https://`; a path in it is kept. For `short-pure` it stands in for host and port. */
  readonly baseUrl?: string;
  /** {extract_host} of `short-pure`, with port 8080 unless it names another. */
  readonly extractHost?: string;
}

interface CallBasis extends ServiceAddress {
  readonly method: Method;
  /** The 16-character key: see key.ts. */
  readonly key: Secret;
}

/** One draw: operations 1 to 8. */
export interface ExtractCall extends CallBasis {
  readonly product: Product;
  readonly format: Format;
  /** With the format `text`: the instance's own extraction format, e.g. `{ip}:{port},{adr}`. */
  readonly textLayout?: string;
  /** Sent as api, inst_id or app_id. */
  readonly instance: string;
  /** As `checkParams` gives them. A `count` among them is the most for one call, and is not sent from here. */
  readonly params: Readonly<Record<string, string | number>>;
  /** How many proxies to ask for; left out, the service decides where it may. */
  readonly count?: number;
}

/** Operation 9. */
export interface AreasCall extends CallBasis {
  readonly instance: string;
  readonly areaKeyword?: string;
}

/** Operation 10. */
export interface InstancesCall extends CallBasis {
  readonly username: string;
  /** 1 near expiry, 2 not expired, 3 expired; left out: all. */
  readonly status?: number;
}

export interface ServiceRequest {
  readonly method: Method;
  /** With the key in it where the method is GET: for the wire only. */
  readonly url: URL;
  /** The form, for POST. */
  readonly body?: string;
  /** The same call for logs and messages, key masked. */
  readonly shown: string;
}

const EXTRACT_PORT = 8080;

type Pairs = readonly (readonly [name: string, value: string | number | Secret])[];

/**
 * The request of a draw.
 *
 * @throws NoriaError bad-config when the address cannot be used.
 */
export function extractRequest(call: ExtractCall): ServiceRequest {
  const { identity, params, path, selector } = OPERATIONS[call.product];
  const chosen = Object.keys(params).flatMap((name) => pair(name, call.params[name]));
  return request(call, path, [
    [identity.name, call.instance],
    [identity.key, call.key],
    ...pair('count', call.count),
    ...chosen,
    [selector.name, selector[call.format]],
  ]);
}

/** The request of operation 9. @throws NoriaError bad-config when the address cannot be used. */
export function areasRequest(call: AreasCall): ServiceRequest {
  return listRequest('areas', call, call.instance, pair('areaKeyword', call.areaKeyword));
}

/** The request of operation 10. @throws NoriaError bad-config when the address cannot be used. */
export function instancesRequest(call: InstancesCall): ServiceRequest {
  return listRequest('instances', call, call.username, pair('status', call.status));
}

function listRequest(name: ListName, call: CallBasis, who: string, filter: Pairs): ServiceRequest {
  const { identity, path } = OPERATIONS[name];
  return request(call, path, [[identity.name, who], [identity.key, call.key], ...filter]);
}

function pair(name: string, value: string | number | undefined): Pairs {
  return value === undefined ? [] : [[name, value]];
}

function request(call: CallBasis, path: string, pairs: Pairs): ServiceRequest {
  const url = new URL(rootOf(call) + path);
  const form = encode(pairs, (secret) => encodeURIComponent(secret.reveal()));
  const masked = encode(pairs, () => MASK);
  if (call.method === 'POST') return { method: 'POST', url, body: form, shown: `POST ${url.href} ${masked}` };
  const shown = `GET ${url.href}?${masked}`;
  url.search = form;
  return { method: 'GET', url, shown };
}

function encode(pairs: Pairs, open: (secret: Secret) => string): string {
  const text = (value: string | number | Secret) =>
    typeof value === 'object' ? open(value) : encodeURIComponent(String(value).toWellFormed());
  return pairs.map(([name, value]) => `${encodeURIComponent(name)}=${text(value)}`).join('&');
}

/** The address up to the operation's path, without a trailing slash. */
function rootOf({ baseUrl, extractHost }: ServiceAddress): string {
  if (baseUrl !== undefined) return baseRoot(baseUrl);
  if (extractHost === undefined) throw new TypeError('a call needs baseUrl or extractHost');
  const address = parseHostPort(extractHost, EXTRACT_PORT);
  if (address === undefined)
    throw new NoriaError('bad-config', `not an extraction host: ${extractHost}; give a host name`);
  return `http://${formatHostPort(address.host, address.port)}`;
}

function baseRoot(baseUrl: string): string {
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  const usable =
    url !== undefined &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.username + url.password + url.search + url.hash === '';
  // The address itself is not quoted: user info in it would be a password.
  if (!usable)
    throw new NoriaError(
      'bad-config',
      'the base address of the service cannot be used; give http:// or https://, a host and perhaps a path, without user info or query',
    );
  return url.origin + url.pathname.replace(/\/+$/, '');
}
