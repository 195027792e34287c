/** Helpers for tests of the sandbox: they open one, call its service without noria's client, and connect through its members. */
import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { SocksClient } from 'socks';
import { expect, onTestFinished } from 'vitest';
import type { SandboxProduct } from '../../src/sandbox/operations.ts';
import { openSandbox, type Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.ts';
import type { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

export async function open(options: SandboxOptions = {}): Promise<Sandbox> {
  const sandbox = await openSandbox(options);
  onTestFinished(() => sandbox.close());
  return sandbox;
}

/** A repeatable sequence of random numbers (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Path, instance parameter and the minimal parameters of a valid call, copied from the specification. */
export const GOOD_CALLS: Readonly<
  Record<
    SandboxProduct,
    { readonly path: string; readonly id: string; readonly params: Readonly<Record<string, string>> }
  >
> = {
  'long-residential': {
    path: '/PrivateProxy/GetIP/',
    id: 'api',
    params: { count: '3', fitter: '2', timespan: '6', tunnel: '2', type: '3' },
  },
  shared: {
    path: '/CotenancyProxy/GetIP/',
    id: 'api',
    params: { count: '3', pro: '1', order: '2', type: '3' },
  },
  'short-socks5': {
    path: '/ShortS5Proxy/GetIP/',
    id: 'api',
    params: { count: '3', timespan: '0', type: '3' },
  },
  'short-classic': {
    path: '/ShortProxy/GetIP/',
    id: 'api',
    params: { count: '3', timespan: '0', type: '3' },
  },
  'residential-socks5': {
    path: '/PrivateS5Proxy/GetIP/',
    id: 'api',
    params: { count: '3', fitter: '2', timespan: '6', tunnel: '2', type: '3' },
  },
  'short-pure': {
    path: '/GetIP/',
    id: 'inst_id',
    params: { count: '3', dedup: '0', timespan: '1', type: '2' },
  },
  free: { path: '/FreeProxy/Get/', id: 'app_id', params: { count: '3', dalu: '1', return_type: '3' } },
  exclusive: {
    path: '/ExclusiveProxy/GetIP/',
    id: 'api',
    params: { count: '3', pro: '1', order: '2', type: '3' },
  },
};

export interface HttpAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

export interface CallOptions {
  readonly method?: 'GET' | 'POST' | 'PUT';
  /** The client's address. */
  readonly from?: string;
}

/** Calls a product's operation. `params` override the valid ones; undefined leaves a parameter out. */
export function call(
  sandbox: Sandbox,
  product: SandboxProduct,
  params: Readonly<Record<string, string | undefined>> = {},
  options: CallOptions = {},
): Promise<HttpAnswer> {
  const { id, akey, baseUrl } = sandbox.instance(product);
  const good = GOOD_CALLS[product];
  const all = { [good.id]: id, akey, ...good.params, ...params };
  return send(`${baseUrl}${good.path}`, all, options);
}

/** Sends parameters in the query or, if the method is not GET, as a form. */
export async function send(
  address: string,
  params: Readonly<Record<string, string | undefined>>,
  { method = 'GET', from }: CallOptions = {},
): Promise<HttpAnswer> {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined) fields.set(name, value);
  const form = fields.toString();
  const isGet = method === 'GET';
  const asked = request(isGet ? `${address}?${form}` : address, {
    method,
    agent: false,
    ...(from === undefined ? {} : { localAddress: from }),
    headers: isGet ? {} : { 'Content-Type': 'application/x-www-form-urlencoded' },
  });
  asked.end(isGet ? undefined : form);
  const [response] = await once(asked, 'response');
  let body = '';
  for await (const chunk of response.setEncoding('utf8')) body += chunk;
  return { status: response.statusCode, contentType: response.headers['content-type'] ?? '', body };
}

export interface Envelope {
  readonly code: string;
  readonly msg: string;
  readonly data?: Record<string, unknown> & { readonly proxy_list: readonly Record<string, unknown>[] };
}

/** Calls and decodes the JSON answer. */
export async function ask(...args: Parameters<typeof call>): Promise<Envelope> {
  return JSON.parse((await call(...args)).body);
}

export interface Entry extends Record<string, unknown> {
  readonly ip: string;
  readonly port: number;
}

/** Calls and returns the entries. @throws Error if the call is refused. */
export async function draw(...args: Parameters<typeof call>): Promise<readonly Entry[]> {
  const { code, msg, data } = await ask(...args);
  if (code !== '10001') throw new Error(`the call was refused: ${code} ${msg}`);
  return (data?.proxy_list ?? []) as Entry[];
}

/** Waits until a timer of `ms` is armed, then lets its time pass and asserts that it fires no earlier and no later. */
export async function passThrough(clock: ManualClock, ms: number): Promise<void> {
  await until(`a timer of ${ms} ms is armed`, () => clock.armedMs.includes(ms));
  clock.advance(ms - 1);
  expect(clock.armedMs, `after ${ms - 1} ms`).toContain(1);
  clock.advance(1);
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Sends an absolute-form GET through an HTTP member. */
export async function getThrough(
  { ip, port }: Entry,
  url: string,
  credentials?: Credentials,
): Promise<{ readonly status: number; readonly body: string }> {
  const asked = request({
    host: ip,
    port,
    path: url,
    agent: false,
    headers: { Host: new URL(url).host, ...proxyAuthorization(credentials) },
  });
  asked.end();
  const [response] = await once(asked, 'response');
  let body = '';
  for await (const chunk of response.setEncoding('utf8')) body += chunk;
  return { status: response.statusCode, body };
}

/** Sends CONNECT to an HTTP member. */
export async function connectThrough(
  { ip, port }: Entry,
  target: string,
  credentials?: Credentials,
): Promise<{ readonly status: number; readonly socket: Socket }> {
  const headers = proxyAuthorization(credentials);
  const asked = request({ host: ip, port, method: 'CONNECT', path: target, agent: false, headers });
  asked.end();
  const [response, socket] = await once(asked, 'connect');
  onTestFinished(() => socket.destroy());
  return { status: response.statusCode, socket };
}

/** Opens a tunnel through a SOCKS member. */
export async function socksThrough(
  { ip, port }: Entry,
  target: string,
  type: 4 | 5,
  credentials?: Credentials,
): Promise<Socket> {
  const [host = '', targetPort] = target.split(':');
  const login =
    credentials === undefined ? {} : { userId: credentials.username, password: credentials.password };
  const { socket } = await SocksClient.createConnection({
    proxy: { host: ip, port, type, ...login },
    command: 'connect',
    destination: { host, port: Number(targetPort) },
    timeout: 60_000,
  });
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** Sends a GET on an open tunnel and returns the body of the answer. */
export async function getOver(socket: Socket, path: string): Promise<string> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: target.example\r\nConnection: close\r\n\r\n`);
  const received = await readAll(socket);
  return received.slice(received.indexOf('\r\n\r\n') + 4);
}

/** Sends bytes and returns everything received until the member ends the connection. */
export async function exchange({ ip, port }: Entry, bytes: Buffer | string): Promise<Buffer> {
  const socket = connect({ host: ip, port });
  onTestFinished(() => void socket.destroy());
  socket.write(bytes);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export async function readAll(socket: Socket): Promise<string> {
  let received = '';
  for await (const chunk of socket.setEncoding('latin1')) received += chunk;
  return received;
}

function proxyAuthorization(credentials: Credentials | undefined): Record<string, string> {
  if (credentials === undefined) return {};
  const pair = Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64');
  return { 'Proxy-Authorization': `Basic ${pair}` };
}
