/**
 * Opens the same listeners in every worker or in none. Part of workers-plane.ts, which owns the workers. Owns two
 * things that the workers share for each listener: the permits for connections, and the counts of open connections.
 */
import { createServer } from 'node:net';
import type { Clock } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import {
  type BoundAddress,
  formatListenAddress,
  type ListenAddress,
  overlap,
} from '../../core/listen-address.ts';
import { bind } from '../../listener/listener.ts';
import {
  bindAddress,
  isSameButCertificate,
  type ListenerSettings,
  type ListenerStatus,
} from '../local-plane.ts';
import { ConnectionPermitPool, type PermitReply, type PermitRequest } from './connection-permits.ts';
import type { PrimaryCalls, RemoteCalls, UpdateOutcome, WorkerCalls } from './remote-calls.ts';
import type { WorkerProcess } from './worker-process.ts';

/** How many free ports noria tries for a listener with port 0. Another program may take a port before the workers bind it. */
const MAX_PORT_TRIES = 3;
/** The primary kills a worker that takes longer than this to open its listeners. */
const UPDATE_TIMEOUT_MS = 30_000;
/** The time in ms that all workers together get to update their listeners after `prepareToClose`. */
const CLOSING_TIMEOUT_MS = 1_000;
/** Each worker gets at least this time to update its listeners. It applies even after CLOSING_TIMEOUT_MS has passed. */
const MIN_TIMEOUT_MS = 250;

export interface ListeningWorker extends Pick<WorkerProcess, 'killBecause'> {
  readonly calls: Pick<RemoteCalls<WorkerCalls, PrimaryCalls>, 'ask'>;
}

export class WorkerListeners {
  readonly connections = new ConnectionCounts();
  readonly #clock: Clock;
  readonly #workers: () => readonly ListeningWorker[];
  readonly #sendPermits: (worker: number, listener: number, reply: PermitReply) => void;
  readonly #permits = new Map<number, ConnectionPermitPool>();
  #lastId = 0;
  #listeners: readonly ListenerSettings[] = [];
  #addresses: readonly (readonly BoundAddress[])[] = [];
  #drainTimeoutMs = 0;
  #updating: { readonly worker: ListeningWorker; timeout: Disposable } | undefined;
  #closesAt = Number.POSITIVE_INFINITY;

  constructor(
    clock: Clock,
    workers: () => readonly ListeningWorker[],
    sendPermits: (worker: number, listener: number, reply: PermitReply) => void,
  ) {
    this.#clock = clock;
    this.#workers = workers;
    this.#sendPermits = sendPermits;
  }

