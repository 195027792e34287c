/**
 * The data plane in worker processes, seen by the daemon as one: one pool lends to all, what they tell is told here, and what
 * listeners have to agree on is agreed on here.
 *
 * A dialer of its own stays in this process, for probes.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ListenerConfig } from '../../config/config.ts';
import type { Clock } from '../../core/clock.ts';
import { EventBus } from '../../core/events.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Log } from '../../core/log.ts';
import type { Secret } from '../../core/secret.ts';
import type { SourceFault } from '../../dialer/credentials.ts';
import { type DialerSettings, MemberDialer } from '../../dialer/dialer.ts';
import type { LeaseProvider } from '../../pool/lease.ts';
import type { DataPlane, PlaneListener } from '../data-plane.ts';
import { encodeForIpc } from './ipc-encoding.ts';
import { type ServedLending, serveLending } from './lease-channel.ts';
import type { ForwardedEvent, ForwardedEventName, Surroundings, ToWorker } from './messages.ts';
import { NetworkVerdict } from './network-verdict.ts';
import { openWorkerSupervisor, type WorkerSupervisor } from './supervisor.ts';
import { WorkerListeners } from './worker-listeners.ts';
import { type WorkerExit, type WorkerProcess, type WorkerReport, withoutSecrets } from './worker-process.ts';

export interface WorkersPlaneOptions {
  /** 2 or more. */
  readonly workers: number;
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly log: Log;
  readonly pool: LeaseProvider;
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

/** @throws NoriaError workers-failed when the workers cannot be started; `update` opens the first listeners. */
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

interface Begun {
  readonly process: WorkerProcess;
  readonly lending: ServedLending;
}

