/**
 * Owns the sources: opens and closes them, applies reloads and the operator's commands, and wakes sources after
 * events that may require a draw.
 */
import type { EventName } from '../core/events.ts';
import { isSame } from '../core/secret.ts';
import type { SourceForecast } from '../pool/lease.ts';
import type { PaceStore } from '../state/pace-file.ts';
import type { DrawSourceOptions, RefillSettings, SourceContext } from './options.ts';
import { openPaces } from './pace.ts';
import type { InstanceReport } from './reaction.ts';
import { Source } from './source.ts';
import { readStatistics, type StatisticsSnapshot } from './source-statistics.ts';
import type { SourceStatus } from './status.ts';

const WAKING_EVENTS = [
  'member.quarantined',
  'member.restored',
  'member.drained',
  'member.joined',
] as const satisfies readonly EventName[];

/** It has no sources until `open`, so that other parts can have it before the service can be called. */
export class Refiller {
  readonly #parts: Pick<SourceContext, 'clock' | 'random' | 'bus' | 'pool'>;
  #context: SourceContext | undefined;
  #sources = new Map<string, Source>();
  #settings: RefillSettings = { sources: [], fill: 'demand', idleAfterMs: 0, callTimeoutMs: 0 };
  readonly #early: (() => void)[] = [];
  #subscriptions: readonly Disposable[] = [];

  constructor(parts: Pick<SourceContext, 'clock' | 'random' | 'bus' | 'pool'>) {
    this.#parts = parts;
  }

  /** @param restored - what `record()` returned in an earlier run. */
  open({
    pace,
    restored,
    ...options
  }: RefillSettings &
    Pick<SourceContext, 'extractor' | 'urls' | 'sharedCount' | 'onReport' | 'adviceOnBlock'> & {
      readonly pace: PaceStore;
      readonly restored?: unknown;
    }): void {
    this.#settings = options;
    this.#context = {
      ...options,
      ...this.#parts,
      paceOf: openPaces({ ...this.#parts, store: pace }),
      settings: () => this.#settings,
      isPreferredServing: (source) => this.#isPreferredServing(source),
    };
    const statistics = readStatistics(restored);
    for (const source of options.sources) this.#open(this.#context, source, statistics.get(source.name));
    this.#subscriptions = this.#subscribe();
    for (const run of this.#early) run();
    this.#wakeAll();
  }

  /** Runs `fn` when the sources are open: now, or at the end of `open`, before any source checks whether to draw. */
  whenOpen(fn: () => void): void {
    if (this.#context === undefined) this.#early.push(fn);
    else fn();
  }

  sources(): readonly SourceStatus[] {
    return [...this.#sources.values()].map((source) => source.status());
  }

  forecasts(): readonly SourceForecast[] {
    return [...this.#sources.values()].map((source) => source.forecast());
  }

  /**
   * Draws the missing members of the source as soon as the pace allows, even without demand.
   *
   * @returns false if there is no source with this name. `pause`, `resume` and `receiveReport` return the same.
   */
  refill(name: string): boolean {
    return this.#command(name, (source) => source.refill());
  }

  pause(name: string): boolean {
    return this.#command(name, (source) => source.pause());
  }

  resume(name: string): boolean {
    return this.#command(name, (source) => source.resume());
  }

  receiveReport(name: string, report: InstanceReport): boolean {
    return this.#command(name, (source) => source.receiveReport(report));
  }

  /** Each changed source that was suspended tries one draw. Resolves when the removed sources are closed. */
  async update(settings: RefillSettings): Promise<void> {
    if (this.#context === undefined) return;
    this.#settings = settings;
    const removed = this.#sources;
    this.#sources = new Map();
    for (const options of settings.sources) {
      const source = removed.get(options.name);
      if (source === undefined) {
        this.#open(this.#context, options, undefined);
        continue;
      }
      removed.delete(options.name);
      this.#sources.set(options.name, source);
      if (isSame(source.options, options)) source.reloaded();
      else source.change(options);
    }
    this.#wakeAll();
    await Promise.all([...removed.values()].map((source) => source.close()));
  }

  record(): unknown {
    return Object.fromEntries(
      [...this.#sources].map(([name, source]) => [name, source.statistics.snapshot()]),
    );
  }

  async close(): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await Promise.all([...this.#sources.values()].map((source) => source.close()));
  }

  #open(context: SourceContext, options: DrawSourceOptions, snapshot: StatisticsSnapshot | undefined): void {
    const source = new Source(context, options, snapshot);
    this.#sources.set(options.name, source);
    const first = Math.min(...this.#settings.sources.map(({ priority }) => priority));
    if (options.priority === first) source.drawAhead();
  }

  #command(name: string, run: (source: Source) => void): boolean {
    const source = this.#sources.get(name);
    if (source !== undefined) run(source);
    return source !== undefined;
  }

  /**
   * Whether a source with a smaller priority number can serve the clients. False if clients are waiting although such a
   * source has usable members: the routing options of the clients then exclude these members.
   */
  #isPreferredServing({ name, priority }: DrawSourceOptions): boolean {
    const { pool, clock } = this.#parts;
    const earlier = [...this.#sources.values()].filter((other) => other.options.priority < priority);
    if (!earlier.some((other) => other.canServe)) return false;
    const now = clock.monotonic();
    const isWanted = pool.demand(name).waiting > 0;
    return !(isWanted && earlier.some((other) => pool.stockAt(other.options.name, now).usable > 0));
  }

  #subscribe(): Disposable[] {
    const { bus } = this.#parts;
    return [
      bus.on('demand.rose', ({ sources }) => this.#wake(sources)),
      bus.on('dial.attempted', ({ source, outcome }) => {
        if (outcome === 'accepted') this.#sources.get(source)?.statistics.recordUse();
      }),
      bus.on('member.left', ({ source, uses, reason, drawnBy }) => {
        const isOwn = drawnBy === undefined;
        this.#sources.get(source)?.memberRemoved(uses, { hasFailed: reason === 'failed', isOwn });
        this.#wakeLater(source);
      }),
      bus.on('source.moved', ({ source }) => this.#wakeLater(source)),
      bus.on('fleet.store', ({ up }) => {
        if (up) for (const source of this.#sources.values()) source.storeReturned();
      }),
      ...WAKING_EVENTS.map((name) => bus.on(name, ({ source }) => this.#wake([source]))),
    ];
  }

  #wake(names: readonly string[]): void {
    for (const name of names) {
      this.#sources.get(name)?.wake();
      this.#wakeLater(name);
    }
  }

  /** Wakes the sources with greater priority numbers than `name`: they draw only while `name` cannot serve. */
  #wakeLater(name: string): void {
    const priority = this.#sources.get(name)?.options.priority ?? Infinity;
    for (const source of this.#sources.values()) if (source.options.priority > priority) source.wake();
  }

  #wakeAll(): void {
    for (const source of this.#sources.values()) source.wake();
  }
}
