/**
 * The clients, in a separate process. Each message requests one load; the answer is its result. The clients use raw
 * sockets, so that they cost little CPU time.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { SECOND_MS } from '../src/core/duration.ts';

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

/** The options of one kind of load. */
export type LoadOf<Kind extends Load['kind']> = Extract<Load, { readonly kind: Kind }>;

export interface LoadResult {
  readonly done: number;
  readonly failed: number;
  /** The error of the first failure. */
  readonly firstError?: string | undefined;
  /** The latency of each tunnel, request or round trip, sorted; empty for loads without latencies. */
  readonly latenciesMs: readonly number[];
}

/** A client gives up on a proxy that sends nothing for this long. */
const SILENCE_LIMIT_MS = 10_000;
const CONCURRENT_HOLDS = 64;
const BYTE = Buffer.from('x');

const heldSockets: Socket[] = [];

function run(load: Load): Promise<LoadResult> {
  switch (load.kind) {
    case 'tunnels':
      return inParallel(load, () => useTunnel(load));
    case 'requests': {
      // Starts at a random host, because the first hosts may have connections of the previous load.
      const first = Math.floor(Math.random() * load.targets);
      return inParallel(load, (n) => sendRequest(load, hostOf((first + n) % load.targets)));
    }
    case 'bulk':
      return download(load);
    case 'gets':
      return sendGets(load);
    case 'echoes':
      return sendEchoes(load);
    case 'hold':
      return inParallel({ count: load.count, concurrency: CONCURRENT_HOLDS }, () => hold(load));
    case 'release':
      for (const socket of heldSockets.splice(0)) socket.destroy();
      return Promise.resolve({ done: 0, failed: 0, latenciesMs: [] });
  }
}

interface Repetition {
  readonly count: number;
  readonly concurrency: number;
  readonly rate?: number;
}

/**
 * Runs `one` for each tunnel or request. `slot` is a number below `concurrency`; no other run has the same slot at the same time.
 * A run returns its latency, if the load has latencies.
 */
