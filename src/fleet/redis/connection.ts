/**
 * The connection to the fleet's store. It reconnects after each loss. Without a connection, commands are not queued:
 * they fail at once. Random delays keep the replicas of a fleet from reconnecting all at once.
 *
 * The library's offline queue, reconnects and timeouts are off. Instead, each command has a deadline for its answer. If
 * the store misses it, the client ends the connection.
 */
import { isIP } from 'node:net';
import { ErrorReply, RedisClient } from '@redis/client';
import { type Clock, pause } from '../../core/clock.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import { formatHostPort } from '../../core/host-port.ts';
import type { Random } from '../../core/random.ts';
import type { Secret } from '../../core/secret.ts';

export interface StoreTls {
  /** The certificate authority, in PEM. If absent, Node's certificate authorities apply. */
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: Secret;
}

export interface StoreServer {
  readonly host: string;
  readonly port: number;
  readonly login: { readonly username?: string; readonly password?: Secret };
  readonly tls: StoreTls | undefined;
  readonly database: number;
}

export type Reply = string | number | null | readonly Reply[];

/** An error that the store returned. Its text begins with a code such as `NOPERM`. */
export { ErrorReply as StoreRefusal };

const PROTOCOL = { RESP: 2 } as const;

/**
 * Creates Redis clients that share one class. The library's `createClient` would build a new class whenever its options
 * differ from those of its last call, and block the process for several milliseconds.
 */
const newLibraryClient = RedisClient.factory(PROTOCOL);

type LibraryClient = ReturnType<typeof createLibraryClient>;

/** Errors of a server that cannot serve now: it is a replica, starts, stops, is busy, or refuses writes. */
const UNFIT =
  /^(?:READONLY|LOADING|MASTERDOWN|NOREPLICAS|UNBLOCKED|CLUSTERDOWN|MOVED|BUSY|OOM|MISCONF|TRYAGAIN)\b/;
/** Above the first size, the deadline of a command grows by 1 ms for each 128 bytes: a batch also arrives over 1 Mbit/s. */
const SMALL_BYTES = 16_384;
const BYTES_PER_MS = 128;
const UNREAD_MS = 20;

export class StoreClient {
  readonly #client: LibraryClient;
  readonly #clock: Clock;
  readonly address: string;
  readonly #end = Promise.withResolvers<NoriaError>();
  #endedBy: NoriaError | undefined;

  constructor(client: LibraryClient, clock: Clock, address: string) {
    this.#client = client;
    this.#clock = clock;
    this.address = address;
    client.on('error', (error) => this.end(openingFault(address, error)));
  }

  /**
   * Sends one command.
   * @throws StoreRefusal if the store returns an error. NoriaError fleet-store-lost if the connection ends first, or
   * after `deadlineMs` without an answer.
   */
  async call(command: readonly string[], deadlineMs = COMMAND_DEADLINE_MS): Promise<Reply> {
    if (this.#endedBy !== undefined) throw this.#endedBy;
    const bytes = command.reduce((sum, { length }) => sum + length, 0);
    const limitMs = deadlineMs + Math.ceil(Math.max(0, bytes - SMALL_BYTES) / BYTES_PER_MS);
    const missed = `no answer to ${command[0]} within ${limitMs} ms`;
    let deadline = this.#clock.after(limitMs, () => {
      // if this process was busy, the answer may have arrived: it is read before the second timer fires
      deadline = this.#clock.after(UNREAD_MS, () => this.end(lostStore(this.address, missed)));
    });
    try {
      return await this.#client.sendCommand<Reply>([...command]);
    } catch (error) {
      // When the connection ends, the library rejects pending commands with its own error. Throw the error that
      // ended the connection instead.
      if (!(error instanceof ErrorReply))
        throw this.end(lostStore(this.address, describeError(error), error));
      if (!UNFIT.test(error.message)) throw error;
      throw this.end(lostStore(this.address, error.message, error));
    } finally {
      deadline[Symbol.dispose]();
    }
  }

  async connect(deadlineMs: number, signal: AbortSignal): Promise<void> {
    const abort = () => this.close();
    signal.addEventListener('abort', abort);
    if (signal.aborted) abort();
    const missed = `no connection within ${deadlineMs} ms`;
    const deadline = this.#clock.after(deadlineMs, () => this.end(lostStore(this.address, missed)));
    try {
      await Promise.race([this.#client.connect(), this.failed()]);
    } catch (error) {
      throw this.end(openingFault(this.address, error));
    } finally {
      signal.removeEventListener('abort', abort);
      deadline[Symbol.dispose]();
    }
  }

  close(): void {
    this.end(lostStore(this.address, 'noria closed the connection'));
  }

  async failed(): Promise<never> {
    throw await this.#end.promise;
  }

  end(error: NoriaError): NoriaError {
    if (this.#endedBy !== undefined) return this.#endedBy;
    this.#endedBy = error;
    this.#client.destroy();
    this.#end.resolve(error);
    return error;
  }
}

export interface StoreDialOptions {
  readonly clock: Clock;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

export async function openStoreClient(
  server: StoreServer,
  { clock, deadlineMs, signal }: StoreDialOptions,
): Promise<StoreClient> {
  const address = formatHostPort(server.host, server.port);
  const client = new StoreClient(createLibraryClient(server), clock, address);
  await client.connect(deadlineMs, signal);
  return client;
}

export function lostStore(address: string, why: string, cause?: unknown): NoriaError {
  return new NoriaError('fleet-store-lost', `the fleet's store at ${address} cannot be used: ${why}`, {
    cause,
  });
}

function createLibraryClient({ host, port, login, tls, database }: StoreServer) {
  const { username, password } = login;
  return newLibraryClient({
    ...PROTOCOL, // again, because the handshake does not read the options of `factory`
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    database,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password: password.reveal() }),
    socket: {
      host,
      port,
      reconnectStrategy: false,
      ...(tls !== undefined && { tls: true, ...tlsOptions(host, tls) }),
    },
  });
}

function tlsOptions(host: string, { ca, cert, key }: StoreTls) {
  return {
    ...(isIP(host) === 0 && { servername: host }),
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key: key.reveal() }),
  };
}