  status(): readonly ListenerStatus[] {
    return this.#listeners.map(({ address, protocols }, at) => {
      const name = formatListenAddress(address);
      return {
        name,
        protocols,
        addresses: this.#addresses[at] ?? [],
        connections: this.connections.of(name),
      };
    });
  }

  /** Whether a listener uses an inherited socket. Such a socket cannot be opened again once all workers have exited. */
  get useInheritedSocket(): boolean {
    return this.#listeners.some(({ address }) => address.kind === 'fd');
  }

  async update(settings: readonly ListenerSettings[], drainTimeoutMs: number): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      const next = await this.#assign(settings);
      const outcome = await this.#openEverywhere(next, drainTimeoutMs);
      if (outcome.ok) {
        this.#listeners = next;
        this.#addresses = outcome.addresses;
        this.#drainTimeoutMs = drainTimeoutMs;
        return;
      }
      const anotherPortMayWork = next.some(({ shared }) => shared?.port !== undefined);
      if (!anotherPortMayWork || outcome.code !== 'listen-failed' || tries >= MAX_PORT_TRIES) {
        throw new NoriaError(outcome.code, outcome.message);
      }
    }
  }

  async openIn(worker: ListeningWorker): Promise<void> {
    const outcome = await this.#updateWorker(worker, this.#listeners, 0);
    if (outcome?.ok === false) throw new NoriaError(outcome.code, outcome.message);
  }

  receivePermits(worker: number, listener: number, request: PermitRequest): void {
    this.#permits.get(listener)?.receive(worker, request);
  }

  workerExited(worker: number): void {
    for (const pool of this.#permits.values()) pool.workerExited(worker);
  }

  close(): void {
    this.#keepPermits([]);
  }

  prepareToClose(): void {
    this.#closesAt = this.#clock.monotonic() + CLOSING_TIMEOUT_MS;
    if (this.#updating === undefined) return;
    this.#updating.timeout[Symbol.dispose]();
    this.#updating.timeout = this.#killAfterTimeout(this.#updating.worker);
  }

  /**
   * Sets `shared` in the settings of each listener: its id and, in place of port 0, a free port. An unchanged listener
   * keeps the id and the port that it has.
   */
  async #assign(settings: readonly ListenerSettings[]): Promise<readonly ListenerSettings[]> {
    const available = [...this.#listeners];
    const assigned: ListenerSettings[] = [];
    for (const each of settings) {
      const at = available.findIndex(({ shared: _, ...one }) => isSameButCertificate(one, each));
      const [same] = at < 0 ? [] : available.splice(at, 1);
      if (same === undefined) this.#lastId += 1;
      const shared = same?.shared ?? { id: this.#lastId, port: await freePortFor(each.address) };
      assigned.push({ ...each, shared });
    }
    return assigned;
  }

  async #openEverywhere(next: readonly ListenerSettings[], drainTimeoutMs: number): Promise<UpdateOutcome> {
    const before = this.#listeners;
    const added = next.filter(({ shared }) => !before.some((one) => one.shared?.id === shared?.id));
    const error = await findBindError(added, before);
    if (error !== undefined) return failure(error);
    this.#openPermits(next);
    const unblocking = before.filter((one) => !next.some((other) => blocks(one, other)));
    if (unblocking.length < before.length) {
      await this.#updateWorkers(unblocking, drainTimeoutMs);
      const lateError = await findBindError(added, unblocking);
      if (lateError !== undefined) return this.#goBack(failure(lateError));
    }
    const outcomes = await this.#updateWorkers(next, drainTimeoutMs);
    const failed = outcomes.find((outcome) => !outcome.ok);
    if (failed !== undefined) return this.#goBack(failed);
    this.#keepPermits(next);
    return outcomes[0] ?? { ok: false, code: 'workers-failed', message: 'no worker is running' };
  }

  /**
   * Updates the workers one after the other. While one worker moves an address between listeners, the other workers keep the
   * address open, so no other program can take it. Stops at the first failure. Skips a worker that exits, because its replacement
   * opens the current listeners.
   */
  async #updateWorkers(
    listeners: readonly ListenerSettings[],
    drainTimeoutMs: number,
  ): Promise<UpdateOutcome[]> {
    const outcomes: UpdateOutcome[] = [];
    for (const worker of this.#workers()) {
      const outcome = await this.#updateWorker(worker, listeners, drainTimeoutMs);
      if (outcome !== undefined) outcomes.push(outcome);
      if (outcome?.ok === false) {
        if (outcome.holdsUnboundSocket === true) worker.killBecause(outcome.message);
        break;
      }
    }
    return outcomes;
  }

  async #goBack(outcome: UpdateOutcome): Promise<UpdateOutcome> {
    for (const worker of this.#workers()) {
      const restored = await this.#updateWorker(worker, this.#listeners, this.#drainTimeoutMs);
      if (restored?.ok === false) worker.killBecause(restored.message); // another worker replaces the killed worker and may succeed
    }
    this.#keepPermits(this.#listeners);
    return outcome;
  }

  /** @returns undefined if the worker exits before it answers. */
  async #updateWorker(
    worker: ListeningWorker,
    listeners: readonly ListenerSettings[],
    drainTimeoutMs: number,
  ): Promise<UpdateOutcome | undefined> {
    const updating = { worker, timeout: this.#killAfterTimeout(worker) };
    this.#updating = updating;
    const permitListeners = [...this.#permits.keys()];
    const outcome = await worker.calls.ask('update', listeners, drainTimeoutMs, permitListeners);
    this.#updating = undefined;
    updating.timeout[Symbol.dispose]();
    return outcome;
  }

  #openPermits(listeners: readonly ListenerSettings[]): void {
    for (const { shared, maxConnections } of listeners) {
      if (shared === undefined || this.#permits.has(shared.id)) continue;
      const send = (worker: number, reply: PermitReply) => this.#sendPermits(worker, shared.id, reply);
      this.#permits.set(shared.id, new ConnectionPermitPool(maxConnections, this.#clock, send));
    }
  }

  #keepPermits(listeners: readonly ListenerSettings[]): void {
    const ids = new Set(listeners.map(({ shared }) => shared?.id));
    for (const [id, pool] of this.#permits) {
      if (ids.has(id)) continue;
      pool.close();
      this.#permits.delete(id);
    }
  }

  #killAfterTimeout(worker: ListeningWorker): Disposable {
    const untilCloseMs = Math.max(MIN_TIMEOUT_MS, this.#closesAt - this.#clock.monotonic());
    return this.#clock.after(Math.min(UPDATE_TIMEOUT_MS, untilCloseMs), () =>
      worker.killBecause('the worker did not open its listeners in time'),
    );
  }
}

