/** The strategies by name: which rotation serves each. */
import type { Random } from '../../core/random.ts';
import type { Member } from '../member.ts';
import type { Strategy } from '../options.ts';
import { Bag } from './random.ts';
import { Ranking } from './ranked.ts';
import type { Rotation } from './rotation.ts';
import { Ring } from './round-robin.ts';
import { Shuffle } from './shuffle.ts';

const MAKERS: Record<Strategy, (random: Random) => Rotation> = {
  'round-robin': () => new Ring(),
  random: (random) => new Bag(random, false),
  shuffle: (random) => new Shuffle(random),
  'least-connections': () => new Ranking(byLoad),
  'longest-lived': () => new Ranking(byLife),
  fastest: (random) => new Bag(random, true),
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
