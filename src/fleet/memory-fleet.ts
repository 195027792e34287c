/** A fleet without a store: all its norias run in this process. `noria demo` uses it. */
import type { Clock } from '../core/clock.ts';
import { serviceDay } from '../refill/source-statistics.ts';
import type { Timekeeper } from '../state/moment.ts';
import { createPaceMemory, type PaceStore } from '../state/pace-file.ts';
import { MemorySharedPool } from './memory-shared-pool.ts';
import type { FleetPool, ReplicaStatus } from './shared-pool.ts';

export class MemoryFleet {
  readonly #name: string;
  readonly #version: string;
  readonly #clock: Clock;
  readonly #shared: MemorySharedPool;
  readonly #pace: PaceStore;
  readonly #clients = new Map<string, () => number>();
  /** The distinct IPs drawn in one day of the service, by `INSTANCE DAY`. */
  readonly #drawn = new Map<string, Set<string>>();

  constructor(name: string, version: string, clock: Clock, timekeeper: Timekeeper) {
    this.#name = name;
    this.#version = version;
    this.#clock = clock;
    this.#shared = new MemorySharedPool({ clock });
    this.#pace = createPaceMemory(timekeeper);
  }

  /** @param replica - the name of the noria; unique in the fleet. */
  connector(replica: string) {
    const open = async ({ clients }: { readonly clients: () => number }): Promise<FleetPool> => {
      const connection = this.#shared.connect(replica);
      const list = () => this.#list();
      this.#clients.set(replica, clients);
      return {
        ...connection,
        pace: this.#pace,
        fault: undefined,
        lostMs: 0,
        get replicas() {
          return list();
        },
        epochId: '',
        dayCounts: {
          add: (key, ips) => {
            const drawn = this.#drawnToday(key);
            for (const ip of ips) drawn.add(ip);
          },
          used: (key) => this.#drawnToday(key).size,
        },
        drawnBy: (member) => this.#shared.drawnBy(member),
        reload: () => this.#shared.reload(replica),
        close: async () => {
          this.#clients.delete(replica);
          await connection.close();
        },
      };
    };
    return { name: this.#name, replica, open };
  }

  #list(): readonly ReplicaStatus[] {
    const version = this.#version;
    return [...this.#clients].map(([name, clients]) => {
      return { name, version, clients: clients(), lastSeenSeconds: 0 };
    });
  }

  #drawnToday(key: string): Set<string> {
    const today = `${key} ${serviceDay(this.#clock.now())}`;
    const drawn = this.#drawn.get(today) ?? new Set();
    this.#drawn.set(today, drawn);
    return drawn;
  }
}
