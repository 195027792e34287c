/**
 * Serves SOCKS handshakes on a loopback port. It has a dialer whose results the test chooses, a target that echoes, and
 * clients that read an exact number of bytes. It closes everything when the test ends.
 */

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { expect, onTestFinished } from 'vitest';
import { Deadlines } from '../../../src/core/deadlines.ts';
import { EventBus, type EventName, type NoriaEvents } from '../../../src/core/events.ts';
import type { NoriaError } from '../../../src/core/faults.ts';
import { Secret } from '../../../src/core/secret.ts';
import type {
  ConnectionOutcome,
  Dialer,
  DialFailure,
  Dialing,
  DialRequest,
  DialResult,
  MemberConnection,
} from '../../../src/dialer/contract.ts';
import { Access } from '../../../src/listener/access.ts';
import { ClientConnection } from '../../../src/listener/client-connection.ts';
import type { RoutingSettings } from '../../../src/listener/routing-options.ts';
import { serveSocks } from '../../../src/listener/socks.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { NO_DESK } from '../harness.ts';

export const HANDSHAKE_TIMEOUT_MS = 3_000;

export interface StageOptions {
  readonly users?: Readonly<Record<string, string>>;
  readonly denyTargets?: readonly string[];
  readonly session?: RoutingSettings['session'];
  readonly refusal?: NoriaError;
}

/** A requested dial. The test decides its result. */
export interface PendingDial {
  readonly request: DialRequest;
  cancelled: boolean;
  /** The outcomes with which its lease was ended: at most one. */
  ended: ConnectionOutcome[];
  /** Set once the dial has succeeded. */
  memberSocket: Socket | undefined;
  succeed(early?: Buffer): Promise<void>;
  fail(failure: Partial<DialFailure> & Pick<DialFailure, 'code'>): void;
}

