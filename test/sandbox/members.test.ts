/** Members on the wire: how they serve each protocol and mode, their lives, and each of their behaviours. */

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { SandboxProduct } from '../../src/sandbox/operations.ts';
import type { Sandbox, SandboxOptions } from '../../src/sandbox/sandbox.ts';
import type { Behaviour } from '../../src/sandbox/scenario.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import {
  connectThrough,
  draw,
  type Entry,
  exchange,
  getOver,
  getThrough,
  open,
  readAll,
  seeded,
  socksThrough,
} from './client.ts';

/** Opens a sandbox and draws one member of a product. */
async function openOne(
  product: SandboxProduct,
  options: SandboxOptions = {},
  params: Record<string, string> = {},
): Promise<{ readonly sandbox: Sandbox; readonly entry: Entry; readonly target: string }> {
  const sandbox = await open({ members: 1, ...options });
  const [entry] = await draw(sandbox, product, { count: '1', ...params });
  if (entry === undefined) throw new Error('nothing was drawn');
  return { sandbox, entry, target: `127.0.0.1:${sandbox.target.port}` };
}

const misbehaving = (product: SandboxProduct, behaviour: Behaviour) =>
  openOne(product, { behaviour: () => behaviour });

/** Opens a server that passes each half-open connection to `greet`. */
async function openServer(greet: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {}); // ignored: the member may reset it
    greet(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no port');
  return address.port;
}

/** Returns the client's bytes of a SOCKS5 handshake without credentials, for an IPv4 target. */
function socks5Request(port: number, head = [0x05, 0x01, 0x00]): Buffer {
  return Buffer.from([...head, 0x05, 0x01, 0x00, 0x01, 127, 0, 0, 1, port >> 8, port & 255]);
}

const connectRequest = (target: string) => `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`;

