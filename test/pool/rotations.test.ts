/** Which entries the rotations pick, and at what cost. The cost is the number of checked entries, not a time. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Random, seededRandom } from '../../src/core/random.ts';
import {
  FITS,
  type Fit,
  type PickCheck,
  RandomRotation,
  RankedRotation,
  type Rotation,
  RotationEntry,
  RoundRobin,
  SECOND_CHOICE,
  ShuffleRotation,
  UNFIT,
} from '../../src/pool/rotations.ts';

const ENTRIES = 10_000;

class Item extends RotationEntry {
  readonly number: number;
  rank: number;

  constructor(number: number) {
    super();
    this.number = number;
    this.rank = number;
  }
}

const KINDS: Readonly<Record<string, (random: Random) => Rotation<Item>>> = {
  'round-robin': () => new RoundRobin(),
  random: (random) => new RandomRotation(random),
  'cheaper of two': (random) => new RandomRotation(random, ({ rank }) => rank),
  shuffle: (random) => new ShuffleRotation(random),
  ranked: () => new RankedRotation(({ rank }) => rank, false),
  'ranked by last use': () => new RankedRotation((_item, lastUse) => lastUse),
};
const NAMES = Object.keys(KINDS);

/** Counts the checked entries. */
class CountingCheck implements PickCheck<Item> {
  readonly now = 0;
  checks = 0;
  readonly #fit: (item: Item) => Fit;

  constructor(fit: (item: Item) => Fit) {
    this.#fit = fit;
  }

  fit(item: Item): Fit {
    this.checks += 1;
    if (this.checks > ENTRIES * ENTRIES) throw new Error('the search does not end');
    return this.#fit(item);
  }
}

const any = (): Fit => FITS;

function fill(name: string, { count = ENTRIES, seed = 3 } = {}) {
  const rotation = KINDS[name]?.(seededRandom(seed));
  if (rotation === undefined) throw new Error(`no rotation is called ${name}`);
  const items = Array.from({ length: count }, (_, number) => new Item(number));
  for (const item of items) rotation.add(item);
  return { rotation, items };
}

/** The average number of checks in a pick. */
function checksPerPick(rotation: Rotation<Item>, fit: (item: Item) => Fit, picks: number): number {
  const check = new CountingCheck(fit);
  for (let pick = 0; pick < picks; pick += 1) {
    const item = rotation.pick(check);
    if (item === undefined) throw new Error('the pick returned nothing');
    rotation.used(item);
  }
  return check.checks / picks;
}

test.each(NAMES)('%s: a pick checks one or two of ten thousand entries', (name) => {
  const { rotation } = fill(name);
  expect(rotation.size).toBe(ENTRIES);
  expect(checksPerPick(rotation, any, 1_000)).toBeLessThanOrEqual(2);
});

// `ranked` is left out, because a rank that ignores turns cannot put unfit entries behind the others.
test.each(NAMES.filter((name) => name !== 'ranked'))(
  '%s: repeated picks do not check an unfit half of the entries each time',
  (name) => {
    const { rotation } = fill(name);
    const fit = ({ number }: Item) => (number < ENTRIES / 2 ? UNFIT : FITS);
    expect(checksPerPick(rotation, fit, 2 * ENTRIES)).toBeLessThan(20);
  },
);

test.each(NAMES)('%s: a pick among second choices alone checks few entries', (name) => {
  const { rotation } = fill(name);
  expect(checksPerPick(rotation, () => SECOND_CHOICE, 1_000)).toBeLessThanOrEqual(20);
});

test.each(['round-robin', 'ranked'])('%s: second choices alone are picked in order', (name) => {
  const { rotation, items } = fill(name, { count: 500 });
  for (const item of items) {
    item.rank = (item.number * 37) % 500;
    rotation.rankChanged(item);
  }
  const check = new CountingCheck((): Fit => SECOND_CHOICE);
  const picked = items.map(() => {
    const item = rotation.pick(check);
    if (item !== undefined) rotation.remove(item);
    return item;
  });
  const byRank = items.toSorted((one, other) => one.rank - other.rank);
  expect(picked).toEqual(name === 'ranked' ? byRank : items);
});