class ConnectionCounts {
  readonly #byWorker = new Map<number, Map<string, number>>();

  add(worker: number, listener: string, change: 1 | -1): void {
    let counts = this.#byWorker.get(worker);
    if (counts === undefined) {
      counts = new Map();
      this.#byWorker.set(worker, counts);
    }
    counts.set(listener, (counts.get(listener) ?? 0) + change);
  }

  of(listener: string): number {
    let sum = 0;
    for (const counts of this.#byWorker.values()) sum += counts.get(listener) ?? 0;
    return sum;
  }

  removeWorker(worker: number): string[] {
    const counts = this.#byWorker.get(worker) ?? new Map<string, number>();
    this.#byWorker.delete(worker);
    return [...counts].flatMap(([listener, count]) => Array<string>(count).fill(listener));
  }
}

/**
 * Whether all workers must close the listener `current` before any worker can open the listener `wanted`.
 *
 * True if both use the same port and one of their hosts includes the other, as `0.0.0.0` includes `127.0.0.1`. False
 * for equal hosts: one worker at a time replaces the listener, while the other workers still accept clients.
 */
function blocks(current: ListenerSettings, wanted: ListenerSettings): boolean {
  const [before, next] = [bindAddress(current), bindAddress(wanted)];
  return before.kind === 'tcp' && next.kind === 'tcp' && before.host !== next.host && overlap(before, next);
}

function failure({ code, message }: NoriaError): UpdateOutcome {
  return { ok: false, code, message };
}

/** Undefined unless the address has port 0. Another program may take the port before the workers bind it. */
function freePortFor(address: ListenAddress): Promise<number | undefined> {
  if (address.kind === 'fd' || address.port !== 0) return Promise.resolve(undefined);
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once('error', () => resolve(undefined)); // handled: findBindError reports the error
    probe.listen({ host: address.host, port: 0, exclusive: true }, () => {
      const bound = probe.address();
      const port = bound === null || typeof bound === 'string' ? undefined : bound.port;
      probe.close(() => resolve(port));
    });
  });
}

/**
 * Binds each address briefly in this process: after a failed bind, node:cluster could pass an unbound socket to a worker, and would never
 * close it. @returns the error (listen-failed or bad-config) for the first address that cannot be bound.
 */
async function findBindError(
  listeners: readonly ListenerSettings[],
  open: readonly ListenerSettings[],
): Promise<NoriaError | undefined> {
  const openAddresses = open.map(bindAddress);
  try {
    for (const listener of listeners) {
      const address = bindAddress(listener);
      if (address.kind === 'fd') continue;
      for (let { port, lastPort = port } = address; port <= lastPort; port += 1) {
        const each = { ...address, port, lastPort: port };
        if (openAddresses.some((other) => overlap(other, each))) continue;
        await bindBriefly(each, listener.users.length > 0);
      }
    }
    return undefined;
  } catch (error) {
    if (error instanceof NoriaError) return error;
    throw error;
  }
}

async function bindBriefly(address: ListenAddress, allowNonLoopback: boolean): Promise<void> {
  const servers = await bind(address, allowNonLoopback, (server) => {
    server.on('connection', (socket) => socket.destroy()); // no worker can serve a client during this check
    server.on('error', () => {}); // ignored: this function closes the server next
  });
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
}
