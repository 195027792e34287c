/**
 * Many coarse timeouts on one timer: a hashed timing wheel.
 *
 * Use it for timeouts that every connection sets and that rarely expire (handshakes, idle tunnels). The wheel has one
 * slot for each tick of time. A timeout costs one small object, and no Node timer. It never fires early, and at most
 * about one tick late.
 */
import type { Clock } from './clock.ts';

export class Deadline {
  readonly ms: number;
  readonly fn: () => void;
  /**
   * The tick at which the deadline fires; NaN after it fired or was cleared. A refresh changes only this number: the
   * deadline stays in the wheel's slot for its old tick until the wheel reaches that slot.
   */
  dueTick: number;
  next: Deadline;
  previous: Deadline;

  constructor(ms: number, fn: () => void, dueTick: number) {
    this.ms = ms;
    this.fn = fn;
    this.dueTick = dueTick;
    this.next = this;
    this.previous = this;
  }
}

/** A power of two, so that a bit mask finds the slot of a tick. */
const SLOT_COUNT = 256;
const SLOT_MASK = SLOT_COUNT - 1;

export class Deadlines {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #slots = Array.from({ length: SLOT_COUNT }, makeRing);
  #size = 0;
  #doneTick: number;
  #timer: Disposable | undefined;
  #timerTick = Number.POSITIVE_INFINITY;

  /** @param tickMs - the resolution in ms: deadlines within one tick fire together. */
  constructor(clock: Clock, tickMs: number) {
    this.#clock = clock;
    this.#tickMs = tickMs;
    this.#doneTick = this.#nowTick();
  }

  get size(): number {
    return this.#size;
  }

  /** @param now - the current monotonic time in ms, if the caller has just read the clock. */
  set(ms: number, fn: () => void, now = this.#clock.monotonic()): Deadline {
    const deadline = new Deadline(ms, fn, this.#dueTick(ms, now));
    this.#size += 1;
    append(this.#slots[deadline.dueTick & SLOT_MASK], deadline);
    if (deadline.dueTick < this.#timerTick) this.#arm(deadline.dueTick);
    return deadline;
  }

  /** Restarts the deadline with its full time. No-op after the deadline fired or was cleared. */
  refresh(deadline: Deadline): void {
    // runs for every packet, so it does not move the deadline to another slot: `#collect` does that later
    if (Number.isNaN(deadline.dueTick)) return;
    deadline.dueTick = this.#dueTick(deadline.ms, this.#clock.monotonic());
  }

  clear(deadline: Deadline | undefined): void {
    if (deadline === undefined || Number.isNaN(deadline.dueTick)) return;
    this.#forget(deadline);
    if (this.#size === 0) this.#disarm();
  }

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

  #nowTick(): number {
    return Math.floor(this.#clock.monotonic() / this.#tickMs);
  }

  #dueTick(ms: number, now: number): number {
    const tick = Math.ceil((now + ms) / this.#tickMs);
    // A deadline whose tick has passed gets the next tick: the wheel would reach the slot of the past tick only in its
    // next revolution.
    return Math.max(tick, this.#doneTick + 1);
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

  #turn(): void {
    this.#disarm();
    const nowTick = this.#nowTick();
    const due = makeRing();
    const firstTick = Math.max(this.#doneTick + 1, nowTick - SLOT_COUNT + 1);
    for (let tick = firstTick; tick <= nowTick; tick += 1) this.#collect(tick, nowTick, due);
    this.#doneTick = Math.max(this.#doneTick, nowTick);
    try {
      // Takes one deadline at a time, because a callback may set or clear other deadlines, even deadlines in `due`.
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
    const ring = this.#slots[tick & SLOT_MASK];
    if (ring === undefined) return;
    for (let link = ring.next; link !== ring; ) {
      const deadline = link;
      link = link.next;
      if (deadline.dueTick <= nowTick) {
        unlink(deadline);
        append(due, deadline);
      } else if ((deadline.dueTick & SLOT_MASK) !== (tick & SLOT_MASK)) {
        unlink(deadline);
        append(this.#slots[deadline.dueTick & SLOT_MASK], deadline);
      }
    }
  }

  /** @param due - the deadlines that did not fire because a callback threw. They fire at the next tick. */
  #armNext(due: Deadline): void {
    while (due.next !== due) {
      const deadline = due.next;
      unlink(deadline);
      deadline.dueTick = this.#doneTick + 1;
      append(this.#slots[deadline.dueTick & SLOT_MASK], deadline);
    }
    if (this.#size === 0) {
      this.#disarm();
      return;
    }
    let tick = this.#doneTick + 1;
    let ring = this.#slots[tick & SLOT_MASK];
    while (ring?.next === ring) {
      tick += 1;
      ring = this.#slots[tick & SLOT_MASK];
    }
    if (tick < this.#timerTick) this.#arm(tick);
  }
}

function makeRing(): Deadline {
  return new Deadline(0, () => {}, Number.NaN);
}

function append(ring: Deadline | undefined, deadline: Deadline): void {
  if (ring === undefined) return;
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
