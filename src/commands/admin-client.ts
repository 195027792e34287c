/** Sends requests to the admin API of a running noria. Checks each answer against the schemas of the admin API. */
import type { IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import type { z } from '@hono/zod-openapi';
import {
  errorSchema,
  type MemberJson,
  memberSchema,
  type Reload,
  reloadSchema,
  type SessionJson,
  type Status,
  sessionSchema,
  statusSchema,
} from '../admin/schemas.ts';
import { describeError, FAULTS, type FaultCode, NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import { readVersion } from '../core/version.ts';

export interface AdminTarget {
  /** The address of the admin API as a URL without a path, for example `http://127.0.0.1:8889`. */
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
  readonly #target: AdminTarget;

  constructor(target: AdminTarget) {
    this.#target = target;
  }

  get origin(): string {
    return this.#target.origin;
  }

  status(): Promise<Status> {
    return this.#get('/api/status', statusSchema);
  }

  members(): Promise<MemberJson[]> {
    return this.#get('/api/members', memberSchema.array());
  }

  sessions(): Promise<SessionJson[]> {
    return this.#get('/api/sessions', sessionSchema.array());
  }

  async commandSource(source: string, verb: 'pause' | 'resume' | 'refill'): Promise<void> {
    await this.#call({ method: 'POST', path: `/api/sources/${encodeURIComponent(source)}/${verb}` });
  }

  async evictMember(member: string): Promise<void> {
    await this.#call({ method: 'POST', path: `/api/members/${encodeURIComponent(member)}/evict` });
  }

  async rotateSession(session: string, closeTunnels: boolean): Promise<void> {
    const path = `/api/sessions/${encodeURIComponent(session)}/rotate`;
    await this.#call({ method: 'POST', path, body: { close: closeTunnels } });
  }

  async forgetSession(session: string): Promise<void> {
    await this.#call({ method: 'DELETE', path: `/api/sessions/${encodeURIComponent(session)}` });
  }

  /**
   * @returns the result of the reload. If `applied` is false, noria applies the configuration after this answer,
   * because the configuration changes the admin API.
   */
  async reload(): Promise<Reload & { readonly applied: boolean }> {
    // fails within seconds if noria does not answer: the time limit of the reload is much longer
    await this.#call({ method: 'GET', path: '/healthz' });
    const answer = await this.#call({ method: 'POST', path: '/api/reload', timeoutMs: RELOAD_TIMEOUT_MS });
    return { ...this.#decode(answer, reloadSchema), applied: answer.status === 200 };
  }

  async #get<T>(path: string, schema: z.ZodType<T>): Promise<T> {
    return this.#decode(await this.#call({ method: 'GET', path }), schema);
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

  /** @returns an answer whose status is 200 to 299. */
  async #call(call: Call): Promise<Answer> {
    const { origin, givenBy, token } = this.#target;
    const headers = {
      ...(token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` }),
      ...(call.method === 'GET' ? {} : { 'content-type': 'application/json' }),
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
      return new NoriaError('bad-usage', `the daemon at ${origin} ${why}`);
    }
    if (isFaultCode(code)) return new NoriaError(code, message);
    return new NoriaError('bad-usage', `the daemon at ${origin} refused the request: ${message}`);
  }

  #unreachable(message: string, cause?: unknown): NoriaError {
    return new NoriaError('daemon-unreachable', message, cause === undefined ? {} : { cause });
  }
}

/**
 * Uses node:http instead of undici, which takes five times as long to load. A container's health check runs this code
 * often.
 */
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
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const isTls = origin.startsWith('https:');
  if (code === 'ECONNREFUSED') return 'nothing listens there';
  if (code === 'ENOTFOUND') return 'the host name does not exist';
  if (code === 'ABORT_ERR' || code === 'ETIMEDOUT') return `timeout after ${timeoutMs / 1_000} s`;
  if (code === 'EPROTO' && isTls) return 'the server does not speak TLS; use http://';
  if (code === 'ECONNRESET' && !isTls)
    return 'the server closed the connection; if it speaks TLS, use https://';
  if (code.startsWith('HPE_')) return 'the server does not speak HTTP';
  return describeError(cause);
}

function isFaultCode(code: string): code is FaultCode {
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
