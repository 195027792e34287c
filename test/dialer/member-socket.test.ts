import { once } from 'node:events';
import { type AddressInfo, createServer, Socket } from 'node:net';
import fc from 'fast-check';
import { expect, onTestFinished, test, vi } from 'vitest';
import {
  closeCode,
  failedSocket,
  hasFailedWrite,
  lendChunks,
  memberSockets,
  ReadMemory,
  receivingSocket,
  tunnelSocket,
} from '../../src/dialer/member-socket.ts';
import { runsOf } from '../support/properties.ts';
import { until } from '../support/until.ts';

const KIB = 1024;
const SHARED_BYTES = 64 * KIB;

/** A member that serves each connection with the given function. */
async function openMember(serve: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, serve);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Opens a paused tunnel, like one that an attempt passes on. */
async function openTunnel(port: number, memory = new ReadMemory()): Promise<Socket> {
  const socket = tunnelSocket(memory);
  socket.on('error', () => {}); // ignored: 'close' follows
  socket.connect({ port, host: '127.0.0.1' }).pause();
  onTestFinished(() => {
    socket.destroy();
  });
  await once(socket, 'connect');
  return socket;
}

/** Bytes that depend on their offset and on `seed`, so that a lost, repeated or overwritten byte is noticed. */
function pattern(bytes: number, seed: number): Buffer {
  const words = new Uint32Array(bytes / Uint32Array.BYTES_PER_ELEMENT);
  for (let at = 0; at < words.length; at += 1) words[at] = Math.imul(at + seed, 2_654_435_761);
  return Buffer.from(words.buffer);
}

test('tunnel socket: a listener may keep its chunks while other tunnels read', async () => {
  const memory = new ReadMemory();
  const port = await openMember((socket) => socket.pipe(socket));
  const kept: Buffer[] = [];
  const tunnels = await Promise.all(Array.from({ length: 8 }, () => openTunnel(port, memory)));
  for (const [index, tunnel] of tunnels.entries()) {
    tunnel.on('data', (chunk: Buffer) => kept.push(chunk)).resume();
    tunnel.write(`this is ${index}`);
  }
  await until('all of them answered', () => kept.length === tunnels.length);
  expect(kept.map(String).sort()).toEqual(tunnels.map((_, index) => `this is ${index}`));
});

test('tunnel socket: no byte is lost or changed with a pause at each chunk', async () => {
  const sent = pattern(8 * KIB * KIB, 7);
  const port = await openMember((socket) => socket.end(sent));
  const tunnel = await openTunnel(port);
  const received: Buffer[] = [];
  tunnel.on('data', (chunk: Buffer) => {
    tunnel.pause();
    received.push(chunk);
    setImmediate(() => tunnel.resume());
  });
  const ended = once(tunnel, 'end');
  tunnel.resume();
  await ended;
  expect(Buffer.concat(received).equals(sent)).toBe(true);
  expect(Math.max(...received.map(({ length }) => length))).toBeLessThanOrEqual(SHARED_BYTES);
});

test('tunnel socket: reads nothing while it is paused', async () => {
  const port = await openMember((socket) => socket.write('x'));
  const tunnel = await openTunnel(port);
  const chunks: Buffer[] = [];
  tunnel.on('data', (chunk: Buffer) => chunks.push(chunk));
  const other = await openTunnel(port);
  await once(other.resume(), 'data');
  expect(chunks).toEqual([]);
  await Promise.all([once(tunnel, 'data'), tunnel.resume()]);
  expect(chunks.map(String)).toEqual(['x']);
});

test('tunnel socket: a small read returns the large buffer for the next tunnel', async () => {
  const memory = new ReadMemory();
  const large = memory.takeLarge();
  memory.giveBack(large);
  const port = await openMember((socket) => {
    socket.write(Buffer.alloc(2 * KIB * KIB, 'x'));
    socket.once('data', () => socket.write('.'));
  });
  const tunnel = await openTunnel(port, memory);
  lendChunks(tunnel, new Socket()); // a sink that sends everything at once
  let lentFrom: ArrayBufferLike | undefined;
  let last = '';
  tunnel.on('data', (chunk: Buffer) => {
    if (chunk.buffer === large.buffer) lentFrom = chunk.buffer;
    last = chunk.toString('latin1', chunk.length - 1);
  });
  tunnel.resume();
  await until('everything has arrived', () => tunnel.bytesRead === 2 * KIB * KIB);
  expect(lentFrom === large.buffer).toBe(true);
  tunnel.write('enough');
  await until('the small read came', () => last === '.');
  expect(memory.takeLarge() === large).toBe(true); // not toBe(large), because a failure would print the long diff of two buffers
});

