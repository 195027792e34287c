/**
 * What passed through lately, in bounded memory: two rings of steps, a fine one for minutes and a coarse one for a day.
 *
 * It follows the bus and is written on the hot path, so a record is a few additions to typed arrays. There is no timer: a
 * ring moves on when it is written to or read.
 */
import type { Clock } from '../core/clock.ts';
import type { Blame, EventBus } from '../core/events.ts';
import { FAULTS, type FaultCode, type Side } from '../core/faults.ts';
import { LatencyHistogram } from './latency-tally.ts';
import type { HistoryView } from './schemas.ts';

/** How far back each ring goes, and how finely. */
export const SPANS = {
  '15m': { stepMs: 5_000, stepCount: 180 },
  '24h': { stepMs: 120_000, stepCount: 720 },
} as const;
export type Span = keyof typeof SPANS;

/** Whose fault a failure was, as it is counted. */
export const FAILURE_SIDES = ['member', 'target', 'source', 'network', 'client', 'noria'] as const;
export type FailureSide = (typeof FAILURE_SIDES)[number];

/** What an attempt's blame counts as. An attempt that nobody is to blame for is no failure of anybody. */
const SIDE_OF_BLAME: { readonly [B in Blame]: FailureSide | undefined } = {
  nobody: undefined,
  member: 'member',
  'half-member': 'member',
  target: 'target',
  source: 'source',
  network: 'network',
};

/** What a request that was refused counts as, by the side of its code. */
const SIDE_OF_FAULT: { readonly [S in Side]: FailureSide } = {
  client: 'client',
  member: 'member',
  target: 'target',
  source: 'source',
  service: 'source',
  operator: 'noria',
  noria: 'noria',
};

const MS_PER_SECOND = 1_000;

export interface History {
  /** Whole steps alone, oldest first; `null` where nobody watched yet, or nothing was dialled. */
  read(span: Span): HistoryView;
  /** Stops following the events. */
  close(): void;
}

