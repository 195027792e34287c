/**
 * The time since this machine started: a clock that all processes share and that cannot be set.
 *
 * Use it for moments that one process stores and another process compares. `monotonic()` of a Clock starts at a
 * different moment in each process, and the wall clock may jump. On Linux, this is CLOCK_MONOTONIC (`process.hrtime`)
 * together with the boot id of the kernel. On other systems, each process gets its own boot id, so that callers compare
 * moments by the wall clock.
 */

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';
import { SECOND_MS } from './duration.ts';

export interface BootClock {
  /** The id of the boot. Times since the boot can be compared only if their ids are equal. */
  readonly id: string;
  /** The time in ms since the boot, without the time in which the machine was suspended. */
  elapsedMs(): number;
  /** The time in ms since the boot, including suspended time. It is exact only to about 10 ms. */
  uptimeMs(): number;
}

const NANOSECONDS_IN_MS = 1e6;

export function systemBoot(): BootClock {
  return {
    id: bootId(),
    elapsedMs: () => Number(process.hrtime.bigint()) / NANOSECONDS_IN_MS,
    uptimeMs: () => uptime() * SECOND_MS,
  };
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return randomUUID(); // ignored: this is not Linux. A unique id makes callers compare moments by the wall clock.
  }
}
