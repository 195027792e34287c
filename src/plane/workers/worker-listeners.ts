/**
 * The listeners that all workers open: which they are, opened in every worker or in none, and what their workers have to agree
 * on. Part of workers-plane.ts, which knows the workers.
 */

import type { ListenerConfig } from '../../config/config.ts';
import type { Clock } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import { overlap } from '../../core/listen-address.ts';
import type { BoundAddress } from '../../listener/bind.ts';
import type { PlaneListener } from '../data-plane.ts';
import { boundTo, listenerName, type PlacedListener } from '../listener-set.ts';
import { ConnectionCounts } from './connection-counts.ts';
import type { PermitOrder } from './connection-permits.ts';
import { encodeForIpc } from './ipc-encoding.ts';
import { Placing, updateError } from './listener-plan.ts';
import type { UpdateOutcome } from './messages.ts';
import { type LimitedListener, SharedLimits } from './shared-limits.ts';
import type { WorkerProcess } from './worker-process.ts';

/** How often a port that was free is looked for anew, when another program was quicker. */
const MOST_PLACINGS = 3;
/** A worker that has not opened its listeners by then does nothing else either. */
const ANSWER_PATIENCE_MS = 30_000;
/** How long all of them together may take when noria closes; one that answers at all does so within the last of these. */
const HURRY_MS = 1_000;
const LEAST_PATIENCE_MS = 250;

/** A worker, as far as its listeners go. */
export type ListeningWorker = Pick<WorkerProcess, 'answer' | 'say' | 'unfit'>;

export class WorkerListeners {
  readonly limits: SharedLimits;
  readonly connections = new ConnectionCounts();
  readonly #clock: Clock;
  readonly #workers: () => readonly ListeningWorker[];
  readonly #placing = new Placing();
  #placed: readonly PlacedListener[] = [];
  /** In the order of those. */
  #addresses: readonly (readonly BoundAddress[])[] = [];
  #drainTimeoutMs = 0;
  /** The one that is to answer now. */
  #asked: { readonly worker: ListeningWorker; patience: Disposable } | undefined;
  #answersBy = Number.POSITIVE_INFINITY;

  /**
   * @param workers - those that serve clients at this moment.
   * @param order - tells a worker, by its number, what it may do about the connections of a listener.
   */
  constructor(
    clock: Clock,
    workers: () => readonly ListeningWorker[],
    order: (worker: number, listener: number, order: PermitOrder) => void,
  ) {
    this.#clock = clock;
    this.#workers = workers;
    this.limits = new SharedLimits(clock, order);
  }

  get views(): readonly PlaneListener[] {
    return this.#placed.map((config, at) => {
      const name = listenerName(config);
      return {
        name,
        protocols: config.protocols,
        addresses: this.#addresses[at] ?? [],
        connections: this.connections.of(name),
      };
    });
  }

  /** Whether one of them came from whoever started noria: it cannot be opened anew once all workers have gone. */
  get handedOver(): boolean {
    return this.#placed.some(({ address }) => address.kind === 'fd');
  }

  /** See `DataPlane.update`. Not to be called again before it has ended. */
  async update(configs: readonly ListenerConfig[], drainTimeoutMs: number): Promise<void> {
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
  }

  /**
   * Opens in a new worker what the others have open.
   *
   * @throws NoriaError when it cannot.
   */
  async openIn(worker: ListeningWorker): Promise<void> {
    const outcome = await this.#open(worker, this.#placed, 0);
    if (outcome?.ok === false) throw new NoriaError(outcome.code, outcome.message);
  }

  /** noria closes: whoever is being asked to open listeners, or will be, has little time left. */
  hurry(): void {
    this.#answersBy = this.#clock.monotonic() + HURRY_MS;
    if (this.#asked === undefined) return;
    this.#asked.patience[Symbol.dispose]();
    this.#asked.patience = this.#patienceWith(this.#asked.worker);
  }

  /** In every worker, or in none. No worker is asked for what this process cannot have either. */
  async #openEverywhere(placed: readonly PlacedListener[], drainTimeoutMs: number): Promise<UpdateOutcome> {
    const before = this.#placed;
    const fresh = placed.filter(({ shared }) => !before.some((one) => one.shared?.id === shared?.id));
    const refusal = await updateError(fresh, before);
    if (refusal !== undefined) return refused(refusal);
    this.limits.open(limitsOf(placed));
    const clear = before.filter((one) => !placed.some((other) => isInTheWay(one, other)));
    if (clear.length < before.length) {
      await this.#openInAll(clear, drainTimeoutMs);
      const late = await updateError(fresh, clear);
      if (late !== undefined) return this.#goBack(refused(late));
    }
    const outcomes = await this.#openInAll(placed, drainTimeoutMs);
    const failed = outcomes.find((outcome) => !outcome.ok);
    if (failed !== undefined) return this.#goBack(failed);
    this.limits.keep(limitsOf(placed));
    return outcomes[0] ?? { ok: false, code: 'workers-failed', message: 'no worker is alive to listen' };
  }

  /**
   * What those that live answer; one that dies meanwhile has a successor that is told what holds then. One after the other:
   * an address that changes hands is held by the others meanwhile, so that it is never free for anyone else.
   */
  async #openInAll(placed: readonly PlacedListener[], drainTimeoutMs: number): Promise<UpdateOutcome[]> {
    const outcomes: UpdateOutcome[] = [];
    for (const worker of this.#workers()) {
      const outcome = await this.#open(worker, placed, drainTimeoutMs);
      if (outcome !== undefined) outcomes.push(outcome);
      if (outcome?.ok === false) {
        if (outcome.spoilt === true) worker.unfit(outcome.message);
        break;
      }
    }
    return outcomes;
  }

  /** @returns `outcome`, once every worker has what it had before. */
  async #goBack(outcome: UpdateOutcome): Promise<UpdateOutcome> {
    for (const worker of this.#workers()) {
      const back = await this.#open(worker, this.#placed, this.#drainTimeoutMs);
      if (back?.ok === false) worker.unfit(back.message); // its successor may succeed
    }
    this.limits.keep(limitsOf(this.#placed));
    return outcome;
  }

  async #open(
    worker: ListeningWorker,
    placed: readonly PlacedListener[],
    drainTimeoutMs: number,
  ): Promise<UpdateOutcome | undefined> {
    const asked = { worker, patience: this.#patienceWith(worker) };
    this.#asked = asked;
    const answer = worker.answer('updated');
    const { counted } = this.limits;
    worker.say({ kind: 'update', listeners: encodeForIpc(placed), drainTimeoutMs, counted });
    const told = await answer;
    this.#asked = undefined;
    asked.patience[Symbol.dispose]();
    return told?.outcome;
  }

  #patienceWith(worker: ListeningWorker): Disposable {
    const leftMs = Math.max(LEAST_PATIENCE_MS, this.#answersBy - this.#clock.monotonic());
    return this.#clock.after(Math.min(ANSWER_PATIENCE_MS, leftMs), () =>
      worker.unfit('it did not open its listeners in time'),
    );
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

function refused({ code, message }: NoriaError): UpdateOutcome {
  return { ok: false, code, message };
}

function limitsOf(listeners: readonly PlacedListener[]): LimitedListener[] {
  return listeners.flatMap(({ shared, maxConnections }) =>
    shared === undefined ? [] : [{ id: shared.id, limit: maxConnections }],
  );
}
