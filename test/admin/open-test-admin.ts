import { request as httpRequest } from 'node:http';
import { onTestFinished } from 'vitest';
import { type AdminOptions, openAdmin } from '../../src/admin/server.ts';
import { systemClock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { Secret } from '../../src/core/secret.ts';
import { fakeBackend, type STATUS } from './fake-backend.ts';

export const JSON_TYPE = { 'content-type': 'application/json' };

/** A bus whose observers may not fail. */
export function makeBus(): EventBus {
  return new EventBus((_name, error) => {
    throw error;
  });
}

/** Options of an admin server that shows the fake. */
export function adminOptions(more: Partial<AdminOptions> = {}): AdminOptions {
  return {
    host: '127.0.0.1',
    port: 0,
    version: '1.2.3',
    backend: fakeBackend(),
    bus: makeBus(),
    clock: systemClock,
    onError: (error) => {
      throw error;
    },
    ...more,
  };
}

/** An admin server that closes with the test, what was done through it, and what it could not explain. */
export async function openTestAdmin(
  options: { token?: string; status?: Partial<typeof STATUS> } & Partial<Pick<AdminOptions, 'clock'>> = {},
) {
  const { token, status, ...more } = options;
  const backend = fakeBackend(status);
  const errors: unknown[] = [];
  const bus = makeBus();
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

/** The status of a request with headers that fetch() refuses to set, Host and Origin among them: attackers do not use it. */
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
