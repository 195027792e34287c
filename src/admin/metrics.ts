/**
 * The metrics of the contract, by prom-client: gauges are read from snapshots at a scrape, counters and histograms follow
 * the events. docs/metrics.md lists them, held by test/held/metrics.test.ts.
 *
 * Base units, `_total` on counters, labels from closed sets: a source, a listener, a state, a code; never a host, a member
 * or a session.
 */
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { EventBus } from '../core/events.ts';
import type { AdminBackend } from './backend.ts';
import { FastCounter } from './hot-path-metrics.ts';
import { MEMBER_STATES, SOURCE_STATES } from './schemas.ts';
import { Spread } from './spread.ts';

export interface Metrics {
  readonly contentType: string;
  /** The page of a scrape. */
  render(): Promise<string>;
  /** What there is, for the page that lists it. */
  list(): readonly MetricDescription[];
  /** Stops following the events. */
  close(): void;
}

export interface MetricDescription {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: readonly string[];
}

const MS_PER_SECOND = 1_000;
const DIAL_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const WAIT_BUCKETS_S = [0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 15, 30];
const REMAINING_BUCKETS_S = [5, 10, 20, 30, 60, 120, 180, 300, 600, 1_800];

/**
 * Follows the bus from now on.
 *
 * @param machine - also the metrics of the process: CPU, memory, event loop.
 */
export function openMetrics(bus: EventBus, backend: AdminBackend, machine = true): Metrics {
  const registry = new Registry();
  const registries = machine ? [registry, processMetrics()] : [registry];
  addGauges(registry, backend);
  const subscriptions = [
    ...followMembers(registry, bus),
    ...followTraffic(registry, bus),
    ...followDials(registry, bus),
  ];
  return {
    contentType: registry.contentType,
    render: async () => (await Promise.all(registries.map((one) => one.metrics()))).join('\n'),
    list: () => registries.flatMap((one) => one.getMetricsAsArray().map(describeMetric)),
    close: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
      registry.clear();
    },
  };
}

let ofProcess: Registry | undefined;

/** One for the whole process, since they are about it: what prom-client arms for them cannot be disarmed. */
function processMetrics(): Registry {
  if (ofProcess === undefined) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess });
  }
  return ofProcess;
}

function describeMetric(metric: object): MetricDescription {
  const { name, labelNames } = metric as { name: string; labelNames: string[] }; // prom-client has both, its types neither
  const type = metric instanceof Gauge ? 'gauge' : metric instanceof Histogram ? 'histogram' : 'counter';
  return { name, type, labels: labelNames };
}

function addGauges(registry: Registry, backend: AdminBackend): void {
  new Gauge({
    name: 'noria_members',
    help: 'Members of the pool by state.',
    labelNames: ['source', 'state'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { source, ...counts } of backend.memberCounts()) {
        for (const state of MEMBER_STATES) this.set({ source, state }, counts[state]);
      }
    },
  });
  new Gauge({
    name: 'noria_source_state',
    help: 'The state a source is in: 1 for that one, 0 for the others.',
    labelNames: ['source', 'state'],
    registers: [registry],
    collect() {
      this.reset();
      for (const source of backend.status().sources) {
        for (const state of SOURCE_STATES)
          this.set({ source: source.name, state }, source.state === state ? 1 : 0);
      }
    },
  });
  new Gauge({
    name: 'noria_quota_remaining',
    help: 'Distinct IPs that the service still gives, as of the last draw that told.',
    labelNames: ['source'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { name, quota } of backend.status().sources) {
        if (quota.remaining !== undefined) this.set({ source: name }, quota.remaining);
      }
    },
  });
  new Gauge({
    name: 'noria_sessions',
    help: 'Sessions that hold a member.',
    registers: [registry],
    collect() {
      this.set(backend.status().pool.sessions);
    },
  });
  new Gauge({
    name: 'noria_workers',
    help: 'Processes that serve clients.',
    registers: [registry],
    collect() {
      this.set(backend.status().workers.running);
    },
  });
  new Gauge({
    name: 'noria_connections_open',
    help: 'Client connections open.',
    labelNames: ['listener'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { name, connections } of backend.status().listeners)
        this.set({ listener: name }, connections);
    },
  });
}

function followMembers(registry: Registry, bus: EventBus): Disposable[] {
  const tally = <Label extends string>(name: string, help: string, labels: readonly Label[]) =>
    new FastCounter({ name, help, labels, registry });
  const extractions = tally('noria_extractions_total', 'Calls of the extraction service by its code.', [
    'source',
    'code',
  ]);
  const drawn = tally('noria_members_drawn_total', 'Members that draws brought.', ['source']);
  const gone = tally('noria_members_gone_total', 'Members that left the pool, by reason.', [
    'source',
    'reason',
  ]);
  const unused = tally(
    'noria_members_unused_total',
    'Members that left, or may not be taken, without ever having been used.',
    ['source'],
  );
  return [
    bus.on('draw.done', ({ source, code, joined, forbidden }) => {
      extractions.add(1, source, code);
      drawn.add(joined + forbidden, source);
      if (forbidden > 0) unused.add(forbidden, source);
    }),
    bus.on('member.left', ({ source, reason, uses }) => {
      gone.add(1, source, reason);
      if (uses === 0) unused.add(1, source);
    }),
  ];
}

function followTraffic(registry: Registry, bus: EventBus): Disposable[] {
  const connections = new FastCounter({
    name: 'noria_connections_total',
    help: 'Client connections that ended, by what they spoke and how they ended.',
    labels: ['listener', 'protocol', 'outcome'],
    registry,
  });
  const bytes = new FastCounter({
    name: 'noria_bytes_total',
    help: 'Bytes relayed: up is from the client to the target.',
    labels: ['source', 'direction'],
    registry,
  });
  return [
    bus.on('connection.closed', ({ listener, protocol, outcome }) =>
      connections.add(1, listener, protocol, outcome),
    ),
    bus.on('tunnel.closed', ({ source, bytesUp, bytesDown }) => {
      bytes.add(bytesUp, source, 'up');
      bytes.add(bytesDown, source, 'down');
    }),
  ];
}

function followDials(registry: Registry, bus: EventBus): Disposable[] {
  const spread = (name: string, help: string, buckets: readonly number[]) =>
    new Spread({ name, help, buckets, registry });
  const dials = spread(
    'noria_dial_seconds',
    'From the request to a way to the target, or none.',
    DIAL_BUCKETS_S,
  );
  const waits = spread('noria_member_wait_seconds', 'What a request waited for a member.', WAIT_BUCKETS_S);
  const remaining = spread(
    'noria_member_remaining_seconds',
    'Life left of the member at its assignment.',
    REMAINING_BUCKETS_S,
  );
  const attempts = new FastCounter({
    name: 'noria_dial_attempts_total',
    help: 'Attempts through one member, by outcome.',
    labels: ['source', 'outcome'],
    registry,
  });
  const hedges = new FastCounter({
    name: 'noria_hedges_total',
    help: 'Second attempts beside a slow first one, by outcome.',
    labels: ['outcome'],
    registry,
  });
  return [
    bus.on('dial.ended', ({ ms, waitedMs, remainingMs }) => {
      dials.add(ms / MS_PER_SECOND);
      waits.add(waitedMs / MS_PER_SECOND);
      if (remainingMs !== undefined) remaining.add(remainingMs / MS_PER_SECOND);
    }),
    bus.on('dial.attempted', ({ source, outcome }) => attempts.add(1, source, outcome)),
    bus.on('hedge.ended', ({ outcome }) => hedges.add(1, outcome)),
  ];
}