test('tunnel socket: half-close works in both directions, and a reset closes it', async () => {
  const members: Socket[] = [];
  const port = await openMember((socket) => {
    members.push(socket);
    socket
      .on('error', () => {})
      .on('end', () => socket.end('bye'))
      .resume();
  });
  const tunnel = await openTunnel(port);
  const said: string[] = [];
  tunnel.on('data', (chunk: Buffer) => said.push(chunk.toString())).resume();
  tunnel.end();
  await once(tunnel, 'close');
  expect(said.join('')).toBe('bye');
  expect(tunnel.errored).toBeNull();

  const broken = await openTunnel(port);
  await until('the member has accepted', () => members.length === 2);
  const closed = new Promise((resolve) => broken.on('close', resolve));
  broken.resume();
  members[1]?.resetAndDestroy();
  await closed;
  expect(broken.errored).toMatchObject({ code: 'ECONNRESET' });
});

test('tunnel socket: bytes that were put back come before later ones', async () => {
  const port = await openMember((socket) => {
    socket.write('answer');
    socket.once('data', () => socket.end(' and more'));
  });
  const tunnel = await openTunnel(port);
  const [answer] = await once(tunnel.resume(), 'data');
  tunnel.pause();
  tunnel.unshift(answer);
  tunnel.write('go on');
  await new Promise((next) => setImmediate(next));
  let got = '';
  tunnel.on('data', (chunk: Buffer) => {
    got += chunk.toString();
  });
  tunnel.resume();
  await once(tunnel, 'end');
  expect(got).toBe('answer and more');
});

/** Connects a socket and pauses it. Returns the member's end of the connection. */
async function openPair(socket: Socket): Promise<{ member: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  socket.on('error', () => {}); // ignored: the tests read `errored`
  socket.connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).pause();
  const [[member]] = await Promise.all([accepted, once(socket, 'connect')]);
  server.close();
  onTestFinished(() => {
    socket.destroy();
    member.destroy();
  });
  return { member };
}

test.each([
  ['a socket for a tunnel', () => tunnelSocket(new ReadMemory())],
  ['a socket for requests', () => receivingSocket({ allowHalfOpen: true })],
])(
  'receiving socket: %s delivers what arrived before a reset, although a write has failed',
  async (_what, open) => {
    const socket = open();
    const { member } = await openPair(socket);
    member.write('the answer');
    await until('the answer was sent', () => member.writableLength === 0);
    member.resetAndDestroy();
    await once(member, 'close');
    let received = '';
    const ended = new Promise<void>((resolve) => {
      socket.on('end', resolve).on('close', resolve);
    });
    // The socket has not read anything yet, so only the write can notice the reset.
    socket.write('more');
    socket.cork();
    socket.write('and');
    socket.write('more');
    socket.uncork();
    await until('the failed write', () => hasFailedWrite(socket));
    expect(socket.destroyed).toBe(false);
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString();
    });
    socket.resume();
    await ended;
    expect(received).toBe('the answer');
  },
);

test('receiving socket: writes succeed while the connection is open', async () => {
  const socket = receivingSocket({ allowHalfOpen: true });
  const { member } = await openPair(socket);
  let received = '';
  member.on('data', (chunk: Buffer) => {
    received += chunk.toString();
  });
  socket.write('a');
  socket.cork();
  socket.write('b');
  socket.write('c');
  socket.uncork();
  socket.end('d');
  await once(member, 'end');
  expect([received, hasFailedWrite(socket)]).toEqual(['abcd', false]);
});

