/** Asks a running daemon over its admin API, with the same schemas the daemon answers by. */
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

/** @param base - e.g. `http://127.0.0.1:8889`. Each call throws NoriaError daemon-unreachable when nothing answers as noria does. */
export function connectAdmin(base: string, token: Secret | undefined): AdminClient {
  // An agent of our own: proxies named by the environment must not stand between us and the daemon.
  const agent = new Agent({
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
    connect: { timeout: TIMEOUT_MS },
  });
  const headers = token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` };

  const ask = async <Schema extends z.ZodType>(path: string, schema: Schema): Promise<z.infer<Schema>> => {
    const url = new URL(path, base);
    const answer = await request(url, { dispatcher: agent, headers }).catch((cause: unknown) => {
      throw new NoriaError(
        'daemon-unreachable',
        `nothing answers at ${url.origin}: ${describeError(cause)}`,
        { cause },
      );
    });
    const text = await answer.body.text();
    if (answer.statusCode === 401) {
      throw new NoriaError(
        'bad-usage',
        `the daemon at ${url.origin} wants its token: set NORIA_ADMIN_TOKEN, or name its configuration with -c`,
      );
    }
    const parsed = answer.statusCode === 200 ? schema.safeParse(parseJson(text)) : undefined;
    if (parsed?.success === true) return parsed.data;
    throw new NoriaError(
      'daemon-unreachable',
      `what answers at ${url.origin} is not noria: status ${answer.statusCode}`,
    );
  };

  return {
    status: () => ask('/api/status', statusSchema),
    members: () => ask('/api/members', memberSchema.array()),
    close: () => agent.close(),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // handled: the schema refuses it, and the caller says what that means
  }
}
