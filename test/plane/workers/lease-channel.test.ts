import { expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../../src/core/secret.ts';
import { LeaseServer, RemotePool } from '../../../src/plane/workers/lease-channel.ts';
import {
  isLease,
  type Lease,
  type LeaseProvider,
  type LeaseRefusal,
  type LeaseReport,
} from '../../../src/pool/lease.ts';
import { addMembers, drawn, openKit, type PoolKit, request } from '../../pool/pool-kit.ts';
import { until } from '../../support/until.ts';

/** A remote pool and its server, connected by a channel that carries JSON in a later turn. */
interface Joined {
  readonly remote: RemotePool;
  /** Breaks the channel and closes both ends. */
  breakOff(): void;
}

function join(pool: LeaseProvider, worker = 1): Joined {
  let open = true;
  const carry = <Message>(message: Message, receive: (message: Message) => void) =>
    setImmediate((text: string) => open && receive(JSON.parse(text)), JSON.stringify(message));
  const server: LeaseServer = new LeaseServer(pool, worker, (message) =>
    carry(message, (received) => remote.receive(received)),
  );
  const remote = new RemotePool((message) => carry(message, (received) => server.receive(received)));
  const breakOff = () => {
    open = false;
    remote.close();
    server.close();
  };
  onTestFinished(breakOff);
  return { remote, breakOff };
}

/** Workers that share a pool. */
function connect(kit: PoolKit, count = 1): Joined[] {
  return Array.from({ length: count }, (_, index) => join(kit.pool, index + 1));
}

function openTunnels(kit: PoolKit): number {
  return kit.pool.counts()[0]?.openTunnels ?? Number.NaN;
}

async function leaseFrom(remote: RemotePool, id: number): Promise<Lease> {
  const answer = await remote.acquire({ ...request({ session: 'abc' }), id });
  if (!isLease(answer)) throw new Error(`refused: ${answer.refused}`);
  return answer;
}

test('lease channel: a lease and its reports are the same as at the pool itself', async () => {
  const kit = openKit();
  addMembers(kit, 1, 180_000, { exitIp: '198.51.100.7' });
  const { remote } = join(kit.pool);
  const lease = await leaseFrom(remote, 1);
  const [member] = kit.pool.members();
  expect(lease).toEqual({
    id: lease.id,
    member: member?.id,
    source: 'city',
    protocol: 'http',
    host: member?.host,
    port: 8000,
    exitIp: '198.51.100.7',
    remainingMs: 180_000,
    session: 'abc',
    waitedMs: 0,
    doubtful: true,
  });
  remote.report({ lease: lease.id, kind: 'accepted', latencyMs: 12 });
  await until('the use is counted', () => kit.pool.members()[0]?.uses === 1);
  remote.report({ lease: lease.id, kind: 'closed', cut: false });
  await until('the tunnel is closed', () => openTunnels(kit) === 0);
});

test('lease channel: requests of two workers with the same id are kept apart', async () => {
  const kit = openKit();
  const [left, right] = connect(kit, 2);
  if (left === undefined || right === undefined) throw new Error('no workers');
  const leftAnswer = left.remote.acquire(request({}, { id: 1, waitMs: 60_000 }));
  const rightAnswer = right.remote.acquire(request({}, { id: 1, waitMs: 60_000 }));
  const ownAnswer = kit.pool.acquire(request({}, { id: 1, waitMs: 60_000 }));
  await until('three wait', () => kit.pool.waitingCount === 3);
  left.remote.cancel(1);
  await expect(leftAnswer).resolves.toMatchObject({ refused: 'client-gone' });
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  const answers = await Promise.all([rightAnswer, ownAnswer]);
  expect(answers.every(isLease)).toBe(true);
});

test('lease channel: when the worker exits, its leases end and its requests are canceled', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1);
  const { remote, breakOff } = join(kit.pool);
  await leaseFrom(remote, 1);
  const late = remote.acquire(request({ protocol: 'socks5' }, { id: 2, waitMs: 60_000 }));
  await until('one waits', () => kit.pool.waitingCount === 1);
  expect(openTunnels(kit)).toBe(1);
  breakOff();
  await expect(late).resolves.toMatchObject({ refused: 'shutting-down' });
  await until('nothing is left', () => kit.pool.waitingCount === 0 && openTunnels(kit) === 0);
  expect(await remote.acquire(request())).toMatchObject({ refused: 'shutting-down' });
});

test('lease channel: when the pool closes, waiting requests are refused', async () => {
  const kit = openKit();
  const { remote } = join(kit.pool);
  const waiting = remote.acquire(request({}, { waitMs: 60_000 }));
  await until('one waits', () => kit.pool.waitingCount === 1);
  kit.pool.close();
  await expect(waiting).resolves.toMatchObject({ refused: 'shutting-down' });
});

/** A pool that answers when the test says so, and records its calls. */
class SlowPool implements LeaseProvider {
  readonly calls: (LeaseReport | { cancelled: number })[] = [];
  answer: ((answer: Lease | LeaseRefusal) => void) | undefined;

  acquire(): Promise<Lease | LeaseRefusal> {
    const { promise, resolve } = Promise.withResolvers<Lease | LeaseRefusal>();
    this.answer = resolve;
    return promise;
  }

  cancel(cancelled: number): void {
    this.calls.push({ cancelled });
  }

  report(report: LeaseReport): void {
    this.calls.push(report);
  }

  upcoming(): readonly [] {
    return [];
  }
}

const LEASE: Lease = {
  id: 77,
  member: 'm1',
  source: 'city',
  protocol: 'http',
  host: '203.0.113.7',
  port: 8000,
  waitedMs: 0,
  doubtful: false,
};

test('lease channel: a lease granted after the worker has exited ends at once', async () => {
  const pool = new SlowPool();
  const { remote, breakOff } = join(pool);
  void remote.acquire(request({}, { waitMs: 60_000 }));
  await until('it is asked', () => pool.answer !== undefined);
  breakOff();
  await until('it is cancelled', () => pool.calls.length === 1);
  pool.answer?.(LEASE);
  await until('the lease ends', () => pool.calls.length === 2);
  expect(pool.calls[1]).toEqual({ lease: 77, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
});

test('lease channel: a lease that has ended is not ended again when the worker exits', async () => {
  const pool = new SlowPool();
  const { remote, breakOff } = join(pool);
  const answer = remote.acquire(request({}, { waitMs: 60_000 }));
  await until('it is asked', () => pool.answer !== undefined);
  pool.answer?.(LEASE);
  await answer;
  const closed: LeaseReport = { lease: 77, kind: 'closed', cut: false };
  remote.report(closed);
  await until('it is reported', () => pool.calls.length === 1);
  breakOff();
  expect(pool.calls).toEqual([closed]);
});

test('lease channel: the password of a member arrives, and prints as its mask', async () => {
  const kit = openKit();
  const login = { username: 'exit-1', password: new Secret('pa55word') };
  kit.pool.addMembers('city', [drawn(kit, 1, 120_000, { login })]);
  const { remote } = join(kit.pool);
  const lease = await leaseFrom(remote, 1);
  expect(lease.login?.password.reveal()).toBe('pa55word');
  expect(JSON.stringify(lease)).not.toContain('pa55word');
});
