import { inspect } from 'node:util';
import { onTestFinished } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import type { DrawAnswer } from '../../src/service/answer.ts';
import {
  type CallOptions,
  type ListAnswer,
  ServiceClient,
  type ServiceClientOptions,
  type ServiceConnection,
} from '../../src/service/client.ts';
import type { AreasCall, ExtractCall, InstancesCall, ServiceAddress } from '../../src/service/request.ts';

export const KEY = '83aa400af464c76d';

interface TestCallOptions extends CallOptions {
  readonly signal?: AbortSignal;
}

/** A client that opens a connection for each call and is closed at the end of the test. */
export class TestClient {
  readonly #client: ServiceClient;

  constructor(client: ServiceClient) {
    this.#client = client;
  }

  extract(call: ExtractCall, options?: TestCallOptions): Promise<DrawAnswer> {
    return this.#on(call, options, (connection) => connection.extract(call, options));
  }

  areas(call: AreasCall): Promise<ListAnswer> {
    return this.#on(call, {}, (connection) => connection.areas(call));
  }

  instances(call: InstancesCall): Promise<ListAnswer> {
    return this.#on(call, {}, (connection) => connection.instances(call));
  }

  close(): void {
    this.#client.close();
  }

  async #on<T>(
    address: ServiceAddress,
    { signal }: TestCallOptions = {},
    call: (connection: ServiceConnection) => Promise<T>,
  ): Promise<T> {
    const connection = await this.#client.connect(address, signal);
    try {
      return await call(connection);
    } finally {
      connection.close();
    }
  }
}

export function openClient(more: Partial<ServiceClientOptions> = {}): TestClient {
  const client = new ServiceClient({
    timeoutMs: 60_000,
    clock: systemClock,
    refuses: () => undefined,
    ...more,
  });
  onTestFinished(() => client.close());
  return new TestClient(client);
}

/** A call that draws from short-classic, by default with GET and JSON. */
export function drawFrom(baseUrl: string, more: Partial<ExtractCall> = {}): ExtractCall {
  return {
    baseUrl,
    product: 'short-classic',
    method: 'GET',
    format: 'json',
    instance: '203001011200000001',
    key: new Secret(KEY),
    params: { timespan: 3 },
    count: 2,
    ...more,
  };
}

/** Returns the NoriaError of a failed call. Asserts that it contains no key. */
export async function faultOf(call: Promise<unknown>): Promise<NoriaError> {
  const error: unknown = await call.then(
    () => new Error('the call succeeded'),
    (reason: unknown) => reason,
  );
  if (!(error instanceof NoriaError)) throw error;
  const shown = [
    error.message,
    error.stack,
    inspect(error.cause, { depth: 9 }),
    JSON.stringify(error.context),
  ].join('\n');
  if (shown.includes(KEY)) throw new Error(`the key is in ${shown}`);
  return error;
}
