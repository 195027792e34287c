import { onTestFinished } from 'vitest';
import { ManualClock } from './manual-clock.ts';

/** The time that each reading takes, because two readings of a real clock are never equal either. */
const READING_MS = 1e-6;

/**
 * A clock on which each turn of the event loop takes one millisecond, until the end of the test. A step of work on a
 * loopback socket takes a turn or two, however busy the machine is. So delays on this clock and work on sockets of the
 * same process have the same order on every machine, and no test waits for real time.
 */
export class LoopClock extends ManualClock {
  #readings = 0;

  constructor() {
    super();
    let isRunning = true;
    const tick = () => {
      if (!isRunning) return;
      this.#readings = 0;
      this.advance(1);
      setImmediate(tick);
    };
    setImmediate(tick);
    onTestFinished(() => {
      isRunning = false;
    });
  }

  override monotonic(): number {
    this.#readings += 1;
    return super.monotonic() + this.#readings * READING_MS;
  }
}
