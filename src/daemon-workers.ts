/**
 * The data plane in worker processes, seen by the daemon as one: one pool lends to all, what they tell is told here, and what
 * listeners have to agree on is agreed on here.
 *
 * A dialer of its own stays in this process, for probes.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { overlap } from './config/address.ts';
import type { ListenerConfig } from './config/config.ts';
import type { Clock } from './core/clock.ts';
import { EventBus } from './core/events.ts';
import { NoriaError } from './core/faults.ts';
import type { Log } from './core/log.ts';
import { maskSecrets, type Secret } from './core/secret.ts';
import { boundTo, type PlacedListener } from './daemon-listeners.ts';
import { listenerName } from './daemon-options.ts';
import { Placing } from './daemon-placing.ts';
import type { DataPlane, PlaneListener } from './daemon-plane.ts';
import type { SourceFault } from './dialer/credentials.ts';
import { type DialerSettings, type OpenDialer, openDialer } from './dialer/dialer.ts';
import type { BoundAddress } from './listener/bind.ts';
import type { Lending } from './pool/lease.ts';
import { type ServedLending, serveLending } from './pool/remote.ts';
import { ConnectionCounts } from './workers/connection-counts.ts';
import { type Crew, openCrew } from './workers/crew.ts';
import { type LimitedListener, SharedLimits } from './workers/limits.ts';
import type { Surroundings, Telling, ToldByWorkers, ToWorker, UpdateOutcome } from './workers/messages.ts';
import { pack } from './workers/packed.ts';
import { SharedVerdict } from './workers/shared-verdict.ts';
import type { Ending, Report, WorkerProcess } from './workers/worker-process.ts';

export interface WorkersPlaneOptions {
  /** 2 or more. */
  readonly workers: number;
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly log: Log;
  readonly pool: Lending;
  readonly dialer: DialerSettings;
  readonly surroundings: Surroundings;
  /** Descriptors of listening sockets that were handed over. */
  readonly handedOver: ReadonlySet<number>;
  /** Never to stand in the log, whatever a worker says last. */
  readonly secrets: () => readonly Secret[];
  readonly onSourceFault: (fault: SourceFault) => void;
  readonly onNetwork: (down: boolean) => void;
  /** Nobody is served any more, and nobody will be. */
  readonly onFailed: (error: NoriaError) => void;
}

/** This process among those that judge the network; workers count from 1. */
const PROBER = 0;
/** How often a port that was free is looked for anew, when another program was quicker. */
const MOST_PLACINGS = 3;

/** @throws NoriaError workers-failed when the workers cannot be started; `update` opens the first listeners. */
export async function openWorkersPlane(options: WorkersPlaneOptions): Promise<DataPlane> {
  const plane = new WorkersPlane(options);
  await plane.open();
  return plane;
}

interface Begun {
  readonly process: WorkerProcess;
  readonly lending: ServedLending;
}

