/** A listener on a free loopback port with a fake dialer, and raw clients for it. */

import { connect, type Socket } from 'node:net';
import { expect, onTestFinished } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { EventBus, type EventName, type NoriaEvents } from '../../src/core/events.ts';
import { NoriaError } from '../../src/core/faults.ts';
import type { Dialer } from '../../src/dialer/contract.ts';
import { Access, type AccessOptions } from '../../src/listener/access.ts';
import type { ListenerOptions } from '../../src/listener/client-connection.ts';
import { type Listener, openListener } from '../../src/listener/listener.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

/** An event that the listener emitted. */
export interface EmittedEvent {
  readonly name: EventName;
  readonly event: NoriaEvents[EventName];
}

export interface Harness {
  readonly listener: Listener;
  readonly port: number;
  readonly deadlines: Deadlines;
  /** Events of the listener, in order. */
  readonly emitted: EmittedEvent[];
  /** The events with this name. */
  events<Name extends EventName>(name: Name): NoriaEvents[Name][];
}

/** A desk that knows no client. */
export const NO_DESK: ListenerOptions['desk'] = {
  clients: {
    describe: () => {
      throw new Error('the test has no desk');
    },
    judge: () => 'unknown',
  },
  lastUse: () => undefined,
  rotateSession: () => false,
  closeTunnels: () => {},
};

/** What is left of a closed connection ends within a few turns of the event loop. */
const LEFTOVER_MS = 30_000;

const NAMES: readonly EventName[] = [
  'connection.opened',
  'connection.closed',
  'client.refused',
  'tunnel.closed',
];

/**
 * Options for a listener. Options that the test passes replace the defaults. Unless the test brings a clock, no time passes: no
 * timeout ends a step that a busy machine delays.
 */
export function listenerOptions(
  dialer: Dialer,
  options: Partial<ListenerOptions> = {},
  access: Partial<AccessOptions> = {},
): ListenerOptions {
  const { clock = ManualClock.dayOld() } = options;
  return {
    name: 'here',
    addresses: [{ kind: 'tcp', host: '127.0.0.1', port: 0 }],
    protocols: ['http', 'socks5', 'socks4'],
    access: new Access({ users: [], allow: [], denyTargets: [], clock, ...access }),
    dialer,
    desk: NO_DESK,
    bus: new EventBus((name, error) => {
      throw new Error(`an observer of ${name} failed`, { cause: error });
    }),
    clock,
    deadlines: new Deadlines(clock, 5),
    session: 'none',
    sourceNames: () => ['city', 'other'],
    idleTimeoutMs: 600_000,
    lingerMs: 600_000,
    headerTimeoutMs: 600_000,
    handshakeTimeoutMs: 600_000,
    maxConnections: 1_000,
    allowNonLoopback: false,
    ...options,
  };
}

/** Opens a listener. When the test ends, it closes it and checks that nothing is left of its connections. */
export async function listen(
  dialer: Dialer,
  differing: Partial<ListenerOptions> = {},
  access: Partial<AccessOptions> = {},
): Promise<Harness> {
  const options = listenerOptions(dialer, differing, access);
  const emitted: EmittedEvent[] = [];
  for (const name of NAMES) options.bus.on(name, (event) => emitted.push({ name, event }));
  const listener = await openListener(options);
  onTestFinished(async () => {
    await listener.close();
    await until('no deadline', () => options.deadlines.size === 0, LEFTOVER_MS);
    const count = (name: EventName) => emitted.filter((entry) => entry.name === name).length;
    expect(count('connection.closed')).toBe(count('connection.opened'));
  });
  return {
    listener,
    port: listener.addresses[0]?.port ?? 0,
    deadlines: options.deadlines,
    emitted,
    events: <Name extends EventName>(name: Name) =>
      emitted.filter((entry) => entry.name === name).map((entry) => entry.event as NoriaEvents[Name]),
  };
}

/** Resolves when a count has not changed for ten polls. */
export async function untilStill(what: string, count: () => number): Promise<void> {
  let last = Number.NaN;
  let sameCount = 0;
  await until(what, () => {
    sameCount = count() === last ? sameCount + 1 : 0;
    last = count();
    return sameCount >= 10;
  });
}

/** A raw client that keeps everything it receives, in Latin-1. */
export class RawClient {
  readonly socket: Socket;
  received = '';
  ended = false;
  closed = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.received += chunk.toString('latin1');
    });
    socket.on('end', () => {
      this.ended = true;
    });
    socket.on('close', () => {
      this.closed = true;
    });
    socket.on('error', () => {}); // ignored: tests check the received bytes and the close
  }

  /** Opens a client, which is destroyed when the test ends. */
  static async open(port: number, host = '127.0.0.1'): Promise<RawClient> {
    const client = await RawClient.openUntracked(port, host);
    onTestFinished(() => {
      client.socket.destroy();
    });
    return client;
  }

  /** Opens a client, which the test itself destroys. */
  static async openUntracked(port: number, host = '127.0.0.1'): Promise<RawClient> {
    const socket = connect({ port, host, allowHalfOpen: true });
    await new Promise((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return new RawClient(socket);
  }

  send(text: string): this {
    this.socket.write(text, 'latin1');
    return this;
  }

  /** Sends `total` bytes as fast as they are accepted. `bytes` counts the accepted ones. */
  sendBytes(total: number): { bytes: number } {
    const sent = { bytes: 0 };
    const chunk = Buffer.alloc(64 * 1024, 'x');
    const next = (): void => {
      if (sent.bytes >= total) return;
      this.socket.write(chunk.subarray(0, total - sent.bytes), (error) => {
        if (error) return;
        sent.bytes += Math.min(chunk.length, total - sent.bytes);
        next();
      });
    };
    next();
    return sent;
  }

  end(): this {
    this.socket.end();
    return this;
  }

  /** Waits until `holds`, and returns everything received. */
  async until(what: string, holds: (received: string) => boolean): Promise<string> {
    await new Promise<void>((resolve, reject) => {
      const limit = setTimeout(
        () => reject(new Error(`timed out waiting for ${what}; received: ${this.received}`)),
        60_000,
      );
      const look = (): void => {
        if (!holds(this.received)) return;
        clearTimeout(limit);
        this.socket.off('data', look).off('end', look).off('close', look);
        resolve();
      };
      this.socket.on('data', look).on('end', look).on('close', look);
      look();
    });
    return this.received;
  }

  /** Waits until the other side has ended, and returns everything received. */
  whole(): Promise<string> {
    return this.until('the end', () => this.ended || this.closed);
  }
}

/** What a client sends to open a tunnel to this port of the machine. */
export const connectTo = (port: number) => `CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`;
/** The same in SOCKS5, without authentication. */
export const socks5To = (port: number) =>
  `\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01${String.fromCharCode(port >> 8, port & 255)}`;
/** The same in SOCKS4. */
export const socks4To = (port: number) =>
  `\x04\x01${String.fromCharCode(port >> 8, port & 255)}\x7f\x00\x00\x01\x00`;

/** Resolves with the fault with which `opening` fails. */
export const failure = (opening: Promise<unknown>) =>
  opening.then(
    () => {
      throw new Error('it opened');
    },
    (error: unknown) => {
      if (!(error instanceof NoriaError)) throw error;
      return error;
    },
  );
