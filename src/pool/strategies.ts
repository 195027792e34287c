/** The strategies by name: which rotation serves each. */
import type { Random } from '../core/random.ts';
import type { Member } from './member.ts';
import type { Strategy } from './options.ts';
import { RandomRotation } from './rotation/random.ts';
import { RankedRotation } from './rotation/ranked.ts';
import type { Rotation } from './rotation/rotation.ts';
import { RoundRobin } from './rotation/round-robin.ts';
import { ShuffleRotation } from './rotation/shuffle.ts';

const MAKERS: Record<Strategy, (random: Random) => Rotation> = {
  'round-robin': () => new RoundRobin(),
  random: (random) => new RandomRotation(random, false),
  shuffle: (random) => new ShuffleRotation(random),
  'least-connections': () => new RankedRotation(byLoad),
  'longest-lived': () => new RankedRotation(byLife),
  fastest: (random) => new RandomRotation(random, true),
};

/** An empty rotation that picks by `strategy`. */
export function makeRotation(strategy: Strategy, random: Random): Rotation {
  return MAKERS[strategy](random);
}

/** Turns fit into 32 bits, loads above them: together a whole number that a double holds exactly. */
const TURNS = 2 ** 32;

/** Fewest open leases first; among equals, the one whose turn is longest ago. */
function byLoad(member: Member, turn: number): number {
  return member.open * TURNS + (turn % TURNS);
}

function byLife(member: Member): number {
  return -member.endsAt;
}
