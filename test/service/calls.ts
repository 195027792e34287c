import { inspect } from 'node:util';
import { systemClock } from '../../src/core/clock.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import type { DrawAnswer } from '../../src/service/answer.ts';
import { areas, extract, instances } from '../../src/service/client.ts';
import type { DecodedList, RefuseAddress } from '../../src/service/decode.ts';
import {
  type AreasCall,
  type ExtractCall,
  type InstancesCall,
  type ServiceAddress,
  type ServiceCall,
  serviceUrl,
} from '../../src/service/request.ts';
import { Transport, type TransportOptions, type WriteGate } from '../../src/service/transport.ts';

export const KEY = '83aa400af464c76d';

interface TestOptions extends Omit<TransportOptions, 'signal'> {
  readonly refuses: RefuseAddress;
}

interface CallOptions {
  readonly signal?: AbortSignal;
  readonly secrets?: readonly Secret[];
  readonly gate?: WriteGate;
}

/** A client that opens a connection for each call. */
export class TestClient {
  readonly #options: TestOptions;

  constructor(options: TestOptions) {
    this.#options = options;
  }

  extract(call: ServiceCall, { signal, ...more }: CallOptions = {}): Promise<DrawAnswer> {
    const options = { ...more, refuses: this.#options.refuses };
    return this.#on(call, (transport) => extract(transport, call, options), signal);
  }

  areas(call: AreasCall): Promise<DecodedList> {
    return this.#on(call, (transport) => areas(transport, call));
  }

  instances(call: InstancesCall): Promise<DecodedList> {
    return this.#on(call, (transport) => instances(transport, call));
  }

  connect(address: ServiceAddress, signal = new AbortController().signal): Promise<Transport> {
    return Transport.open(serviceUrl(address), { ...this.#options, signal });
  }

  async #on<T>(
    address: ServiceAddress,
    call: (transport: Transport) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const transport = await this.connect(address, signal);
    try {
      return await call(transport);
    } finally {
      transport.close();
    }
  }
}

export function openClient(more: Partial<TestOptions> = {}): TestClient {
  return new TestClient({ timeoutMs: 60_000, clock: systemClock, refuses: () => undefined, ...more });
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
