import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { ManualClock } from './manual-clock.ts';

/** The time in ms that each reading of the clock takes: two readings of a real clock are never equal, either. */
const READING_MS = 1e-6;
/** A message to a member and its answer are one round trip. Some steps of a dialer take several. */
const ROUND_TRIPS = 3;

/**
 * A clock on which each turn of the event loop takes one millisecond, until the end of the test. A step of work on a
 * loopback socket takes a turn or two, however busy the machine is. So delays on this clock and work on sockets of the
 * same process have the same order on every machine, and no test waits for real time.
 *
 * A busy system may deliver messages late, while the event loop turns. So before a timer fires, the clock waits until
 * messages that it sends to itself have arrived.
 */
export class LoopClock extends ManualClock {
  readonly #system = openLoopback();
  #readings = 0;
  #isRunning = true;

  constructor() {
    super();
    onTestFinished(() => {
      this.#isRunning = false;
    });
    setImmediate(() => void this.#run());
  }

  override monotonic(): number {
    this.#readings += 1;
    return super.monotonic() + this.#readings * READING_MS;
  }

  async #run(): Promise<void> {
    const system = await this.#system;
    while (this.#isRunning) {
      if (this.armedMs.some((ms) => ms <= 1)) await system.deliver();
      this.#readings = 0;
      this.advance(1);
      await new Promise((next) => setImmediate(next));
    }
    system.close();
  }
}

/** A connection of this process to itself. `deliver` resolves when the system has delivered what was sent before. */
async function openLoopback() {
  const echoes: Socket[] = [];
  const server = createServer((socket) => echoes.push(socket.pipe(socket)));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  return {
    async deliver() {
      for (let trip = 0; trip < ROUND_TRIPS; trip += 1) {
        const back = once(socket, 'data');
        socket.write('x');
        await back;
      }
    },
    close() {
      for (const each of [socket, ...echoes]) each.destroy();
      server.close();
    },
  };
}
