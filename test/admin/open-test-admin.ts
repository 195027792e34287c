import { request as httpRequest } from 'node:http';
import { onTestFinished } from 'vitest';
import { type AdminOptions, openAdmin } from '../../src/admin/server.ts';
import { EventBus } from '../../src/core/events.ts';
import { Secret } from '../../src/core/secret.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { fakeBackend, type STATUS } from './fake-backend.ts';

export const JSON_TYPE = { 'content-type': 'application/json' };

/** A bus that throws when an observer fails. */
export function strictBus(): EventBus {
  return new EventBus((_name, error) => {
    throw error;
  });
}

/** Options of an admin server on a fake backend. */
export function adminOptions(more: Partial<AdminOptions> = {}): AdminOptions {
  return {
    host: '127.0.0.1',
    port: 0,
    version: '1.2.3',
    backend: fakeBackend(),
    bus: strictBus(),
    clock: new ManualClock(), // on which snapshots are never older than the request
    onError: (error) => {
      throw error;
    },
    ...more,
  };
}

/**
 * An admin server that closes with the test. `backend.commands` has the commands that it has called, `errors` its
 * unexpected errors.
 */
export async function openTestAdmin(
  options: { token?: string; status?: Partial<typeof STATUS> } & Partial<Pick<AdminOptions, 'clock'>> = {},
) {
  const { token, status, ...more } = options;
  const backend = fakeBackend(status);
  const errors: unknown[] = [];
  const bus = strictBus();
  const admin = await openAdmin(
    adminOptions({
      backend,
      bus,
      onError: (error) => errors.push(error),
      ...(token === undefined ? {} : { token: new Secret(token) }),
      ...more,
    }),
  );
  onTestFinished(() => admin.close());
  return { backend, errors, bus, url: `http://127.0.0.1:${admin.port}`, port: admin.port };
}

/** Sends headers that fetch() cannot set, such as Host and Origin. Resolves with the status. */
export function rawRequest(url: string, headers: Record<string, string>, method = 'GET'): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method, headers }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    request.on('error', reject);
    request.end();
  });
}
