/** A refiller on a manual clock, with a pool that only counts members and a service with scripted answers. */
import { onTestFinished } from 'vitest';
import { EventBus, type EventName, type NoriaEvents } from '../../src/core/events.ts';
import { Secret } from '../../src/core/secret.ts';
import { type AddedMembers, type Demand, type DrawnMember, NO_DEMAND } from '../../src/pool/drawn-member.ts';
import type { DrawSourceOptions, Extractor, RefillPool } from '../../src/refill/options.ts';
import { Refiller } from '../../src/refill/refiller.ts';
import type { SourceStatus } from '../../src/refill/status.ts';
import type { DrawAnswer } from '../../src/service/answer.ts';
import type { SupplyConnection } from '../../src/service/client.ts';
import type { CountlessCall, DrawCall, ExtractCall, ServiceAddress } from '../../src/service/request.ts';
import type { WriteGate } from '../../src/service/transport.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { createPaceMemory, type PaceStore } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';

/** Runs all pending promise callbacks. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((next) => setImmediate(next));
}

/** Moves the clock in steps and runs pending promise callbacks before and after each. */
export async function pass(clock: ManualClock, ms: number, stepMs = 1_000): Promise<void> {
  await settle();
  for (let left = ms; left > 0; left -= stepMs) {
    clock.advance(Math.min(stepMs, left));
    await settle();
  }
}

export function manualTimekeeper(clock: ManualClock, boot = 'boot 1') {
  const elapsedMs = () => clock.monotonic();
  return createTimekeeper(clock, { id: boot, elapsedMs, uptimeMs: elapsedMs });
}

/** A pool that knows only when its members expire. */
export class CountingPool implements RefillPool {
  readonly #clock: ManualClock;
  readonly members = new Map<string, Map<string, number>>();
  readonly demands = new Map<string, Demand>();
  readonly limits = new Map<string, number>();

  constructor(clock: ManualClock) {
    this.#clock = clock;
  }

  want(source: string, demand: Partial<Demand>): void {
    this.demands.set(source, { ...this.demand(source), ...demand });
  }

  demand(source: string): Demand {
    return this.demands.get(source) ?? { ...NO_DEMAND, lastWantedAt: 0 };
  }

  usableAt(source: string, atMs: number): number {
    return this.#ends(source).filter((endsAt) => endsAt > atMs).length;
  }

  stockAt(source: string, atMs: number) {
    const count = this.usableAt(source, atMs);
    return { usable: count, counted: count, held: count };
  }

  nextLossAt(source: string, afterMs: number): number | undefined {
    const later = this.#ends(source).filter((endsAt) => endsAt > afterMs && endsAt !== Infinity);
    return later.length === 0 ? undefined : Math.min(...later);
  }

  addMembers(source: string, drawn: readonly DrawnMember[]): AddedMembers {
    const members = this.members.get(source) ?? new Map<string, number>();
    this.members.set(source, members);
    let joined = 0;
    let renewed = 0;
    for (const { host, port, endsAt = Infinity } of drawn) {
      const key = `${host}:${port}`;
      const before = members.get(key);
      if (before !== undefined && before > this.#clock.monotonic()) renewed += 1;
      else joined += 1;
      members.set(key, Math.max(before ?? 0, endsAt));
    }
    return { joined, renewed, rejected: 0 };
  }

  retainMembers(source: string, drawn: readonly DrawnMember[]): void {
    const kept = new Set(drawn.map(({ host, port }) => `${host}:${port}`));
    for (const key of this.members.get(source)?.keys() ?? [])
      if (!kept.has(key)) this.members.get(source)?.delete(key);
  }

  drainMember(source: string, { host, port }: DrawnMember): string | undefined {
    this.members.get(source)?.delete(`${host}:${port}`);
    return undefined;
  }

  countsOf(): ReturnType<RefillPool['countsOf']> {
    return undefined;
  }

  limitTunnels(source: string, factor: number): void {
    this.limits.set(source, factor);
  }

  unlimitTunnels(source: string): void {
    this.limits.delete(source);
  }

  #ends(source: string): number[] {
    return [...(this.members.get(source)?.values() ?? [])];
  }
}

export interface Call {
  readonly at: number;
  readonly instance: string;
  readonly count: number;
}

export type Reply = Partial<DrawAnswer> | Error;

/** Answers after 200 ms with `reply`; by default with as many new members as requested, which live 3 minutes. */
export class ScriptedService implements Extractor {
  readonly #clock: ManualClock;
  readonly calls: Call[] = [];
  inFlight = 0;
  openConnections = 0;
  mostInFlight = 0;
  tookMs = 200;
  lifetimeMs = 180_000;
  reply: (call: DrawCall, index: number) => Reply = () => ({ code: '10001' });
  #created = 0;

  constructor(clock: ManualClock) {
    this.#clock = clock;
  }

  /** Opens connections at once; `connecting` may delay or fail that. */
  connecting: (signal: AbortSignal) => Promise<void> = async () => {};