/** A tunnel whose chunks are written to a client. The client reads nothing until `client.resume()`. */
interface LentTunnel {
  readonly member: Socket;
  readonly tunnel: Socket;
  /** noria's socket to the client. */
  readonly sink: Socket;
  readonly client: Socket;
  /** For each chunk of the tunnel: whether the sink sent it at once. */
  readonly sentAtOnce: boolean[];
  readonly received: Buffer[];
}

async function openLentTunnel(memory: ReadMemory): Promise<LentTunnel> {
  const tunnel = tunnelSocket(memory);
  const { member } = await openPair(tunnel);
  const client = new Socket();
  const { member: sink } = await openPair(client);
  const sentAtOnce: boolean[] = [];
  lendChunks(tunnel, sink);
  tunnel.on('data', (chunk: Buffer) => {
    sink.write(chunk);
    sentAtOnce.push(sink.writableLength === 0);
    if (sink.writableLength < sink.writableHighWaterMark) return;
    tunnel.pause();
    sink.once('drain', () => tunnel.resume());
  });
  tunnel.on('end', () => sink.end()).resume();
  const received: Buffer[] = [];
  client.on('data', (chunk: Buffer) => received.push(chunk));
  return { member, tunnel, sink, client, sentAtOnce, received };
}

const bytesOf = (chunks: readonly Buffer[]) => chunks.reduce((sum, { length }) => sum + length, 0);

/** Ends the member's side. Returns everything that the client has received. */
async function receiveAll({ member, client, received }: LentTunnel): Promise<Buffer> {
  const ended = client.readableEnded ? undefined : once(client, 'end');
  member.end();
  client.resume();
  await ended;
  return Buffer.concat(received);
}

/** Sends small pieces until the client's connection cannot take the last one at once. Returns what was sent. */
async function fillConnection({ member, tunnel, sink }: LentTunnel): Promise<Buffer[]> {
  const sent: Buffer[] = [];
  while (sink.writableLength === 0) {
    const piece = pattern(16 * KIB, sent.length);
    sent.push(piece);
    const emitted = once(tunnel, 'data');
    member.write(piece);
    await emitted;
  }
  return sent;
}

test('tunnel socket: a chunk that waits for a slow client stays unchanged while other tunnels read', async () => {
  const memory = new ReadMemory();
  const [slow, fast] = [await openLentTunnel(memory), await openLentTunnel(memory)];
  const sent = await fillConnection(slow);
  fast.client.resume();
  let sentFast = 0;
  for (const piece of ['.', pattern(SHARED_BYTES, 99), pattern(SHARED_BYTES, 98)]) {
    fast.member.write(piece);
    sentFast += piece.length;
    await until('the fast client received the piece', () => bytesOf(fast.received) === sentFast);
  }
  expect((await receiveAll(slow)).equals(Buffer.concat(sent))).toBe(true);
});

test('tunnel socket: of consecutive chunks that wait for a slow client, only the first one keeps a whole buffer', async () => {
  const memory = new ReadMemory();
  const keepCopy = vi.spyOn(memory, 'keepCopy');
  const slow = await openLentTunnel(memory);
  await fillConnection(slow);
  for (const seed of [1, 2, 3]) {
    const emitted = once(slow.tunnel, 'data');
    slow.member.write(pattern(4 * KIB, seed));
    await emitted;
  }
  const firsts = slow.sentAtOnce.filter((sent, at) => !sent && slow.sentAtOnce[at - 1] === true);
  expect(firsts.length).toBeGreaterThan(0);
  expect(keepCopy).toHaveBeenCalledTimes(firsts.length);
});

