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

/** A check by which these entries have this fit, and all others `otherwise`. */
const only = (numbers: readonly number[], fit: Fit, otherwise: Fit) =>
  new CountingCheck(({ number }) => (numbers.includes(number) ? fit : otherwise));
const numbersOf = (items: readonly (Item | undefined)[]) => items.map((item) => item?.number);
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);

/** The numbers of the next picks, each of them used. */
function picks(rotation: Rotation<Item>, count: number, check = new CountingCheck(any)) {
  return range(0, count).map(() => {
    const item = rotation.pick(check);
    if (item !== undefined) rotation.used(item);
    return item?.number ?? -1;
  });
}

test.each(NAMES)('%s: an empty one has nothing to pick, and nothing upcoming', (name) => {
  const { rotation, items } = fill(name, { count: 2 });
  for (const item of items) rotation.remove(item);
  expect([rotation.pick(new CountingCheck(any)), rotation.size]).toEqual([undefined, 0]);
  expect(rotation.upcoming(2, 0)).toEqual([]);
});

test.each(['round-robin', 'ranked by last use'])(
  '%s: entries that do not fit go to the end if more than 32 are ahead',
  (name) => {
    for (const unfit of [31, 32, 33, 40]) {
      const { rotation } = fill(name, { count: 50 });
      const fit = new CountingCheck(({ number }) => (number < unfit ? UNFIT : FITS));
      expect(rotation.pick(fit)?.number).toBe(unfit);
      const first = unfit > 32 ? unfit : 0;
      const order = [...range(first, 50), ...range(0, first)];
      const found = numbersOf(rotation.upcoming(50, 0));
      if (name !== 'round-robin')
        // a search sees entries that do not fit in any order
        found.splice(50 - first, first, ...found.slice(50 - first).sort((one = 0, other = 0) => one - other));
      expect(found, `${unfit}`).toEqual(order);
      expect(numbersOf(rotation.upcoming(2, 0))).toEqual(order.slice(0, 2));
      expect(picks(rotation, 50 - first)).toEqual(order.slice(0, 50 - first));
      expect(picks(rotation, first).toSorted((one, other) => one - other)).toEqual(range(0, first));
      expect(picks(rotation, 2)).toEqual(order.slice(0, 2));
    }
  },
);

test.each(['round-robin', 'ranked', 'ranked by last use'])(
  '%s: a search ends with the first of nine second choices, and one of eight goes on',
  (name) => {
    const { rotation } = fill(name, { count: 12 });
    expect(rotation.pick(only([8], FITS, SECOND_CHOICE))?.number).toBe(8);
    expect(rotation.pick(only([9], FITS, SECOND_CHOICE))?.number).toBe(0);
    expect(rotation.pick(only([3, 5], SECOND_CHOICE, UNFIT))?.number).toBe(3);
    const mixed = new CountingCheck(({ number }) =>
      number < 3 ? UNFIT : number === 11 ? FITS : SECOND_CHOICE,
    );
    expect(rotation.pick(mixed)?.number).toBe(11);
    expect(rotation.pick(only([], FITS, UNFIT))).toBeUndefined();
  },
);

test('ranked: a search without a second choice skips as many entries as need be, and keeps their ranks', () => {
  const { rotation } = fill('ranked', { count: 50 });
  expect(rotation.pick(only([45], FITS, UNFIT))?.number).toBe(45);
  expect(rotation.pick(new CountingCheck(any))?.number).toBe(0);
  expect(numbersOf(rotation.upcoming(9, 0)), 'of alternating picks').toEqual([0, 1]);
});

test.each(['random', 'shuffle'])(
  '%s: a search among second choices ends after nine, but sees all of eight',
  (name) => {
    const pick = (count: number, fitting: number) => {
      const rotation = KINDS[name]?.(() => 0);
      for (const number of range(0, count)) rotation?.add(new Item(number));
      return rotation?.pick(only([fitting], FITS, SECOND_CHOICE))?.number;
    };
    // The eight random tries find the first entry each time; the steps of 7,919 then visit each entry.
    expect([pick(8, 5), pick(9, 1), pick(9, 2), pick(9, 0)]).toEqual([5, 1, 0, 0]);
  },
);

