/**
 * Many coarse deadlines on one timer: a hashed timing wheel over a Clock.
 *
 * For what is set for every connection and almost never comes due (handshakes, idle tunnels): setting and clearing
 * one costs a small object and no timer of the runtime. A deadline never fires early, and about a tick late at most.
 */
import type { Clock } from './clock.ts';

/** A deadline as its setter holds it: a link of the ring of its slot. Its fields are the wheel's alone. */
export class Deadline {
  readonly ms: number;
  readonly fn: () => void;
  /** The tick at which it fires; may be later than its slot's, after `refresh` or beyond one turn. */
  dueTick = Number.NaN;
  next: Deadline = this;
  previous: Deadline = this;

  constructor(ms: number, fn: () => void) {
    this.ms = ms;
    this.fn = fn;
  }
}

/** One turn of the wheel, in ticks; later deadlines are looked at once a turn. A power of two, for the mask. */
const SLOT_COUNT = 256;
const SLOT_MASK = SLOT_COUNT - 1;

export class Deadlines {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #slots = Array.from({ length: SLOT_COUNT }, makeRing);
  #size = 0;
  /** Up to this tick every slot has been emptied of what was due. */
  #doneTick: number;
  #timer: Disposable | undefined;
  #timerTick = Number.POSITIVE_INFINITY;

  /** @param tickMs - how exact the deadlines are; what comes due within one tick fires together. */
  constructor(clock: Clock, tickMs: number) {
    this.#clock = clock;
    this.#tickMs = tickMs;
    this.#doneTick = this.#nowTick();
  }

  /** How many are set. A test of something closed ends by asserting that this is 0. */
  get size(): number {
    return this.#size;
  }

  /** Runs `fn` once, not before `ms` have passed, unless it is cleared. */
  set(ms: number, fn: () => void): Deadline {
    const deadline = new Deadline(ms, fn);
    deadline.dueTick = this.#dueTick(ms);
    this.#size += 1;
    this.#link(deadline);
    if (deadline.dueTick < this.#timerTick) this.#arm(deadline.dueTick);
    return deadline;
  }

  /** Starts it again for its full time: cheap enough for every sign of life. Ignored once it has fired or was cleared. */
  refresh(deadline: Deadline): void {
    // It stays in its slot; the wheel moves it on when it gets there and finds it not yet due.
    if (!Number.isNaN(deadline.dueTick)) deadline.dueTick = this.#dueTick(deadline.ms);
  }

  /** Safe on one that has fired or was cleared already. */
  clear(deadline: Deadline): void {
    if (Number.isNaN(deadline.dueTick)) return;
    this.#forget(deadline);
    if (this.#size === 0) this.#disarm();
  }

  /** Clears all of them; the wheel can be used again. */
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
    return Math.max(tick, this.#doneTick + 1); // a slot that is done is not looked at before the next turn
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

  /** Fires what is due by now, then sleeps until the next slot that holds anything. */
  #turn(): void {
    this.#disarm();
    const nowTick = this.#nowTick();
    const due = makeRing();
    const firstTick = Math.max(this.#doneTick + 1, nowTick - SLOT_COUNT + 1);
    for (let tick = firstTick; tick <= nowTick; tick += 1) this.#collect(tick, nowTick, due);
    this.#doneTick = Math.max(this.#doneTick, nowTick);
    try {
      // One by one from the ring: each may clear or set others, the due ones included.
      while (due.next !== due) {
        const deadline = due.next;
        this.#forget(deadline);
        deadline.fn();
      }
    } finally {
      this.#rest(due);
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

  /** Arms the timer for what is left; `due` holds something only when a callback threw. */
  #rest(due: Deadline): void {
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

/** An empty ring: a link that is its own neighbour. */
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
