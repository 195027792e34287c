/**
 * The clients, in a separate process. Each message requests one load; the answer is its result. The clients use raw
 * sockets, so that they cost little CPU time.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

const HOST = '127.0.0.1';

export type Load =
  /**
   * Tunnels: connect, request the target, send a byte, read it back, close. `rate`: tunnels per second; by default as
   * fast as possible.
   */
  | {
      readonly kind: 'tunnels';
      readonly via: 'http' | 'socks5';
      readonly port: number;
      readonly target: number;
      readonly count: number;
      readonly concurrency: number;
      readonly rate?: number;
      /** Whether to close each tunnel as soon as the proxy has accepted it, and to measure only until then. */
      readonly onlyOpen?: boolean;
    }
  /**
   * Requests: one absolute-form GET on each of many connections. `targets`: the number of target hosts, all on this
   * machine.
   */
  | {
      readonly kind: 'requests';
      readonly port: number;
      readonly target: number;
      readonly targets: number;
      readonly count: number;
      readonly concurrency: number;
      readonly rate?: number;
    }
  | { readonly kind: 'bulk'; readonly port: number; readonly target: number; readonly bytes: number }
  /** Absolute-form GETs on persistent connections. */
  | {
      readonly kind: 'gets';
      readonly port: number;
      readonly target: number;
      readonly count: number;
      readonly concurrency: number;
    }
  /** Round trips in open tunnels: requests of this many bytes, which the target echoes. */
  | {
      readonly kind: 'echoes';
      readonly port: number;
      readonly target: number;
      readonly bytes: number;
      readonly count: number;
      readonly concurrency: number;
    }
  /** Opens tunnels and keeps them open until `release`. */
  | { readonly kind: 'hold'; readonly port: number; readonly target: number; readonly count: number }
  | { readonly kind: 'release' };

interface Counts {
  readonly done: number;
  readonly failed: number;
  /** The error of the first failure. */
  readonly firstError?: string | undefined;
}

export interface LoadResult extends Counts {
  /** The latency of each tunnel, request or round trip, sorted; empty for loads without latencies. */
  readonly latenciesMs: readonly number[];
}

/** A client gives up on a proxy that sends nothing for this long. */
const SILENCE_LIMIT_MS = 10_000;

const heldSockets: Socket[] = [];

function openSocket(port: number): Socket {
  return connect({ port, host: HOST, noDelay: true });
}

/** @throws Error if the socket closes or fails before the next chunk. */
function nextChunk(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const settle = () => {
      socket.off('data', onData).off('error', onError).off('close', onError);
    };
    const onData = (chunk: Buffer) => {
      settle();
      resolve(chunk);
    };
    const onError = () => {
      settle();
      reject(new Error('ended'));
    };
    socket.on('data', onData).on('error', onError).on('close', onError);
  });
}

async function connectOverHttp(socket: Socket, target: number): Promise<void> {
  socket.write(`CONNECT ${HOST}:${target} HTTP/1.1\r\nHost: ${HOST}:${target}\r\n\r\n`);
  const head = await nextChunk(socket);
  if (!head.subarray(0, 12).toString('latin1').includes(' 200'))
    throw new Error(head.toString('latin1', 0, 400));
}

async function connectOverSocks5(socket: Socket, target: number): Promise<void> {
  socket.write(Buffer.from([5, 1, 0]));
  await nextChunk(socket);
  socket.write(Buffer.from([5, 1, 0, 1, 127, 0, 0, 1, target >> 8, target & 255]));
  const reply = await nextChunk(socket);
  if (reply[1] !== 0) throw new Error('refused');
}

async function openTunnel(via: 'http' | 'socks5', port: number, target: number): Promise<Socket> {
  const socket = openSocket(port);
  socket.on('error', () => socket.destroy());
  socket.setTimeout(SILENCE_LIMIT_MS, () => socket.destroy());
  await (via === 'http' ? connectOverHttp(socket, target) : connectOverSocks5(socket, target));
  return socket;
}

