/**
 * The Prometheus metrics. Each scrape reads the gauges from snapshots; events update the counters and histograms.
 *
 * Units are base units, and the names of counters end in `_total`. Label values come from closed sets, such as sources
 * and codes, never from hosts, members or sessions. docs/metrics.md lists the metrics; test/held/metrics.test.ts
 * compares the list with the code.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { SOURCE_STATES } from '../refill/status.ts';
import type { AdminBackend } from './backend.ts';
import { MEMBER_STATES, type Status } from './schemas.ts';

export type Metrics = ReturnType<typeof openMetrics>;

const DIAL_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const WAIT_BUCKETS_S = [0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 15, 30];
const REMAINING_BUCKETS_S = [5, 10, 20, 30, 60, 120, 180, 300, 600, 1_800];
const STORE_BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

export function openMetrics(bus: EventBus, backend: AdminBackend, withProcess = true) {
  const registry = new Registry();
  const registries = withProcess ? [registry, getProcessRegistry()] : [registry];
  const dialHelp = 'Duration of a dial, including the wait for a member.';
  const dial = new FastHistogram('noria_dial_seconds', dialHelp, DIAL_BUCKETS_S);
  const waitHelp = 'Time a dial waited for a member.';
  const wait = new FastHistogram('noria_member_wait_seconds', waitHelp, WAIT_BUCKETS_S);
  const lifeHelp = 'Remaining lifetime of the member when noria assigned it to a request.';
  const life = new FastHistogram('noria_member_remaining_seconds', lifeHelp, REMAINING_BUCKETS_S);
  const ownHistograms = [dial, wait, life];
  addGauges(registry, backend);
  const subscriptions = [
    ...countEvents(registry, bus, backend),
    ...addFleetMetrics(registry, bus),
    bus.on('dial.ended', ({ ms, waitedMs, remainingMs }) => {
      dial.observe(ms / SECOND_MS);
      wait.observe(waitedMs / SECOND_MS);
      if (remainingMs !== undefined) life.observe(remainingMs / SECOND_MS);
    }),
  ];
  return {
    contentType: registry.contentType,
    async render() {
      const pages = await Promise.all(registries.map((one) => one.metrics()));
      return [...pages, ...ownHistograms.map((histogram) => histogram.render())].join('\n');
    },
    list: () => [
      ...registries.flatMap((one) => one.getMetricsAsArray().map(describeMetric)),
      ...ownHistograms.map(({ name }) => ({ name, type: 'histogram', labels: [] }) as const),
    ],
    close() {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
      registry.clear();
    },
  };
}

let processRegistry: Registry | undefined;

/** All admin servers share one registry for the process, because prom-client cannot stop collecting. */
function getProcessRegistry(): Registry {
  if (processRegistry === undefined) {
    processRegistry = new Registry();
    collectDefaultMetrics({ register: processRegistry });
  }
  return processRegistry;
}

function describeMetric(metric: object) {
  // prom-client does not declare these fields, so the cast is necessary
  const { name, labelNames } = metric as { name: string; labelNames: string[] };
  const type = metric instanceof Gauge ? 'gauge' : metric instanceof Histogram ? 'histogram' : 'counter';
  return { name, type, labels: labelNames } as const;
}

function addGauges(registry: Registry, backend: AdminBackend): void {
  const gauge = <Label extends string = never>(
    name: string,
    help: string,
    labels: readonly Label[],
    read: (gauge: Gauge<Label>, status: Status) => void,
  ) => addGauge(registry, name, help, labels, (one) => read(one, backend.status()));
  const membersHelp = 'Members of the pool by state.';
  addGauge(registry, 'noria_members', membersHelp, ['source', 'state'], (members) => {
    for (const { source, ...counts } of backend.memberCounts()) {
      for (const state of MEMBER_STATES) members.set({ source, state }, counts[state]);
    }
  });
  const stateHelp = '1 for the current state of the source, 0 for the others.';
  gauge('noria_source_state', stateHelp, ['source', 'state'], (states, { sources }) => {
    for (const { name: source, state: current } of sources) {
      for (const state of SOURCE_STATES) states.set({ source, state }, state === current ? 1 : 0);
    }
  });
  const quotaHelp = 'Distinct IPs left in the quota, as last reported by the service.';
  gauge('noria_quota_remaining', quotaHelp, ['source'], (quotas, { sources }) => {
    for (const { name, quota } of sources) {
      if (quota.remaining !== undefined) quotas.set({ source: name }, quota.remaining);
    }
  });
  gauge('noria_connections_open', 'Open client connections.', ['listener'], (open, { listeners }) => {
    for (const { name, connections } of listeners) open.set({ listener: name }, connections);
  });
  gauge('noria_sessions', 'Sessions that are bound to a member.', [], (sessions, { pool }) =>
    sessions.set(pool.sessions),
  );
  const spacingHelp =
    'Least time between two uses of one exit at the site; other: the greatest of all other sites.';
  addGauge(registry, 'noria_site_spacing_seconds', spacingHelp, ['site'], (spacings) => {
    for (const [site, ms] of backend.siteSpacings()) spacings.set({ site }, ms / SECOND_MS);
  });
  gauge('noria_ready', '1 when noria expects to serve a new client, else 0.', [], (one, { ready }) =>
    one.set(ready ? 1 : 0),
  );
  gauge('noria_workers', 'Running processes that serve clients.', [], (running, { workers }) =>
    running.set(workers.running),
  );
  gauge('noria_fleet_replicas', 'Norias of the fleet, including this noria.', [], (replicas, { fleet }) => {
    if (fleet !== null) replicas.set(fleet.replicas.length);
  });
  const storeHelp = "1 while the fleet's store is connected, else 0.";
  gauge('noria_fleet_store_up', storeHelp, [], (up, { fleet }) => {
    if (fleet !== null) up.set(fleet.store === 'connected' ? 1 : 0);
  });
}

