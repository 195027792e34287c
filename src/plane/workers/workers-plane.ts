/**
 * The data plane in several worker processes. Each worker has a copy of the pool of this process (the primary).
 * The primary emits the workers' events on its own bus, keeps the limits that apply to the listeners of all workers
 * together, and makes the health checks with a separate dialer.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Clock, pause } from '../../core/clock.ts';
import { EventBus } from '../../core/events.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Log } from '../../core/log.ts';
import type { Secret } from '../../core/secret.ts';
import { MemberDialer } from '../../dialer/dialer.ts';
import { MemorySharedPool } from '../../fleet/memory-shared-pool.ts';
import { Replica } from '../../fleet/replica.ts';
import type { SharedPool } from '../../fleet/shared-pool.ts';
import type { SourceForecast } from '../../pool/lease.ts';
import type { ClientName, ClientUse, LeaseHolder } from '../../pool/leases.ts';
import type { PoolSettings } from '../../pool/options.ts';
import type {
  DataPlane,
  ListenerSettings,
  ListenerStatus,
  LocalPlaneOptions,
  PlaneContext,
  PlaneSettings,
} from '../local-plane.ts';
import type { ForwardedEvent, ForwardedEventName } from './event-columns.ts';
import { followerIn, HOW_TO_SHARE, type WorkerCalls } from './remote-calls.ts';
import { RemoteForecasts } from './remote-forecasts.ts';
import { WorkerSupervisor } from './supervisor.ts';
import { WorkerListeners } from './worker-listeners.ts';
import { type WorkerExit, type WorkerProcess, withoutSecrets } from './worker-process.ts';

interface WorkersPlaneOptions extends Omit<LocalPlaneOptions, 'sharing' | 'leases'> {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly workers: number;
  readonly poolSettings: PoolSettings;
  readonly forecasts: () => readonly SourceForecast[];
  readonly fleet?: Replica | undefined;
  readonly log: Log;
  readonly secrets: () => readonly Secret[];
  readonly onFailed: (error: NoriaError) => void;
}

/**
 * The primary's id in `#verdict`. The ids of the workers are their numbers, from 1. The primary also judges the
 * network, because it dials for health checks.
 */
const PRIMARY = 0;
/** Not every change of a forecast emits an event. */
const FORECAST_MS = 500;
/** A worker that hangs delays the answer to a client's question at `noria.invalid` by at most this. */
const ANSWER_TIMEOUT_MS = 1_000;

export async function openWorkersPlane(options: WorkersPlaneOptions): Promise<DataPlane> {
  const plane = new WorkersPlane(options);
  try {
    await plane.open();
  } catch (error) {
    await plane.close();
    throw error;
  }
  return plane;
}

class WorkersPlane implements DataPlane {
  readonly dialer: MemberDialer;
  readonly #options: WorkersPlaneOptions;
  readonly #verdict: NetworkVerdict;
  readonly #listeners: WorkerListeners;
  readonly #open = new Map<number, { readonly process: WorkerProcess; readonly shared: SharedPool }>();
  readonly #shared: MemorySharedPool;
  readonly #replica: Replica;
  readonly #forecasts: RemoteForecasts;
  readonly #subscriptions: readonly Disposable[];
  #forecastTimer: Disposable | undefined;
  readonly #supervisor: WorkerSupervisor;
  #settings: PlaneSettings;
  #context: PlaneContext;
  /** Settles when the last queued task has ended: an update of the listeners, or the preparation of a new worker. */
  #queue: Promise<unknown> = Promise.resolve();

