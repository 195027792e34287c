/** How the processes of one noria share their pool. */
import type { ReplicaOptions } from '../../fleet/replica.ts';

const NANOSECONDS_PER_MS = 1e6;

/** Short enough for people who watch the status, and rare compared with tunnels. */
export const HOW_TO_SHARE = {
  sameMachine: true,
  evictionVotes: () => 1,
  commonMs: sinceBootMs,
  beatMs: 250,
} as const satisfies Partial<ReplicaOptions>;

/** A clock that all processes of the machine share. */
export function sinceBootMs(): number {
  return Number(process.hrtime.bigint()) / NANOSECONDS_PER_MS;
}
