/** A pool on a manual clock, and the operations that its tests share. */
import { onTestFinished } from 'vitest';
import { EventBus, type EventName, type NoriaEvents } from '../../src/core/events.ts';
import { seededRandom } from '../../src/core/random.ts';
import type { DrawnMember } from '../../src/pool/drawn-member.ts';
import {
  isLease,
  type Lease,
  type LeaseRefusal,
  type LeaseRequest,
  type RoutingOptions,
} from '../../src/pool/lease.ts';
import { Pool } from '../../src/pool/pool.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { type PoolChanges, poolSettings } from '../support/pool-settings.ts';

export interface PoolKit {
  readonly pool: Pool;
  readonly clock: ManualClock;
  readonly bus: EventBus;
  readonly emitted: { readonly name: EventName; readonly event: object }[];
  /** The events of one name so far. */
  events<Name extends EventName>(name: Name): NoriaEvents[Name][];
}

/** A clock whose timers can be late: with `lateMs`, this time has passed although no timer has fired. */
export class LateClock extends ManualClock {
  lateMs = 0;

  override monotonic(): number {
    return super.monotonic() + this.lateMs;
  }
}

const RECORDED = [
  'member.joined',
  'member.quarantined',
  'member.restored',
  'member.drained',
  'member.left',
  'site.banned',
  'demand.rose',
  'client.waited',
  'session.bound',
  'session.moved',
  'session.ended',
] as const satisfies readonly EventName[];

/** Opens a pool, closes it when the test ends, and checks that no timer is armed then. */
export function openKit(changes: PoolChanges & { readonly clock?: ManualClock } = {}): PoolKit {
  const clock = changes.clock ?? ManualClock.dayOld();
  const bus = new EventBus((name, error) => {
    throw new Error(`an observer of ${name} failed`, { cause: error });
  });
  const emitted: PoolKit['emitted'] = [];
  for (const name of RECORDED) bus.on(name, (event) => emitted.push({ name, event }));
  const pool = new Pool({
    clock,
    bus,
    random: seededRandom(7),
    forecasts: () => [],
    ...poolSettings(changes),
  });
  onTestFinished(() => {
    pool.close();
    if (clock.armedCount !== 0) throw new Error(`${clock.armedCount} timers are armed after close`);
  });
  return {
    pool,
    clock,
    bus,
    emitted,
    events: (name) => emitted.filter((event) => event.name === name).map(({ event }) => event as never),
  };
}

/** A drawn member that lives for `lifeMs` from now. Its address depends on `number`. */
export function drawn(
  kit: PoolKit,
  number: number,
  lifeMs = 180_000,
  changes: Partial<DrawnMember> = {},
): DrawnMember {
  return {
    protocol: 'http',
    host: `203.0.${Math.floor(number / 250)}.${(number % 250) + 1}`,
    port: 8000,
    endsAt: kit.clock.monotonic() + lifeMs,
    unproven: false,
    ...changes,
  };
}

/** Adds `count` members one after the other, because a single draw would shuffle them. */
export function addMembers(
  kit: PoolKit,
  count: number,
  lifeMs = 180_000,
  changes: Partial<DrawnMember> = {},
): void {
  for (let number = 0; number < count; number += 1) {
    kit.pool.addMembers('city', [drawn(kit, number, lifeMs, changes)]);
  }
}

let lastRequest = 0;

export function request(routing: RoutingOptions = {}, changes: Partial<LeaseRequest> = {}): LeaseRequest {
  lastRequest += 1;
  return { id: lastRequest, routing, targetHost: 'example.com', avoid: [], waitMs: 0, ...changes };
}

/** Acquires a lease, which the pool must grant immediately. */
export function acquire(
  kit: PoolKit,
  routing: RoutingOptions = {},
  changes: Partial<LeaseRequest> = {},
): Lease {
  const answer = kit.pool.acquire(request(routing, changes));
  if (answer instanceof Promise) throw new Error('the request waits');
  if (!isLease(answer)) throw new Error(`refused: ${answer.code}: ${answer.reason}`);
  return answer;
}

/** Requests a lease, which the pool must refuse immediately. Returns the refusal. */
export function refusal(
  kit: PoolKit,
  routing: RoutingOptions = {},
  changes: Partial<LeaseRequest> = {},
): LeaseRefusal {
  const answer = kit.pool.acquire(request(routing, changes));
  if (answer instanceof Promise) throw new Error('the request waits');
  if (isLease(answer)) throw new Error(`granted a lease on ${answer.member}`);
  return answer;
}

export function accept(kit: PoolKit, lease: Lease, latencyMs = 20): void {
  kit.pool.report({ lease: lease.id, kind: 'accepted', latencyMs });
}

/** Ends a tunnel: after an answer of the target, or cut before an answer. */
export function close(
  kit: PoolKit,
  lease: Lease,
  cut: false | 'member-for-target' | 'unclear' = false,
): void {
  kit.pool.report({ lease: lease.id, kind: 'closed', cut, answered: cut === false });
}

export function fail(kit: PoolKit, lease: Lease, blame: 'member' | 'target' = 'member'): void {
  kit.pool.report({ lease: lease.id, kind: 'failed', blame, fault: 'member-unreachable' });
}

/** Acquires a lease that a member accepts and that ends without an error. */
export function use(kit: PoolKit, routing: RoutingOptions = {}, changes: Partial<LeaseRequest> = {}): Lease {
  const lease = acquire(kit, routing, changes);
  accept(kit, lease);
  close(kit, lease);
  return lease;
}

export function stateOf(kit: PoolKit, member: string): string {
  return kit.pool.members().find(({ id }) => id === member)?.state ?? 'left';
}
