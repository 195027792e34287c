/** Creates the rotation for a strategy: the data structure that decides which member is picked next. */
import type { Random } from '../core/random.ts';
import type { Candidate } from './candidates.ts';
import type { Strategy } from './options.ts';
import { RandomRotation } from './rotation/random.ts';
import { RankedRotation } from './rotation/ranked.ts';
import type { Rotation } from './rotation/rotation.ts';
import { RoundRobin } from './rotation/round-robin.ts';
import { ShuffleRotation } from './rotation/shuffle.ts';

const ROTATIONS: Record<Strategy, (random: Random) => Rotation<Candidate>> = {
  'round-robin': () => new RoundRobin(),
  random: (random) => new RandomRotation(random),
  shuffle: (random) => new ShuffleRotation(random),
  'least-connections': () => new RankedRotation(byOpenLeases),
  'longest-lived': () => new RankedRotation(({ member }) => -member.endsAt, false),
  fastest: (random) => new RandomRotation(random, ({ member }, now) => member.expectedLatencyMs(now)),
};

export function makeRotation(strategy: Strategy, random: Random): Rotation<Candidate> {
  return ROTATIONS[strategy](random);
}

/** A rank is the number of open leases times USE_RANGE, plus `lastUse`. A double represents every such rank exactly. */
const USE_RANGE = 2 ** 32;

/**
 * Picks the member with the fewest open leases. Among members with equally many, picks the member whose last use is longest ago.
 */
function byOpenLeases({ member }: Candidate, lastUse: number): number {
  return member.openLeases * USE_RANGE + (lastUse % USE_RANGE);
}