  async connect(_address: ServiceAddress, signal: AbortSignal): Promise<SupplyConnection> {
    await this.connecting(signal);
    this.openConnections += 1;
    return {
      extract: (call, { gate }) => this.#extract(call, gate, signal),
      close: () => {
        this.openConnections -= 1;
      },
    };
  }

  async #extract(call: DrawCall, gate: WriteGate, signal: AbortSignal): Promise<DrawAnswer> {
    const count = call.count ?? 0;
    gate.beforeWrite();
    const sentAt = this.#clock.monotonic();
    this.calls.push({ at: sentAt, instance: call.instance, count });
    this.inFlight += 1;
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight);
    await new Promise<void>((resolve) => {
      this.#clock.after(this.tookMs, resolve);
      signal.addEventListener('abort', () => resolve());
    });
    this.inFlight -= 1;
    if (signal.aborted) throw new Error('aborted');
    const reply = this.reply(call, this.calls.length - 1);
    if (reply instanceof Error) throw reply;
    gate.answered();
    const entries = reply.code === undefined || reply.code === '10001' ? this.fresh(count) : [];
    const base = { code: '10001', message: '', entries, dropped: {}, quota: {} };
    return { ...base, sentAt, ...reply };
  }

  fresh(count: number): DrawAnswer['entries'] {
    return Array.from({ length: count }, () => {
      this.#created += 1;
      const host = `203.0.${Math.floor(this.#created / 250) % 250}.${this.#created % 250}`;
      return { host, port: 8_000 + (this.#created % 50_000), lifetimeMs: this.lifetimeMs };
    });
  }

  /** The ms between the starts of consecutive calls. */
  get gaps(): number[] {
    return this.calls.slice(1).map((call, index) => call.at - (this.calls[index]?.at ?? 0));
  }
}

type ServiceSourceOptions = DrawSourceOptions & { readonly call: Omit<ExtractCall, 'count'> };

export function sourceOptions(
  changes: Partial<ServiceSourceOptions> & { readonly instance?: string } = {},
): ServiceSourceOptions {
  const { instance = '1001', ...rest } = changes;
  const call = {
    product: 'short-classic',
    method: 'GET',
    format: 'json',
    baseUrl: 'http://service.test',
    instance,
    key: new Secret('0123456789abcdef'),
    params: { timespan: 3 },
  } as const;
  return {
    name: 'city',
    call,
    secrets: [],
    intervalMs: 10_000,
    count: 5,
    size: 5,
    priority: 1,
    dailyBudget: undefined,
    protocol: 'http',
    unproven: false,
    defaultLifetimeMs: 60_000,
    ...rest,
  };
}

export const LIST_CALL: CountlessCall = {
  ...{ product: 'list', instance: 'list', secrets: [], params: {}, url: undefined, file: 'p.txt' },
  ...{ answer: { format: 'auto' }, login: 'use', protocol: 'http' },
};

export interface Rig {
  readonly clock: ManualClock;
  readonly bus: EventBus;
  readonly pool: CountingPool;
  readonly service: ScriptedService;
  readonly refiller: Refiller;
  /** The status of the named source, or of the first one. */
  status(name?: string): SourceStatus;
  emitted<Name extends EventName>(name: Name): NoriaEvents[Name][];
}

export interface RigOptions extends Partial<Parameters<Refiller['open']>[0]> {
  readonly clock?: ManualClock;
  readonly store?: PaceStore;
  readonly service?: ScriptedService;
  readonly pool?: CountingPool;
  readonly prepare?: (rig: Pick<Rig, 'clock' | 'pool' | 'service'>) => void;
}

export function openRig(options: RigOptions = {}): Rig {
  const clock = options.clock ?? new ManualClock();
  const pool = options.pool ?? new CountingPool(clock);
  const service = options.service ?? new ScriptedService(clock);
  const bus = new EventBus((name, error) => {
    throw new Error(`an observer of ${name} threw: ${String(error)}`);
  });
  const events: Record<string, unknown[]> = {};
  for (const name of ['source.moved', 'source.warned', 'draw.started', 'draw.done'] as const) {
    const emitted: unknown[] = [];
    events[name] = emitted;
    bus.on(name, (event) => emitted.push(event));
  }
  options.prepare?.({ clock, pool, service });
  const refiller = new Refiller({ clock, bus, pool, random: () => 0.5 });
  refiller.open({
    extractor: service,
    pace: options.store ?? createPaceMemory(manualTimekeeper(clock)),
    sources: [sourceOptions()],
    fill: 'size',
    idleAfterMs: 300_000,
    callTimeoutMs: 10_000,
    ...options,
  });
  onTestFinished(() => refiller.close());
  return {
    clock,
    bus,
    pool,
    service,
    refiller,
    status: (name) => {
      const status = refiller.sources().find((source) => name === undefined || source.name === name);
      if (status === undefined) throw new Error(`no source ${name}`);
      return status;
    },
    emitted: <Name extends EventName>(name: Name) => (events[name] ?? []) as NoriaEvents[Name][],
  };
}