/** Only the operator can fix a refused login; any other error may be temporary. */
function openingFault(address: string, error: unknown): NoriaError {
  if (error instanceof NoriaError) return error;
  const why = describeError(error);
  const isRefused = error instanceof ErrorReply && !UNFIT.test(error.message);
  if (!isRefused) return lostStore(address, why, error);
  return new NoriaError('fleet-store-unusable', `the fleet's store at ${address} refused the login: ${why}`, {
    cause: error,
  });
}

export function faultOf(error: unknown): NoriaError {
  return error instanceof NoriaError
    ? error
    : new NoriaError('fleet-store-lost', describeError(error), { cause: error });
}

export interface StoreAddress {
  /** How messages name the store. Contains no secret. */
  readonly label: string;
  /** If `sentinel` is set, its answer replaces this host and port. */
  readonly server: StoreServer;
  readonly sentinel?: {
    readonly primary: string;
    readonly addresses: readonly { readonly host: string; readonly port: number }[];
  };
}

export async function openPrimary(address: StoreAddress, options: StoreDialOptions): Promise<StoreClient> {
  const primary = await findPrimary(address, options);
  const client = await openStoreClient({ ...address.server, ...primary }, options);
  if (address.sentinel === undefined) return client;
  const [role] = asList(await client.call(['ROLE'], options.deadlineMs));
  if (role === 'master') return client;
  client.close();
  const name = formatHostPort(primary.host, primary.port);
  throw lostStore(
    address.label,
    `the Sentinels name ${name} as the primary, but its role is ${String(role)}`,
  );
}

async function findPrimary(
  { label, server, sentinel }: StoreAddress,
  options: StoreDialOptions,
): Promise<{ readonly host: string; readonly port: number }> {
  if (sentinel === undefined) return server;
  const problems: string[] = [];
  for (const each of sentinel.addresses) {
    const name = formatHostPort(each.host, each.port);
    try {
      const client = await openSentinel({ ...server, ...each, database: 0 }, options);
      try {
        const question = ['SENTINEL', 'get-master-addr-by-name', sentinel.primary];
        const [host, port] = asList(await client.call(question, options.deadlineMs));
        if (typeof host === 'string') return { host, port: Number(port) };
        problems.push(`the Sentinel ${name} monitors no primary with this name`);
      } finally {
        client.close();
      }
    } catch (error) {
      problems.push(`${name}: ${describeError(error)}`);
    }
  }
  throw lostStore(
    label,
    `no Sentinel knows the address of the primary ${sentinel.primary} (${problems.join('; ')})`,
  );
}

/**
 * Connects first without a password, because often only the store requires one. If the Sentinel refuses, connects with
 * the password of the store.
 */
async function openSentinel(server: StoreServer, options: StoreDialOptions): Promise<StoreClient> {
  if (server.login.password === undefined) return openStoreClient(server, options);
  const client = await openStoreClient({ ...server, login: {} }, options);
  try {
    await client.call(['PING'], options.deadlineMs);
    return client;
  } catch (error) {
    client.close();
    if (error instanceof ErrorReply) return openStoreClient(server, options);
    throw error;
  }
}

function asList(reply: unknown): readonly unknown[] {
  return Array.isArray(reply) ? reply : [];
}

interface StoreConnectionOptions {
  readonly address: StoreAddress;
  readonly clock: Clock;
  readonly random: Random;
  /** Called when the client for commands has connected. No other command is sent before the promise resolves. */
  readonly greet: (client: StoreClient) => Promise<void>;
  /** Follows the log over a second Redis client. If absent, the connection has only the client for commands. */
  readonly follow?: LogFollower | undefined;
  readonly onConnected: () => void;
  readonly onLost: (error: NoriaError) => void;
}

export interface LogFollower {
  /** Loads the state over `client`. No other command is sent before the promise resolves. */
  load(client: StoreClient): Promise<void>;
  read(client: StoreClient): Promise<never>;
}

/** The deadline of a command. Longer than any script takes, and shorter than noria's clients wait for a member. */
export const COMMAND_DEADLINE_MS = 1_000;
const CONNECT_DEADLINE_MS = 2_000;
/**
 * Minimum and maximum delay between two attempts to connect. The maximum is below NEW_STORE_WAIT_MS, so that replicas
 * that remember an earlier epoch reconnect in time (see store.ts).
 */
const MIN_DELAY_MS = 100;
const MAX_DELAY_MS = 1_000;

export class StoreConnection {
  readonly #options: StoreConnectionOptions;
  readonly #closing = new AbortController();
  readonly #tried = Promise.withResolvers<void>();
  readonly tried = this.#tried.promise;
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

  get fault(): NoriaError | undefined {
    return this.#commands === undefined ? this.#fault : undefined;
  }

  async call(command: readonly string[]): Promise<Reply> {
    if (this.#commands === undefined) throw this.#fault;
    return this.#commands.call(command);
  }

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
      const maxMs = Math.min(MAX_DELAY_MS, MIN_DELAY_MS * 2 ** failures);
      await pause(clock, MIN_DELAY_MS + random() * (maxMs - MIN_DELAY_MS), signal);
      if (signal.aborted) return;
    }
  }

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
