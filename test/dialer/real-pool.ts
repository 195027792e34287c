/** A dialer over a real pool, for tests of the effect of blame on members. */

import { onTestFinished } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { makeMark } from '../../src/core/front-proxy.ts';
import { seededRandom } from '../../src/core/random.ts';
import type { DialRequest } from '../../src/dialer/contract.ts';
import { type DialerOptions, MemberDialer } from '../../src/dialer/dialer.ts';
import { memberSockets } from '../../src/dialer/member-socket.ts';
import type { PoolSettings } from '../../src/pool/options.ts';
import { Pool } from '../../src/pool/pool.ts';
import { Prober } from '../../src/prober/prober.ts';
import type { TestMember } from '../support/bad-members.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
import { collect, start, targetOf } from './make-dialer.ts';

const openMemberSocket = memberSockets();

/**
 * Makes a dialer whose pool has these members of source `city`, in the order of the pool's picks. The members live for
 * half an hour of the manual clock, so no timeout passes unless the test advances the clock.
 */
export function makeDialerWithPool(
  members: readonly Pick<TestMember, 'protocol' | 'host' | 'port'>[],
  settings: Partial<DialerOptions> = {},
) {
  const clock = ManualClock.dayOld();
  return { clock, ...openDialerWithPool(members, { clock, ...settings }) };
}

/** Like `makeDialerWithPool`, with a clock of the caller. */
export function openDialerWithPool(
  members: readonly Pick<TestMember, 'protocol' | 'host' | 'port'>[],
  {
    rotation,
    ...settings
  }: Partial<DialerOptions> & {
    readonly clock: Clock;
    readonly rotation?: Partial<PoolSettings['rotation']>;
  },
) {
  const { clock } = settings;
  const bus = new EventBus((name, error) => {
    throw new Error(`observer of ${name} failed`, { cause: error });
  });
  const source = { ...CITY, size: members.length };
  const pool = new Pool({
    clock,
    bus,
    random: seededRandom(7),
    forecasts: () => [],
    ...poolSettings({ sources: [source], rotation }),
  });
  const quarantined = collect(bus, 'member.quarantined');
  const left = collect(bus, 'member.left');
  const endsAt = clock.monotonic() + 1_800_000;
  for (const { protocol, host, port } of members) {
    pool.addMembers('city', [{ protocol, host, port, endsAt, unproven: false }]);
  }
  const dialer = new MemberDialer({
    bus,
    pool,
    guard: { mark: makeMark(), ownAddresses: () => [] },
    attempts: 3,
    attemptTimeoutMs: 2_000,
    hedgeAfter: 'off',
    warm: 'off',
    deadlineMs: 30_000,
    waitForMemberMs: 15_000,
    sources: new Map(),
    onSourceFault: () => {},
    onNetwork: () => {},
    openSocket: (member, use) => openMemberSocket({ ...member, host: '127.0.0.1' }, use),
    ...settings,
  });
  const probers: Prober[] = [];
  onTestFinished(async () => {
    for (const prober of probers) await prober.close();
    await dialer.close();
    pool.close();
  });
  const dial = (target: string, request: Partial<DialRequest> = {}) =>
    start(dialer, { target: targetOf(target), routing: {}, use: 'tunnel', ...request }).result;
  /** Opens a tunnel that the target answers, or that ends without an answer. @returns the member. */
  const tunnel = async (target: string, end: 'answered' | 'cut', request: Partial<DialRequest> = {}) => {
    const result = await dial(target, request);
    if (!result.ok) throw new Error(`no tunnel to ${target}: ${result.failure.reason}`);
    result.connection.socket.destroy();
    result.connection.end({ cut: end === 'cut', answered: end === 'answered' });
    return result.connection.lease.member;
  };
  /** Probes members as the daemon does without a configured check. */
  const openProber = () => {
    const settings = { check: undefined, unprovenSources: new Set<string>() };
    const prober = new Prober({ clock, random: () => 0.5, bus, pool, dialer, ...settings });
    probers.push(prober);
  };
  return { dialer, pool, bus, dial, tunnel, quarantined, left, openProber };
}

/**
 * Many members that are one server. Their addresses differ, because two members of a pool never have the same host and
 * port.
 */
export function copies(
  { protocol, port }: Pick<TestMember, 'protocol' | 'port'>,
  count: number,
  from = 1,
): Pick<TestMember, 'protocol' | 'host' | 'port'>[] {
  return Array.from({ length: count }, (_, index) => ({ protocol, port, host: `127.0.0.${from + index}` }));
}