  constructor(options: WorkersPlaneOptions) {
    const { clock, bus, dialer, poolSettings, context, fleet, onNetwork } = options;
    this.#options = options;
    this.#settings = { dialer, pool: poolSettings };
    this.#context = context;
    this.#forecasts = new RemoteForecasts(clock);
    this.#shared = new MemorySharedPool({ clock, machine: fleet });
    this.#replica = this.#createReplica();
    this.#listeners = new WorkerListeners(
      clock,
      () => this.#ready,
      (worker, listener, reply) => this.#callsOf(worker)?.call('receivePermits', listener, reply),
    );
    this.#verdict = new NetworkVerdict(
      clock,
      () => this.#settings.dialer.attemptTimeoutMs,
      (process) => {
        if (process === PRIMARY) this.dialer.answeredElsewhere();
        else this.#callsOf(process)?.call('answeredElsewhere');
      },
      (down) => {
        onNetwork(down);
        bus.emit('network.judged', { down });
      },
    );
    this.dialer = this.#createDialer();
    this.#supervisor = new WorkerSupervisor({
      clock,
      wanted: options.workers,
      entry: fileURLToPath(new URL(`./worker${extname(import.meta.url)}`, import.meta.url)),
      onEvent: ({ number }, event) => this.#forward(number, event),
      prepare: (worker) => this.#inTurn(() => this.#prepare(worker)),
      onLost: (worker, exit, restartMs) => this.#onLost(worker, exit, restartMs),
      onExit: (worker) => this.#onExit(worker),
      onFailed: options.onFailed,
    });
    this.#subscriptions = this.#subscribe();
  }

  get listeners(): readonly ListenerStatus[] {
    return this.#listeners.status();
  }

  get workers(): { readonly wanted: number; readonly running: number } {
    return { wanted: this.#options.workers, running: this.#ready.length };
  }

  async open(): Promise<void> {
    await this.#replica.open();
    this.#watchForecasts();
    await this.#supervisor.open();
    for (const worker of this.#ready) if (!this.#open.has(worker.number)) this.#openWorker(worker);
  }

  update(settings: readonly ListenerSettings[], drainTimeoutMs: number): Promise<void> {
    return this.#inTurn(() => this.#listeners.update(settings, drainTimeoutMs));
  }

  commit(settings: PlaneSettings): void {
    this.#settings = settings;
    this.dialer.configure(settings.dialer);
    this.#call('commit', [settings]);
  }

  setContext(context: PlaneContext): void {
    this.#context = context;
    this.#call('setContext', [context]);
  }

  resetRefusals(source: string): void {
    this.dialer.resetRefusals(source);
    this.#call('resetRefusals', [source]);
  }

  closeConnections(of: LeaseHolder): void {
    this.#call('closeConnections', [of]);
  }

  prepareToClose(): void {
    this.#listeners.prepareToClose();
  }

  async drain(): Promise<void> {
    this.#supervisor.stopReplacing();
    await Promise.all(this.#ready.map(({ calls }) => calls.ask('drain')));
  }

  async close(): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    this.#forecastTimer?.[Symbol.dispose]();
    this.#listeners.close();
    await this.#supervisor.close();
    await this.#replica.close();
    await this.dialer.close();
  }

  #createReplica(): Replica {
    const { clock, bus, pool } = this.#options;
    return new Replica({
      name: 'primary',
      clock,
      bus,
      pool,
      shared: this.#shared.connect('primary', { servesClients: false }),
      servesClients: false,
      ...HOW_TO_SHARE,
    });
  }

  #createDialer(): MemberDialer {
    const { dialer: settings, log, ...options } = this.#options;
    const ownAddresses = () => [
      ...this.listeners.flatMap(({ addresses }) => addresses),
      ...this.#context.apiAddresses,
    ];
    return new MemberDialer({
      ...options,
      ...settings,
      guard: { mark: options.mark, ownAddresses },
      // This bus has no subscribers: on it, the dialer emits `network.judged` for this process alone. `#verdict` emits
      // the event for all processes together.
      bus: new EventBus((event, error) => log.error({ event, error }, 'observer failed')),
      onNetwork: (down) => this.#verdict.judged(PRIMARY, down),
    });
  }

  #subscribe(): readonly Disposable[] {
    const { bus } = this.#options;
    return [
      bus.on('draw.done', ({ code }) => {
        if (code !== 'transport') this.#verdict.answered(); // any answer of the service, even an error, shows that the network is up
        this.#sendForecasts();
      }),
      bus.on('source.moved', () => this.#sendForecasts()),
    ];
  }

  get #ready(): readonly WorkerProcess[] {
    return this.#supervisor.ready;
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(act);
    this.#queue = result.catch(() => {}); // ignored: the caller handles the error
    return result;
  }

  #callsOf(worker: number): WorkerProcess['calls'] | undefined {
    return this.#open.get(worker)?.process.calls;
  }

  #call<Call extends keyof WorkerCalls>(
    call: Call,
    args: Parameters<WorkerCalls[Call]>,
    except?: number,
  ): void {
    for (const [worker, { process }] of this.#open) if (worker !== except) process.calls.call(call, ...args);
  }

  #openWorker(process: WorkerProcess): void {
    const { inheritedFds, mark, forecasts, onSourceFault } = this.#options;
    const { number, calls } = process;
    const replica = `worker ${number}`;
    const shared = this.#shared.connect(replica);
    this.#open.set(number, { process, shared });
    calls.own = {
      ...shared,
      follow: () => shared.follow(followerIn(calls)),
      onSourceFault,
      onNetwork: (down) => this.#verdict.judged(number, down),
      countWrongCredentials: (...attempt) => this.#call('countWrongCredentials', attempt, number),
      closeTunnels: (...tunnels) => this.#call('closeTunnels', tunnels, number),
      receivePermits: (listener, request) => this.#listeners.receivePermits(number, listener, request),
      lastUses: (name) => this.#usesElsewhere(number, name),
    };
    calls.call('open', {
      replica,
      settings: this.#settings,
      forecasts: forecasts(),
      context: this.#context,
      inheritedFds: [...inheritedFds],
      mark,
    });
  }

  #prepare(worker: WorkerProcess): Promise<void> {
    this.#openWorker(worker);
    return this.#listeners.openIn(worker);
  }

  #watchForecasts(): void {
    this.#forecastTimer = this.#options.clock.after(FORECAST_MS, () => {
      if (this.#forecasts.differsFrom(this.#options.forecasts())) this.#sendForecasts();
      this.#watchForecasts();
    });
  }

  #sendForecasts(): void {
    const forecasts = this.#options.forecasts();
    this.#forecasts.receive(forecasts);
    this.#call('receiveForecasts', [forecasts]);
  }

  async #usesElsewhere(asking: number, name: ClientName): Promise<readonly ClientUse[]> {
    const uses: ClientUse[] = [];
    const others = [...this.#open.keys()].filter((worker) => worker !== asking);
    const asked = others.map(async (worker) => {
      const use = await this.#callsOf(worker)?.ask('findUse', name);
      if (use !== undefined) uses.push(use);
    });
    const answered = new AbortController();
    await Promise.race([Promise.all(asked), pause(this.#options.clock, ANSWER_TIMEOUT_MS, answered.signal)]);
    answered.abort();
    return uses;
  }

  #forward(worker: number, forwarded: ForwardedEvent): void {
    const { connections } = this.#listeners;
    if (is(forwarded, 'connection.opened')) connections.add(worker, forwarded.event.listener, 1);
    else if (is(forwarded, 'connection.closed')) connections.add(worker, forwarded.event.listener, -1);
    else if (is(forwarded, 'dial.attempted') && forwarded.event.outcome === 'accepted')
      this.#verdict.answered();
    this.#options.bus.emit(forwarded.name, forwarded.event);
  }

  #onLost({ number, pid }: WorkerProcess, exit: WorkerExit, restartMs: number): void {
    const { log, bus, secrets } = this.#options;
    const closed = this.#listeners.connections.removeWorker(number);
    log.error(
      { pid, ...withoutSecrets(exit, secrets()), connections: closed.length, restartMs },
      'worker lost with its connections; starting another',
    );
    for (const listener of closed) {
      bus.emit('connection.closed', { listener, protocol: 'unknown', outcome: 'internal' });
    }
    if (this.#ready.length > 0 || !this.#listeners.useInheritedSocket) return;
    // No new worker can use the inherited socket: it closed with the last worker, and its descriptor number may now
    // refer to another file.
    const why = 'all workers have exited, and an inherited socket cannot be opened again';
    this.#supervisor.fail(new NoriaError('workers-failed', why));
  }

  #onExit({ number }: WorkerProcess): void {
    void this.#open.get(number)?.shared.close();
    this.#open.delete(number);
    this.#listeners.workerExited(number);
    this.#verdict.remove(number);
  }
}

