/** Sends requests to the admin API of a running noria. Checks each answer against the schemas of the admin API. */
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import { dirname, resolve as resolvePath } from 'node:path';
import { text } from 'node:stream/consumers';
import type { z } from '@hono/zod-openapi';
import {
  errorSchema,
  type MemberJson,
  memberSchema,
  type Reload,
  reloadSchema,
  type Status,
  statusSchema,
} from '../admin/schemas.ts';
import { type Environment, ParsedDocument, valueAt } from '../config/document.ts';
import { decodeText, findDefaultFile, systemFiles, whyUnreadable } from '../config/files.ts';
import { describeError, errnoOf, FAULTS, type FaultCode, NoriaError } from '../core/faults.ts';
import { formatHostPort, hostPort, parseHostPort, parsePort } from '../core/host-port.ts';
import { type ListenAddress, localHostOf, readListenAddress } from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import { readVersion } from '../core/version.ts';
import type { Flag } from './command.ts';
import { badUsage, type Terminal } from './terminal.ts';

export interface AdminTarget {
  readonly origin: string;
  /** A phrase for messages that says where the address comes from, for example `admin.address of ./noria.yaml`. */
  readonly givenBy: string;
  readonly token: Secret | undefined;
  /** A phrase for messages that says where the token comes from, or why there is none. */
  readonly tokenNote: string;
}

const TIMEOUT_MS = 2_000;
/** The time limit for a reload. A reload may wait 30 s for a worker process that does not respond. */
const RELOAD_TIMEOUT_MS = 60_000;

interface Call {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  readonly accept?: string;
  readonly timeoutMs?: number;
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/**
 * Calls to the admin API. Each call throws a NoriaError: daemon-unreachable if no noria answers, bad-usage if the token
 * is missing or wrong, and otherwise the fault in noria's answer, for example not-found.
 */
export class AdminClient {
  readonly origin: string;
  readonly #target: AdminTarget;

  constructor(target: AdminTarget) {
    this.origin = target.origin;
    this.#target = target;
  }

  status(): Promise<Status> {
    return this.get('/api/status', statusSchema);
  }

  members(): Promise<MemberJson[]> {
    return this.get('/api/members', memberSchema.array());
  }

  async usageCsv(query: URLSearchParams): Promise<string> {
    const answer = await this.#call({ method: 'GET', path: `/api/usage?${query}`, accept: 'text/csv' });
    return answer.body;
  }

  async get<T>(path: string, schema: z.ZodType<T>): Promise<T> {
    return this.#decode(await this.#call({ method: 'GET', path }), schema);
  }

  async change(method: 'POST' | 'DELETE', path: readonly string[], body?: unknown): Promise<void> {
    await this.#call({ method, path: ['/api', ...path.map(encodeURIComponent)].join('/'), body });
  }

  /** `applied` is false if noria applies the configuration after this answer, because the admin API changes. */
  async reload(): Promise<Reload & { readonly applied: boolean }> {
    // fails within seconds if noria does not answer: the time limit of the reload is much longer
    await this.#call({ method: 'GET', path: '/healthz' });
    const answer = await this.#call({ method: 'POST', path: '/api/reload', timeoutMs: RELOAD_TIMEOUT_MS });
    return { ...this.#decode(answer, reloadSchema), applied: answer.status === 200 };
  }

  #decode<T>(answer: Answer, schema: z.ZodType<T>): T {
    const json = parseJson(answer.body);
    const parsed = schema.safeParse(json);
    if (parsed.success) return parsed.data;
    const version = versionIn(json);
    const why =
      version === undefined || version === readVersion()
        ? `is not from noria: status ${answer.status}`
        : `is from noria ${version}, and this command is noria ${readVersion()}: use the same version`;
    throw this.#unreachable(`the answer from ${this.origin} ${why}`);
  }

