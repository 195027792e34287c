/** Makes the scripts of a fleet read simulated time instead of the store's clock. Everything else is the real store. */
import { vi } from 'vitest';
import { type Reply, StoreClient, StoreRefusal } from '../../../src/fleet/redis/connection.ts';

const TIME = "local time = redis.call('TIME')";
const KEY = 'simulated-time';
const VIRTUAL_TIME = `local time = { redis.call('GET', '${KEY}') / 1000, 0 }`;

/** The command that sets the time, in epoch ms. */
export function timeCommand(ms: number): string[] {
  return ['SET', KEY, String(Math.floor(ms))];
}

/** Returns a FLUSHALL that sets the time again at once. */
export function flushCommand(ms: number): string[] {
  return [
    'EVAL',
    `redis.call('FLUSHALL'); redis.call('SET', '${KEY}', ARGV[1])`,
    '0',
    String(Math.floor(ms)),
  ];
}

export interface VirtualStoreTime {
  /** The number of connections and commands in progress. */
  readonly pending: number;
  restore(): void;
}

/** Uses simulated time until `restore` is called. Scripts are always sent in full. */
export function useVirtualTime(): VirtualStoreTime {
  const { call, connect } = StoreClient.prototype;
  let pending = 0;
  const counted = async <T>(work: Promise<T>): Promise<T> => {
    pending += 1;
    try {
      return await work;
    } finally {
      pending -= 1;
    }
  };
  const calls = vi.spyOn(StoreClient.prototype, 'call').mockImplementation(async function (
    this: StoreClient,
    command: readonly string[],
    deadlineMs?: number,
  ): Promise<Reply> {
    const [name, source = '', ...rest] = command;
    if (name === 'EVALSHA') throw new StoreRefusal('NOSCRIPT');
    const isOfFleet = name === 'EVAL' && source.includes(TIME);
    const virtual = isOfFleet ? [name, source.replace(TIME, VIRTUAL_TIME), ...rest] : command;
    return counted(call.call(this, virtual, deadlineMs));
  });
  const connects = vi.spyOn(StoreClient.prototype, 'connect').mockImplementation(function (
    this: StoreClient,
    deadlineMs: number,
    signal: AbortSignal,
  ) {
    return counted(connect.call(this, deadlineMs, signal));
  });
  return {
    get pending() {
      return pending;
    },
    restore() {
      calls.mockRestore();
      connects.mockRestore();
    },
  };
}