async function inParallel(
  { count, concurrency, rate }: Repetition,
  one: (n: number, slot: number) => Promise<number | undefined>,
): Promise<LoadResult> {
  const startedAt = performance.now();
  const latenciesMs: number[] = [];
  let next = 0;
  let done = 0;
  let failed = 0;
  let firstError: string | undefined;
  const fillSlot = async (slot: number) => {
    while (next < count) {
      const n = next++;
      if (rate !== undefined) await turnOf(n, rate, startedAt);
      try {
        const latencyMs = await one(n, slot);
        if (latencyMs !== undefined) latenciesMs.push(latencyMs);
        done += 1;
      } catch (error) {
        // handled: the result counts it
        failed += 1;
        firstError ??= String(error);
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, (_, slot) => fillSlot(slot)));
  return { done, failed, firstError, latenciesMs: latenciesMs.sort((a, b) => a - b) };
}

/** Waits until the n-th tunnel or request is due. */
async function turnOf(n: number, rate: number, startedAt: number): Promise<void> {
  const waitMs = startedAt + (n * SECOND_MS) / rate - performance.now();
  if (waitMs > 0) await new Promise((next) => setTimeout(next, waitMs));
}

async function useTunnel({ via, port, target, onlyOpen }: LoadOf<'tunnels'>): Promise<number> {
  const startedAt = performance.now();
  const socket = await openTunnel(via, port, target);
  if (onlyOpen !== true) await echo(socket, BYTE);
  const latencyMs = performance.now() - startedAt;
  socket.destroy();
  return latencyMs;
}

async function sendRequest({ port, target }: LoadOf<'requests'>, host: string): Promise<number> {
  const startedAt = performance.now();
  const socket = openSocket(port);
  await get(socket, `${host}:${target}`);
  const latencyMs = performance.now() - startedAt;
  socket.destroy();
  return latencyMs;
}

/** Returns one of many addresses of this machine. */
function hostOf(target: number): string {
  return `127.0.${1 + Math.floor(target / 200)}.${1 + (target % 200)}`;
}

async function download({ port, target, bytes }: LoadOf<'bulk'>): Promise<LoadResult> {
  const socket = await openTunnel('http', port, target);
  socket.write(String(bytes));
  let received = 0;
  socket.on('data', (chunk) => {
    received += chunk.length;
  });
  await once(socket, 'end');
  return { done: received, failed: bytes - received, latenciesMs: [] };
}

async function sendGets(load: LoadOf<'gets'>): Promise<LoadResult> {
  const sockets = Array.from({ length: load.concurrency }, () => openSocket(load.port));
  return overSockets(sockets, load, async (socket) => {
    await get(socket, `${HOST}:${load.target}`);
    return undefined;
  });
}

async function sendEchoes(load: LoadOf<'echoes'>): Promise<LoadResult> {
  const { port, target, bytes } = load;
  const message = Buffer.alloc(bytes, 'e');
  const opening = Array.from({ length: load.concurrency }, () => openTunnel('http', port, target));
  return overSockets(await Promise.all(opening), load, async (socket) => {
    const startedAt = performance.now();
    await echo(socket, message);
    return performance.now() - startedAt;
  });
}

/** Each slot uses its socket again and again. */
async function overSockets(
  sockets: readonly Socket[],
  load: Repetition,
  one: (socket: Socket) => Promise<number | undefined>,
): Promise<LoadResult> {
  const result = await inParallel(load, (_, slot) => one(sockets[slot] as Socket));
  for (const socket of sockets) socket.destroy();
  return result;
}

async function hold({ port, target }: LoadOf<'hold'>): Promise<undefined> {
  heldSockets.push((await openTunnel('http', port, target)).setTimeout(0));
}

function openSocket(port: number): Socket {
  const socket = connect({ port, host: HOST, noDelay: true });
  socket.on('error', () => {}); // ignored: nextChunk rejects
  return socket.setTimeout(SILENCE_LIMIT_MS, () =>
    socket.destroy(new Error(`the proxy sent nothing for ${SILENCE_LIMIT_MS} ms`)),
  );
}

async function openTunnel(via: 'http' | 'socks5', port: number, target: number): Promise<Socket> {
  const socket = openSocket(port);
  await (via === 'http' ? connectOverHttp(socket, target) : connectOverSocks5(socket, target));
  return socket;
}

async function connectOverHttp(socket: Socket, target: number): Promise<void> {
  socket.write(`CONNECT ${HOST}:${target} HTTP/1.1\r\nHost: ${HOST}:${target}\r\n\r\n`);
  const head = await nextChunk(socket);
  if (!head.subarray(0, 12).toString('latin1').includes(' 200'))
    throw new Error(head.toString('latin1', 0, 600));
}

async function connectOverSocks5(socket: Socket, target: number): Promise<void> {
  socket.write(Buffer.from([5, 1, 0]));
  await nextChunk(socket);
  socket.write(Buffer.from([5, 1, 0, 1, 127, 0, 0, 1, target >> 8, target & 255]));
  const reply = await nextChunk(socket);
  if (reply[1] !== 0) throw new Error(`the proxy answered SOCKS5 reply ${reply[1]}`);
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
  if (!text.startsWith('HTTP/1.1 200')) throw new Error(text.slice(0, 600));
}

function isComplete(text: string): boolean {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(text.slice(0, end + 2))?.[1] ?? 0);
  return text.length >= end + 4 + length;
}

/** @throws Error if the socket closes or fails before the next chunk. */
function nextChunk(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const settle = () => {
      socket.off('data', onData).off('error', onError).off('close', onClose);
    };
    const onData = (chunk: Buffer) => {
      settle();
      resolve(chunk);
    };
    const onError = (error: Error) => {
      settle();
      reject(error);
    };
    const onClose = () => onError(socket.errored ?? new Error('the proxy closed the connection'));
    if (socket.destroyed) return onClose();
    socket.on('data', onData).on('error', onError).on('close', onClose);
  });
}

process.on('message', (load: Load) => {
  void run(load).then(
    (result) => process.send?.(result),
    (error: unknown) => process.send?.({ done: 0, failed: 1, latenciesMs: [], firstError: String(error) }),
  );
});
process.on('disconnect', () => process.exit(0));
