/**
 * Counts the recent traffic from noria's events. One ring of short steps covers the last 15 minutes, another ring of
 * longer steps the last day.
 */
import type { Clock } from '../core/clock.ts';
import type { Blame, EventBus } from '../core/events.ts';
import type { Side } from '../core/faults.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import type { HistoryView, Span } from './schemas.ts';
import { type FailureSide, TrafficRing } from './traffic-ring.ts';

/**
 * For each blame, the side under which the history counts a failed attempt. With `undefined`, the history does not
 * count the attempt.
 */
const SIDE_OF_BLAME: { readonly [B in Blame]: FailureSide | undefined } = {
  nobody: undefined,
  member: 'member',
  'member-for-target': 'member',
  unclear: 'member',
  target: 'target',
  source: 'source',
  network: 'network',
  'front-proxy': 'network',
};

/** The history has fewer sides than the fault table: for example, it counts faults of the service as `source`. */
const SIDE_OF_FAULT: { readonly [S in Side]: FailureSide } = {
  client: 'client',
  member: 'member',
  target: 'target',
  source: 'source',
  service: 'source',
  'front-proxy': 'network',
  operator: 'noria',
  noria: 'noria',
};

export interface History {
  /**
   * Returns the values of all ended steps, oldest first. A value is `null` if noria had not yet started. A latency or a
   * success rate is also `null` if the step has no client requests.
   */
  read(span: Span): HistoryView;
  close(): void;
}

export function openHistory(bus: EventBus, clock: Clock): History {
  const startedAt = clock.monotonic();
  const bySpan = { '15m': new TrafficRing('15m', startedAt), '24h': new TrafficRing('24h', startedAt) };
  const subscriptions = recordTraffic(Object.values(bySpan), bus, clock);
  return {
    read: (span) => bySpan[span].read(clock),
    close: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}

function recordTraffic(rings: readonly TrafficRing[], bus: EventBus, clock: Clock): Disposable[] {
  const addFailure = (side: FailureSide) => {
    const now = clock.monotonic();
    for (const ring of rings) ring.addFailure(side, now);
  };
  const addRefusal = (code: FaultCode) => addFailure(SIDE_OF_FAULT[FAULTS[code].side]);
  return [
    bus.on('dial.ended', ({ outcome, ms }) => {
      const now = clock.monotonic();
      if (outcome === 'accepted') {
        for (const ring of rings) ring.addTunnel(ms, now);
        return;
      }
      if (outcome !== 'client-gone') for (const ring of rings) ring.addFailedRequest(now);
      // `dial.attempted` reports the failures of members and targets, so they are not counted here. A client that
      // disconnects is not a failure.
      const { side } = FAULTS[outcome];
      if (side === 'noria' || side === 'source' || outcome === 'bad-routing') addRefusal(outcome);
    }),
    bus.on('dial.attempted', ({ blame }) => {
      const side = SIDE_OF_BLAME[blame];
      if (side !== undefined) addFailure(side);
    }),
    bus.on('client.refused', ({ code, dialFailed }) => {
      if (dialFailed !== true) addRefusal(code);
    }),
    bus.on('member.left', ({ uses }) => {
      const now = clock.monotonic();
      for (const ring of rings) ring.addLeft(uses > 0, now);
    }),
    bus.on('tunnel.closed', ({ bytesUp, bytesDown, ms }) => {
      const now = clock.monotonic();
      for (const ring of rings) ring.addBytes(bytesUp, bytesDown, ms, now);
    }),
  ];
}
