/**
 * Builds the HTTP request of a call; no other file puts a key into a request. GET sends the parameters in the query,
 * POST as a form: the specification does not define the body of POST, and related services use a form. The key is the
 * middle of an MD5 (characters 9 to 24): the specification says only "16-character MD5 form", and working clients use
 * this part.
 */

import { createHash } from 'node:crypto';
import { describeError, NoriaError } from '../core/faults.ts';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import { Secret } from '../core/secret.ts';
import { withCount } from './link/link-url.ts';
import type { EntryOptions } from './link/read-entry.ts';
import { type Format, type Method, OPERATIONS, type Product } from './operations.ts';

export interface ServiceAddress {
  /** {base_url} of the specification, optionally with a path. It takes precedence over `extractHost`. */
  readonly baseUrl?: string | undefined;
  /** {extract_host} of the specification, only for `short-pure`: a host, or host and port. The default port is 8080. */
  readonly extractHost?: string | undefined;
}

interface CallBase extends ServiceAddress {
  readonly method: Method;
  readonly key: Secret;
}

export interface ExtractCall extends CallBase {
  readonly product: Product;
  readonly format: Format;
  readonly textLayout?: string | undefined;
  readonly instance: string;
  /** The result of `checkParams`. Its `count`, the maximum per call, is not sent: `count` below is. */
  readonly params: Readonly<Record<string, string | number>>;
  readonly count?: number;
}

export interface LinkCall extends ServiceAddress, Pick<EntryOptions, 'answer' | 'login' | 'protocol'> {
  readonly product: 'link';
  readonly method: Method;
  readonly baseUrl: string;
  readonly instance: string;
  readonly url: Secret;
  readonly headers: Readonly<Record<string, Secret>>;
  readonly body?: Secret | undefined;
  /** The secrets in the URL, the headers and the body. noria masks them in every text that the vendor sends. */
  readonly secrets: readonly Secret[];
  readonly params: Readonly<Record<string, string | number>>;
  readonly count?: number;
}

interface OtherCall extends ServiceAddress {
  readonly instance: string;
  readonly secrets: readonly Secret[];
  readonly params: Readonly<Record<string, string | number>>;
  readonly count?: number;
}

export interface GatewayCall extends OtherCall {
  readonly product: 'gateway';
  readonly host: string;
  readonly port: number;
  readonly username: string;
  readonly password: Secret;
  readonly protocol: MemberProtocol;
}

/** A list has a `url` or a `file`. */
export interface ListCall extends OtherCall, Pick<EntryOptions, 'answer' | 'login' | 'protocol'> {
  readonly product: 'list';
  readonly url: Secret | undefined;
  readonly file: string | undefined;
}

/** A call that goes to the extraction service or to another vendor's link. */
export type ServiceCall = ExtractCall | LinkCall;
export type DrawCall = ServiceCall | GatewayCall | ListCall;
type Countless<Call> = Call extends unknown ? Omit<Call, 'count'> : never;
export type CountlessCall = Countless<DrawCall>;

export interface AreasCall extends CallBase {
  readonly instance: string;
  readonly areaKeyword?: string;
}

export interface InstancesCall extends CallBase {
  readonly username: string;
  readonly status?: number;
}

export interface ServiceRequest {
  readonly method: Method;
  /** The URL of the request. With GET, it contains the key, so never log or show it. */
  readonly url: URL;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const EXTRACT_PORT = 8080;

type Pairs = readonly (readonly [name: string, value: string | number | Secret])[];

export function listRequest({ url }: Pick<ListCall, 'url'>, etag: string | undefined): ServiceRequest {
  if (url === undefined) throw new TypeError('a list without url is a file');
  return { method: 'GET', url: new URL(url.reveal()), ...(etag && { headers: { 'if-none-match': etag } }) };
}

export function extractRequest(call: ServiceCall): ServiceRequest {
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

export function areasRequest(call: AreasCall): ServiceRequest {
  const { identity, path } = OPERATIONS.areas;
  const filter = pair('areaKeyword', call.areaKeyword);
  return request(call, path, [[identity.name, call.instance], [identity.key, call.key], ...filter]);
}

export function instancesRequest(call: InstancesCall): ServiceRequest {
  const { identity, path } = OPERATIONS.instances;
  const filter = pair('status', call.status);
  return request(call, path, [[identity.name, call.username], [identity.key, call.key], ...filter]);
}

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

const KEY = /^[0-9a-f]{16}$/i;

export function isKey(text: string): boolean {
  return KEY.test(text);
}

/** @param md5 - only tests pass it. @throws NoriaError bad-config if Node refuses MD5 (OpenSSL in FIPS mode). */
export function keyFromPassword(password: Secret, md5: (text: string) => string = md5Hex): Secret {
  try {
    return new Secret(md5(password.reveal()).slice(8, 24));
  } catch (cause) {
    throw new NoriaError(
      'bad-config',
      `cannot derive the key from the password: Node refused MD5 (${describeError(cause)}), as OpenSSL does in FIPS mode; configure the 16-character key instead of the password`,
      { cause },
    );
  }
}

function md5Hex(text: string): string {
  return createHash('md5').update(text, 'utf8').digest('hex');
}