class WorkersPlane implements DataPlane {
  readonly #options: WorkersPlaneOptions;
  readonly #dialer: MemberDialer;
  readonly #verdict: NetworkVerdict;
  readonly #listeners: WorkerListeners;
  /** Workers that have been told what they work with, by number. */
  readonly #begun = new Map<number, Begun>();
  readonly #drawing: Disposable;
  #crew: WorkerSupervisor | undefined;
  #settings: DialerSettings;
  #surroundings: Surroundings;
  /** Listeners change, and workers join, one after the other. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: WorkersPlaneOptions) {
    const { clock, dialer, pool, log, onSourceFault } = options;
    this.#options = options;
    this.#settings = dialer;
    this.#surroundings = options.surroundings;
    this.#listeners = new WorkerListeners(
      clock,
      () => this.#ready,
      (worker, listener, order) => this.#begun.get(worker)?.process.say({ kind: 'permits', listener, order }),
    );
    this.#verdict = new NetworkVerdict({
      clock,
      freshMs: () => this.#settings.attemptTimeoutMs,
      reassure: (judge) => this.#reassure(judge),
      onJudged: (down) => {
        options.onNetwork(down);
        options.bus.emit('network.judged', { down });
      },
    });
    // The service answers: whoever does not, it is not our network.
    this.#drawing = options.bus.on('draw.done', ({ code }) => {
      if (code !== 'transport') this.#verdict.answered();
    });
    // What a dialer alone would tell of the network is told once all have been heard.
    const unheard = new EventBus((event, error) => log.error({ event, error }, 'observer failed'));
    const onNetwork = (down: boolean) => this.#verdict.judged(PROBER, down);
    this.#dialer = new MemberDialer({ ...dialer, clock, bus: unheard, pool, onSourceFault, onNetwork });
  }

  get listeners(): readonly PlaneListener[] {
    return this.#listeners.views;
  }

  get workers(): { readonly wanted: number; readonly running: number } {
    return { wanted: this.#options.workers, running: this.#ready.length };
  }

  async open(): Promise<void> {
    const { clock, workers: wanted, onFailed } = this.#options;
    this.#crew = await openWorkerSupervisor({
      clock,
      wanted,
      entry: fileURLToPath(new URL(`./worker${extname(import.meta.url)}`, import.meta.url)),
      onReport: (worker, report) => this.#hear(worker, report),
      prepare: (worker) => this.#inTurn(() => this.#prepare(worker)),
      onLost: (worker, ending, againMs) => this.#lost(worker, ending, againMs),
      onGone: (worker) => this.#gone(worker),
      onFailed,
    });
    for (const worker of this.#ready) if (!this.#begun.has(worker.number)) this.#begin(worker);
  }

  update(configs: readonly ListenerConfig[], drainTimeoutMs: number): Promise<void> {
    return this.#inTurn(() => this.#listeners.update(configs, drainTimeoutMs));
  }

  surround(surroundings: Surroundings): void {
    this.#surroundings = surroundings;
    this.#tellAll({ kind: 'surroundings', surroundings });
  }

  configure(settings: DialerSettings): void {
    this.#settings = settings;
    this.#dialer.configure(settings);
    this.#tellAll({ kind: 'configure', dialer: encodeForIpc(settings) });
  }

  resetRefusals(source: string): void {
    this.#dialer.resetRefusals(source);
    this.#tellAll({ kind: 'forgive', source });
  }

  closeConnections(leases: readonly number[]): void {
    this.#dialer.closeConnections(leases);
    this.#tellAll({ kind: 'cut', leases });
  }

  attempt(task: Parameters<MemberDialer['attempt']>[0]): ReturnType<MemberDialer['attempt']> {
    return this.#dialer.attempt(task);
  }

  hurry(): void {
    this.#listeners.hurry();
  }

  async drain(): Promise<void> {
    this.#crew?.stopReplacing();
    this.#tellAll({ kind: 'drain' });
    await Promise.all(this.#ready.map((worker) => worker.answer('drained')));
  }

  async close(): Promise<void> {
    this.#drawing[Symbol.dispose]();
    this.#listeners.limits.keep([]);
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

  #begin(process: WorkerProcess): void {
    const { handedOver, pool } = this.#options;
    this.#begun.set(process.number, { process, lending: serveLending(pool, process.number, process.say) });
    process.say({
      kind: 'begin',
      dialer: encodeForIpc(this.#settings),
      surroundings: this.#surroundings,
      handedOver: [...handedOver],
    });
  }

  /** One that takes the place of another. */
  #prepare(worker: WorkerProcess): Promise<void> {
    this.#begin(worker);
    return this.#listeners.openIn(worker);
  }

  #hear({ number }: WorkerProcess, report: WorkerReport): void {
    switch (report.kind) {
      case 'told':
        this.#tellAgain(number, report);
        break;
      case 'permits':
        this.#listeners.limits.hear(number, report.listener, report.request);
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

  #tellAgain(worker: number, told: ForwardedEvent): void {
    if (is(told, 'connection.opened')) this.#listeners.connections.opened(worker, told.event.listener);
    else if (is(told, 'connection.closed')) this.#listeners.connections.closed(worker, told.event.listener);
    else if (is(told, 'dial.attempted') && told.event.outcome === 'accepted') this.#verdict.answered();
    this.#options.bus.emit(told.name, told.event);
  }

  #reassure(judge: number): void {
    if (judge === PROBER) this.#dialer.answeredElsewhere();
    else this.#begun.get(judge)?.process.say({ kind: 'answered' });
  }

  /** A client hears nothing of it but that its connection ends: whoever tries again is served by another worker. */
  #lost({ number, pid }: WorkerProcess, ending: WorkerExit, againMs: number): void {
    const { log, bus, secrets } = this.#options;
    const cut = this.#listeners.connections.gone(number);
    log.error(
      { pid, ...withoutSecrets(ending, secrets()), connections: cut.length, againMs },
      'worker lost: its connections ended with it, and another is started',
    );
    for (const listener of cut) {
      bus.emit('connection.closed', { listener, protocol: 'unknown', outcome: 'internal' });
    }
    if (this.#ready.length > 0 || !this.#listeners.handedOver) return;
    // With the last of them went the socket itself; its number may stand for something else by now.
    const why = 'all workers ended, and a socket that was handed over can be opened once';
    this.#crew?.fail(new NoriaError('workers-failed', why));
  }

  #gone({ number }: WorkerProcess): void {
    this.#begun.get(number)?.lending.close();
    this.#begun.delete(number);
    this.#listeners.limits.gone(number);
    this.#verdict.gone(number);
  }
}

function is<Name extends ForwardedEventName>(told: ForwardedEvent, name: Name): told is ForwardedEvent<Name> {
  return told.name === name;
}