/**
 * Decides whether noria's own network is down. Several processes judge this, each from its own dials.
 *
 * If one process judges the network down, the verdict is `down`, unless another process got an answer recently. As soon
 * as any process gets an answer, the verdict is `up` for all processes.
 */
export class NetworkVerdict {
  readonly #clock: Clock;
  readonly #answerValidMs: () => number;
  readonly #overrule: (process: number) => void;
  readonly #onChange: (down: boolean) => void;
  readonly #saysDown = new Set<number>();
  #answeredAt = Number.NEGATIVE_INFINITY;

  /**
   * @param answerValidMs - how long after an answer the verdict stays `up` even if a process judges the network down:
   * about the duration of an attempt.
   */
  constructor(
    clock: Clock,
    answerValidMs: () => number,
    overrule: (process: number) => void,
    onChange: (down: boolean) => void,
  ) {
    this.#clock = clock;
    this.#answerValidMs = answerValidMs;
    this.#overrule = overrule;
    this.#onChange = onChange;
  }

  answered(): void {
    this.#answeredAt = this.#clock.monotonic();
    if (this.#saysDown.size === 0) return;
    for (const process of this.#saysDown) this.#overrule(process);
    this.#saysDown.clear();
    this.#onChange(false);
  }

  judged(process: number, down: boolean): void {
    if (!down) {
      this.remove(process);
      return;
    }
    if (this.#clock.monotonic() - this.#answeredAt <= this.#answerValidMs()) {
      this.#overrule(process);
      return;
    }
    this.#saysDown.add(process);
    if (this.#saysDown.size === 1) this.#onChange(true);
  }

  remove(process: number): void {
    if (this.#saysDown.delete(process) && this.#saysDown.size === 0) this.#onChange(false);
  }
}

function is<Name extends ForwardedEventName>(
  forwarded: ForwardedEvent,
  name: Name,
): forwarded is ForwardedEvent<Name> {
  return forwarded.name === name;
}
