/** Shared pools of one test, which connect to one real store. */
import { randomUUID } from 'node:crypto';
import { onTestFinished } from 'vitest';
import { systemBoot, systemClock } from '../../../src/core/clock.ts';
import type { NoriaError } from '../../../src/core/faults.ts';
import { systemRandom } from '../../../src/core/random.ts';
import { RedisSharedPool, type RedisSharedPoolOptions } from '../../../src/fleet/redis/redis-shared-pool.ts';
import { FleetStore } from '../../../src/fleet/redis/store.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import type { TestStore } from '../../support/store-server.ts';

const timekeeper = createTimekeeper(systemClock, systemBoot());
/** Only prevents a test that hangs. A test must not depend on the speed of the machine. */
const BIND_DEADLINE_MS = 30_000;
const BEAT_EVERY_MS = 50;

const SILENT = { connected() {}, claimed() {}, lagged() {}, nameTaken() {}, unagreed() {}, warned() {} };

/** The instances of the tests, by name. All have the same secret. */
export const instance = (key: string, secret = 'a secret') => ({
  key,
  secret,
  settings: { intervalMs: 1_000, size: 10, params: '' },
});

type Options = Partial<RedisSharedPoolOptions>;

export interface StoreStage {
  readonly clock: typeof systemClock;
  /** The name of the fleet, which gives its keys their own prefix. */
  readonly name: string;
  /** Why each lost connection of the pools was lost. */
  readonly lost: readonly string[];
  connect(replica: string, options?: Options): RedisSharedPool;
  /** Returns the store as a replica uses it, without following the log. */
  store(options?: Options): FleetStore;
}

export function openStoreStage(server: TestStore): StoreStage {
  const name = `test-${randomUUID().slice(0, 8)}`;
  const lost: string[] = [];
  const common = { address: server.address(), name, clock: systemClock, random: systemRandom, timekeeper };
  return {
    clock: systemClock,
    name,
    lost,
    connect(replica, options = {}) {
      const observer = { ...SILENT, lost: ({ message }: NoriaError) => lost.push(message) };
      const pool = new RedisSharedPool({
        ...common,
        replica,
        version: '1.2.3',
        clients: () => 7,
        refusals: () => [],
        instances: () => [instance('city'), instance('backup')],
        refuses: () => undefined,
        callTimeoutMs: () => 10_000,
        bindDeadlineMs: BIND_DEADLINE_MS,
        beatEveryMs: BEAT_EVERY_MS,
        observer,
        ...options,
      });
      onTestFinished(() => pool.close());
      return pool;
    },
    store(options = {}) {
      const store = new FleetStore({ ...common, ...options });
      onTestFinished(() => store.close());
      store.connection.start();
      return store;
    },
  };
}
