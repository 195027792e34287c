/** Locks a state folder as a daemon, until it is killed: `node owning-process.ts FOLDER`. */
import { systemClock } from '../../src/core/clock.ts';
import { openState } from '../../src/state/folder.ts';

await openState({
  dir: process.argv[2],
  daemon: true,
  fleet: undefined,
  clock: systemClock,
  warn: console.error,
});
console.log('open');
setInterval(() => {}, 1_000);