function countEvents(registry: Registry, bus: EventBus, backend: AdminBackend): Disposable[] {
  const counter = (name: string, help: string, labels: string[]) =>
    new FastCounter(registry, name, help, labels);
  const extractionHelp = 'Calls to the extraction service by code.';
  const extractions = counter('noria_extractions_total', extractionHelp, ['source', 'code']);
  const drawn = counter('noria_members_drawn_total', 'Members drawn.', ['source']);
  const goneHelp = 'Members that left the pool, by reason.';
  const gone = counter('noria_members_gone_total', goneHelp, ['source', 'reason']);
  const unusedHelp = 'Members drawn and never used: they left the pool first, or their address is forbidden.';
  const unused = counter('noria_members_unused_total', unusedHelp, ['source']);
  const connectionHelp = 'Client connections that ended, by protocol and outcome.';
  const connectionLabels = ['listener', 'protocol', 'outcome'];
  const connections = counter('noria_connections_total', connectionHelp, connectionLabels);
  const bytesHelp = 'Bytes relayed; up is from the client to the target.';
  const bytes = counter('noria_bytes_total', bytesHelp, ['source', 'direction']);
  const userBytesHelp =
    'Bytes of the configured users; up is to targets. Long tunnels are counted while they are open.';
  const userBytes = counter('noria_user_bytes_total', userBytesHelp, ['user', 'direction']);
  const userRequestsHelp = 'Client requests and tunnels of the configured users that ended, by outcome.';
  const userRequests = counter('noria_user_requests_total', userRequestsHelp, ['user', 'outcome']);
  const spendHelp = 'Price of the drawn members, or of the traffic of a gateway, of sources with `price`.';
  const spend = counter('noria_spend_total', spendHelp, ['source']);
  const attemptHelp = 'Attempts through one member, by outcome.';
  const attempts = counter('noria_dial_attempts_total', attemptHelp, ['source', 'outcome']);
  const hedgeHelp = 'Hedges (second attempts in parallel with a slow first one), by outcome.';
  const hedges = counter('noria_hedges_total', hedgeHelp, ['outcome']);
  const banHelp = 'Exits that sites banned, by evidence; sites of targets by name, all others as other.';
  const bans = counter('noria_bans_total', banHelp, ['site', 'evidence']);
  return [
    bus.on('site.banned', ({ site, isNamed, evidence }) => bans.add(1, isNamed ? site : 'other', evidence)),
    bus.on('draw.done', ({ source, code, joined, forbidden }) => {
      extractions.add(1, source, code);
      drawn.add(joined + forbidden, source);
      const { perMember } = backend.pricesOf(source);
      if (perMember > 0) spend.add(perMember * (joined + forbidden), source);
      if (forbidden > 0) unused.add(forbidden, source);
    }),
    bus.on('member.left', ({ source, reason, uses }) => {
      gone.add(1, source, reason);
      if (uses === 0) unused.add(1, source);
    }),
    bus.on('connection.closed', ({ listener, protocol, outcome }) =>
      connections.add(1, listener, protocol, outcome),
    ),
    bus.on('tunnel.closed', ({ source, bytesUp, bytesDown }) => {
      bytes.add(bytesUp, source, 'up');
      bytes.add(bytesDown, source, 'down');
      const { perGb } = backend.pricesOf(source);
      if (perGb > 0) spend.add((perGb * (bytesUp + bytesDown)) / BYTES_PER_GB, source);
    }),
    bus.on('request.ended', (record) => {
      if (record.user === null) return;
      userRequests.add(1, record.user, record.outcome);
      userBytes.add(record.bytesUp - record.countedUp, record.user, 'up');
      userBytes.add(record.bytesDown - record.countedDown, record.user, 'down');
    }),
    bus.on('request.grew', ({ user, up, down }) => {
      if (user === '') return;
      userBytes.add(up, user, 'up');
      userBytes.add(down, user, 'down');
    }),
    bus.on('dial.attempted', ({ source, outcome }) => attempts.add(1, source, outcome)),
    bus.on('hedge.ended', ({ outcome }) => hedges.add(1, outcome)),
  ];
}