test('tunnel socket: clients of any speed receive exactly what their members have sent', async () => {
  const step = fc.record({
    at: fc.nat(2),
    action: fc.oneof(
      { weight: 6, arbitrary: fc.integer({ min: 1, max: 20 * KIB }) },
      { weight: 1, arbitrary: fc.constantFrom('fill' as const, 'resume' as const) },
    ),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const memory = new ReadMemory();
      const opened = await Promise.all([0, 1, 2].map(() => openLentTunnel(memory)));
      const tunnels = opened.map((tunnel) => ({ ...tunnel, sent: [] as Buffer[] }));
      for (const [seed, { at, action }] of steps.entries()) {
        const tunnel = tunnels[at];
        if (tunnel === undefined) continue;
        const { client, member, sent } = tunnel;
        if (action === 'fill') {
          client.pause();
          sent.push(...(await fillConnection(tunnel)));
        } else if (action === 'resume') client.resume();
        else {
          const piece = pattern(action * Uint32Array.BYTES_PER_ELEMENT, seed).subarray(0, action);
          sent.push(piece);
          member.write(piece);
        }
        await new Promise((next) => setImmediate(next));
      }
      for (const tunnel of tunnels) {
        expect((await receiveAll(tunnel)).equals(Buffer.concat(tunnel.sent))).toBe(true);
        for (const socket of [tunnel.sink, tunnel.client, tunnel.tunnel, tunnel.member]) socket.destroy();
      }
    }),
    { numRuns: runsOf(20) },
  );
});