test.each(NAMES)('%s: a search that finds nothing ends, also after a pick that was not used', (name) => {
  const { rotation, items } = fill(name, { count: 100 });
  const fitting = rotation.pick(new CountingCheck(({ number }) => (number >= 50 ? FITS : UNFIT)));
  expect(fitting?.number).toBeGreaterThanOrEqual(50);
  expect(rotation.pick(new CountingCheck(() => UNFIT))).toBeUndefined();
  expect(rotation.size).toBe(items.length);
});

test.each(NAMES)('%s: after any additions and removals, exactly the entries in it can be picked', (name) => {
  const steps = fc.array(
    fc.record({ which: fc.nat({ max: 12 }), do: fc.constantFrom('move', 'use', 'rank') }),
    { minLength: 10, maxLength: 80 },
  );
  fc.assert(
    fc.property(steps, fc.integer(), (all, seed) => {
      const { rotation, items } = fill(name, { count: 13, seed });
      const inside = new Set(items);
      for (const { which, do: what } of all) {
        const item = items[which];
        if (item === undefined) continue;
        if (what === 'move') {
          if (inside.delete(item)) rotation.remove(item);
          else {
            inside.add(item);
            rotation.add(item);
          }
        } else if (inside.has(item)) {
          if (what === 'rank') item.rank = which;
          if (what === 'rank') rotation.rankChanged(item);
          else rotation.used(item);
        }
        expect(rotation.size).toBe(inside.size);
        const picked = rotation.pick(new CountingCheck(any));
        if (inside.size === 0) expect(picked).toBeUndefined();
        else expect(inside.has(picked ?? new Item(-1))).toBe(true);
      }
      for (const item of inside) {
        expect(rotation.pick(new CountingCheck((other) => (other === item ? FITS : UNFIT)))).toBe(item);
      }
    }),
    { numRuns: 60 },
  );
});

/** `ranked` is left out, because it expects that each pick avoids the previous one, as the pool's picks do. */
const PREDICTABLE = NAMES.filter((name) => name !== 'ranked');

test.each(PREDICTABLE)('%s: `upcoming` says what the next picks return', (name) => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 30 }),
      fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 30 }),
      fc.integer(),
      (count, looks, seed) => {
        const { rotation } = fill(name, { count, seed });
        for (const look of looks) {
          const upcoming = rotation.upcoming(look, 0);
          expect(upcoming.length).toBeGreaterThan(0);
          expect(rotation.upcoming(look, 0)).toEqual(upcoming);
          for (const expected of upcoming) {
            const item = rotation.pick(new CountingCheck(any));
            expect(item).toBe(expected);
            if (item !== undefined) rotation.used(item);
          }
        }
      },
    ),
  );
});

test('shuffle: looking ahead gives no entry a second turn in a round', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20 }),
      fc.array(fc.integer({ min: 0, max: 8 }), { minLength: 20, maxLength: 20 }),
      fc.integer({ min: 0, max: 19 }),
      (count, looks, unfit) => {
        const { rotation } = fill('shuffle', { count });
        const picked = new Set<Item>();
        for (const look of looks.slice(0, count - 1)) {
          rotation.upcoming(look, 0);
          const item = rotation.pick(new CountingCheck(({ number }) => (number === unfit ? UNFIT : FITS)));
          if (item === undefined) break;
          expect(picked.has(item)).toBe(false);
          picked.add(item);
          rotation.used(item);
        }
        expect(picked.size).toBe(count - 1);
      },
    ),
  );
});

test.each(['random', 'cheaper of two'])(
  '%s: an entry that is removed is not picked, even if it was next',
  (name) => {
    const { rotation, items } = fill(name, { count: 3 });
    const [next] = rotation.upcoming(9, 0);
    if (next === undefined) throw new Error('nothing is upcoming');
    rotation.remove(next);
    for (let time = 0; time < 9; time += 1) {
      const item = rotation.pick(new CountingCheck(any));
      expect(items.filter((other) => other !== next)).toContain(item);
      if (item !== undefined) rotation.used(item);
    }
  },
);
