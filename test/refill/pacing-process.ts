/**
 * Calls an instance as often as its pace allows, until it is killed: `node pacing-process.ts FOLDER INTERVAL_MS`.
 * Prints the machine's monotonic ms of the start of each call, as the pace records it, and of its end.
 */
import { writeSync } from 'node:fs';
import { systemBoot } from '../../src/core/boot.ts';
import { pause, systemClock } from '../../src/core/clock.ts';
import { Pace } from '../../src/refill/pace.ts';
import { openState } from '../../src/state/folder.ts';
import type { PaceStore } from '../../src/state/pace-file.ts';

const [dir, interval] = process.argv.slice(2);
const boot = systemBoot();
const state = await openState({ dir, daemon: false, clock: systemClock, warn: console.error });
let readAt = 0;
const store: PaceStore = {
  now: () => {
    const now = state.pace.now();
    readAt = now.elapsedMs;
    return now;
  },
  change: (key, decide) => state.pace.change(key, decide),
};
const pace = new Pace('service instance', { store, clock: systemClock, random: Math.random });
const print = (what: string, at: number) =>
  writeSync(1, `${JSON.stringify({ what, at, pid: process.pid })}\n`);
setInterval(() => {}, 1_000); // the clock's timers are unreferenced and would let the process exit

for (;;) {
  await pace.take(
    {
      rule: { intervalMs: Number(interval), callTimeoutMs: 400 },
      call: async () => {
        print('start', readAt); // the last moment that the pace read
        await pause(systemClock, Math.random() * 40);
        print('end', boot.elapsedMs());
        return { result: undefined, settlement: { kind: 'done' } };
      },
    },
    new AbortController().signal,
  );
}
