/**
 * Calls an instance as often as its pace allows, until it is killed: `node pacing-process.ts FOLDER INTERVAL_MS`.
 * Prints the machine's monotonic ms at the start and at the end of each call.
 */
import { writeSync } from 'node:fs';
import { pause, systemBoot, systemClock } from '../../src/core/clock.ts';
import { Pace } from '../../src/refill/pace.ts';
import { openState } from '../../src/state/folder.ts';
import { take } from './take.ts';

const [dir, interval] = process.argv.slice(2);
const boot = systemBoot();
const state = await openState({
  dir,
  daemon: false,
  fleet: undefined,
  clock: systemClock,
  warn: console.error,
});
const pace = new Pace('service instance', { store: state.pace, clock: systemClock, random: Math.random });
const print = (what: string) =>
  writeSync(1, `${JSON.stringify({ what, at: boot.elapsedMs(), pid: process.pid })}\n`);
setInterval(() => {}, 1_000); // the clock's timers are unreferenced and would let the process exit

for (;;) {
  await take(
    pace,
    {
      rule: { intervalMs: Number(interval), callTimeoutMs: 400 },
      open: async () => ({
        send: async (permit) => {
          permit.beforeWrite();
          print('start');
          await pause(systemClock, Math.random() * 40);
          print('end');
          permit.answered();
          return { result: undefined, settlement: { kind: 'done' } };
        },
        close: () => {},
      }),
    },
    new AbortController().signal,
  );
}
