import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  PermitHolder,
  type PermitOrder,
  PermitPool,
  type PermitRequest,
} from '../../../src/plane/workers/connection-permits.ts';
import { ManualClock } from '../../support/manual-clock.ts';

/** An office and its workers, with a pipe to and from each that delivers when it is told to, in order. */
class Play {
  readonly limit: number;
  readonly office: PermitPool;
  readonly clock = new ManualClock();
  readonly stocks = new Map<number, PermitHolder>();
  readonly #toOffice = new Map<number, PermitRequest[]>();
  readonly #toWorker = new Map<number, PermitOrder[]>();
  readonly used = new Map<number, number>();
  refused = 0;

  constructor(limit: number, workers: number) {
    this.limit = limit;
    this.office = new PermitPool(limit, this.clock, (worker, order) =>
      this.#toWorker.get(worker)?.push(order),
    );
    for (let worker = 1; worker <= workers; worker += 1) this.join(worker);
  }

  get inUse(): number {
    return [...this.used.values()].reduce((sum, count) => sum + count, 0);
  }

  join(worker: number): void {
    this.#toOffice.set(worker, []);
    this.#toWorker.set(worker, []);
    this.used.set(worker, 0);
    this.stocks.set(worker, new PermitHolder((request) => this.#toOffice.get(worker)?.push(request)));
  }

  /** A client comes to this worker. */
  async arrive(worker: number): Promise<void> {
    const permitted = await this.stocks.get(worker)?.acquire();
    if (!this.used.has(worker)) return; // it ended while the client waited
    if (permitted === true) this.used.set(worker, (this.used.get(worker) ?? 0) + 1);
    else this.refused += 1;
  }

  leave(worker: number): void {
    const used = this.used.get(worker) ?? 0;
    if (used === 0) return;
    this.used.set(worker, used - 1);
    this.stocks.get(worker)?.release();
  }

  end(worker: number): void {
    for (const pipe of [this.#toOffice, this.#toWorker]) pipe.delete(worker);
    this.used.delete(worker);
    this.stocks.delete(worker);
    this.office.gone(worker);
  }

  /** Delivers one message of this worker's pipe. @returns false when there is none. */
  deliver(worker: number, way: 'up' | 'down'): boolean {
    if (way === 'up') {
      const request = this.#toOffice.get(worker)?.shift();
      if (request !== undefined) this.office.hear(worker, request);
      return request !== undefined;
    }
    const order = this.#toWorker.get(worker)?.shift();
    if (order !== undefined) this.stocks.get(worker)?.hear(order);
    return order !== undefined;
  }

  /** Until nobody has anything to say any more. */
  async settle(): Promise<void> {
    for (let busy = true; busy; ) {
      busy = false;
      for (const worker of [...this.stocks.keys()]) {
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

test('permits: whatever is under way, there are never more connections than the limit', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 12 }),
      fc.array(STEP, { minLength: 1, maxLength: 80 }),
      async (limit, steps) => {
        const play = new Play(limit, 3);
        const arrivals: Promise<void>[] = [];
        let alive = 3;
        for (const { what, worker } of steps) {
          if (what === 'arrive' && play.stocks.has(worker)) arrivals.push(play.arrive(worker));
          else if (what === 'leave') play.leave(worker);
          else if (what === 'up' || what === 'down') play.deliver(worker, what);
          else if (what === 'wait') play.clock.advance(1_000);
          else if (what === 'end' && alive > 1 && play.stocks.has(worker)) {
            alive -= 1;
            play.end(worker);
          }
          await turn(); // those let in at once have come in
          expect(play.inUse).toBeLessThanOrEqual(limit);
        }
        await play.settle();
        expect(play.inUse).toBeLessThanOrEqual(limit);
        // Nothing is lost on the way: when all have left, as many as ever can come in.
        for (const worker of play.stocks.keys()) while ((play.used.get(worker) ?? 0) > 0) play.leave(worker);
        await play.settle();
        const [first = 0] = play.stocks.keys();
        const before = play.refused;
        const more = Array.from({ length: limit + 2 }, () => play.arrive(first));
        await play.settle();
        await Promise.all(more);
        expect([play.inUse, play.refused - before]).toEqual([limit, 2]);
        expect(play.clock.armedCount).toBe(0);
      },
    ),
    { numRuns: 150 },
  );
});

test('permits: where every message arrives before the next client, exactly the limit is let in', async () => {
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
    { numRuns: 60 },
  );
});

test('permits: a large limit is asked for seldom', async () => {
  const said: PermitRequest[] = [];
  const stock: PermitHolder = new PermitHolder((request) => {
    said.push(request);
    office.hear(1, request);
  });
  const office: PermitPool = new PermitPool(10_000, new ManualClock(), (_worker, order) => stock.hear(order));
  for (let n = 0; n < 10_000; n += 1) expect(await stock.acquire()).toBe(true);
  expect(await stock.acquire()).toBe(false);
  expect(said.length).toBeLessThan(60);
});

test('permits: a worker that hangs keeps what it has, and nobody waits for it longer than 1 s', async () => {
  const play = new Play(4, 2);
  for (const worker of [1, 2]) {
    const arrival = play.arrive(worker);
    while (play.deliver(worker, 'up') || play.deliver(worker, 'down'));
    await arrival;
  }
  // From here on nothing that is said to the second one arrives.
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
  expect(play.refused, 'it is not waited for again').toBe(refused + 1);
  await play.settle(); // it goes on
  const free = 4 - play.inUse;
  for (let n = 0; n < free; n += 1) {
    const arrival = play.arrive(1);
    await play.settle();
    await arrival;
  }
  expect([play.inUse, play.refused]).toEqual([4, refused + 1]);
});