const BYTES_PER_GB = 1e9;

function addGauge<Label extends string>(
  registry: Registry,
  name: string,
  help: string,
  labelNames: readonly Label[],
  read: (gauge: Gauge<Label>) => void,
): void {
  new Gauge({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      this.reset(); // removes samples of sources and listeners that no longer exist
      read(this);
    },
  });
}

function addFleetMetrics(registry: Registry, bus: EventBus): Disposable[] {
  let lagMs: number | undefined;
  const lagHelp =
    'Delay of the latest change to the shared pool: from when a noria of the fleet shared it until this noria applied it.';
  addGauge(registry, 'noria_fleet_lag_seconds', lagHelp, [], (gauge) => {
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
  const claimsHelp = 'Attempts of this noria to reserve the next call to the service, by outcome.';
  const claims = new FastCounter(registry, 'noria_fleet_claims_total', claimsHelp, ['outcome']);
  const unagreed = new Counter({
    name: 'noria_fleet_sessions_unagreed_total',
    help: 'Sessions that got a member before the norias of the fleet had agreed on it.',
    registers,
  });
  return [
    bus.on('fleet.unagreed', () => unagreed.inc()),
    bus.on('fleet.answered', ({ operation, ms }) => seconds.observe({ operation }, ms / SECOND_MS)),
    bus.on('fleet.claimed', ({ outcome }) => claims.add(1, outcome)),
    bus.on('fleet.followed', (event) => {
      lagMs = event.lagMs;
    }),
  ];
}

class FastCounter {
  readonly #root = new LabelNode([]);

  constructor(registry: Registry, name: string, help: string, labelNames: string[]) {
    const root = this.#root;
    new Counter({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        for (const { values, pending } of root.takePending()) this.labels(...values).inc(pending);
      },
    });
  }

  add(amount: number, first: string, second?: string, third?: string): void {
    let node = this.#root.child(first);
    if (second !== undefined) node = node.child(second);
    if (third !== undefined) node = node.child(third);
    node.pending += amount;
  }
}

class LabelNode {
  readonly values: readonly string[];
  pending = 0;
  readonly #children = new Map<string, LabelNode>();
  #latest: { readonly value: string; readonly child: LabelNode } | undefined;

  constructor(values: readonly string[]) {
    this.values = values;
  }

  child(value: string): LabelNode {
    if (this.#latest?.value === value) return this.#latest.child;
    let child = this.#children.get(value);
    if (child === undefined) {
      child = new LabelNode([...this.values, value]);
      this.#children.set(value, child);
    }
    this.#latest = { value, child };
    return child;
  }

  *takePending(): Generator<{ readonly values: readonly string[]; readonly pending: number }> {
    for (const child of this.#children.values()) {
      if (child.#children.size > 0) {
        yield* child.takePending();
      } else {
        yield { values: child.values, pending: child.pending };
        child.pending = 0;
      }
    }
  }
}

/** A histogram without labels. It renders its own text, because prom-client cannot import bucket counts. */
class FastHistogram {
  readonly name: string;
  readonly #help: string;
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(name: string, help: string, buckets: readonly number[]) {
    this.name = name;
    this.#help = help;
    this.#bounds = buckets;
    this.#counts = new Float64Array(buckets.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
  }

  render(): string {
    const { name } = this;
    let count = 0;
    const buckets = [...this.#bounds, '+Inf'].map((bound, index) => {
      count += this.#counts[index] ?? 0;
      return `${name}_bucket{le="${bound}"} ${count}\n`;
    });
    return [
      `# HELP ${name} ${this.#help}\n# TYPE ${name} histogram\n`,
      ...buckets,
      `${name}_sum ${this.#sum}\n${name}_count ${count}\n`,
    ].join('');
  }
}
