/** How the processes of one noria share their pool. */
import type { ReplicaOptions } from '../../fleet/replica.ts';

const NANOSECONDS_PER_MS = 1e6;

/**
 * Each process reports its activity every `beatMs`. This is often enough for people who watch the status, and costs little
 * compared with tunnels.
 */
export const HOW_TO_SHARE = {
  sameMachine: true,
  evictionVotes: () => 1,
  commonMs: sinceBootMs,
  beatMs: 250,
} as const satisfies Partial<ReplicaOptions>;

/** The time since the machine started: a clock that all its processes share. */
export function sinceBootMs(): number {
  return Number(process.hrtime.bigint()) / NANOSECONDS_PER_MS;
}
