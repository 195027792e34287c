/**
 * Draws from a seed which fault happens when. Two tracks run at the same time: one has the faults of members and
 * service; the other has those of processes and machine, which need time to recover. On each track, every fault happens
 * once before any fault happens again.
 */
import { type Random, seededRandom, shuffled } from '../../src/core/random.ts';
import type { Fault } from './faults/fault.ts';
import { HOST_FAULTS } from './faults/host.ts';
import { MEMBER_FAULTS } from './faults/members.ts';
import { PROCESS_FAULTS } from './faults/process.ts';
import { SERVICE_FAULTS } from './faults/service.ts';

export interface PlannedFault {
  readonly fault: Fault;
  /** The time since the start of the run. */
  readonly atMs: number;
  readonly forMs: number;
}

interface Track {
  readonly faults: readonly Fault[];
  readonly leastMs: number;
  readonly mostMs: number;
  readonly pauseMs: number;
}

/** The time before the first fault, in which the pool fills and the footprint without faults is measured. */
export const WARM_UP_MS = 6_000;

const OUTSIDE: Track = {
  faults: [...MEMBER_FAULTS, ...SERVICE_FAULTS],
  leastMs: 1_500,
  mostMs: 4_000,
  pauseMs: 500,
};
const INSIDE: Track = {
  faults: [...PROCESS_FAULTS, ...HOST_FAULTS],
  leastMs: 500,
  mostMs: 2_500,
  pauseMs: 6_000,
};

/** @param store - the faults of a fleet's store. @returns the faults of each track, in order. */
export function planFaults(
  seed: number,
  durationMs: number,
  store: readonly Fault[],
): readonly (readonly PlannedFault[])[] {
  const random = seededRandom(seed);
  const outside = { ...OUTSIDE, faults: [...store, ...OUTSIDE.faults] };
  return [outside, INSIDE].map((track) => planTrack(track, random, durationMs));
}

function planTrack(track: Track, random: Random, durationMs: number): PlannedFault[] {
  const planned: PlannedFault[] = [];
  let atMs = WARM_UP_MS + random() * track.pauseMs;
  for (;;) {
    for (const fault of shuffled(random, track.faults)) {
      const forMs = track.leastMs + random() * (track.mostMs - track.leastMs);
      if (atMs + forMs > durationMs) return planned;
      planned.push({ fault, atMs, forMs });
      atMs += forMs + track.pauseMs;
    }
  }
}
