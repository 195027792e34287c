/**
 * The distinct IPs that the norias of a fleet drew on the current day of the service, by instance.
 *
 * A set in the store has hashes of them. What other norias add is known after a moment, so a budget may be exceeded by the draws of
 * that moment.
 */
import { createHash } from 'node:crypto';
import { serviceDay } from '../../refill/daily-budget.ts';
import { FleetScript, type FleetStore } from './fleet-store.ts';

/** The day of the service, and one more for clocks that differ. */
const KEPT_MS = 2 * 24 * 3_600_000;
const HASH_CHARACTERS = 16;

/** KEYS: 7 the set of the day. ARGV: from 5 on hashes to add. Returns how many it has. */
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

  /** As last known; 0 before the first answer. @param key - of the instance. */
  used(key: string): number {
    const known = this.#counts.get(key);
    if (known === undefined) this.#counts.set(key, { day: 0, count: 0 }); // `refresh` asks for it from now on
    return known?.day === this.#today ? known.count : 0;
  }

  add(key: string, ips: readonly string[]): void {
    void this.#count(key, ips);
  }

  /** Asks for the counts of all instances that were asked for. */
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
      // ignored: nothing is drawn while the store is lost
    }
  }
}