/** Follows the bus from now on. */
export function openHistory(bus: EventBus, clock: Clock): History {
  const now = clock.monotonic();
  const rings = { '15m': new Ring(SPANS['15m'], now), '24h': new Ring(SPANS['24h'], now) };
  const all = Object.values(rings);
  const fail = (blamed: FailureSide) => {
    const at = clock.monotonic();
    for (const ring of all) ring.addFailure(blamed, at);
  };
  const refuse = (code: FaultCode) => fail(SIDE_OF_FAULT[FAULTS[code].side]);
  const subscriptions = [
    bus.on('dial.ended', ({ outcome, ms }) => {
      if (outcome === 'accepted') {
        const at = clock.monotonic();
        for (const ring of all) ring.addTunnel(ms, at);
        return;
      }
      // Members and targets have been blamed attempt by attempt; a client that left is no failure.
      const { side } = FAULTS[outcome];
      if (side === 'noria' || side === 'source' || outcome === 'bad-routing') refuse(outcome);
    }),
    bus.on('dial.attempted', ({ blame }) => {
      const blamed = SIDE_OF_BLAME[blame];
      if (blamed !== undefined) fail(blamed);
    }),
    bus.on('client.refused', ({ code, dialFailed }) => {
      if (dialFailed !== true) refuse(code);
    }),
    bus.on('tunnel.closed', ({ bytesUp, bytesDown, ms }) => {
      const at = clock.monotonic();
      for (const ring of all) ring.addBytes(bytesUp, bytesDown, ms, at);
    }),
  ];
  return {
    read: (span) => rings[span].read(span, clock),
    close: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}

interface Shape {
  readonly stepMs: number;
  readonly stepCount: number;
}

/** One ring of steps. A step is numbered by its place in time since the clock's origin, and stands at that number's remainder. */
class Ring {
  readonly #stepMs: number;
  readonly #stepCount: number;
  readonly #firstStep: number;
  readonly #tunnels: Float64Array;
  readonly #bytesUp: Float64Array;
  readonly #bytesDown: Float64Array;
  readonly #dialP50: Float64Array;
  readonly #dialP95: Float64Array;
  readonly #failures: { readonly [B in FailureSide]: Float64Array };
  /** Of the step that is being written. */
  readonly #latencies = new LatencyHistogram();
  #step: number;

  constructor({ stepMs, stepCount }: Shape, now: number) {
    const column = () => new Float64Array(stepCount);
    this.#stepMs = stepMs;
    this.#stepCount = stepCount;
    this.#tunnels = column();
    this.#bytesUp = column();
    this.#bytesDown = column();
    this.#dialP50 = column();
    this.#dialP95 = column();
    this.#failures = {
      member: column(),
      target: column(),
      source: column(),
      network: column(),
      client: column(),
      noria: column(),
    };
    this.#step = Math.floor(now / stepMs);
    this.#firstStep = this.#step;
  }

  addTunnel(ms: number, now: number): void {
    const at = this.#turn(now);
    this.#tunnels[at] = (this.#tunnels[at] ?? 0) + 1;
    this.#latencies.add(ms);
  }

  addFailure(blamed: FailureSide, now: number): void {
    const column = this.#failures[blamed];
    const at = this.#turn(now);
    column[at] = (column[at] ?? 0) + 1;
  }

  /** Bytes are told when a tunnel ends: they are spread evenly over the time for which it was open. */
  addBytes(up: number, down: number, ms: number, now: number): void {
    const at = this.#turn(now);
    const from = Math.floor((now - ms) / this.#stepMs);
    const oldest = Math.max(from, this.#step - this.#stepCount + 1, this.#firstStep);
    if (oldest >= this.#step) {
      this.#addBytesAt(at, up, down);
      return;
    }
    for (let step = oldest; step <= this.#step; step += 1) {
      const startedAt = Math.max(step * this.#stepMs, now - ms);
      const share = (Math.min((step + 1) * this.#stepMs, now) - startedAt) / ms;
      this.#addBytesAt(step % this.#stepCount, up * share, down * share);
    }
  }

  read(span: Span, clock: Clock): HistoryView {
    const now = clock.monotonic();
    this.#turn(now);
    const seconds = this.#stepMs / MS_PER_SECOND;
    const rate = (column: Float64Array) => this.#column(column, (value) => tenths(value / seconds));
    const latency = (column: Float64Array) =>
      this.#column(column, (value) => (value === 0 ? null : tenths(value)));
    const count = (column: Float64Array) => this.#column(column, (value) => value);
    return {
      span,
      stepSeconds: seconds,
      endsAt: new Date(clock.now() - (now - this.#step * this.#stepMs)).toISOString(),
      tunnelsPerSecond: rate(this.#tunnels),
      bytesUpPerSecond: rate(this.#bytesUp),
      bytesDownPerSecond: rate(this.#bytesDown),
      dialP50Ms: latency(this.#dialP50),
      dialP95Ms: latency(this.#dialP95),
      failures: {
        member: count(this.#failures.member),
        target: count(this.#failures.target),
        source: count(this.#failures.source),
        network: count(this.#failures.network),
        client: count(this.#failures.client),
        noria: count(this.#failures.noria),
      },
    };
  }

  #addBytesAt(at: number, up: number, down: number): void {
    this.#bytesUp[at] = (this.#bytesUp[at] ?? 0) + up;
    this.#bytesDown[at] = (this.#bytesDown[at] ?? 0) + down;
  }

  /** Moves on to the step of `now`. @returns where it stands in the columns. */
  #turn(now: number): number {
    const step = Math.floor(now / this.#stepMs);
    if (step !== this.#step) {
      const at = this.#step % this.#stepCount;
      this.#dialP50[at] = this.#latencies.quantile(0.5) ?? 0;
      this.#dialP95[at] = this.#latencies.quantile(0.95) ?? 0;
      this.#latencies.reset();
      const passed = Math.min(step - this.#step, this.#stepCount);
      for (let ahead = 0; ahead < passed; ahead += 1) this.#clear((step - ahead) % this.#stepCount);
      this.#step = step;
    }
    return step % this.#stepCount;
  }

  #clear(at: number): void {
    this.#tunnels[at] = 0;
    this.#addBytesAt(at, -(this.#bytesUp[at] ?? 0), -(this.#bytesDown[at] ?? 0));
    this.#dialP50[at] = 0;
    this.#dialP95[at] = 0;
    for (const blamed of FAILURE_SIDES) this.#failures[blamed][at] = 0;
  }

  /** All steps but the one that is being written. The first one was not watched from its beginning: it counts as not watched. */
  #column(column: Float64Array, show: (value: number) => number | null): (number | null)[] {
    const values: (number | null)[] = [];
    for (let step = this.#step - this.#stepCount + 1; step < this.#step; step += 1) {
      values.push(step <= this.#firstStep ? null : show(column[step % this.#stepCount] ?? 0));
    }
    return values;
  }
}

function tenths(value: number): number {
  return Math.round(value * 10) / 10;
}
