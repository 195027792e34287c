/**
 * The time since this machine started: one clock for all its processes, which nobody can set.
 *
 * `monotonic()` of a Clock counts from an origin of its own in every process, and the wall clock steps; a moment that
 * one process writes down and another one compares needs this one. Linux: CLOCK_MONOTONIC (`process.hrtime`) together
 * with the kernel's boot id. Elsewhere every process counts as a boot of its own, and the wall clock has to do.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

export interface BootClock {
  /** Differs between two boots; two moments can be compared only where it is the same. */
  readonly id: string;
  /** Ms since then; stands still while the machine sleeps. */
  elapsedMs(): number;
}

const NANOSECONDS_IN_MS = 1e6;

/** The boot this process runs in. */
export function systemBoot(): BootClock {
  return { id: bootId(), elapsedMs: () => Number(process.hrtime.bigint()) / NANOSECONDS_IN_MS };
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return randomUUID(); // ignored: not Linux; no other process then takes its moments for comparable
  }
}
