import { expect, onTestFinished, test } from 'vitest';
import {
  connectLending,
  type RemoteLending,
  type ServedLending,
  serveLending,
} from '../../../src/plane/workers/lease-channel.ts';
import {
  isLease,
  type Lease,
  type LeaseProvider,
  type LeaseRefusal,
  type LeaseReport,
} from '../../../src/pool/lease.ts';
import { addMembers, drawn, openKit, type PoolKit, request } from '../../pool/pool-kit.ts';
import { until } from '../../support/until.ts';

/** Both halves, and a channel between them that carries plain data, later. */
interface Joined {
  readonly remote: RemoteLending;
  /** The channel breaks: each half notices. */
  breakOff(): void;
}

function join(lending: LeaseProvider, asker = 1): Joined {
  let open = true;
  const carry = <Message>(message: Message, hear: (message: Message) => void) =>
    setImmediate((text: string) => open && hear(JSON.parse(text)), JSON.stringify(message));
  const served: ServedLending = serveLending(lending, asker, (message) =>
    carry(message, (heard) => remote.hear(heard)),
  );
  const remote = connectLending((message) => carry(message, (heard) => served.hear(heard)));
  const breakOff = () => {
    open = false;
    remote.close();
    served.close();
  };
  onTestFinished(breakOff);
  return { remote, breakOff };
}

/** Askers at a pool that lends to all of them. */
function connect(kit: PoolKit, count = 1): Joined[] {
  return Array.from({ length: count }, (_, index) => join(kit.pool, index + 1));
}

function openTunnels(kit: PoolKit): number {
  return kit.pool.counts()[0]?.openTunnels ?? Number.NaN;
}

async function leaseFrom(remote: RemoteLending, id: number): Promise<Lease> {
  const answer = await remote.acquire({ ...request({ session: 'abc' }), id });
  if (!isLease(answer)) throw new Error(`refused: ${answer.refused}`);
  return answer;
}

test('lending across a channel: a lease and its reports are the same as at the pool itself', async () => {
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

test('lending across a channel: requests of two askers with one id do not get in each other’s way', async () => {
  const kit = openKit();
  const [left, right] = connect(kit, 2);
  if (left === undefined || right === undefined) throw new Error('nobody asks');
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

test('lending across a channel: when the asker goes, its leases end and nobody waits for it any more', async () => {
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

test('lending across a channel: when the pool closes, who waits is told so', async () => {
  const kit = openKit();
  const { remote } = join(kit.pool);
  const waiting = remote.acquire(request({}, { waitMs: 60_000 }));
  await until('one waits', () => kit.pool.waitingCount === 1);
  kit.pool.close();
  await expect(waiting).resolves.toMatchObject({ refused: 'shutting-down' });
});

/** A pool that answers when it is told to, and notes what it is told. */
class SlowLending implements LeaseProvider {
  readonly told: (LeaseReport | { cancelled: number })[] = [];
  answer: ((answer: Lease | LeaseRefusal) => void) | undefined;

  acquire(): Promise<Lease | LeaseRefusal> {
    const { promise, resolve } = Promise.withResolvers<Lease | LeaseRefusal>();
    this.answer = resolve;
    return promise;
  }

  cancel(cancelled: number): void {
    this.told.push({ cancelled });
  }

  report(report: LeaseReport): void {
    this.told.push(report);
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

test('lending across a channel: a lease that comes when the asker has gone ends at once', async () => {
  const lending = new SlowLending();
  const { remote, breakOff } = join(lending);
  void remote.acquire(request({}, { waitMs: 60_000 }));
  await until('it is asked', () => lending.answer !== undefined);
  breakOff();
  await until('it is cancelled', () => lending.told.length === 1);
  lending.answer?.(LEASE);
  await until('the lease ends', () => lending.told.length === 2);
  expect(lending.told[1]).toEqual({ lease: 77, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
});

test('lending across a channel: what has ended is not ended again when the asker goes', async () => {
  const lending = new SlowLending();
  const { remote, breakOff } = join(lending);
  const answer = remote.acquire(request({}, { waitMs: 60_000 }));
  await until('it is asked', () => lending.answer !== undefined);
  lending.answer?.(LEASE);
  await answer;
  const closed: LeaseReport = { lease: 77, kind: 'closed', cut: false };
  remote.report(closed);
  await until('it is reported', () => lending.told.length === 1);
  breakOff();
  expect(lending.told).toEqual([closed]);
});