  async #call(call: Call): Promise<Answer> {
    const { origin, givenBy, token } = this.#target;
    const headers = {
      ...(token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` }),
      ...(call.method === 'GET' ? {} : { 'content-type': 'application/json' }),
      ...(call.accept === undefined ? {} : { accept: call.accept }),
    };
    const answer = await send(new URL(call.path, origin), call, headers).catch((cause: unknown) => {
      throw this.#unreachable(
        `no answer from ${origin} (${givenBy}): ${reasonOf(cause, origin, call)}`,
        cause,
      );
    });
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw this.#refusal(answer);
  }

  #refusal({ status, headers, body }: Answer): NoriaError {
    const { origin, givenBy, token, tokenNote } = this.#target;
    if (headers['x-noria-error'] !== undefined) {
      return this.#unreachable(`${origin} (${givenBy}) is a proxy port of noria, not its admin address`);
    }
    const refused = errorSchema.safeParse(parseJson(body));
    if (!refused.success)
      return this.#unreachable(`the answer from ${origin} is not from noria: status ${status}`);
    const { code, message } = refused.data.error;
    if (code === 'token-required') {
      const why =
        token === undefined
          ? `requires a token: set NORIA_ADMIN_TOKEN, or give the configuration file of that noria with -c (${tokenNote})`
          : `refuses the token (${tokenNote}): this token is not admin.token of the daemon`;
      return badUsage(`the daemon at ${origin} ${why}`);
    }
    if (isFaultCode(code)) return new NoriaError(code, message);
    return badUsage(`the daemon at ${origin} refused the request: ${message}`);
  }

  #unreachable(message: string, cause?: unknown): NoriaError {
    return new NoriaError('daemon-unreachable', message, cause === undefined ? {} : { cause });
  }
}

/** node:http, because undici takes five times as long to load, and health checks run this often. */
async function send(
  url: URL,
  { method, body = {}, timeoutMs = TIMEOUT_MS }: Call,
  headers: Readonly<Record<string, string>>,
): Promise<Answer> {
  const { request } = await (url.protocol === 'https:' ? import('node:https') : import('node:http'));
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  // without `agent: false`, the request could go through a proxy from the environment
  const options = { method, headers, agent: false, signal: AbortSignal.timeout(timeoutMs) };
  request(url, options, (response) => {
    const { statusCode: status = 0, headers } = response;
    text(response).then((body) => resolve({ status, headers, body }), reject);
  })
    .on('error', reject)
    .end(method === 'POST' ? JSON.stringify(body) : undefined);
  return promise;
}

function reasonOf(cause: unknown, origin: string, { timeoutMs = TIMEOUT_MS }: Call): string {
  const code = errnoOf(cause);
  const isTls = origin.startsWith('https:');
  if (code === 'ECONNREFUSED') return 'nothing listens there';
  if (code === 'ENOTFOUND') return 'the host name does not exist';
  if (code === 'ABORT_ERR' || code === 'ETIMEDOUT') return `timeout after ${timeoutMs / 1_000} s`;
  if (code === 'EPROTO' && isTls) return 'the server does not speak TLS; use http://';
  if (code === 'ECONNRESET' && !isTls)
    return 'the server closed the connection; if it speaks TLS, use https://';
  if (code?.startsWith('HPE_') === true) return 'the server does not speak HTTP';
  return describeError(cause);
}

export function isFaultCode(code: string): code is FaultCode {
  return Object.hasOwn(FAULTS, code);
}

function versionIn(json: unknown): string | undefined {
  if (typeof json !== 'object' || json === null || !('version' in json)) return undefined;
  return typeof json.version === 'string' ? json.version : undefined;
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined; // handled: undefined matches no schema, so the caller reports an invalid answer
  }
}

export interface AdminFlags {
  readonly admin?: string;
  readonly config?: string;
  readonly json?: boolean;
}

const DEFAULT_HOST = '127.0.0.1';
const DEFAULT_PORT = 8889;
const EXAMPLES = '8889, 127.0.0.1:8889 or https://noria.example.com';

export const ADMIN_FLAGS: readonly Flag[] = [
  [
    '--admin <address>',
    `admin address of the daemon: port, host:port or URL (default: NORIA_ADMIN, else admin.address of the configuration, else ${DEFAULT_HOST}:${DEFAULT_PORT})`,
  ],
  ['-c, --config <file>', 'take admin address and token from this configuration file'],
];

export const TOKEN_HELP =
  'The token comes from NORIA_ADMIN_TOKEN, else from admin.token in the configuration.';

export function openAdminClient(flags: AdminFlags, { env }: Terminal): AdminClient {
  return new AdminClient(findAdminTarget(flags, env));
}

/** The token of the default file applies only if the address comes from the default file, too. */
export function findAdminTarget({ admin, config }: AdminFlags, env: Terminal['env']): AdminTarget {
  const named = config === undefined ? undefined : readTarget(config, env);
  const given = { ...NO_TOKEN, ...named };
  const address = env['NORIA_ADMIN']?.trim();
  const target =
    admin !== undefined
      ? { ...given, origin: originOf(admin, '--admin'), givenBy: '--admin' }
      : (named ??
        (address
          ? { ...NO_TOKEN, origin: originOf(address, 'NORIA_ADMIN'), givenBy: 'NORIA_ADMIN' }
          : defaultTarget(env)));
  const token = env['NORIA_ADMIN_TOKEN']?.trim();
  if (!token) return target;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw badUsage('NORIA_ADMIN_TOKEN contains white space or a character outside ASCII');
  }
  return { ...target, token: new Secret(token), tokenNote: 'NORIA_ADMIN_TOKEN' };
}

const NO_TOKEN = { token: undefined, tokenNote: 'NORIA_ADMIN_TOKEN is not set' };

const DEFAULT_TARGET: AdminTarget = {
  ...NO_TOKEN,
  origin: `http://${DEFAULT_HOST}:${DEFAULT_PORT}`,
  givenBy: 'the default address',
};

/** An invalid default file is no error: noria may still run with an earlier version of it. */
function defaultTarget(env: Terminal['env']): AdminTarget {
  const file = findDefaultFile();
  if (file === undefined) return DEFAULT_TARGET;
  try {
    return readTarget(file, env);
  } catch (error) {
    return { ...DEFAULT_TARGET, givenBy: `the default address, because ${describeError(error)}` };
  }
}

function readTarget(file: string, env: Terminal['env']): AdminTarget {
  const { address, ...token } = readAdminSection(file, env);
  if (address === undefined) return { ...DEFAULT_TARGET, ...token };
  if (address === 'off') throw badUsage(`admin is off in ${file}: the daemon has no admin API`);
  if (address.kind === 'fd' || address.port === 0) {
    const message = `admin.address of ${file} has no fixed port: give --admin the address that the daemon's log shows`;
    throw badUsage(message);
  }
  return { ...token, origin: httpOrigin(address.host, address.port), givenBy: `admin.address of ${file}` };
}

/**
 * Reads only the section `admin`. The rest of the file may be invalid: controlling a noria needs no other secret or
 * variable. Does not load the schema, because that would double the CPU time of a health check.
 */
function readAdminSection(file: string, env: Environment) {
  const document = new ParsedDocument(readText(file), env);
  const [first] = document.problems;
  if (document.tree === undefined) {
    const { line, col } = document.lines.linePos(first?.offset ?? 0);
    throw invalid(`${file}:${line}:${col}`, `invalid YAML: ${first?.message}`);
  }
  const text = (key: string) => {
    const value = valueAt(document.tree, ['admin', key]);
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const problemAt = (path: string) => document.problems.find((problem) => problem.path === path)?.message;
  const note = `admin.token of ${file}`;
  const isOff = valueAt(document.tree, ['admin']) === 'off';
  const problem = problemAt('admin.address');
  if (problem !== undefined) throw invalid(file, `admin.address: ${problem}`);
  const address = isOff ? 'off' : addressOf(file, text('address'));
  const unreadable = (why: string) => ({ address, token: undefined, tokenNote: `${note}: ${why}` });
  const tokenProblem = problemAt('admin.token') ?? problemAt('admin.tokenFile');
  if (tokenProblem !== undefined) return unreadable(tokenProblem);
  const [plain, path] = [text('token'), text('tokenFile')];
  try {
    const token = plain ?? (path && readText(resolvePath(dirname(file), path)).replace(/\r?\n$/, ''));
    if (token === undefined) return { address, token, tokenNote: `${file} has no admin.token` };
    return { address, token: new Secret(token), tokenNote: note };
  } catch (error) {
    return unreadable(describeError(error));
  }
}

function addressOf(file: string, text: string | undefined): ListenAddress | 'off' | undefined {
  if (text === undefined || text === 'off') return text;
  const reading = readListenAddress(text);
  if ('value' in reading) return reading.value;
  throw invalid(file, `admin.address ${reading.wrong}; expected off or host:port`);
}

function readText(file: string): string {
  let bytes: Buffer;
  try {
    bytes = systemFiles.read(file);
  } catch (error) {
    throw invalid(file, whyUnreadable(error));
  }
  const reading = decodeText(bytes);
  if ('value' in reading) return reading.value;
  throw invalid(file, reading.wrong);
}

function invalid(place: string, message: string): NoriaError {
  return new NoriaError('bad-config', `${place}: ${message}`);
}

function originOf(text: string, givenBy: string): string {
  const refuse = (why: string) => {
    // A text with @ may contain a password, so the message does not quote it.
    const quoted = text.includes('@') ? '' : ` ${text}`;
    return badUsage(`${givenBy}${quoted}: ${why}; expected for example ${EXAMPLES}`);
  };
  const trimmed = text.trim().replace(/^\/\//, '');
  const digits = /^:?(\d+)$/.exec(trimmed)?.[1];
  if (digits !== undefined) {
    const port = parsePort(digits);
    if (port === undefined) throw refuse('a port is from 1 to 65535');
    return httpOrigin(DEFAULT_HOST, port);
  }
  if (!trimmed.includes('://')) {
    const [address = ''] = trimmed.split('/', 1);
    const read = isIPv6(address) ? hostPort(address, DEFAULT_PORT) : parseHostPort(address, DEFAULT_PORT);
    if (read === undefined) throw refuse('this is not a host with a port from 1 to 65535');
    return httpOrigin(read.host, read.port);
  }
  const url = URL.parse(trimmed);
  if (url === null) throw refuse('this is not a URL');
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw refuse('the scheme must be http or https');
  if (url.username !== '' || url.password !== '') {
    throw refuse('remove the user name and password; noria reads the token from NORIA_ADMIN_TOKEN');
  }
  return url.origin;
}

function httpOrigin(host: string, port: number): string {
  return `http://${formatHostPort(localHostOf(host), port)}`;
}