test('member sockets: no delay for all, TCP keep-alive after 30 s only for those that may stay open', async () => {
  const server = createServer((socket) => void socket.resume()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const open = memberSockets();
  const first = open({ protocol: 'http', host: '127.0.0.1', port }, 'tunnel');
  await once(first, 'connect');
  const handle: object = Object.getPrototypeOf(Reflect.get(first, '_handle'));
  first.destroy();
  const noDelay = vi.spyOn(handle as { setNoDelay(on: boolean): void }, 'setNoDelay');
  const keepAlive = vi.spyOn(handle as { setKeepAlive(on: boolean, s: number): void }, 'setKeepAlive');
  onTestFinished(() => {
    noDelay.mockRestore();
    keepAlive.mockRestore();
  });
  for (const use of ['tunnel', 'forward'] as const) {
    const socket = open({ protocol: 'http', host: '127.0.0.1', port }, use);
    await once(socket, 'connect');
    expect(socket.allowHalfOpen).toBe(true);
    socket.destroy();
    expect(noDelay.mock.calls.splice(0).at(-1)).toEqual([true]);
    expect(keepAlive.mock.calls.splice(0).map(([on, seconds]) => [on, seconds])).toEqual(
      use === 'forward' ? [[true, 30]] : [],
    );
  }
});

test('member sockets: the code of a close is that of the error, or its name, or `closed`', () => {
  const coded = (code: unknown) => ({ errored: Object.assign(new TypeError('x'), { code }) });
  expect([
    closeCode(undefined),
    closeCode({ errored: null }),
    closeCode(coded('ECONNRESET')),
    closeCode(coded(7)),
    closeCode({ errored: new RangeError('x') }),
  ]).toEqual(['closed', 'closed', 'ECONNRESET', 'TypeError', 'RangeError']);
});

test('member sockets: one for an address that Node rejects closes with the error', async () => {
  for (const [thrown, message] of [
    [new RangeError('port'), 'port'],
    ['a text', 'a text'],
  ] as const) {
    const socket = failedSocket(thrown);
    await new Promise((resolve) => socket.on('close', resolve));
    expect([socket.errored?.message, socket.errored instanceof RangeError]).toEqual([
      message,
      thrown !== 'a text',
    ]);
  }
});

test.each([
  [undefined, false, false],
  [null, false, false],
  ['EPIPE', true, false],
  ['ECONNRESET', true, false],
  ['ECONNABORTED', true, false],
  ['ETIMEDOUT', false, true],
  ['', false, true],
])(
  'receiving socket: a write that ends with %s has failed: %s, and destroys it: %s',
  async (code, failed, destroyed) => {
    const writes: string[] = [];
    const write = vi.spyOn(Socket.prototype, '_write').mockImplementation((chunk, _, done) => {
      writes.push(String(chunk));
      const error = code === '' ? new Error('without a code') : Object.assign(new Error('x'), { code });
      done(code === undefined || code === null ? code : error);
    });
    onTestFinished(() => write.mockRestore());
    const socket = receivingSocket({ allowHalfOpen: true });
    socket.on('error', () => {}); // ignored: the test reads `errored`
    const results: (Error | null | undefined)[] = [];
    socket.write('a', (error) => results.push(error));
    await new Promise((next) => setImmediate(next));
    expect([hasFailedWrite(socket), socket.destroyed]).toEqual([failed, destroyed]);
    if (destroyed) return;
    socket.write('b', (error) => results.push(error));
    await new Promise((next) => setImmediate(next));
    expect(writes, 'after a failed write, noria discards the rest').toEqual(failed ? ['a'] : ['a', 'b']);
    expect(results.map((error) => error ?? 'written')).toEqual(['written', 'written']);
  },
);

test('read memory: keeps sixteen large buffers for later tunnels', () => {
  const memory = new ReadMemory();
  const given: Buffer[] = Array.from({ length: 18 }, () => Buffer.alloc(1));
  for (const buffer of given) memory.giveBack(buffer);
  const taken = Array.from({ length: 17 }, () => memory.takeLarge());
  expect(taken.filter((buffer) => given.includes(buffer))).toHaveLength(16);
  expect(taken.at(-1)).toHaveLength(256 * KIB);
  expect(hasFailedWrite(new Socket())).toBe(false);
});

test('read memory: the next copy overwrites the latest one, unless that is kept', () => {
  const memory = new ReadMemory();
  const copy = (text: string) => {
    memory.shared.write(text);
    return memory.copy(text.length);
  };
  const first = copy('abc');
  const second = copy('xy');
  expect([String(first), String(second)]).toEqual(['xyc', 'xy']);
  memory.keepCopy();
  expect([String(copy('nop')), String(second)]).toEqual(['nop', 'xy']);
});

/** Sends the bytes while the tunnel is paused, so that it reads them at once. */
async function readAtOnce(tunnel: Socket, member: Socket, bytes: number): Promise<void> {
  tunnel.pause();
  await new Promise((sent) => member.write(Buffer.alloc(bytes, 'x'), sent));
  const read = tunnel.bytesRead + bytes;
  tunnel.resume();
  await until('the tunnel has read it', () => tunnel.bytesRead === read);
}

test.each([
  ['a full read', SHARED_BYTES, 256 * KIB, 1],
  ['a full read for a sink that takes more than a large buffer', SHARED_BYTES, 256 * KIB + 1, 0],
  ['a small read', SHARED_BYTES - 1, 256 * KIB, 0],
])(
  'tunnel socket: after %s (%i bytes, high-water mark %i), %i large buffers',
  async (_, bytes, writableHighWaterMark, count) => {
    const memory = new ReadMemory();
    const takeLarge = vi.spyOn(memory, 'takeLarge');
    const tunnel = tunnelSocket(memory);
    const { member } = await openPair(tunnel);
    lendChunks(
      tunnel,
      Object.defineProperties(new Socket(), { writableHighWaterMark: { value: writableHighWaterMark } }),
    );
    tunnel.on('data', () => {});
    await readAtOnce(tunnel, member, bytes);
    expect(takeLarge).toHaveBeenCalledTimes(count);
  },
);

test('tunnel socket: a chunk that fills the sink is lent, a smaller one gives the large buffer back', async () => {
  const memory = new ReadMemory();
  const giveBack = vi.spyOn(memory, 'giveBack');
  const tunnel = tunnelSocket(memory);
  const { member } = await openPair(tunnel);
  lendChunks(tunnel, Object.defineProperties(new Socket(), { writableHighWaterMark: { value: 16 * KIB } }));
  let length = 0;
  tunnel.on('data', (chunk: Buffer) => {
    length += chunk.length;
  });
  await readAtOnce(tunnel, member, SHARED_BYTES);
  await readAtOnce(tunnel, member, 16 * KIB);
  expect(giveBack).toHaveBeenCalledTimes(0);
  await readAtOnce(tunnel, member, 16 * KIB - 1);
  expect([giveBack.mock.calls.length, length]).toEqual([1, SHARED_BYTES + 32 * KIB - 1]);
});

test('tunnel socket: lending the chunks of another socket does nothing', () => {
  const socket = new Socket();
  lendChunks(socket, new Socket());
  expect(socket.listenerCount('data')).toBe(0);
});