async function inParallel(
  count: number,
  concurrency: number,
  one: (n: number) => Promise<void>,
): Promise<Counts> {
  let next = 0;
  let done = 0;
  let failed = 0;
  let firstError: string | undefined;
  const worker = async () => {
    while (next < count) {
      const n = next++;
      await one(n).then(
        () => done++,
        (error: unknown) => {
          failed += 1;
          firstError ??= String(error);
        },
      );
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return { done, failed, firstError };
}

const BYTE = Buffer.from('x');

async function run(load: Load): Promise<LoadResult> {
  const latenciesMs: number[] = [];
  const result = async (): Promise<Counts> => {
    switch (load.kind) {
      case 'tunnels': {
        const startedAt = performance.now();
        return inParallel(load.count, load.concurrency, async (n) => {
          if (load.rate !== undefined) await turnOf(n, load.rate, startedAt);
          const began = performance.now();
          const socket = await openTunnel(load.via, load.port, load.target);
          if (load.onlyOpen !== true) await echo(socket, BYTE);
          latenciesMs.push(performance.now() - began);
          socket.destroy();
        });
      }
      case 'requests': {
        const startedAt = performance.now();
        // Starts at a random host, because the first hosts may have connections of the previous load.
        const first = Math.floor(Math.random() * load.targets);
        return inParallel(load.count, load.concurrency, async (n) => {
          if (load.rate !== undefined) await turnOf(n, load.rate, startedAt);
          const began = performance.now();
          const socket = openSocket(load.port).on('error', () => {}); // ignored: the caller notices that the answer is missing
          await get(socket, `${hostOf((first + n) % load.targets)}:${load.target}`);
          latenciesMs.push(performance.now() - began);
          socket.destroy();
        });
      }
      case 'bulk': {
        const socket = await openTunnel('http', load.port, load.target);
        socket.write(String(load.bytes));
        let received = 0;
        socket.on('data', (chunk) => {
          received += chunk.length;
        });
        await once(socket, 'end');
        return { done: received, failed: load.bytes - received };
      }
      case 'gets': {
        const sockets = Array.from({ length: load.concurrency }, () => openSocket(load.port));
        for (const socket of sockets) socket.on('error', () => socket.destroy());
        const free = [...sockets];
        const counts = await inParallel(load.count, load.concurrency, async () => {
          const socket = free.pop();
          if (socket === undefined) throw new Error('no socket');
          await get(socket, `${HOST}:${load.target}`);
          free.push(socket);
        });
        for (const socket of sockets) socket.destroy();
        return counts;
      }
      case 'echoes': {
        const message = Buffer.alloc(load.bytes, 'e');
        const free = await Promise.all(
          Array.from({ length: load.concurrency }, () => openTunnel('http', load.port, load.target)),
        );
        const sockets = [...free];
        const counts = await inParallel(load.count, load.concurrency, async () => {
          const socket = free.pop();
          if (socket === undefined) throw new Error('no socket');
          const began = performance.now();
          await echo(socket, message);
          latenciesMs.push(performance.now() - began);
          free.push(socket);
        });
        for (const socket of sockets) socket.destroy();
        return counts;
      }
      case 'hold':
        return inParallel(load.count, 64, async () => {
          heldSockets.push((await openTunnel('http', load.port, load.target)).setTimeout(0));
        });
      case 'release':
        for (const socket of heldSockets.splice(0)) socket.destroy();
        return { done: 0, failed: 0 };
    }
  };
  const counts = await result();
  return { ...counts, latenciesMs: latenciesMs.sort((a, b) => a - b) };
}

/** Returns one of many addresses of this machine. */
function hostOf(target: number): string {
  return `127.0.${1 + Math.floor(target / 200)}.${1 + (target % 200)}`;
}

/** Waits until the n-th tunnel or request is due. */
async function turnOf(n: number, rate: number, startedAt: number): Promise<void> {
  const waitMs = startedAt + (n * 1_000) / rate - performance.now();
  if (waitMs > 0) await new Promise((next) => setTimeout(next, waitMs));
}

/** Sends the message and reads as many bytes. */
async function echo(socket: Socket, message: Buffer): Promise<void> {
  socket.write(message);
  for (let left = message.length; left > 0; ) left -= (await nextChunk(socket)).length;
}

async function get(socket: Socket, authority: string): Promise<void> {
  socket.write(`GET http://${authority}/ HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
  let text = '';
  while (!isComplete(text)) text += (await nextChunk(socket)).toString('latin1');
  if (!text.startsWith('HTTP/1.1 200')) throw new Error(text.slice(0, 40));
}

function isComplete(text: string): boolean {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(text.slice(0, end + 2))?.[1] ?? 0);
  return text.length >= end + 4 + length;
}

process.on('message', (load: Load) => {
  void run(load).then(
    (result) => process.send?.(result),
    (error: unknown) => process.send?.({ done: 0, failed: 1, latenciesMs: [], firstError: String(error) }),
  );
});
process.on('disconnect', () => process.exit(0));