export class Stage {
  readonly dials: PendingDial[] = [];
  readonly emitted: { readonly name: EventName; readonly event: unknown }[] = [];
  readonly clock = ManualClock.dayOld();
  readonly deadlines = new Deadlines(this.clock, 20);
  /** The listener's ends of all client connections. */
  readonly accepted: Socket[] = [];
  readonly #server: Server;
  readonly #echo: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(options: StageOptions) {
    this.#echo = createServer({ allowHalfOpen: true }, (socket) => {
      this.#own(socket);
      socket.pipe(socket);
    });
    const bus = new EventBus((_, error) => {
      throw error;
    });
    for (const name of ['client.refused', 'connection.closed', 'tunnel.closed'] as const) {
      bus.on(name, (event) => this.emitted.push({ name, event }));
    }
    const users = Object.entries(options.users ?? {});
    const connectionOptions = {
      name: 'test',
      addresses: [],
      protocols: ['socks5' as const, 'socks4' as const],
      maxConnections: 1,
      allowNonLoopback: false,
      access: new Access({
        users: users.map(([username, password]) => ({ username, password: new Secret(password) })),
        allow: [],
        denyTargets: options.denyTargets ?? [],
        clock: this.clock,
      }),
      dialer: { dial: (...args) => this.#dial(...args) } satisfies Dialer,
      desk: NO_DESK,
      bus,
      clock: this.clock,
      deadlines: this.deadlines,
      session: options.session ?? 'none',
      sourceNames: () => ['city'],
      idleTimeoutMs: 600_000,
      lingerMs: 600_000,
      headerTimeoutMs: 600_000,
      handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
    };
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      this.#own(socket);
      this.accepted.push(socket);
      const connection = new ClientConnection(socket, socket.localPort ?? 0, connectionOptions);
      if (options.refusal !== undefined) connection.refusalError = options.refusal;
      socket.once('data', (first: Buffer) => serveSocks(first, first[0] === 4 ? 4 : 5, connection));
      socket.resume();
    });
  }

  static async open(options: StageOptions = {}): Promise<Stage> {
    const stage = new Stage(options);
    onTestFinished(() => stage.#close());
    for (const server of [stage.#server, stage.#echo]) {
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
    }
    return stage;
  }

  get port(): number {
    return portOf(this.#server);
  }

  async connect(): Promise<Client> {
    const socket = connect({ port: this.port, host: '127.0.0.1', allowHalfOpen: true });
    this.#own(socket);
    await once(socket, 'connect');
    return new Client(socket);
  }

  /** Connects, sends, and returns everything received until the end, in hexadecimal. */
  async exchange(...sent: readonly Buffer[]): Promise<string> {
    const client = await this.connect();
    for (const bytes of sent) client.send(bytes);
    return (await client.toEnd()).toString('hex');
  }

  /** Waits for the only dial. */
  async dialed(): Promise<PendingDial> {
    await until('a dial', () => this.dials.length > 0);
    const [dial, ...more] = this.dials;
    expect(more).toEqual([]);
    if (dial === undefined) throw new Error('no dial');
    return dial;
  }

  events<Name extends EventName>(name: Name): NoriaEvents[Name][] {
    return this.emitted.flatMap((each) => (each.name === name ? [each.event as NoriaEvents[Name]] : []));
  }

  /** Waits until the connection has closed, and returns its outcome. */
  async outcome(): Promise<string> {
    await until('the connection to close', () => this.events('connection.closed').length > 0);
    return this.events('connection.closed')[0]?.outcome ?? '';
  }

  #dial(request: DialRequest, done: (result: DialResult) => void): Dialing {
    let isDone = false;
    const resolve = (result: DialResult) => {
      if (isDone) return;
      isDone = true;
      done(result);
    };
    const dial: PendingDial = {
      request,
      cancelled: false,
      ended: [],
      memberSocket: undefined,
      succeed: async (early = Buffer.alloc(0)) => {
        const socket = connect({ port: portOf(this.#echo), host: '127.0.0.1', allowHalfOpen: true });
        this.#own(socket);
        await once(socket, 'connect');
        dial.memberSocket = socket;
        const end = (outcome: ConnectionOutcome) => {
          dial.ended.push(outcome);
          return undefined;
        };
        const connection: MemberConnection = {
          ...{
            socket,
            early,
            forwardMode: 'direct',
            reused: false,
            isMemberError: () => false,
            lease: { member: 'm1', source: 'city' },
            attempts: 1,
            end,
          },
        };
        resolve({ ok: true, connection });
      },
      fail: (failure) => {
        resolve({ ok: false, failure: { reason: 'the test decided so', attempts: 1, ...failure } });
      },
    };
    this.dials.push(dial);
    const cancel = () => {
      dial.cancelled = true;
      dial.fail({ code: 'client-gone' });
    };
    return { cancel };
  }

  #own(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {}); // ignored: some tests reset connections, and 'close' follows
    socket.on('close', () => this.#sockets.delete(socket));
  }

  /** Checks that nothing is left: all connections have closed and no deadline is set. */
  async #close(): Promise<void> {
    this.#server.close();
    this.#echo.close();
    for (const socket of this.#sockets) socket.destroy();
    await until('all sockets to close', () => this.#sockets.size === 0);
    await until('all deadlines to be cleared', () => this.deadlines.size === 0);
  }
}

export class Client {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #ended = false;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (bytes: Buffer) => {
      this.#received = Buffer.concat([this.#received, bytes]);
    });
    socket.on('end', () => {
      this.#ended = true;
    });
    socket.on('close', () => {
      this.#ended = true;
    });
  }

  send(bytes: Buffer | string): void {
    this.socket.write(bytes);
  }

  /** Receives the next `count` bytes. */
  async receive(count: number): Promise<Buffer> {
    await until(`${count} bytes`, () => this.#received.length >= count || this.#ended);
    const taken = this.#received.subarray(0, count);
    this.#received = this.#received.subarray(count);
    return taken;
  }

  /** Waits until the other side has ended, ends this side, and returns everything received. */
  async toEnd(): Promise<Buffer> {
    await until('the end', () => this.#ended);
    this.socket.end();
    return this.receive(this.#received.length);
  }
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
