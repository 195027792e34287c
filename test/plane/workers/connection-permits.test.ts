import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  ConnectionPermitHolder,
  ConnectionPermitPool,
  type PermitReply,
  type PermitRequest,
} from '../../../src/plane/workers/connection-permits.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { runsOf } from '../../support/properties.ts';

/**
 * A pool of permits and its workers. The pipes between them deliver messages in order, at the moments that the test
 * chooses.
 */
class Play {
  readonly limit: number;
  readonly pool: ConnectionPermitPool;
  readonly clock = new ManualClock();
  readonly holders = new Map<number, ConnectionPermitHolder>();
  readonly #toPool = new Map<number, PermitRequest[]>();
  readonly #toWorker = new Map<number, PermitReply[]>();
  readonly used = new Map<number, number>();
  refused = 0;

  constructor(limit: number, workers: number) {
    this.limit = limit;
    this.pool = new ConnectionPermitPool(limit, this.clock, (worker, reply) =>
      this.#toWorker.get(worker)?.push(reply),
    );
    for (let worker = 1; worker <= workers; worker += 1) this.join(worker);
  }

  get inUse(): number {
    return [...this.used.values()].reduce((sum, count) => sum + count, 0);
  }

  join(worker: number): void {
    this.#toPool.set(worker, []);
    this.#toWorker.set(worker, []);
    this.used.set(worker, 0);
    this.holders.set(
      worker,
      new ConnectionPermitHolder((request) => this.#toPool.get(worker)?.push(request)),
    );
  }

  /** A client connects to this worker. */
  async arrive(worker: number): Promise<void> {
    const permitted = await this.holders.get(worker)?.acquire();
    if (!this.used.has(worker)) return; // the worker exited while the client waited
    if (permitted === true) this.used.set(worker, (this.used.get(worker) ?? 0) + 1);
    else this.refused += 1;
  }

  leave(worker: number): void {
    const used = this.used.get(worker) ?? 0;
    if (used === 0) return;
    this.used.set(worker, used - 1);
    this.holders.get(worker)?.release();
  }

  end(worker: number): void {
    for (const pipe of [this.#toPool, this.#toWorker]) pipe.delete(worker);
    this.used.delete(worker);
    this.holders.delete(worker);
    this.pool.workerExited(worker);
  }

  /** Delivers one message from this worker (`up`) or to it (`down`). @returns false if there is none. */
  deliver(worker: number, direction: 'up' | 'down'): boolean {
    if (direction === 'up') {
      const request = this.#toPool.get(worker)?.shift();
      if (request !== undefined) this.pool.receive(worker, request);
      return request !== undefined;
    }
    const reply = this.#toWorker.get(worker)?.shift();
    if (reply !== undefined) this.holders.get(worker)?.receive(reply);
    return reply !== undefined;
  }

  /** Delivers until no message is left. */
  async settle(): Promise<void> {
    for (let busy = true; busy; ) {
      busy = false;
      for (const worker of [...this.holders.keys()]) {
        while (this.deliver(worker, 'up') || this.deliver(worker, 'down')) busy = true;
      }
      await turn();
    }
  }
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

const STEP = fc.record({
  what: fc.constantFrom('arrive', 'arrive', 'arrive', 'leave', 'up', 'down', 'wait', 'end' as const),
  worker: fc.integer({ min: 1, max: 3 }),
});

test('permits: there are never more connections than the limit, whatever messages are in flight', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 12 }),
      fc.array(STEP, { minLength: 1, maxLength: 80 }),
      async (limit, steps) => {
        const play = new Play(limit, 3);
        const arrivals: Promise<void>[] = [];
        let alive = 3;
        for (const { what, worker } of steps) {
          if (what === 'arrive' && play.holders.has(worker)) arrivals.push(play.arrive(worker));
          else if (what === 'leave') play.leave(worker);
          else if (what === 'up' || what === 'down') play.deliver(worker, what);
          else if (what === 'wait') play.clock.advance(1_000);
          else if (what === 'end' && alive > 1 && play.holders.has(worker)) {
            alive -= 1;
            play.end(worker);
          }
          await turn(); // after it, permits that were acquired immediately are counted
          expect(play.inUse).toBeLessThanOrEqual(limit);
        }
        await play.settle();
        expect(play.inUse).toBeLessThanOrEqual(limit);
        // No permit is lost: when all clients have disconnected, the limit allows as many connections as before.
        for (const worker of play.holders.keys()) while ((play.used.get(worker) ?? 0) > 0) play.leave(worker);
        await play.settle();
        const [first = 0] = play.holders.keys();
        const before = play.refused;
        const more = Array.from({ length: limit + 2 }, () => play.arrive(first));
        await play.settle();
        await Promise.all(more);
        expect([play.inUse, play.refused - before]).toEqual([limit, 2]);
        expect(play.clock.armedCount).toBe(0);
      },
    ),
    { numRuns: runsOf(150) },
  );
});

test('permits: when every message arrives before the next client, exactly the limit connects', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 20 }),
      fc.array(fc.record({ arrives: fc.boolean(), worker: fc.integer({ min: 1, max: 4 }) }), {
        maxLength: 60,
      }),
      async (limit, steps) => {
        const play = new Play(limit, 4);
        for (const { arrives, worker } of steps) {
          const [full, refused] = [play.inUse === limit, play.refused];
          if (!arrives) play.leave(worker);
          else {
            const arrival = play.arrive(worker);
            await play.settle();
            await arrival;
            expect(play.refused - refused).toBe(full ? 1 : 0);
          }
        }
      },
    ),
    { numRuns: runsOf(60) },
  );
});

test('permits: a worker asks rarely under a large limit', async () => {
  const requests: PermitRequest[] = [];
  const holder: ConnectionPermitHolder = new ConnectionPermitHolder((request) => {
    requests.push(request);
    pool.receive(1, request);
  });
  const pool: ConnectionPermitPool = new ConnectionPermitPool(10_000, new ManualClock(), (_worker, reply) =>
    holder.receive(reply),
  );
  for (let n = 0; n < 10_000; n += 1) expect(await holder.acquire()).toBe(true);
  expect(await holder.acquire()).toBe(false);
  expect(requests.length).toBeLessThan(60);
});

test('permits: a worker that hangs keeps its permits, and clients wait for it 1 s at most', async () => {
  const play = new Play(4, 2);
  for (const worker of [1, 2]) {
    const arrival = play.arrive(worker);
    while (play.deliver(worker, 'up') || play.deliver(worker, 'down'));
    await arrival;
  }
  // From now on, the second worker receives no message.
  const hangs = async (arrival: Promise<void>) => {
    while (play.deliver(1, 'up') || play.deliver(1, 'down'));
    await turn();
    return arrival;
  };
  const others = [play.arrive(1), play.arrive(1), play.arrive(1)];
  await hangs(Promise.resolve());
  expect(play.refused).toBe(0);
  play.clock.advance(999);
  await hangs(Promise.resolve());
  const waiting = play.refused;
  play.clock.advance(1);
  await hangs(Promise.all(others).then(() => {}));
  expect([waiting, play.refused > 0]).toEqual([0, true]);
  const refused = play.refused;
  await hangs(play.arrive(1));
  expect(play.refused, 'the pool does not wait for it again').toBe(refused + 1);
  await play.settle(); // the second worker resumes
  const free = 4 - play.inUse;
  for (let n = 0; n < free; n += 1) {
    const arrival = play.arrive(1);
    await play.settle();
    await arrival;
  }
  expect([play.inUse, play.refused]).toEqual([4, refused + 1]);
});
