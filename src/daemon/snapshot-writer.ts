/** When the state that outlives a restart is written: at once after a draw, which was paid for; else within seconds of a change. */
import type { EventBus } from '../core/events.ts';
import type { Pool } from '../pool/pool.ts';
import type { Refiller } from '../refill/refiller.ts';
import type { State } from '../state/folder.ts';

/** What a changed pool is worth writing down for; a draw is written at once. */
const CHANGES = [
  'member.left',
  'member.quarantined',
  'member.banned',
  'session.bound',
  'session.moved',
  'session.ended',
] as const;

/** Writes when something happens on the bus, until disposed of. */
export function keepSnapshot({ snapshot }: State, pool: Pool, refiller: Refiller, bus: EventBus): Disposable {
  snapshot.addPart('pool', () => pool.snapshot());
  snapshot.addPart('refill', () => refiller.record());
  const subscriptions = [
    bus.on('draw.done', () => void snapshot.save()), // paid for: a crash a moment later must not lose it
    ...CHANGES.map((name) => bus.on(name, () => snapshot.saveSoon())),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}
