/** A client of a running daemon's admin API. It validates answers with the schemas that the daemon uses. */
import type { z } from '@hono/zod-openapi';
import { Agent, request } from 'undici';
import { memberSchema, statusSchema } from '../admin/schemas.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';

const TIMEOUT_MS = 5_000;

export interface AdminClient {
  status(): Promise<z.infer<typeof statusSchema>>;
  members(): Promise<z.infer<typeof memberSchema>[]>;
  close(): Promise<void>;
}

/**
 * @param base - for example `http://127.0.0.1:8889`.
 * @returns a client whose calls throw NoriaError daemon-unreachable when no noria answers, and bad-usage when it needs a token.
 */
export function connectAdmin(base: string, token: Secret | undefined): AdminClient {
  // Its own agent, because the default one may use a proxy from the environment.
  const agent = new Agent({
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
    connect: { timeout: TIMEOUT_MS },
  });
  const headers = token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` };

  const get = async <Schema extends z.ZodType>(path: string, schema: Schema): Promise<z.infer<Schema>> => {
    const url = new URL(path, base);
    const answer = await request(url, { dispatcher: agent, headers }).catch((cause: unknown) => {
      throw new NoriaError('daemon-unreachable', `no answer from ${url.origin}: ${describeError(cause)}`, {
        cause,
      });
    });
    const text = await answer.body.text();
    if (answer.statusCode === 401) {
      throw new NoriaError(
        'bad-usage',
        `the daemon at ${url.origin} requires a token: set NORIA_ADMIN_TOKEN, or name its configuration with -c`,
      );
    }
    const parsed = answer.statusCode === 200 ? schema.safeParse(parseJson(text)) : undefined;
    if (parsed?.success === true) return parsed.data;
    throw new NoriaError(
      'daemon-unreachable',
      `the answer from ${url.origin} is not from noria: status ${answer.statusCode}`,
    );
  };

  return {
    status: () => get('/api/status', statusSchema),
    members: () => get('/api/members', memberSchema.array()),
    close: () => agent.close(),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // handled: the schema rejects undefined, and the caller reports it
  }
}
