/**
 * Measures the cost of observing a tunnel: all its events, without an observer, with the metrics, and with all observers of a
 * daemon (metrics, history, failures and the log at level info).
 *
 * Prints µs per tunnel. Observing must cost less than 2 % of a tunnel, which takes 100 µs of CPU time and more according to
 * `npm run bench`.
 */

import type { AdminBackend } from '../src/admin/backend.ts';
import { openFailures } from '../src/admin/failures.ts';
import { openHistory } from '../src/admin/history.ts';
import { openMetrics } from '../src/admin/metrics.ts';
import { systemClock } from '../src/core/clock.ts';
import { EventBus } from '../src/core/events.ts';
import { createLog, logEvents } from '../src/core/log.ts';

const TUNNELS = 200_000;
/** The best run counts, because other programs on the machine disturb some runs. */
const RUNS = 8;
const LISTENER = '127.0.0.1:8888';
const SOURCES = ['city', 'harbour', 'hills'];

/** A backend without data. The metrics call it only at a scrape, and there is none here. */
const UNWATCHED: AdminBackend = new Proxy({} as AdminBackend, {
  get: () => () => {
    throw new TypeError('this benchmark does not scrape');
  },
});

type Observe = (bus: EventBus) => { close(): void };

const OBSERVERS: Readonly<Record<string, readonly Observe[]>> = {
  none: [],
  metrics: [observeMetrics],
  'metrics, history, failures': [observeMetrics, observeHistory, observeFailures],
  'all of these and the log at info': [observeMetrics, observeHistory, observeFailures, observeLog],
};

function observeMetrics(bus: EventBus) {
  return openMetrics(bus, UNWATCHED, false);
}

function observeHistory(bus: EventBus) {
  return openHistory(bus, systemClock);
}

function observeFailures(bus: EventBus) {
  return openFailures(bus, systemClock);
}

function observeLog(bus: EventBus) {
  const log = createLog({ level: 'info', format: 'json', destination: { write: () => {} } });
  const observing = logEvents(bus, log, systemClock);
  return { close: () => observing[Symbol.dispose]() };
}

function main(): void {
  console.log('µs for all events of one tunnel');
  let unobserved = 0;
  for (const [name, observes] of Object.entries(OBSERVERS)) {
    const micros = Math.min(...Array.from({ length: RUNS }, () => run(observes)));
    if (observes.length === 0) unobserved = micros;
    const more = observes.length === 0 ? '' : `  (+${(micros - unobserved).toFixed(2)})`;
    console.log(`${name.padEnd(40)}${micros.toFixed(2).padStart(8)}${more}`);
  }
}

function run(observes: readonly Observe[]): number {
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const observers = observes.map((observe) => observe(bus));
  const startAt = systemClock.monotonic();
  for (let tunnel = 0; tunnel < TUNNELS; tunnel += 1) emitTunnel(bus, tunnel);
  const micros = ((systemClock.monotonic() - startAt) * 1e3) / TUNNELS;
  for (const observer of observers) observer.close();
  return micros;
}

/** Emits the events of a successful CONNECT. */
function emitTunnel(bus: EventBus, tunnel: number): void {
  const source = SOURCES[tunnel % SOURCES.length] ?? '';
  const member = `m${tunnel % 40}`;
  const ms = tunnel % 300;
  bus.emit('connection.opened', { listener: LISTENER });
  bus.emit('dial.attempted', {
    source,
    member,
    outcome: 'accepted',
    phase: 'done',
    blame: 'nobody',
    ms,
    hedge: false,
  });
  bus.emit('dial.ended', {
    outcome: 'accepted',
    attempts: 1,
    ms,
    waitedMs: 0,
    source,
    member,
    target: 'a.example:443',
    remainingMs: 90_000 - (tunnel % 60_000),
  });
  bus.emit('tunnel.closed', { source, member, kind: 'tunnel', bytesUp: 700, bytesDown: 9_000, ms });
  bus.emit('connection.closed', { listener: LISTENER, protocol: 'connect', outcome: 'ok', ms });
}

main();
