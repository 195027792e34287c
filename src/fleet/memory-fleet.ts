/** A fleet without a store: all its norias run in this process. `noria demo` uses it. */
import type { Clock } from '../core/clock.ts';
import { serviceDay } from '../refill/source-statistics.ts';
import type { Timekeeper } from '../state/moment.ts';
import { createPaceMemory, type PaceStore } from '../state/pace-file.ts';
import { MemorySharedPool } from './memory-shared-pool.ts';
import type { FleetPool, ReplicaStatus } from './shared-pool.ts';

interface MemoryFleetOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly timekeeper: Timekeeper;
  readonly version: string;
}

export class MemoryFleet {
  readonly #options: MemoryFleetOptions;
  readonly #shared: MemorySharedPool;
  readonly #pace: PaceStore;
  readonly #clients = new Map<string, () => number>();
  /** The distinct IPs drawn in one day of the service, by `INSTANCE DAY`. */
  readonly #drawn = new Map<string, Set<string>>();

  constructor(options: MemoryFleetOptions) {
    this.#options = options;
    this.#shared = new MemorySharedPool({ clock: options.clock });
    this.#pace = createPaceMemory(options.timekeeper);
  }

  /**
   * Returns what one noria needs to connect to the fleet.
   * @param replica - the name of the noria; unique in the fleet.
   */
  connector(replica: string) {
    const open = async ({ clients }: { readonly clients: () => number }): Promise<FleetPool> =>
      this.#open(replica, clients);
    return { name: this.#options.name, replica, open };
  }

  #open(name: string, clients: () => number): FleetPool {
    const connection = this.#shared.connect(name);
    const list = () => this.#list();
    this.#clients.set(name, clients);
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
      reload: () => this.#shared.reload(name),
      close: async () => {
        this.#clients.delete(name);
        await connection.close();
      },
    };
  }

  #list(): readonly ReplicaStatus[] {
    const { version } = this.#options;
    return [...this.#clients].map(([name, clients]) => ({
      name,
      version,
      clients: clients(),
      lastSeenSeconds: 0,
    }));
  }

  #drawnToday(key: string): Set<string> {
    const today = `${key} ${serviceDay(this.#options.clock.now())}`;
    const drawn = this.#drawn.get(today) ?? new Set();
    this.#drawn.set(today, drawn);
    return drawn;
  }
}
