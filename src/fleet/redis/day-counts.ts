/**
 * Counts the distinct IPs that all norias of a fleet drew from an instance on the current day of the service.
 *
 * The store keeps a set of hashes of these IPs. A noria learns only after a short delay how many IPs the other norias
 * drew. A daily budget may therefore be slightly exceeded.
 */

import { createHash } from 'node:crypto';
import { DAY_MS } from '../../core/duration.ts';
import { serviceDay } from '../../refill/source-statistics.ts';
import { FleetScript, type FleetStore } from './fleet-store.ts';

/** How long the store keeps the set of a day after its last change: a day, and a second day as a margin. */
const KEPT_MS = 2 * DAY_MS;
const HASH_CHARACTERS = 16;

/**
 * Adds the hashes of drawn IPs to the set of a day, and returns the size of the set. KEYS[7] is the set. ARGV[5] and
 * the following values are the hashes.
 */
const COUNT = new FleetScript(
  'count',
  `
for index = 5, #ARGV do redis.call('SADD', KEYS[7], ARGV[index]) end
if #ARGV > 4 then redis.call('PEXPIRE', KEYS[7], ${KEPT_MS}) end
return answer(whole(redis.call('SCARD', KEYS[7])))
`,
);

export class DayCounts {
  readonly #store: FleetStore;
  readonly #counts = new Map<string, { readonly day: number; readonly count: number }>();

  constructor(store: FleetStore) {
    this.#store = store;
  }

  /**
   * The last known number of distinct IPs drawn today; 0 before the first answer of the store.
   * @param key - the key of the instance.
   */
  used(key: string): number {
    const known = this.#counts.get(key);
    if (known === undefined) this.#counts.set(key, { day: 0, count: 0 }); // so that `refresh` asks for its count
    return known?.day === this.#today ? known.count : 0;
  }

  add(key: string, ips: readonly string[]): void {
    void this.#count(key, ips);
  }

  /** Asks the store for the counts of all instances for which `used` was called. Does not wait for the answer. */
  refresh(): void {
    for (const key of this.#counts.keys()) void this.#count(key, []);
  }

  get #today(): number {
    return serviceDay(this.#store.clock.atMost() ?? 0);
  }

  async #count(key: string, ips: readonly string[]): Promise<void> {
    const day = this.#today;
    try {
      const { values } = await this.#store.run(COUNT, {
        keys: [this.#store.keys.day(key, day)],
        args: ips.map((ip) => createHash('sha256').update(ip).digest('base64url').slice(0, HASH_CHARACTERS)),
      });
      this.#counts.set(key, { day, count: Number(values[0]) });
    } catch {
      // ignored: without the store, noria draws nothing, so it needs no count
    }
  }
}
