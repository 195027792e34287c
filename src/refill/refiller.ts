/**
 * Owns the sources: opens them, wakes them when something happens that may matter to them, and steers them.
 *
 * The pace of each instance is kept for as long as this lives, whatever a reload does to the sources.
 */
import type { EventName } from '../core/events.ts';
import type { SourceOutlook } from '../pool/lease.ts';
import type { DrawSourceOptions, RefillerOptions, RefillSettings } from './options.ts';
import { Paces } from './pace.ts';
import { DrawSource, type DrawSourceContext } from './source.ts';
import { readLedger } from './source-records.ts';
import type { SourceStatus } from './status.ts';

export interface Refiller {
  /** Every source, in the order of the configuration. */
  sources(): readonly SourceStatus[];
  /** What each source waits for, and ms until a draw can bring a member; absent: not without a person. */
  outlook(): { readonly sources: readonly SourceOutlook[]; readonly retryAfterMs?: number };
  /** Tops the source up at the pace, also when no client comes. False: there is no such source. So too below. */
  refill(name: string): boolean;
  /** Draws nothing more until `resume`; a call under way still lands. */
  pause(name: string): boolean;
  /** Ends a pause, or tries once again out of a halt. */
  resume(name: string): boolean;
  /**
   * Takes over a reloaded configuration: sources that did not change go on undisturbed, changed ones try once again out of
   * a halt, those that are gone end. Resolves when they have.
   */
  update(settings: RefillSettings): Promise<void>;
  /** What is worth keeping across a restart, as plain data; `restored` takes it back. */
  record(): unknown;
  /** Aborts what is under way and waits for its end. Safe to call twice. */
  close(): Promise<void>;
}

/** Opens the sources; each looks at once whether it should draw. */
export function openRefiller(options: RefillerOptions): Refiller {
  return new SourceKeeper(options);
}

class SourceKeeper implements Refiller {
  readonly #context: DrawSourceContext;
  /** In the order of the configuration. */
  #sources = new Map<string, DrawSource>();
  #settings: RefillSettings;
  readonly #subscriptions: readonly Disposable[];

  constructor(options: RefillerOptions) {
    const { clock, random, bus, extractor, pool: reservoir, pace } = options;
    this.#settings = options;
    const keeper = this;
    this.#context = {
      clock,
      random,
      bus,
      extractor,
      pool: reservoir,
      paces: new Paces({ store: pace, clock, random }),
      get settings() {
        return keeper.#settings;
      },
      stepsBack: (source) => this.#stepsBack(source),
    };
    const restored =
      typeof options.restored === 'object' ? new Map(Object.entries(options.restored ?? {})) : new Map();
    for (const source of options.sources) this.#open(source, restored.get(source.name));
    this.#subscriptions = this.#listen();
    this.#wakeAll();
  }

  sources(): readonly SourceStatus[] {
    return [...this.#sources.values()].map((source) => source.status());
  }

  outlook(): { readonly sources: readonly SourceOutlook[]; readonly retryAfterMs?: number } {
    const statuses = this.sources();
    const sources = statuses.map(({ name, state, reason, nextCallMs }) => ({
      name,
      state,
      reason,
      ...(nextCallMs === undefined ? {} : { nextDrawMs: nextCallMs }),
    }));
    const landings = statuses.map(({ nextCallMs = Infinity, latencyMs }) => nextCallMs + latencyMs);
    const retryAfterMs = Math.min(...landings);
    return retryAfterMs === Infinity ? { sources } : { sources, retryAfterMs };
  }

  refill(name: string): boolean {
    return this.#steer(name, (source) => source.refill());
  }

  pause(name: string): boolean {
    return this.#steer(name, (source) => source.pause());
  }

  resume(name: string): boolean {
    return this.#steer(name, (source) => source.resume());
  }

  async update(settings: RefillSettings): Promise<void> {
    this.#settings = settings;
    const before = this.#sources;
    this.#sources = new Map();
    for (const options of settings.sources) {
      const source = before.get(options.name);
      if (source === undefined) {
        this.#open(options, undefined);
        continue;
      }
      before.delete(options.name);
      this.#sources.set(options.name, source);
      if (!isSame(source.options, options)) source.change(options);
    }
    this.#wakeAll();
    await Promise.all([...before.values()].map((source) => source.close()));
  }

  record(): unknown {
    return Object.fromEntries([...this.#sources].map(([name, source]) => [name, source.record()]));
  }

  async close(): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await Promise.all([...this.#sources.values()].map((source) => source.close()));
  }

  #open(options: DrawSourceOptions, record: unknown): void {
    this.#sources.set(options.name, new DrawSource(this.#context, options, readLedger(record)));
  }

  #steer(name: string, verb: (source: DrawSource) => void): boolean {
    const source = this.#sources.get(name);
    if (source !== undefined) verb(source);
    return source !== undefined;
  }

  /** A later priority serves only while no earlier one can; but who waits although an earlier one has members waits for this one. */
  #stepsBack(source: DrawSource): boolean {
    const { pool: reservoir, clock } = this.#context;
    const { name, priority } = source.options;
    const earlier = [...this.#sources.values()].filter((other) => other.options.priority < priority);
    if (!earlier.some((other) => other.canServe)) return false;
    const now = clock.monotonic();
    const passedOver = reservoir.demand(name).waiting > 0;
    return !(passedOver && earlier.some((other) => reservoir.usableAt(other.options.name, now) > 0));
  }

  #listen(): Disposable[] {
    const { bus } = this.#context;
    const wakes = ['member.quarantined', 'member.restored', 'member.drained', 'member.joined'] as const;
    return [
      bus.on('demand.rose', ({ sources }) => this.#wake(sources)),
      bus.on('dial.attempted', ({ source, outcome }) => {
        if (outcome === 'accepted') this.#sources.get(source)?.proved();
      }),
      bus.on('member.left', ({ source, uses, reason }) => {
        this.#sources.get(source)?.memberLeft(uses, reason === 'failed');
        this.#wakeAfter(source);
      }),
      bus.on('source.moved', ({ source }) => this.#wakeAfter(source)),
      ...wakes.map((name: (typeof wakes)[number] & EventName) =>
        bus.on(name, ({ source }) => this.#wake([source])),
      ),
    ];
  }

  #wake(names: readonly string[]): void {
    for (const name of names) {
      this.#sources.get(name)?.wake();
      this.#wakeAfter(name);
    }
  }

  /** What happens to a source may call those of a later priority, or send them back. */
  #wakeAfter(name: string): void {
    const priority = this.#sources.get(name)?.options.priority;
    if (priority === undefined) return;
    for (const source of this.#sources.values()) if (source.options.priority > priority) source.wake();
  }

  #wakeAll(): void {
    for (const source of this.#sources.values()) source.wake();
  }
}

/** Whether a reload left the source as it was, its secrets included. */
function isSame(a: DrawSourceOptions, b: DrawSourceOptions): boolean {
  return fingerprint(a) === fingerprint(b);
}

function fingerprint({ call, secrets, ...rest }: DrawSourceOptions): string {
  const opened = [call.key, ...secrets].map((secret) => secret.reveal());
  return JSON.stringify([{ ...rest, call }, opened]);
}
