/**
 * The connection to the fleet's store. It reconnects after each loss. Without a connection, commands are not queued:
 * they fail at once. Random delays keep the replicas of a fleet from reconnecting all at once.
 *
 * One client sends commands. A replica that follows the log has a second client for blocking reads. If one of the two
 * clients ends, the other one is closed: facts may be lost, so the replica must load the state again.
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
  /** Called when the client for commands has connected. No other command is sent before the promise resolves. */
  readonly greet: (client: StoreClient) => Promise<void>;
  /** Follows the log over a second Redis client. If absent, the connection has only the client for commands. */
  readonly follow?: LogFollower | undefined;
  readonly onConnected: () => void;
  /** Called when the connection was lost, and after each failed attempt to connect. */
  readonly onLost: (error: NoriaError) => void;
}

export interface LogFollower {
  /** Loads the state over `client`. No other command is sent before the promise resolves. */
  load(client: StoreClient): Promise<void>;
  /** Reads the log until the connection of `client` ends. */
  read(client: StoreClient): Promise<never>;
}

/** The deadline of a command. Longer than any script takes, and shorter than noria's clients wait for a member. */
export const COMMAND_DEADLINE_MS = 1_000;
const CONNECT_DEADLINE_MS = 2_000;
/**
 * Minimum and maximum delay between two attempts to connect. The maximum is below NEW_STORE_WAIT_MS, so that replicas
 * that remember an earlier epoch reconnect in time (see epoch.ts).
 */
const MIN_DELAY_MS = 100;
const MAX_DELAY_MS = 1_000;

export class StoreConnection {
  readonly #options: StoreConnectionOptions;
  readonly #closing = new AbortController();
  readonly #tried = Promise.withResolvers<void>();
  /** The connected Redis clients of the current connection. */
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

  /** Resolves after the first attempt to connect, successful or not. */
  get tried(): Promise<void> {
    return this.#tried.promise;
  }

  /**
   * Sends one command. Without a connection, throws at once.
   * @throws StoreRefusal; NoriaError fleet-store-lost
   */
  async call(command: readonly string[]): Promise<Reply> {
    if (this.#commands === undefined) throw this.#fault;
    return this.#commands.call(command, COMMAND_DEADLINE_MS);
  }

  /** Ends the current connection with this error. noria then reconnects as after any other loss. */
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

  /**
   * Opens the Redis clients of the connection, and waits until one of them ends. Returns whether the connection ever
   * became ready for commands.
   */
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
