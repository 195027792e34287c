/**
 * What failed lately, each kind of failure once, with how often and in words: what happened, and what to do.
 *
 * Bounded: a repeated failure counts up and moves to the front; the one that has not come back for longest gives way.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import type { FailureView } from './schemas.ts';

/** More than a person reads. */
const MAX_KEPT = 60;
/** States of a source that follow a failed draw, if they carry its code; the operator's own pause has none. */
const AFTER_FAILURE: ReadonlySet<string> = new Set(['waiting', 'backoff', 'paused', 'halted']);

export interface Failures {
  /** Latest first. */
  list(): readonly FailureView[];
  /** Stops following the events. */
  close(): void;
}

type Told = Omit<FailureView, 'firstAt' | 'lastAt' | 'times'>;
interface Kept {
  told: Told;
  times: number;
  readonly firstAt: number;
  lastAt: number;
}

/** Follows the bus from now on. */
export function openFailures(bus: EventBus, clock: Clock): Failures {
  const kept = new Map<string, Kept>();
  const note = (key: string, told: Told) => {
    const lastAt = clock.now();
    const before = kept.get(key);
    kept.delete(key); // so that the map stays in the order of the latest
    kept.set(key, { told, times: (before?.times ?? 0) + 1, firstAt: before?.firstAt ?? lastAt, lastAt });
    if (kept.size <= MAX_KEPT) return;
    for (const oldest of kept.keys()) {
      kept.delete(oldest);
      return;
    }
  };
  const subscriptions = follow(bus, note);
  return {
    list: () => [...kept.values()].reverse().map(viewOf),
    close: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}

function follow(bus: EventBus, note: (key: string, told: Told) => void): Disposable[] {
  return [
    bus.on('dial.ended', ({ outcome, target, source, attempts, ms }) => {
      if (outcome === 'accepted' || outcome === 'client-gone') return;
      const tried = attempts === 1 ? '1 member tried' : `${attempts} members tried`;
      const detail = `${tried} in ${Math.round(ms)} ms`;
      // What is noria's or its sources' affects every target alike: one entry, with the target it met last.
      const { side } = FAULTS[outcome];
      note(`request ${outcome} ${side === 'noria' || side === 'source' ? '' : target}`, {
        kind: 'request',
        ...explain(outcome),
        target,
        detail,
        ...(source === undefined ? {} : { source }),
      });
    }),
    bus.on('client.refused', ({ code, listener, protocol, detail, dialFailed }) => {
      if (dialFailed === true) return;
      note(`refusal ${code} ${listener} ${protocol}`, {
        kind: 'refusal',
        ...explain(code),
        listener,
        protocol,
        detail,
      });
    }),
    bus.on('dial.attempted', ({ outcome, blame, source, member }) => {
      if (outcome === 'accepted' || outcome === 'cancelled' || blame === 'nobody') return;
      note(`attempt ${outcome} ${source}`, { kind: 'attempt', ...explain(outcome), source, member });
    }),
    bus.on('source.moved', ({ source, to, reason, advice, code }) => {
      if (!AFTER_FAILURE.has(to) || code === undefined) return;
      note(`source ${source} ${code}`, {
        kind: 'source',
        code,
        side: 'source',
        says: `${source}: ${reason.replace(/\.$/, '')}.`,
        advice: advice ?? '',
        source,
      });
    }),
    bus.on('network.judged', ({ down }) => {
      if (down) note('network', { kind: 'attempt', ...explain('network-down') });
    }),
  ];
}

function explain(code: FaultCode): Pick<FailureView, 'code' | 'side' | 'says' | 'advice'> {
  const { side, says, advice } = FAULTS[code];
  return { code, side, says, advice };
}

function viewOf({ told, times, firstAt, lastAt }: Kept): FailureView {
  return {
    ...told,
    times,
    firstAt: new Date(firstAt).toISOString(),
    lastAt: new Date(lastAt).toISOString(),
  };
}
