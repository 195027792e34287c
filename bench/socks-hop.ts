/**
 * Measures the cost of a SOCKS5 handshake with a member: with the `socks` library and the adapter that it needs, and with
 * noria's own state machine, in alternating rounds. Decision record 0002 uses the figures.
 *
 *   node bench/socks-hop.ts [TUNNELS]
 *
 * Each tunnel connects, does the handshake, echoes one byte and closes; 32 at a time, with the member in a separate process.
 * Prints user and system CPU time of this process per tunnel.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { SocksClient } from 'socks';
import { Socks5Handshake } from '../src/dialer/handshake.ts';

const TUNNELS = Number(process.argv[2] ?? 3_000);
const AT_A_TIME = 32;
const ROUNDS = 5;
const TARGET = { host: 'target.example', port: 443, kind: 'name', text: 'target.example:443' } as const;
const IS_MEMBER = process.env['NORIA_BENCH_MEMBER'] === '1';

/** Calls `done` in the tick in which the tunnel is open, with the bytes that followed the reply. */
type Handshake = (port: number, done: (socket: Socket, rest: Buffer) => void) => void;

function openSocket(port: number): Socket {
  return connect({ host: '127.0.0.1', port, allowHalfOpen: true, noDelay: true, autoSelectFamily: false }).on(
    'error',
    (error) => {
      throw error; // a failure makes the figures meaningless
    },
  );
}

/** The same writes and reads without a protocol: the minimum cost. */
const bare: Handshake = (port, done) => {
  const socket = openSocket(port);
  let step = 0;
  const onData = () => {
    step += 1;
    if (step === 1) {
      socket.write(REQUEST);
      return;
    }
    socket.pause();
    socket.off('data', onData);
    done(socket, Buffer.alloc(0));
  };
  socket.once('connect', () => {
    socket.on('data', onData);
    socket.write(OFFER);
  });
};
const OFFER = Buffer.from([5, 1, 0]);
const REQUEST = Buffer.concat([
  Buffer.from([5, 1, 0, 3, 14]),
  Buffer.from('target.example'),
  Buffer.from([1, 187]),
]);

const byStateMachine: Handshake = (port, done) => {
  const socket = openSocket(port);
  const hop = new Socks5Handshake(TARGET, undefined);
  const onData = (bytes: Buffer) => {
    const step = hop.take(bytes);
    if (step.kind === 'send') {
      socket.write(step.bytes);
    } else if (step.kind === 'accepted') {
      socket.pause();
      socket.off('data', onData);
      done(socket, step.rest);
    } else if (step.kind === 'failed') {
      throw new Error(step.detail);
    }
  };
  socket.once('connect', () => {
    socket.on('data', onData);
    socket.write(hop.opening);
  });
};

/**
 * The library, used as the dialer would use it: with its own socket and error listener, and the result in the tick of
 * `established`.
 */
const byLibrary: Handshake = (port, done) => {
  const socket = openSocket(port);
  socket.once('connect', () => {
    const client = new SocksClient({
      command: 'connect',
      proxy: { host: '127.0.0.1', port, type: 5 },
      destination: { host: TARGET.host, port: TARGET.port },
      existing_socket: socket,
      timeout: 5_000,
    });
    client.once('established', () => {
      socket.pause();
      done(socket, Buffer.alloc(0));
    });
    client.once('error', (error: Error) => {
      throw error;
    });
    client.connect(socket);
  });
};

async function measure(handshake: Handshake, port: number): Promise<number> {
  const before = process.cpuUsage();
  await new Promise<void>((resolve) => {
    let started = 0;
    let finished = 0;
    const next = () => {
      if (started === TUNNELS) return;
      started += 1;
      handshake(port, (socket) => {
        socket.once('data', () => socket.destroy());
        socket.once('close', () => {
          finished += 1;
          if (finished === TUNNELS) resolve();
          else next();
        });
        socket.resume();
        socket.write('x');
      });
    };
    for (let index = 0; index < AT_A_TIME; index += 1) next();
  });
  const { user, system } = process.cpuUsage(before);
  return (user + system) / TUNNELS;
}

/** Serves SOCKS5 and echoes. Expects that each message arrives complete, as the clients above send it. */
function serveMember(): void {
  const server = createServer({ noDelay: true }, (socket) => {
    let step = 0;
    socket.on('error', () => socket.destroy());
    socket.on('data', (bytes) => {
      step += 1;
      if (step === 1) socket.write(Buffer.from([5, 0]));
      else if (step === 2) socket.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
      else socket.write(bytes);
    });
  });
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

async function compare(member: ChildProcess): Promise<void> {
  const [port] = (await once(member, 'message')) as [number];
  const ways = { bare, noria: byStateMachine, library: byLibrary } as const;
  const figures = new Map<string, number[]>();
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [name, handshake] of Object.entries(ways)) {
      const microseconds = await measure(handshake, port);
      if (round > 0) figures.set(name, [...(figures.get(name) ?? []), microseconds]); // the first round only warms up
    }
  }
  for (const [name, all] of figures) {
    const sorted = all.sort((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
    const range = `${sorted[0]?.toFixed(1)} to ${sorted.at(-1)?.toFixed(1)}`;
    process.stdout.write(`${name.padEnd(10)} ${median.toFixed(1).padStart(7)} µs per tunnel   (${range})\n`);
  }
  member.kill();
}

if (IS_MEMBER) serveMember();
else await compare(fork(import.meta.filename, { env: { ...process.env, NORIA_BENCH_MEMBER: '1' } }));