test("password mode: HTTP members answer 407 unless the client sends the instance's id and password", async () => {
  const { sandbox, entry, target } = await openOne('short-classic', { auth: 'password' });
  const { id: username, password, akey } = sandbox.instance('short-classic');
  expect((await connectThrough(entry, target)).status).toBe(407);
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).status).toBe(407);
  expect((await connectThrough(entry, target, { username, password: akey })).status).toBe(407);
  const { status, socket } = await connectThrough(entry, target, { username, password });
  expect([status, await getOver(socket, '/ip')]).toEqual([200, `${entry.ip}\n`]);
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`, { username, password })).body).toBe(
    `${entry.ip}\n`,
  );
});

test("password mode: SOCKS5 members require method 2 with the instance's id and password", async () => {
  const { sandbox, entry, target } = await openOne('short-socks5', { auth: 'password' });
  const { id: username, password } = sandbox.instance('short-socks5');
  expect(await exchange(entry, Buffer.from([0x05, 0x01, 0x00]))).toEqual(Buffer.from([0x05, 0xff]));
  await expect(socksThrough(entry, target, 5, { username, password: 'wrong' })).rejects.toThrow(
    /authentication failed/i,
  );
  const socket = await socksThrough(entry, target, 5, { username, password });
  expect(await getOver(socket, '/ip')).toBe(`${entry.ip}\n`);
});

test('free members: need no credentials in either mode', async () => {
  const { entry, sandbox } = await openOne('free', { auth: 'password' }, { protocol_type: '4' });
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).status).toBe(200);
});

test('SOCKS4 and SOCKS4a: free members serve them and resolve the names', async () => {
  const { entry, sandbox } = await openOne('free', {}, { protocol_type: '2' });
  for (const host of ['127.0.0.1', 'target.example']) {
    const socket = await socksThrough(entry, `${host}:${sandbox.target.port}`, 4);
    expect(await getOver(socket, '/ip')).toBe(`${entry.ip}\n`);
  }
  const refused = await exchange(entry, Buffer.from([4, 1, 0, 1, 127, 0, 0, 1, 0]));
  expect(refused).toEqual(Buffer.from([0, 0x5b, 0, 0, 0, 0, 0, 0]));
});

test("SOCKS5: a request may arrive byte by byte, and the client's early bytes reach the target", async () => {
  const { entry, sandbox } = await openOne('short-socks5');
  const { port } = sandbox.target;
  const socket = connect({ host: entry.ip, port: entry.port });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  socket.setNoDelay(true);
  const early = Buffer.from('GET /ip HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  for (const byte of Buffer.concat([socks5Request(port), early])) {
    socket.write(Buffer.from([byte]));
    await new Promise((next) => setImmediate(next));
  }
  const received = await readAll(socket);
  expect(Buffer.from(received.slice(0, 12), 'latin1')).toEqual(
    Buffer.from([5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
  );
  expect(received.endsWith(`${entry.ip}\n`)).toBe(true);
});

test('SOCKS5: BIND, UDP and unknown address types get the reply of the RFC', async () => {
  const { entry } = await openOne('short-socks5');
  const reply = async (command: number, kind: number) => {
    const bytes = await exchange(entry, Buffer.from([5, 1, 0, 5, command, 0, kind, 127, 0, 0, 1, 0, 80]));
    return bytes[3];
  };
  expect([await reply(2, 1), await reply(3, 1), await reply(1, 9)]).toEqual([0x07, 0x07, 0x08]);
});

test('dead targets: HTTP members answer 502, SOCKS5 members the matching reply', async () => {
  const { entry, sandbox } = await openOne('short-classic');
  expect((await connectThrough(entry, '127.0.0.1:1')).status).toBe(502);
  expect((await getThrough(entry, 'http://127.0.0.1:1/')).status).toBe(502);
  expect((await connectThrough(entry, 'nowhere.invalid:80')).status).toBe(502);
  const [socks] = await draw(sandbox, 'short-socks5', { count: '1' });
  if (socks === undefined) throw new Error('nothing was drawn');
  const reply = async (bytes: Buffer) => (await exchange(socks, bytes))[3];
  expect(await reply(socks5Request(1))).toBe(0x05);
  const name = Buffer.from('nowhere.invalid');
  const named = [5, 1, 0, 5, 1, 0, 3, name.length, ...name, 0, 80];
  expect(await reply(Buffer.from(named))).toBe(0x04);
  expect(await reply(Buffer.from([5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80])), 'outside this machine').toBe(
    0x04,
  );
});

test.each(['short-classic', 'short-socks5'] as const)(
  '%s: half-closes are carried both ways',
  async (product) => {
    const { entry } = await openOne(product);
    const isHttp = product === 'short-classic';
    const answer = isHttp ? 'HTTP/1.1 200 Connection Established\r\n\r\n' : '\x05\0\x05\0\0\x01\0\0\0\0\0\0';
    /** Opens a half-open connection that has requested a tunnel, and records everything that it receives. */
    const openTunnel = (port: number) => {
      const socket = connect({ host: entry.ip, port: entry.port, allowHalfOpen: true });
      onTestFinished(() => void socket.destroy());
      socket.write(isHttp ? connectRequest(`127.0.0.1:${port}`) : socks5Request(port));
      const received: string[] = [];
      socket.setEncoding('latin1').on('data', (chunk: string) => received.push(chunk));
      return { socket, received: () => received.join('') };
    };

    const answersAfterEnd = await openServer((socket) => {
      socket.resume();
      socket.once('end', () => socket.end('the client has ended'));
    });
    const ended = openTunnel(answersAfterEnd);
    await until('the tunnel is open', () => ended.received() === answer);
    ended.socket.end('that is all');
    await once(ended.socket, 'end');
    expect(ended.received()).toBe(`${answer}the client has ended`);

    const heard: string[] = [];
    const endsFirst = await openServer((socket) => {
      socket.end('the target has ended');
      socket.setEncoding('latin1').on('data', (chunk: string) => heard.push(chunk));
    });
    const other = openTunnel(endsFirst);
    await once(other.socket, 'end');
    expect(other.received()).toBe(`${answer}the target has ended`);
    other.socket.end('I go on');
    await until('the target heard it', () => heard.join('') === 'I go on');
  },
);

test.each(['short-classic', 'short-socks5'] as const)(
  '%s: what the target has sent reaches a slow client whole, though both sides have ended',
  async (product) => {
    const { entry } = await openOne(product);
    const size = 8_000_000;
    const port = await openServer((socket) => {
      socket.resume();
      socket.once('end', () => socket.end(Buffer.alloc(size)));
    });
    const socket = connect({ host: entry.ip, port: entry.port, allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.write(product === 'short-classic' ? connectRequest(`127.0.0.1:${port}`) : socks5Request(port));
    let heard = 0;
    socket.on('data', (chunk: Buffer) => {
      if (heard === 0) socket.end(); // the first bytes are the member's answer
      heard += chunk.length;
      socket.pause();
      setImmediate(() => socket.resume()); // simulates a slow reader
    });
    await once(socket, 'end');
    expect(heard).toBeGreaterThan(size);
  },
);

test.each(['short-classic', 'short-socks5'] as const)(
  '%s: when one side breaks off, the connection to the other side closes, too',
  async (product) => {
    const { entry } = await openOne(product);
    const accepted: Socket[] = [];
    const port = await openServer((socket) => accepted.push(socket.resume()));
    const openTunnel = async () => {
      const count = accepted.length;
      const target = `127.0.0.1:${port}`;
      const socket =
        product === 'short-classic'
          ? (await connectThrough(entry, target)).socket
          : await socksThrough(entry, target, 5);
      await until('the target has it', () => accepted.length > count);
      return socket.resume();
    };
    const broken = await openTunnel();
    accepted[0]?.resetAndDestroy();
    await until('the client is cut off', () => broken.destroyed || broken.readableEnded);
    const breaking = await openTunnel();
    breaking.resetAndDestroy();
    await until('the target is cut off', () => accepted[1]?.readableEnded === true);
  },
);

test('lives: an expired member refuses new tunnels and keeps open ones during its grace period', async () => {
  const clock = new ManualClock();
  const { entry, target, sandbox } = await openOne('short-classic', {
    clock,
    lifetimeMs: 2_000,
    graceMs: 500,
  });
  const { socket } = await connectThrough(entry, target);
  clock.advance(2_000);
  expect(sandbox.members()).toEqual([]);
  await expect(connectThrough(entry, target)).rejects.toThrow(/ECONNREFUSED/);
  clock.advance(499);
  expect(await getOver(socket, '/ip'), 'within the grace').toBe(`${entry.ip}\n`);
});

test('lives: the end of the grace period cuts open tunnels', async () => {
  const clock = new ManualClock();
  const { entry, target } = await openOne('short-socks5', { clock, lifetimeMs: 2_000, graceMs: 500 });
  const socket = await socksThrough(entry, target, 5);
  clock.advance(2_499);
  expect(socket.destroyed).toBe(false);
  clock.advance(1);
  await once(socket, 'close');
});

test('lives: a new proxy with another exit replaces an expired one', async () => {
  const { entry, sandbox } = await openOne('short-classic', { paceMs: 0 });
  const [member] = sandbox.members();
  await sandbox.kill(member?.id ?? '');
  const [next] = await draw(sandbox, 'short-classic', { count: '1' });
  expect(next?.ip).not.toBe(entry.ip);
  await expect(sandbox.kill(member?.id ?? '')).rejects.toThrow(/no living member/);
});

test('refuse: closes the port, keeps open tunnels, and is reversible', async () => {
  const { entry, target, sandbox } = await openOne('short-classic');
  const [member] = sandbox.members();
  const { socket } = await connectThrough(entry, target);
  await sandbox.setBehaviour(member?.id ?? '', { how: 'refuse' });
  await expect(connectThrough(entry, target)).rejects.toThrow(/ECONNREFUSED/);
  expect(await getOver(socket, '/ip')).toBe(`${entry.ip}\n`);
  await sandbox.setBehaviour(member?.id ?? '', { how: 'good' });
  expect((await connectThrough(entry, target)).status).toBe(200);
});

test.each(['short-classic', 'short-socks5'] as const)(
  'silent: %s accepts and never answers',
  async (product) => {
    const { entry, target, sandbox } = await misbehaving(product, { how: 'silent' });
    const socket = connect({ host: entry.ip, port: entry.port });
    onTestFinished(() => void socket.destroy());
    let heard = 0;
    socket.on('data', () => (heard += 1));
    socket.write(product === 'short-classic' ? connectRequest(target) : socks5Request(sandbox.target.port));
    await until('it was accepted', () => sandbox.members()[0]?.accepted === 1);
    await new Promise((next) => setImmediate(next));
    expect([heard, socket.destroyed, sandbox.target.connections.size]).toEqual([0, false, 0]);
  },
);

test.each(['short-classic', 'short-socks5'] as const)(
  'silent-after: %s accepts the target and relays nothing',
  async (product) => {
    const { entry, target, sandbox } = await misbehaving(product, { how: 'silent-after' });
    const socket =
      product === 'short-classic'
        ? (await connectThrough(entry, target)).socket
        : await socksThrough(entry, target, 5);
    socket.write('GET /ip HTTP/1.1\r\nHost: a\r\n\r\n');
    await until('it was written', () => socket.writableLength === 0);
    expect([socket.readableLength, sandbox.target.connections.size]).toEqual([0, 0]);
  },
);

test('slow: serves after the delay', async () => {
  const clock = new ManualClock();
  const { entry, sandbox } = await openOne('short-classic', {
    clock,
    behaviour: () => ({ how: 'slow', ms: 2_000 }),
  });
  let isServed = false;
  const served = getThrough(entry, `${sandbox.targetUrl}/ip`).then(({ body }) => {
    isServed = true;
    return body;
  });
  await until('it was accepted', () => sandbox.members()[0]?.accepted === 1);
  clock.advance(1_999);
  await new Promise((next) => setImmediate(next));
  expect(isServed).toBe(false);
  clock.advance(1);
  expect(await served).toBe(`${entry.ip}\n`);
});

test.each([502, 503, 504, 407])('status: HTTP members answer %i with a page', async (status) => {
  const { entry, target, sandbox } = await misbehaving('short-classic', { how: 'status', status });
  const received = (await exchange(entry, connectRequest(target))).toString('latin1');
  expect(received).toMatch(
    new RegExp(`^HTTP/1.1 ${status} .+\r\nContent-Type: text/html\r\n[\\s\\S]+</html>\r\n$`),
  );
  expect(received.includes('Proxy-Authenticate')).toBe(status === 407);
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).status).toBe(status);
});

test.each([
  [502, 0x04],
  [503, 0x03],
  [504, 0x06],
  [403, 0x02],
  [500, 0x01],
])('status: SOCKS5 members answer %i as reply %i', async (status, reply) => {
  const { entry, sandbox } = await misbehaving('short-socks5', { how: 'status', status });
  const received = await exchange(entry, socks5Request(sandbox.target.port));
  expect([...received.subarray(0, 4)]).toEqual([0x05, 0x00, 0x05, reply]);
});

test('status 407: SOCKS5 members accept no method', async () => {
  const { entry } = await misbehaving('short-socks5', { how: 'status', status: 407 });
  expect(await exchange(entry, Buffer.from([5, 2, 0, 2]))).toEqual(Buffer.from([0x05, 0xff]));
});

test('no-connect: refuses CONNECT except to the listed ports, and serves absolute form', async () => {
  const { entry, target, sandbox } = await misbehaving('short-classic', { how: 'no-connect' });
  expect((await connectThrough(entry, target)).status).toBe(405);
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).body).toBe(`${entry.ip}\n`);
  const [member] = sandbox.members();
  await sandbox.setBehaviour(member?.id ?? '', {
    how: 'no-connect',
    status: 403,
    ports: [sandbox.target.port],
  });
  expect((await connectThrough(entry, target)).status).toBe(200);
  expect((await connectThrough(entry, '127.0.0.1:1')).status).toBe(403);
});

test('garbage: sends bytes of another protocol, then ends', async () => {
  for (const product of ['short-classic', 'short-socks5'] as const) {
    const { entry, target } = await misbehaving(product, { how: 'garbage' });
    expect((await exchange(entry, connectRequest(target))).toString('latin1')).toMatch(/^SSH-2\.0-/);
  }
});

test('wrong-version: answers with a version that does not exist', async () => {
  const http = await misbehaving('short-classic', { how: 'wrong-version' });
  expect((await exchange(http.entry, connectRequest(http.target))).toString()).toMatch(/^HTTP\/9\.9 200/);
  const socks = await misbehaving('short-socks5', { how: 'wrong-version' });
  expect((await exchange(socks.entry, Buffer.from([5, 1, 0])))[0]).toBe(9);
});

test('partial: sends half an answer, then ends', async () => {
  const http = await misbehaving('short-classic', { how: 'partial' });
  const received = (await exchange(http.entry, connectRequest(http.target))).toString();
  expect(received).toMatch(/^HTTP\/1\.1 200/);
  expect(received).not.toContain('\r\n\r\n');
  const socks = await misbehaving('short-socks5', { how: 'partial' });
  const bytes = await exchange(socks.entry, socks5Request(socks.sandbox.target.port));
  expect(bytes).toEqual(Buffer.from([5, 0, 5, 0, 0, 1, 0]));
});

test.each(['short-classic', 'short-socks5'] as const)(
  'dribble: %s answers correctly, byte by byte',
  async (product) => {
    const { entry, target, sandbox } = await misbehaving(product, { how: 'dribble' });
    const socket = connect({ host: entry.ip, port: entry.port });
    onTestFinished(() => void socket.destroy());
    const sizes: number[] = [];
    socket.on('data', (chunk: Buffer) => sizes.push(chunk.length));
    const accepted = product === 'short-classic' ? 'HTTP/1.1 200 Connection established\r\n\r\n'.length : 12;
    socket.write(product === 'short-classic' ? connectRequest(target) : socks5Request(sandbox.target.port));
    await until('the whole answer came', () => sizes.reduce((sum, size) => sum + size, 0) === accepted);
    expect(sizes.length, 'in several pieces: a busy system may join some').toBeGreaterThan(1);
    sizes.length = 0;
    expect(await getOver(socket, '/ip')).toBe(`${entry.ip}\n`);
  },
);

test('dribble: serves a request in absolute form', async () => {
  const { entry, sandbox } = await misbehaving('short-classic', { how: 'dribble' });
  expect(await getThrough(entry, `${sandbox.targetUrl}/ip`)).toEqual({ status: 200, body: `${entry.ip}\n` });
});

test.each(['accept', 'request'] as const)(
  'close and reset: end the connection without an answer, on %s',
  async (when) => {
    const closing = await misbehaving('short-classic', { how: 'close', when });
    const socket = connect({ host: closing.entry.ip, port: closing.entry.port });
    onTestFinished(() => void socket.destroy());
    if (when === 'request') socket.write(connectRequest(closing.target));
    expect(await readAll(socket)).toBe('');
    const resetting = await misbehaving('short-socks5', { how: 'reset', when });
    await expect(exchange(resetting.entry, Buffer.from([5, 1, 0]))).rejects.toThrow(/ECONNRESET|EPIPE/);
  },
);

test('endless-head: sends header lines until the client leaves', async () => {
  const { entry, target } = await misbehaving('short-classic', { how: 'endless-head' });
  const socket = connect({ host: entry.ip, port: entry.port });
  onTestFinished(() => void socket.destroy());
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    received += chunk;
  });
  socket.write(connectRequest(target));
  await until('it went on beyond any limit', () => received.length > 200_000);
  socket.destroy();
  expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\nX-Filler: a+\r\nX-Filler/);
  expect(received).not.toContain('\r\n\r\n');
});

test.each(['short-classic', 'short-socks5'] as const)(
  'cut: %s resets the tunnel after that many bytes',
  async (product) => {
    const { entry, target } = await misbehaving(product, { how: 'cut', afterBytes: 5_000 });
    const socket =
      product === 'short-classic'
        ? (await connectThrough(entry, target)).socket
        : await socksThrough(entry, target, 5);
    let heard = 0;
    socket.on('data', (chunk: Buffer) => {
      heard += chunk.length;
    });
    socket.write('GET /bytes/100000 HTTP/1.1\r\nHost: a\r\n\r\n');
    const [error] = await once(socket, 'error');
    expect([heard, error.code]).toEqual([5_000, 'ECONNRESET']);
  },
);

test('shares: new members are dead and slow in the configured proportions', async () => {
  const sandbox = await open({
    members: 400,
    dead: 0.2,
    slow: 0.1,
    slowMs: 700,
    random: seeded(3),
    instances: [{ product: 'short-classic', singlePullLimit: 400 }],
  });
  await draw(sandbox, 'short-classic', { count: '400' });
  const counts = { good: 0, refuse: 0, slow: 0 };
  for (const { behaviour } of sandbox.members()) {
    if (behaviour.how !== 'good' && behaviour.how !== 'refuse' && behaviour.how !== 'slow')
      throw new Error(behaviour.how);
    counts[behaviour.how] += 1;
    if (behaviour.how === 'slow') expect(behaviour.ms).toBe(700);
  }
  expect(counts.refuse).toBeGreaterThan(50);
  expect(counts.refuse).toBeLessThan(110);
  expect(counts.slow).toBeGreaterThan(15);
  expect(counts.slow).toBeLessThan(70);
});
