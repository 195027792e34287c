/** Tells the data plane once a second what the users with limits used today. Owns its timer. */
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { UsedToday } from '../listener/user-limits.ts';
import { workersOf } from './part-options.ts';

interface LimitsFeedOptions {
  readonly clock: Clock;
  readonly config: () => Config;
  readonly ledger: Pick<Ledger, 'usage'>;
  readonly replicas: () => number;
  readonly send: (usedToday: UsedToday) => void;
}

export function feedLimits(options: LimitsFeedOptions): Disposable {
  const { clock, config, send } = options;
  const run = () => {
    const limited = config().listeners.flatMap(({ users }) =>
      users.filter(({ limits }) => limits !== undefined),
    );
    if (limited.length > 0) send(usedToday(options, limited));
    timer = clock.after(SECOND_MS, run);
  };
  let timer = clock.after(0, run);
  return { [Symbol.dispose]: () => timer[Symbol.dispose]() };
}

/**
 * A fleet divides the limits of a day among its norias, as it divides `maxTunnelsPerMember`: what this noria counted is
 * multiplied instead of dividing the limits.
 */
function usedToday(
  { clock, config, ledger, replicas }: LimitsFeedOptions,
  users: readonly { readonly username: string }[],
): UsedToday {
  const norias = Math.max(1, replicas());
  const counted = users.map(({ username }) => {
    const { bytes, members } = ledger.usage.todayOf(username);
    return [username, { bytes: bytes * norias, members: members * norias }] as const;
  });
  return {
    processes: workersOf(config()) * norias,
    leftMs: untilMidnight(clock.now()),
    users: Object.fromEntries(counted),
  };
}

/** In this machine's time zone, as usage counts its days. */
function untilMidnight(now: number): number {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1).getTime() - now;
}
