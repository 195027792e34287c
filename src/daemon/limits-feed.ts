/** Tells the data plane once a second what the users with limits used today. Owns its timer. */
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { endOfDay } from '../ledger/usage.ts';
import type { UsedToday } from '../listener/user-limits.ts';
import { workersOf } from './part-options.ts';

/**
 * A fleet divides the limits of a day among its norias, as it divides `maxTunnelsPerMember`: what this noria counted is
 * multiplied instead of dividing the limits.
 */
export function feedLimits({
  clock,
  config,
  ledger,
  replicas,
  send,
}: {
  readonly clock: Clock;
  readonly config: () => Config;
  readonly ledger: Pick<Ledger, 'usage'>;
  readonly replicas: () => number;
  readonly send: (usedToday: UsedToday) => void;
}): Disposable {
  const run = () => {
    const users = config().listeners.flatMap((listener) => listener.users);
    const norias = Math.max(1, replicas());
    const counted = users.flatMap(({ username, limits }) => {
      if (limits === undefined) return [];
      const { bytes, members } = ledger.usage.todayOf(username);
      return [[username, { bytes: bytes * norias, members: members * norias }] as const];
    });
    const processes = workersOf(config()) * norias;
    const now = clock.now();
    const leftMs = endOfDay(now) - now;
    if (counted.length > 0) send({ processes, leftMs, users: Object.fromEntries(counted) });
    timer = clock.after(SECOND_MS, run);
  };
  let timer = clock.after(0, run);
  return { [Symbol.dispose]: () => timer[Symbol.dispose]() };
}
