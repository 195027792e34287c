/**
 * The recent failures: what happened, how often, and what to do. Occurrences of the same failure share one entry with a
 * count.
 *
 * The number of entries is limited. A new entry replaces the one whose last occurrence is the oldest.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import type { FailureView } from './schemas.ts';

const MAX_ENTRIES = 60;
const STATES_AFTER_FAILURE: ReadonlySet<string> = new Set(['waiting', 'backoff', 'paused', 'halted']);

export type Failures = ReturnType<typeof openFailures>;

export function openFailures(bus: EventBus, clock: Clock) {
  const entries = new BoundedMap<string, FailureView>(MAX_ENTRIES);
  const record = (key: string, failure: Omit<FailureView, 'firstAt' | 'lastAt' | 'times'>): void => {
    const lastAt = new Date(clock.now()).toISOString();
    const { times = 0, firstAt = lastAt } = entries.get(key) ?? {};
    entries.set(key, { ...failure, times: times + 1, firstAt, lastAt });
  };
  const subscriptions = [
    bus.on('dial.ended', ({ outcome, target, source, attempts, ms }) => {
      if (outcome === 'accepted' || outcome === 'client-gone') return;
      // A failure of noria or of a source affects all targets: one entry, with the latest target.
      const { side } = FAULTS[outcome];
      const perTarget = side !== 'noria' && side !== 'source';
      record(`request ${outcome} ${perTarget ? target : ''}`, {
        kind: 'request',
        ...describeFault(outcome),
        target,
        detail: `${attempts} ${attempts === 1 ? 'member' : 'members'} tried in ${Math.round(ms)} ms`,
        ...(source === undefined ? {} : { source }),
      });
    }),
    bus.on('client.refused', ({ code, listener, protocol, detail, dialFailed }) => {
      if (dialFailed === true) return;
      record(`refusal ${code} ${listener} ${protocol}`, {
        kind: 'refusal',
        ...describeFault(code),
        listener,
        protocol,
        detail,
      });
    }),
    bus.on('dial.attempted', ({ outcome, blame, source, member }) => {
      if (outcome === 'accepted' || outcome === 'cancelled' || blame === 'nobody') return;
      record(`attempt ${outcome} ${source}`, { kind: 'attempt', ...describeFault(outcome), source, member });
    }),
    bus.on('source.moved', ({ source, to, reason, advice, code }) => {
      if (!STATES_AFTER_FAILURE.has(to) || code === undefined) return;
      record(`source ${source} ${code}`, {
        kind: 'source',
        code,
        side: 'source',
        says: `${source}: ${reason.replace(/\.$/, '')}.`,
        advice: advice ?? '',
        source,
      });
    }),
    bus.on('network.judged', ({ down }) => {
      if (down) record('network', { kind: 'attempt', ...describeFault('network-down') });
    }),
  ];
  return {
    list: () => [...entries.values()].reverse(),
    close: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}

function describeFault(code: FaultCode): Pick<FailureView, 'code' | 'side' | 'says' | 'advice'> {
  const { side, summary, advice } = FAULTS[code];
  return { code, side, says: summary, advice };
}
