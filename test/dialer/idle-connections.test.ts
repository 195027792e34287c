import { Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import type { ForwardMode } from '../../src/dialer/contract.ts';
import { NO_BYTES } from '../../src/dialer/handshake.ts';
import { IdleConnections } from '../../src/dialer/member-connections.ts';
import { httpBehavior, openMember } from '../support/bad-members.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { connectionOf, makeDialer } from './make-dialer.ts';

function makeIdle() {
  const clock = ManualClock.dayOld();
  const deadlines = new Deadlines(clock, 10);
  const idle = new IdleConnections(clock, deadlines, () => true);
  onTestFinished(() => {
    idle.clear();
    expect([idle.size, deadlines.size, clock.armedCount]).toEqual([0, 0, 0]);
  });
  return { clock, idle };
}

/** Returns connected sockets, because only readable and writable sockets are kept. */
async function makeSockets(count: number): Promise<Socket[]> {
  const { dial } = makeDialer([{ id: 'm1', at: await openMember('http', httpBehavior()) }]);
  const connections = await Promise.all(Array.from({ length: count }, () => dial('target.example:80')));
  return connections.map((connection) => connectionOf(connection).socket);
}

function connection(
  socket: Socket,
  {
    forwardMode = 'direct',
    endsAt = Number.POSITIVE_INFINITY,
  }: { forwardMode?: ForwardMode; endsAt?: number } = {},
): Parameters<IdleConnections['keep']>[0] {
  const raw = {
    kind: 'accepted',
    at: 0,
    socket,
    early: NO_BYTES,
    forwardMode,
    isWarm: false,
    login: undefined,
  } as const;
  return { raw, member: 'm1', target: 'target.example:80', owner: 'ann', endsAt };
}

function take(
  idle: IdleConnections,
  {
    member = 'm1',
    target = 'target.example:80',
    ...over
  }: Partial<Parameters<IdleConnections['take']>[0]> = {},
) {
  return idle.take({ member, target, forwardMode: 'absolute', owner: 'ann', ...over });
}

test('idle connections: are kept for five seconds, but never past the end of the member', async () => {
  const { clock, idle } = makeIdle();
  const [a, b] = await makeSockets(2);
  if (a === undefined || b === undefined) throw new Error('no sockets');
  idle.keep(connection(a));
  clock.advance(4_990);
  expect(idle.size).toBe(1);
  clock.advance(20);
  expect([idle.size, a.destroyed]).toEqual([0, true]);
  idle.keep(connection(b, { endsAt: clock.monotonic() }));
  expect([idle.size, b.destroyed]).toEqual([0, true]);
});

test('idle connections: the newest is taken first, each only once', async () => {
  const { idle } = makeIdle();
  const [a, b] = await makeSockets(2);
  if (a === undefined || b === undefined) throw new Error('no sockets');
  idle.keep(connection(a));
  idle.keep(connection(b));
  expect(take(idle, { member: 'm1', target: 'target.example:80', forwardMode: 'absolute' })?.socket).toBe(b);
  expect(take(idle, { member: 'm1', target: 'target.example:80', forwardMode: 'absolute' })?.socket).toBe(a);
  expect(take(idle, { member: 'm1', target: 'target.example:80', forwardMode: 'absolute' })).toBeUndefined();
  const listeners = [a, b].map((socket) => [socket.listenerCount('data'), socket.listenerCount('end')]);
  expect(listeners).toEqual([
    [0, 1], // the one 'end' listener that node:net adds
    [0, 1],
  ]);
});

test('idle connections: one in absolute form serves any target through its member, and no other member', async () => {
  const { idle } = makeIdle();
  const [a] = await makeSockets(1);
  if (a === undefined) throw new Error('no socket');
  idle.keep(connection(a, { forwardMode: 'absolute' }));
  expect(take(idle, { member: 'm2', target: 'target.example:80', forwardMode: 'absolute' })).toBeUndefined();
  expect(take(idle, { member: 'm1', target: 'other.example:80', forwardMode: 'direct' })).toBeUndefined();
  expect(take(idle, { member: 'm1', target: 'other.example:80', forwardMode: 'absolute' })).toMatchObject({
    forwardMode: 'absolute',
    socket: a,
  });
});

test.each(['direct', 'absolute'] as const)(
  'idle connections: one in %s form serves its owner only',
  async (forwardMode) => {
    const { idle } = makeIdle();
    const [a] = await makeSockets(1);
    if (a === undefined) throw new Error('no socket');
    idle.keep(connection(a, { forwardMode }));
    expect(take(idle, { owner: 'bob' })).toBeUndefined();
    expect(take(idle, { owner: '' })).toBeUndefined();
    expect(take(idle, { owner: 'ann' })?.socket).toBe(a);
  },
);

test('idle connections: at most four are kept per member and target', async () => {
  const { idle } = makeIdle();
  const sockets = await makeSockets(6);
  for (const socket of sockets) idle.keep(connection(socket));
  expect([idle.size, sockets.filter((socket) => socket.destroyed).length]).toEqual([4, 2]);
});

test('idle connections: at most four are kept per member and target, in absolute form per member and owner', async () => {
  const { idle } = makeIdle();
  const keep = (over: Partial<Parameters<IdleConnections['keep']>[0]>, forwardMode: ForwardMode) => {
    const socket = new Socket();
    idle.keep({ ...connection(socket, { forwardMode }), ...over });
    return !socket.destroyed;
  };
  for (const forwardMode of ['direct', 'absolute'] as const) {
    const kept = (over: Partial<Parameters<IdleConnections['keep']>[0]>) =>
      [1, 2, 3, 4, 5].map(() => keep(over, forwardMode)).filter(Boolean).length;
    expect([
      kept({}),
      kept({ target: 'other.example:80' }),
      kept({ owner: 'bob' }),
      kept({ member: 'm2' }),
    ]).toEqual(forwardMode === 'direct' ? [4, 4, 4, 4] : [4, 0, 4, 4]);
  }
  expect(idle.size).toBe(28);
});

test('idle connections: at most 512 are kept, and one that is taken or closed makes room', () => {
  const { idle } = makeIdle();
  const sockets = Array.from({ length: 514 }, () => new Socket());
  const keep = (index: number) => {
    const socket = sockets[index] as Socket;
    idle.keep({ ...connection(socket), member: `m${index}` });
    return !socket.destroyed;
  };
  const kept = Array.from({ length: 512 }, (_, index) => keep(index));
  expect([kept.every(Boolean), keep(512), idle.size]).toEqual([true, false, 512]);
  expect(take(idle, { member: 'm7', forwardMode: 'direct' })?.socket).toBe(sockets[7]);
  expect([keep(513), idle.size]).toEqual([true, 512]);
  for (const [index, event] of ['data', 'end', 'close'].entries()) {
    sockets[index]?.emit(event);
    expect([sockets[index]?.destroyed, idle.size]).toEqual([true, 511 - index]);
    expect(take(idle, { member: `m${index}` })).toBeUndefined();
  }
});

test.each<[string, (socket: Socket) => void, kept: boolean]>([
  ['nothing pending', () => {}, true],
  ['unread bytes', (socket) => socket.unshift(Buffer.from('left over')), false],
  [
    'unsent bytes',
    (socket) => {
      socket.cork();
      socket.write('left over');
    },
    false,
  ],
  ['an ended write side', (socket) => void socket.end(), false],
  ['an ended read side', (socket) => void socket.push(null), false],
  ['an end', (socket) => void socket.destroy(), false],
])('idle connections: whether a connection with %s is kept', async (_, change, kept) => {
  const { idle } = makeIdle();
  const socket = new Socket({ allowHalfOpen: true });
  change(socket);
  if (socket.readableLength === 0 && !socket.destroyed) socket.resume().read(0);
  await new Promise((next) => setImmediate(next));
  idle.keep(connection(socket));
  expect([idle.size === 1, !socket.destroyed]).toEqual([kept, kept]);
});

test('idle connections: a connection with unread or unsent bytes, or with an ended side, is closed', async () => {
  const { idle } = makeIdle();
  const [unread, ended, gone] = await makeSockets(3);
  if (unread === undefined || ended === undefined || gone === undefined) throw new Error('no sockets');
  unread.unshift(Buffer.from('left over'));
  ended.end();
  gone.destroy();
  for (const socket of [unread, ended, gone]) idle.keep(connection(socket));
  expect([idle.size, unread.destroyed, ended.destroyed]).toEqual([0, true, true]);
});
