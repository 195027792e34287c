/**
 * One connection to the fleet's store. It never reconnects; store-connection.ts opens the next one.
 *
 * The library's offline queue, reconnects and timeouts are off. Instead, each command has a deadline for its answer. If
 * the store misses it, the client ends the connection.
 */
import { isIP } from 'node:net';
import { ErrorReply, RedisClient } from '@redis/client';
import type { Clock } from '../../core/clock.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import { formatHostPort } from '../../core/host-port.ts';
import type { Secret } from '../../core/secret.ts';

export interface StoreLogin {
  /** If absent, the store's default user logs in. */
  readonly username?: string;
  readonly password?: Secret;
}

export interface StoreTls {
  /** The certificate authority, in PEM. If absent, Node's certificate authorities apply. */
  readonly ca?: string;
  /** The client certificate, in PEM. Requires `key`. */
  readonly cert?: string;
  readonly key?: Secret;
}

export interface StoreServer {
  readonly host: string;
  readonly port: number;
  readonly login: StoreLogin;
  /** undefined: a connection without TLS. */
  readonly tls: StoreTls | undefined;
  readonly database: number;
}

/** A value of the protocol RESP2. */
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

/** Errors of a server that cannot serve now, because it is a replica, is starting or is stopping. */
const UNFIT = /^(?:READONLY|LOADING|MASTERDOWN|NOREPLICAS|UNBLOCKED|CLUSTERDOWN|MOVED)\b/;

export class StoreClient {
  readonly #client: LibraryClient;
  readonly #clock: Clock;
  /** The address of the server, as `host:port`. */
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
  async call(command: readonly string[], deadlineMs: number): Promise<Reply> {
    if (this.#endedBy !== undefined) throw this.#endedBy;
    const missed = `no answer to ${command[0]} within ${deadlineMs} ms`;
    const deadline = this.#clock.after(deadlineMs, () => this.end(lostStore(this.address, missed)));
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

  /** Ends the connection; all pending commands fail. Idempotent. */
  close(): void {
    this.end(lostStore(this.address, 'noria closed the connection'));
  }

  async failed(): Promise<never> {
    throw await this.#end.promise;
  }

  /** Ends the connection with this error. Returns the error with which the connection was first ended. */
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
  /** The time limit for connecting and logging in together. */
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

/**
 * Connects and logs in.
 * @throws NoriaError fleet-store-lost; fleet-store-unusable if the store refuses the login.
 */
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

/**
 * Classifies an error during connect and login. Only the operator can fix a refused login; any other error may be
 * temporary.
 */
function openingFault(address: string, error: unknown): NoriaError {
  if (error instanceof NoriaError) return error;
  const why = describeError(error);
  const isRefused = error instanceof ErrorReply && !UNFIT.test(error.message);
  if (!isRefused) return lostStore(address, why, error);
  return new NoriaError('fleet-store-unusable', `the fleet's store at ${address} refused the login: ${why}`, {
    cause: error,
  });
}

/** Converts any error into a fault of the store. */
export function faultOf(error: unknown): NoriaError {
  return error instanceof NoriaError
    ? error
    : new NoriaError('fleet-store-lost', describeError(error), { cause: error });
}