test.each(['random', 'shuffle'])(
  '%s: a search visits each entry, also of as many as a step is wide',
  (name) => {
    for (const count of [7_918, 7_919, 7_920]) {
      const { rotation } = fill(name, { count });
      expect(rotation.pick(only([count - 1], FITS, UNFIT))?.number).toBe(count - 1);
    }
  },
);

test('random: the few entries that fit are picked equally often', () => {
  const { rotation } = fill('random', { count: 10 });
  const times = picks(rotation, 1_000, only([0, 1], FITS, UNFIT)).filter((number) => number === 0).length;
  expect(times).toBeGreaterThan(400);
  expect(times).toBeLessThan(600);
});

test.each(['random', 'cheaper of two', 'shuffle'])(
  '%s: what is upcoming stays so while another entry is used, and one that does not fit is passed over',
  (name) => {
    for (const seed of range(1, 9)) {
      const { rotation, items } = fill(name, { count: 8, seed });
      const [first, second, third] = rotation.upcoming(3, 0);
      if (first === undefined || second === undefined || third === undefined) throw new Error('too few');
      const other = items.find((item) => ![first, second, third].includes(item));
      if (other === undefined) throw new Error('no other');
      if (name !== 'shuffle') rotation.used(other);
      expect(rotation.upcoming(3, 0)).toEqual([first, second, third]);
      expect(rotation.pick(only([first.number], UNFIT, FITS))).toBe(second);
      rotation.used(second);
      expect(rotation.upcoming(2, 0)[0]).toBe(first);
      if (name === 'shuffle') continue;
      const [next, afterwards] = rotation.upcoming(2, 0);
      if (next !== undefined && next !== afterwards) rotation.remove(next);
      expect(rotation.upcoming(1, 0)).toEqual([afterwards]);
    }
  },
);

test('shuffle: each round has another order, also if it is known ahead', () => {
  const orders = range(1, 9).map((seed) =>
    numbersOf(fill('shuffle', { count: 6, seed }).rotation.upcoming(6, 0)),
  );
  expect(new Set(orders.map(String)).size).toBeGreaterThan(5);
  for (const order of orders) expect(order.toSorted()).toEqual(range(0, 6));
});

test('shuffle: an entry that joins within a round has its turn in it', () => {
  for (const seed of range(1, 9)) {
    const { rotation } = fill('shuffle', { count: 4, seed });
    const before = picks(rotation, 2);
    rotation.add(new Item(4));
    const after = picks(rotation, 3);
    expect([...before, ...after].toSorted()).toEqual(range(0, 5));
    expect(picks(rotation, 5).toSorted()).toEqual(range(0, 5));
  }
});

test('shuffle: a use that another rotation has picked is a turn, once', () => {
  for (const seed of range(1, 9)) {
    const { rotation, items } = fill('shuffle', { count: 4, seed });
    picks(rotation, 4);
    const [item] = items;
    if (item === undefined) throw new Error('no item');
    for (let time = 0; time < 2; time += 1) rotation.used(item);
    expect(picks(rotation, 3).toSorted()).toEqual([1, 2, 3]);
    rotation.used(item);
    rotation.remove(item);
    rotation.add(item);
    expect(picks(rotation, 3).toSorted(), 'it left and returned').toEqual([1, 2, 3]);
  }
});

test('shuffle: a round ends early if more than 32 entries of it do not fit', () => {
  for (const unfit of [32, 33]) {
    const { rotation } = fill('shuffle', { count: 50 });
    const early = picks(rotation, 50 - unfit);
    const late = range(0, 50).filter((number) => !early.includes(number));
    expect(early).toContain(rotation.pick(only(early, FITS, UNFIT))?.number);
    const next = picks(rotation, unfit).toSorted((one, other) => one - other);
    if (unfit === 32) expect(next).toEqual(late);
    else expect(next).not.toEqual(late);
  }
});
