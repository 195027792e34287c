/** The metrics of a fleet. When noria is in no fleet, these metrics have no samples. */
import { Counter, Histogram, type Registry } from 'prom-client';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import type { AdminBackend } from './backend.ts';
import { addGauge } from './collected-gauge.ts';

const STORE_BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

export function addFleetMetrics(registry: Registry, bus: EventBus, backend: AdminBackend): Disposable[] {
  const fleet = () => backend.status().fleet;
  addGauge(
    registry,
    { name: 'noria_fleet_replicas', help: 'Norias of the fleet, this one included.' },
    (gauge) => {
      const status = fleet();
      if (status !== null) gauge.set(status.replicas.length);
    },
  );
  const storeHelp = "1 while the fleet's store is connected, else 0.";
  addGauge(registry, { name: 'noria_fleet_store_up', help: storeHelp }, (gauge) => {
    const status = fleet();
    if (status !== null) gauge.set(status.store === 'connected' ? 1 : 0);
  });
  let lagMs: number | undefined;
  const lagHelp = 'Time from when a noria shared the last change until it arrived here.';
  addGauge(registry, { name: 'noria_fleet_lag_seconds', help: lagHelp }, (gauge) => {
    if (lagMs !== undefined) gauge.set(lagMs / SECOND_MS);
  });
  const registers = [registry];
  const seconds = new Histogram({
    name: 'noria_fleet_store_seconds',
    help: "Time until the fleet's store answered, by operation.",
    labelNames: ['operation'],
    buckets: STORE_BUCKETS_S,
    registers,
  });
  const claims = new Counter({
    name: 'noria_fleet_claims_total',
    help: 'Attempts of this noria to reserve the next call to the service, by outcome.',
    labelNames: ['outcome'],
    registers,
  });
  return [
    bus.on('fleet.answered', ({ operation, ms }) => seconds.observe({ operation }, ms / SECOND_MS)),
    bus.on('fleet.claimed', ({ outcome }) => claims.inc({ outcome })),
    bus.on('fleet.followed', (event) => {
      lagMs = event.lagMs;
    }),
  ];
}
