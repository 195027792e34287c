/**
 * Counts the recent traffic from noria's events. One ring of short steps covers the last 15 minutes, another ring of
 * longer steps the last day.
 */
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { Blame, EventBus } from '../core/events.ts';
import { FAULTS, type FaultCode, type Side } from '../core/faults.ts';
import type { HistoryView, Span } from './schemas.ts';

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

export type History = ReturnType<typeof openHistory>;

export function openHistory(bus: EventBus, clock: Clock) {
  const startedAt = clock.monotonic();
  const bySpan = { '15m': new TrafficRing('15m', startedAt), '24h': new TrafficRing('24h', startedAt) };
  const rings = Object.values(bySpan);
  const count = (column: Count) => {
    const now = clock.monotonic();
    for (const ring of rings) ring.add(column, now);
  };
  const addRefusal = (code: FaultCode) => count(SIDE_OF_FAULT[FAULTS[code].side]);
  const subscriptions = [
    bus.on('dial.ended', ({ outcome, ms }) => {
      if (outcome === 'accepted') {
        const now = clock.monotonic();
        for (const ring of rings) ring.addTunnel(ms, now);
        return;
      }
      if (outcome !== 'client-gone') count('failedRequests');
      // `dial.attempted` reports the failures of members and targets, so they are not counted here. A client that
      // disconnects is not a failure.
      const { side } = FAULTS[outcome];
      if (side === 'noria' || side === 'source' || outcome === 'bad-routing') addRefusal(outcome);
    }),
    bus.on('dial.attempted', ({ blame }) => {
      const side = SIDE_OF_BLAME[blame];
      if (side !== undefined) count(side);
    }),
    bus.on('client.refused', ({ code, dialFailed }) => {
      if (dialFailed !== true) addRefusal(code);
    }),
    bus.on('member.left', ({ uses }) => count(uses > 0 ? 'leftUsed' : 'leftUnused')),
    bus.on('tunnel.closed', ({ bytesUp, bytesDown, ms }) => {
      const now = clock.monotonic();
      for (const ring of rings) ring.addBytes(bytesUp, bytesDown, ms, now);
    }),
  ];
  return {
    read: (span: Span) => bySpan[span].read(clock),
    close: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}

const SPANS = {
  '15m': { stepMs: 5_000, stepCount: 180 },
  '24h': { stepMs: 120_000, stepCount: 720 },
} as const satisfies Record<Span, object>;

const BUCKETS_PER_OCTAVE = 4;
const BUCKET_COUNT = 17 * BUCKETS_PER_OCTAVE;

type FailureSide = keyof HistoryView['failures'];
type Count = FailureSide | 'tunnels' | 'failedRequests' | 'leftUsed' | 'leftUnused';
type Column = Count | 'bytesUp' | 'bytesDown';

class TrafficRing {
  readonly #span: Span;
  readonly #stepMs: number;
  readonly #stepCount: number;
  readonly #columns: { readonly [C in Column]: Float64Array };
  /** For each step, how many dials took how long. */
  readonly #latencies: readonly Uint32Array[];
  readonly #firstStep: number;
  #currentStep: number;

  constructor(span: Span, now: number) {
    const { stepMs, stepCount } = SPANS[span];
    const column = () => new Float64Array(stepCount);
    this.#span = span;
    this.#stepMs = stepMs;
    this.#stepCount = stepCount;
    this.#columns = {
      ...forEachSide(column),
      tunnels: column(),
      failedRequests: column(),
      leftUsed: column(),
      leftUnused: column(),
      bytesUp: column(),
      bytesDown: column(),
    };
    this.#latencies = Array.from({ length: stepCount }, () => new Uint32Array(BUCKET_COUNT));
    this.#firstStep = Math.floor(now / stepMs);
    this.#currentStep = this.#firstStep;
  }

  addTunnel(ms: number, now: number): void {
    this.add('tunnels', now);
    const bucket = ms <= 1 ? 0 : Math.min(BUCKET_COUNT - 1, Math.floor(Math.log2(ms) * BUCKETS_PER_OCTAVE));
    add(this.#latencies[this.#currentStep % this.#stepCount], bucket, 1);
  }

  add(column: Count, now: number): void {
    add(this.#columns[column], this.#advanceTo(now), 1);
  }

  addBytes(up: number, down: number, ms: number, now: number): void {
    const index = this.#advanceTo(now);
    const { bytesUp, bytesDown } = this.#columns;
    const startedAt = now - ms;
    const oldestStep = Math.max(
      Math.floor(startedAt / this.#stepMs),
      this.#currentStep - this.#stepCount + 1,
      this.#firstStep,
    );
    if (oldestStep >= this.#currentStep) {
      add(bytesUp, index, up);
      add(bytesDown, index, down);
      return;
    }
    for (let step = oldestStep; step <= this.#currentStep; step += 1) {
      const from = Math.max(step * this.#stepMs, startedAt);
      const to = Math.min((step + 1) * this.#stepMs, now);
      const share = (to - from) / ms;
      add(bytesUp, step % this.#stepCount, up * share);
      add(bytesDown, step % this.#stepCount, down * share);
    }
  }

  read(clock: Clock): HistoryView {
    const now = clock.monotonic();
    this.#advanceTo(now);
    const stepSeconds = this.#stepMs / SECOND_MS;
    const { failedRequests } = this.#columns;
    const rate = (column: Column) => this.#values(column, (value) => toTenths(value / stepSeconds));
    const latency = (fraction: number) =>
      this.#values('tunnels', (_value, index) => quantile(this.#latencies[index] ?? [], fraction));
    return {
      span: this.#span,
      stepSeconds,
      endsAt: new Date(clock.now() - (now - this.#currentStep * this.#stepMs)).toISOString(),
      tunnelsPerSecond: rate('tunnels'),
      bytesUpPerSecond: rate('bytesUp'),
      bytesDownPerSecond: rate('bytesDown'),
      successRate: this.#values('tunnels', (ok, index) => shareOf(ok, failedRequests[index] ?? 0)),
      membersLeft: { used: this.#values('leftUsed'), unused: this.#values('leftUnused') },
      total: this.#total(),
      dialP50Ms: latency(0.5),
      dialP95Ms: latency(0.95),
      failures: forEachSide((side) => this.#values(side)),
    };
  }

  #total(): HistoryView['total'] {
    const sum = (column: Column) =>
      this.#values(column).reduce<number>((all, value) => all + (value ?? 0), 0);
    const dials = new Uint32Array(BUCKET_COUNT);
    const current = this.#latencies[this.#currentStep % this.#stepCount];
    for (const step of this.#latencies)
      if (step !== current) for (const [bucket, count] of step.entries()) add(dials, bucket, count);
    return {
      succeeded: sum('tunnels'),
      failed: sum('failedRequests'),
      dialP50Ms: quantile(dials, 0.5),
      dialP95Ms: quantile(dials, 0.95),
    };
  }

  #advanceTo(now: number): number {
    const step = Math.floor(now / this.#stepMs);
    if (step !== this.#currentStep) {
      const passed = Math.min(step - this.#currentStep, this.#stepCount);
      for (let back = 0; back < passed; back += 1) {
        const index = (step - back) % this.#stepCount;
        for (const column of Object.values(this.#columns)) column[index] = 0;
        this.#latencies[index]?.fill(0);
      }
      this.#currentStep = step;
    }
    return step % this.#stepCount;
  }

  /** Of all ended steps, oldest first; null up to the step in which recording began, which is incomplete. */
  #values(column: Column, convert: (value: number, index: number) => number | null = (value) => value) {
    const stored = this.#columns[column];
    const values: (number | null)[] = [];
    for (let step = this.#currentStep - this.#stepCount + 1; step < this.#currentStep; step += 1) {
      const index = step % this.#stepCount;
      values.push(step <= this.#firstStep ? null : convert(stored[index] ?? 0, index));
    }
    return values;
  }
}

function add(column: Float64Array | Uint32Array | undefined, index: number, amount: number): void {
  if (column !== undefined) column[index] = (column[index] ?? 0) + amount;
}

function forEachSide<Value>(make: (side: FailureSide) => Value): { [S in FailureSide]: Value } {
  return {
    member: make('member'),
    target: make('target'),
    source: make('source'),
    network: make('network'),
    client: make('client'),
    noria: make('noria'),
  };
}

function shareOf(succeeded: number, failed: number): number | null {
  const all = succeeded + failed;
  return all === 0 ? null : Math.round((succeeded / all) * 1_000) / 1_000;
}

function toTenths(value: number): number {
  return Math.round(value * 10) / 10;
}

/** In ms: the middle of its bucket; null if nothing was counted. */
function quantile(counts: ArrayLike<number>, fraction: number): number | null {
  const total = Array.from(counts).reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const wanted = Math.max(1, Math.ceil(fraction * total));
  let seen = 0;
  let bucket = 0;
  for (; bucket < BUCKET_COUNT - 1; bucket += 1) {
    seen += counts[bucket] ?? 0;
    if (seen >= wanted) break;
  }
  return toTenths(2 ** ((bucket + 0.5) / BUCKETS_PER_OCTAVE));
}
