/**
 * The connection to the fleet's store, which reconnects after each loss.
 *
 * It consists of a client for commands and, for a replica that follows the log, a second client for blocking reads. Both end
 * together: after the loss of either client, facts may be lost, so the replica must load the state again. Commands are not
 * queued: without a connection, a command fails at once. Random delays prevent all replicas of a fleet from reconnecting at the
 * same moment. With Sentinels, each attempt asks them for the current primary.
 */
import { type Clock, pause } from '../../core/clock.ts';
import type { NoriaError } from '../../core/faults.ts';
import type { Random } from '../../core/random.ts';
import { openPrimary, type StoreAddress } from './store-address.ts';
import { faultOf, lostStore, type Reply, type StoreClient } from './store-client.ts';

interface StoreConnectionOptions {
  readonly address: StoreAddress;
  readonly clock: Clock;
  readonly random: Random;
  /** Called after each connect, before any other command. `client` is the client for commands. */
  readonly greet: (client: StoreClient) => Promise<void>;
  /** Follows the log with a second client. If absent, no second client is opened. */
  readonly follow?: LogFollower | undefined;
  readonly onConnected: () => void;
  /** Called when the connection was lost or could not be opened. */
  readonly onLost: (error: NoriaError) => void;
}

export interface LogFollower {
  /** Loads the state before the connection opens for other commands. */
  load(client: StoreClient): Promise<void>;
  /** Reads the log until the connection of `client` ends. */
  read(client: StoreClient): Promise<never>;
}

/** Deadline of a command: longer than any script takes, and shorter than the clients of noria wait for a member. */
export const COMMAND_DEADLINE_MS = 1_000;
const CONNECT_DEADLINE_MS = 2_000;
/**
 * Minimum and maximum delay between two attempts. The maximum must be below NEW_STORE_WAIT_MS, so that replicas that remember an
 * earlier epoch reconnect within NEW_STORE_WAIT_MS.
 */
const MIN_DELAY_MS = 100;
const MAX_DELAY_MS = 1_000;

export class StoreConnection {
  readonly #options: StoreConnectionOptions;
  readonly #closing = new AbortController();
  readonly #tried = Promise.withResolvers<void>();
  /** The clients of the current connection, also while it is being opened. */
  readonly #opened = new Set<StoreClient>();
  #commands: StoreClient | undefined;
  #fault: NoriaError;
  #running: Promise<void> | undefined;

  constructor(options: StoreConnectionOptions) {
    this.#options = options;
    this.#fault = lostStore(options.address.label, 'noria is connecting');
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Why there is no connection; undefined while connected. */
  get fault(): NoriaError | undefined {
    return this.#commands === undefined ? this.#fault : undefined;
  }

  /** Resolves when the first attempt has ended, whether it succeeded or not. */
  get tried(): Promise<void> {
    return this.#tried.promise;
  }

  /**
   * Sends one command.
   * @throws StoreRefusal; NoriaError fleet-store-lost. Without a connection, it throws at once.
   */
  async call(command: readonly string[]): Promise<Reply> {
    if (this.#commands === undefined) throw this.#fault;
    return this.#commands.call(command, COMMAND_DEADLINE_MS);
  }

  /** Ends the current connection for this reason. The next connection opens as after any other loss. */
  reset(reason: NoriaError): void {
    this.#commands?.end(reason);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    for (const client of this.#opened) client.close();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, random, onLost } = this.#options;
    const { signal } = this.#closing;
    for (let failures = 0; ; ) {
      failures = (await this.#serve()) ? 0 : failures + 1;
      if (signal.aborted) return;
      onLost(this.#fault);
      const maxMs = Math.min(MAX_DELAY_MS, MIN_DELAY_MS * 2 ** Math.min(failures, 8));
      await pause(clock, MIN_DELAY_MS + random() * (maxMs - MIN_DELAY_MS), signal);
      if (signal.aborted) return;
    }
  }

  /** Opens the clients and waits until one of them ends. Returns whether the connection was usable. */
  async #serve(): Promise<boolean> {
    const { greet, follow, onConnected } = this.#options;
    try {
      const commands = await this.#openClient();
      await greet(commands);
      const reader = follow && (await this.#openClient());
      if (reader !== undefined) await follow?.load(reader);
      this.#commands = commands;
      this.#tried.resolve();
      onConnected();
      await Promise.race([commands.failed(), ...(reader && follow ? [follow.read(reader)] : [])]);
      return true;
    } catch (error) {
      this.#fault = faultOf(error);
      return this.#commands !== undefined;
    } finally {
      this.#commands = undefined;
      for (const client of this.#opened) client.close();
      this.#opened.clear();
      this.#tried.resolve();
    }
  }

  async #openClient(): Promise<StoreClient> {
    const { address, clock } = this.#options;
    const { signal } = this.#closing;
    const client = await openPrimary(address, { clock, deadlineMs: CONNECT_DEADLINE_MS, signal });
    this.#opened.add(client);
    if (signal.aborted) client.close();
    return client;
  }
}