class WorkersPlane implements DataPlane {
  readonly #options: WorkersPlaneOptions;
  readonly #dialer: OpenDialer;
  readonly #verdict: SharedVerdict;
  readonly #placing = new Placing();
  readonly #limits = new SharedLimits((worker, listener, order) =>
    this.#begun.get(worker)?.process.say({ kind: 'permits', listener, order }),
  );
  readonly #connections = new ConnectionCounts();
  /** Workers that have been told what they work with, by number. */
  readonly #begun = new Map<number, Begun>();
  #crew: Crew | undefined;
  #settings: DialerSettings;
  #surroundings: Surroundings;
  #placed: readonly PlacedListener[] = [];
  /** In the order of those. */
  #addresses: readonly (readonly BoundAddress[])[] = [];
  #drainTimeoutMs = 0;
  /** Listeners change, and workers join, one after the other. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: WorkersPlaneOptions) {
    const { clock, dialer, pool, log, onSourceFault } = options;
    this.#options = options;
    this.#settings = dialer;
    this.#surroundings = options.surroundings;
    this.#verdict = new SharedVerdict({
      clock,
      freshMs: () => this.#settings.attemptTimeoutMs,
      reassure: (judge) => this.#reassure(judge),
      onJudged: (down) => {
        options.onNetwork(down);
        options.bus.emit('network.judged', { down });
      },
    });
    // What a dialer alone would tell of the network is told once all have been heard.
    const unheard = new EventBus((event, error) => log.error({ event, error }, 'observer failed'));
    const onNetwork = (down: boolean) => this.#verdict.judged(PROBER, down);
    this.#dialer = openDialer({ ...dialer, clock, bus: unheard, pool, onSourceFault, onNetwork });
  }

  get listeners(): readonly PlaneListener[] {
    return this.#placed.map((config, at) => {
      const name = listenerName(config);
      return {
        name,
        protocols: config.protocols,
        addresses: this.#addresses[at] ?? [],
        connections: this.#connections.of(name),
      };
    });
  }

  get workers(): { readonly wanted: number; readonly running: number } {
    return { wanted: this.#options.workers, running: this.#ready.length };
  }

  async open(): Promise<void> {
    const { clock, workers: wanted, onFailed } = this.#options;
    this.#crew = await openCrew({
      clock,
      wanted,
      entry: fileURLToPath(new URL(`./daemon-worker${extname(import.meta.url)}`, import.meta.url)),
      onReport: (worker, report) => this.#hear(worker, report),
      prepare: (worker) => this.#inTurn(() => this.#prepare(worker)),
      onLost: (worker, ending, againMs) => this.#lost(worker, ending, againMs),
      onGone: (worker) => this.#gone(worker),
      onFailed,
    });
    for (const worker of this.#ready) this.#begin(worker);
  }

  update(configs: readonly ListenerConfig[], drainTimeoutMs: number): Promise<void> {
    return this.#inTurn(async () => {
      for (let placings = 1; ; placings += 1) {
        const placed = await this.#placing.place(configs, this.#placed);
        const outcome = await this.#openEverywhere(placed, drainTimeoutMs);
        if (outcome.ok) {
          this.#placed = placed;
          this.#addresses = outcome.addresses;
          this.#drainTimeoutMs = drainTimeoutMs;
          return;
        }
        const chosen = placed.some(({ shared }) => shared?.port !== undefined);
        if (!chosen || outcome.code !== 'listen-failed' || placings >= MOST_PLACINGS) {
          throw new NoriaError(outcome.code, outcome.message);
        }
      }
    });
  }

  surround(surroundings: Surroundings): void {
    this.#surroundings = surroundings;
    this.#tellAll({ kind: 'surroundings', surroundings });
  }

  configure(settings: DialerSettings): void {
    this.#settings = settings;
    this.#dialer.configure(settings);
    this.#tellAll({ kind: 'configure', dialer: pack(settings) });
  }

  forgive(source: string): void {
    this.#dialer.forgive(source);
    this.#tellAll({ kind: 'forgive', source });
  }

  cut(leases: readonly number[]): void {
    this.#dialer.cut(leases);
    this.#tellAll({ kind: 'cut', leases });
  }

  attempt(task: Parameters<OpenDialer['attempt']>[0]): ReturnType<OpenDialer['attempt']> {
    return this.#dialer.attempt(task);
  }

  async drain(): Promise<void> {
    this.#crew?.stopReplacing();
    this.#tellAll({ kind: 'drain' });
    await Promise.all(this.#ready.map((worker) => worker.answer('drained')));
  }

  async close(): Promise<void> {
    await this.#crew?.close();
    await this.#dialer.close();
  }

  get #ready(): readonly WorkerProcess[] {
    return this.#crew?.ready ?? [];
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const acted = this.#turn.then(act);
    this.#turn = acted.catch(() => {}); // ignored here: whoever waits for it is told
    return acted;
  }

  #tellAll(message: ToWorker): void {
    for (const { process } of this.#begun.values()) process.say(message);
  }

  /** In every worker, or in none. */
  async #openEverywhere(placed: readonly PlacedListener[], drainTimeoutMs: number): Promise<UpdateOutcome> {
    this.#limits.open(limitsOf(placed));
    const clear = this.#placed.filter((one) => !placed.some((other) => isInTheWay(one, other)));
    if (clear.length < this.#placed.length) await this.#openInAll(clear, drainTimeoutMs);
    const outcomes = await this.#openInAll(placed, drainTimeoutMs);
    const failed = outcomes.find(({ ok }) => !ok);
    if (failed === undefined) {
      this.#limits.keep(limitsOf(placed));
      return outcomes[0] ?? { ok: false, code: 'workers-failed', message: 'no worker is alive to listen' };
    }
    await this.#goBack();
    return failed;
  }

  /**
   * What those that live answer; one that dies meanwhile has a successor that is told what holds then. One after the other:
   * an address that changes hands is held by the others meanwhile, so that it is never free for anyone else.
   */
  async #openInAll(placed: readonly PlacedListener[], drainTimeoutMs: number): Promise<UpdateOutcome[]> {
    const outcomes: UpdateOutcome[] = [];
    for (const worker of this.#ready) {
      const outcome = await this.#openIn(worker, placed, drainTimeoutMs);
      if (outcome !== undefined) outcomes.push(outcome);
      if (outcome?.ok === false) break;
    }
    return outcomes;
  }

  async #goBack(): Promise<void> {
    for (const worker of this.#ready) {
      const outcome = await this.#openIn(worker, this.#placed, this.#drainTimeoutMs);
      if (outcome?.ok === false) worker.unfit(outcome.message); // its successor may succeed
    }
    this.#limits.keep(limitsOf(this.#placed));
  }

  async #openIn(
    worker: WorkerProcess,
    placed: readonly PlacedListener[],
    drainTimeoutMs: number,
  ): Promise<UpdateOutcome | undefined> {
    const answer = worker.answer('updated');
    worker.say({ kind: 'update', listeners: pack(placed), drainTimeoutMs });
    return (await answer)?.outcome;
  }

  #begin(process: WorkerProcess): void {
    const { handedOver, pool } = this.#options;
    this.#begun.set(process.number, { process, lending: serveLending(pool, process.number, process.say) });
    process.say({
      kind: 'begin',
      dialer: pack(this.#settings),
      surroundings: this.#surroundings,
      handedOver: [...handedOver],
    });
  }

  /** One that takes the place of another: it opens what the others have open. */
  async #prepare(worker: WorkerProcess): Promise<void> {
    this.#begin(worker);
    const outcome = await this.#openIn(worker, this.#placed, 0);
    if (outcome?.ok === false) throw new NoriaError(outcome.code, outcome.message);
  }

  #hear({ number }: WorkerProcess, report: Report): void {
    switch (report.kind) {
      case 'told':
        this.#tellAgain(number, report);
        break;
      case 'permits':
        this.#limits.hear(number, report.listener, report.request);
        break;
      case 'network.judged':
        this.#verdict.judged(number, report.down);
        break;
      case 'source.fault':
        this.#options.onSourceFault(report.fault);
        break;
      case 'client.failed':
        for (const { process } of this.#begun.values()) if (process.number !== number) process.say(report);
        break;
      default:
        this.#begun.get(number)?.lending.hear(report);
    }
  }

  #tellAgain(worker: number, told: Telling): void {
    if (is(told, 'connection.opened')) this.#connections.opened(worker, told.event.listener);
    else if (is(told, 'connection.closed')) this.#connections.closed(worker, told.event.listener);
    else if (is(told, 'dial.attempted') && told.event.outcome === 'accepted') this.#verdict.answered();
    this.#options.bus.emit(told.name, told.event);
  }

  #reassure(judge: number): void {
    if (judge === PROBER) this.#dialer.answeredElsewhere();
    else this.#begun.get(judge)?.process.say({ kind: 'answered' });
  }

  /** A client hears nothing of it but that its connection ends: whoever tries again is served by another worker. */
  #lost({ number, pid }: WorkerProcess, { how, stack }: Ending, againMs: number): void {
    const { log, secrets } = this.#options;
    const connections = this.#connections.gone(number);
    const crash = stack === undefined ? {} : { stack: maskSecrets(stack, secrets()) };
    log.error(
      { pid, how, connections, againMs, ...crash },
      'worker lost: its connections ended with it, and another is started',
    );
    if (this.#ready.length > 0 || this.#placed.every(({ address }) => address.kind !== 'fd')) return;
    // With the last of them went the socket itself; its number may stand for something else by now.
    const why = 'all workers ended, and a socket that was handed over can be opened once';
    this.#crew?.fail(new NoriaError('workers-failed', why));
  }

  #gone({ number }: WorkerProcess): void {
    this.#begun.get(number)?.lending.close();
    this.#begun.delete(number);
    this.#limits.gone(number);
    this.#verdict.gone(number);
  }
}

/**
 * Whether nobody can listen as the second says before all workers have let go of the first: on the same port of different
 * addresses, one of which is all of them. On the same address they hand it over one by one, and no client is refused.
 */
function isInTheWay(one: PlacedListener, other: PlacedListener): boolean {
  const [before, next] = [boundTo(one), boundTo(other)];
  return before.kind === 'tcp' && next.kind === 'tcp' && before.host !== next.host && overlap(before, next);
}

function is<Name extends ToldByWorkers>(told: Telling, name: Name): told is Telling<Name> {
  return told.name === name;
}

function limitsOf(listeners: readonly PlacedListener[]): LimitedListener[] {
  return listeners.flatMap(({ shared, maxConnections }) =>
    shared === undefined ? [] : [{ id: shared.id, limit: maxConnections }],
  );
}
