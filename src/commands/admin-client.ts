/** A client of a running daemon's admin API. It validates answers with the schemas that the daemon uses. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import type { z } from '@hono/zod-openapi';
import { type MemberJson, memberSchema, type Status, statusSchema } from '../admin/schemas.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';

/** Time limit of one request, answer included. */
const TIMEOUT_MS = 5_000;

/** Its calls throw NoriaError daemon-unreachable when no noria answers, and bad-usage when it requires a token. */
export class AdminClient {
  readonly #base: string;
  readonly #token: Secret | undefined;

  /** @param base - for example `http://127.0.0.1:8889`. */
  constructor(base: string, token: Secret | undefined) {
    this.#base = base;
    this.#token = token;
  }

  status(): Promise<Status> {
    return this.#get('/api/status', statusSchema);
  }

  members(): Promise<MemberJson[]> {
    return this.#get('/api/members', memberSchema.array());
  }

  async #get<T>(path: string, schema: z.ZodType<T>): Promise<T> {
    const url = new URL(path, this.#base);
    const headers = this.#token === undefined ? {} : { authorization: `Bearer ${this.#token.reveal()}` };
    const answer = await get(url, headers).catch((cause: unknown) => {
      const message = `no answer from ${url.origin}: ${describeError(cause)}`;
      throw new NoriaError('daemon-unreachable', message, { cause });
    });
    if (answer.status === 401) {
      throw new NoriaError(
        'bad-usage',
        `the daemon at ${url.origin} requires a token: set NORIA_ADMIN_TOKEN, or name its configuration with -c`,
      );
    }
    const parsed = answer.status === 200 ? schema.safeParse(parseJson(answer.body)) : undefined;
    if (parsed?.success === true) return parsed.data;
    throw new NoriaError(
      'daemon-unreachable',
      `the answer from ${url.origin} is not from noria: status ${answer.status}`,
    );
  }
}

/** By node:http, which loads in a fifth of undici's time. A container's health check runs this often. */
function get(
  url: URL,
  headers: Readonly<Record<string, string>>,
): Promise<{ readonly status: number; readonly body: string }> {
  const request = url.protocol === 'https:' ? httpsRequest : httpRequest;
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; body: string }>();
  // agent: false, because the global agent may use a proxy from the environment.
  const options = { headers, agent: false, signal: AbortSignal.timeout(TIMEOUT_MS) };
  request(url, options, (response) => {
    text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }), reject);
  })
    .on('error', reject)
    .end();
  return promise;
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined; // handled: the schema rejects undefined, and the caller reports it
  }
}
