/**
 * Faults of the store of a fleet. Meanwhile, every replica serves its own copy of the members, and no replica draws.
 */
import type { TestStore } from '../../support/store-server.ts';
import type { Fault } from './fault.ts';

export function storeFaults(store: TestStore): readonly Fault[] {
  return [
    {
      name: 'the store is killed and started again',
      promise: 'served',
      begin: async () => {
        await store.kill();
        return () => store.start();
      },
    },
    {
      name: 'the store hangs',
      promise: 'served',
      begin: async () => {
        store.signal('SIGSTOP');
        return () => store.signal('SIGCONT');
      },
    },
    {
      name: 'the store loses everything',
      promise: 'served',
      begin: async () => {
        await store.command('FLUSHALL');
        return () => {};
      },
    },
    {
      name: 'the store cuts all connections',
      promise: 'served',
      begin: async () => {
        await store.command('CLIENT', 'KILL', 'TYPE', 'normal');
        return () => {};
      },
    },
  ];
}
