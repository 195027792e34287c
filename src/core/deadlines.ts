/**
 * Many coarse timeouts on one timer: a hashed timing wheel.
 *
 * For timeouts that every connection sets and that rarely expire (handshakes, idle tunnels): setting and clearing one costs
 * a small object and no timer of the runtime. A deadline never fires early, and at most about one tick late.
 */
import type { Clock } from './clock.ts';

/** Only Deadlines uses its fields. */
export class Deadline {
  readonly ms: number;
  readonly fn: () => void;
  /** The tick at which it fires; NaN once it has fired or was cleared. May be later than the tick of its slot. */
  dueTick = Number.NaN;
  /** Links of the circular list of its slot. */
  next: Deadline = this;
  previous: Deadline = this;

  constructor(ms: number, fn: () => void) {
    this.ms = ms;
    this.fn = fn;
  }
}

/** Ticks in one turn of the wheel; later deadlines are visited once per turn. A power of two, for the mask. */
const SLOT_COUNT = 256;
const SLOT_MASK = SLOT_COUNT - 1;

export class Deadlines {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #slots = Array.from({ length: SLOT_COUNT }, makeRing);
  #size = 0;
  /** Everything due up to this tick has fired. */
  #doneTick: number;
  #timer: Disposable | undefined;
  #timerTick = Number.POSITIVE_INFINITY;

  /** @param tickMs - the resolution: deadlines within one tick fire together. */
  constructor(clock: Clock, tickMs: number) {
    this.#clock = clock;
    this.#tickMs = tickMs;
    this.#doneTick = this.#nowTick();
  }

  /** Number of deadlines that are set; 0 once everything is closed. */
  get size(): number {
    return this.#size;
  }

  /** Calls `fn` once, not before `ms` have passed. */
  set(ms: number, fn: () => void): Deadline {
    const deadline = new Deadline(ms, fn);
    deadline.dueTick = this.#dueTick(ms);
    this.#size += 1;
    this.#link(deadline);
    if (deadline.dueTick < this.#timerTick) this.#arm(deadline.dueTick);
    return deadline;
  }

  /** Restarts it with its full time; cheap enough for every packet. Ignored once it has fired or was cleared. */
  refresh(deadline: Deadline): void {
    // It stays in its slot until the wheel gets there and moves it, because it is not due yet.
    if (!Number.isNaN(deadline.dueTick)) deadline.dueTick = this.#dueTick(deadline.ms);
  }

  /** Ignored once it has fired or was cleared. */
  clear(deadline: Deadline): void {
    if (Number.isNaN(deadline.dueTick)) return;
    this.#forget(deadline);
    if (this.#size === 0) this.#disarm();
  }

  /** Clears all. New ones can be set afterwards. */
  clearAll(): void {
    for (const ring of this.#slots) {
      while (ring.next !== ring) this.#forget(ring.next);
    }
    this.#disarm();
  }

  #forget(deadline: Deadline): void {
    deadline.dueTick = Number.NaN;
    this.#size -= 1;
    unlink(deadline);
  }

  #link(deadline: Deadline): void {
    const ring = this.#slot(deadline.dueTick);
    if (ring !== undefined) append(ring, deadline);
  }

  #slot(tick: number): Deadline | undefined {
    return this.#slots[tick & SLOT_MASK];
  }

  #nowTick(): number {
    return Math.floor(this.#clock.monotonic() / this.#tickMs);
  }

  #dueTick(ms: number): number {
    const tick = Math.ceil((this.#clock.monotonic() + ms) / this.#tickMs);
    return Math.max(tick, this.#doneTick + 1); // finished slots are visited again only in the next turn
  }

  #arm(tick: number): void {
    this.#timer?.[Symbol.dispose]();
    this.#timerTick = tick;
    this.#timer = this.#clock.after(tick * this.#tickMs - this.#clock.monotonic(), () => this.#turn());
  }

  #disarm(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#timerTick = Number.POSITIVE_INFINITY;
  }

  /** Fires what is due, then arms the timer for the next slot that is not empty. */
  #turn(): void {
    this.#disarm();
    const nowTick = this.#nowTick();
    const due = makeRing();
    const firstTick = Math.max(this.#doneTick + 1, nowTick - SLOT_COUNT + 1);
    for (let tick = firstTick; tick <= nowTick; tick += 1) this.#collect(tick, nowTick, due);
    this.#doneTick = Math.max(this.#doneTick, nowTick);
    try {
      // One at a time, because each callback may clear or set others, including due ones.
      while (due.next !== due) {
        const deadline = due.next;
        this.#forget(deadline);
        deadline.fn();
      }
    } finally {
      this.#armNext(due);
    }
  }

  #collect(tick: number, nowTick: number, due: Deadline): void {
    const ring = this.#slot(tick);
    if (ring === undefined) return;
    for (let link = ring.next; link !== ring; ) {
      const deadline = link;
      link = link.next;
      if (deadline.dueTick <= nowTick) {
        unlink(deadline);
        append(due, deadline);
      } else if ((deadline.dueTick & SLOT_MASK) !== (tick & SLOT_MASK)) {
        unlink(deadline);
        this.#link(deadline);
      }
    }
  }

  /** @param due - not empty only if a callback threw. */
  #armNext(due: Deadline): void {
    while (due.next !== due) {
      const deadline = due.next;
      unlink(deadline);
      deadline.dueTick = this.#doneTick + 1;
      this.#link(deadline);
    }
    if (this.#size === 0) {
      this.#disarm();
      return;
    }
    let tick = this.#doneTick + 1;
    while (isEmpty(this.#slot(tick))) tick += 1;
    if (tick < this.#timerTick) this.#arm(tick);
  }
}

/** The head of an empty circular list. */
function makeRing(): Deadline {
  return new Deadline(0, () => {});
}

function isEmpty(ring: Deadline | undefined): boolean {
  return ring === undefined || ring.next === ring;
}

function append(ring: Deadline, deadline: Deadline): void {
  deadline.previous = ring.previous;
  deadline.next = ring;
  ring.previous.next = deadline;
  ring.previous = deadline;
}

function unlink(deadline: Deadline): void {
  deadline.previous.next = deadline.next;
  deadline.next.previous = deadline.previous;
  deadline.next = deadline;
  deadline.previous = deadline;
}
