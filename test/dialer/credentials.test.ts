import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { SourceCredentials, type SourceFault, type SourceSettings } from '../../src/dialer/source-memory.ts';
import { ManualClock } from '../support/manual-clock.ts';

const ACCESS: SourceSettings = {
  auth: 'auto',
  instance: '202611210001',
  password: new Secret('12345678'),
  neverInstance: false,
  forwardMode: 'direct',
  handshake: 'plain',
};

function makeBook(access: Partial<SourceSettings> = {}) {
  const faults: SourceFault[] = [];
  const clock = ManualClock.dayOld();
  const onSourceFault = (fault: SourceFault) => faults.push(fault);
  const book = new SourceCredentials('city', { ...ACCESS, ...access }, clock, onSourceFault);
  return { book, faults, clock };
}

test("credentials: auto starts without any, and sends the instance's once most of three members ask for them", () => {
  const { book } = makeBook();
  expect(book.current).toBeUndefined();
  expect([book.refused('m1', undefined), book.refused('m2', undefined)]).toEqual([undefined, undefined]);
  const login = book.refused('m3', undefined);
  expect(login?.username).toBe('202611210001');
  expect(login?.authorization.reveal()).toBe(`Basic ${btoa('202611210001:12345678')}`);
  expect(book.current, 'not before a member has accepted them').toBeUndefined();
  expect(book.refused('m3', login)).toBeUndefined();
});

test('credentials: a few members that ask for credentials get none while others work without', () => {
  const { book, faults, clock } = makeBook();
  for (let number = 0; number < 17; number += 1) book.accepted(`good${number}`, undefined);
  for (let time = 0; time < 10; time += 1) {
    for (const member of ['bad1', 'bad2', 'bad3']) {
      expect(book.refused(member, undefined)).toBeUndefined();
      book.challenged(member, undefined);
    }
    clock.advance(60_000);
    for (let number = 0; number < 17; number += 1) book.accepted(`good${number}`, undefined);
  }
  expect([book.current, book.faulty, faults]).toEqual([undefined, false, []]);
});

test('credentials: answers older than five minutes do not count', () => {
  const { book, clock } = makeBook();
  for (let number = 0; number < 9; number += 1) book.accepted(`old${number}`, undefined);
  clock.advance(300_001);
  book.refused('m1', undefined);
  book.refused('m2', undefined);
  expect(book.refused('m3', undefined)).toBeDefined();
});

test('credentials: the only members of a small pool get them when one asks again', () => {
  const { book } = makeBook();
  expect([book.refused('m1', undefined), book.refused('m2', undefined)]).toEqual([undefined, undefined]);
  expect(book.refused('m1', undefined)).toBeDefined();
});

test('credentials: the whole source gets the credentials that a member accepted; a late acceptance without credentials changes nothing', () => {
  const { book } = makeBook();
  book.refused('m1', undefined);
  const login = book.refused('m1', undefined);
  book.accepted('m1', login);
  expect(book.current).toBe(login);
  book.accepted('m2', undefined);
  expect(book.current).toBe(login);
});

test('credentials: 407s to requests in absolute form have the same effect', () => {
  const { book } = makeBook();
  for (const member of ['m1', 'm2']) book.challenged(member, undefined);
  expect(book.current).toBeUndefined();
  book.challenged('m3', undefined);
  expect(book.current?.username).toBe('202611210001');
});

test.each<[string, Partial<SourceSettings>, first: string | undefined]>([
  ['none', { auth: 'none' }, undefined],
  ['instance', { auth: 'instance' }, '202611210001'],
  ['a login of its own', { auth: { username: 'me', password: new Secret('x') } }, 'me'],
  [
    'a login of its own for the free product',
    { neverInstance: true, auth: { username: 'me', password: new Secret('x') } },
    'me',
  ],
])('credentials: with %s nothing else is tried', (_, access, first) => {
  const { book } = makeBook(access);
  expect(book.current?.username).toBe(first);
  for (const member of ['m1', 'm2', 'm3', 'm3']) {
    expect(book.refused(member, book.current)).toBeUndefined();
  }
});

test("credentials: members of the free product never get the instance's credentials", () => {
  for (const auth of ['auto', 'instance', 'none'] as const) {
    const { book } = makeBook({ auth, neverInstance: true });
    for (const member of ['m1', 'm2', 'm3', 'm3']) {
      book.challenged(member, undefined);
      expect([book.current, book.refused(member, undefined)]).toEqual([undefined, undefined]);
    }
  }
});

test('credentials: three members that refuse, and most of those tried, mean a faulty source', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  const refuse = (member: string) => book.refused(member, book.current);
  for (const member of ['m1', 'm1', 'm2', 'm2']) refuse(member);
  expect([book.faulty, faults]).toEqual([false, []]);
  for (const member of ['m3', 'm4', 'm5']) refuse(member);
  expect(book.faulty).toBe(true);
  expect(faults).toEqual([
    {
      source: 'city',
      active: true,
      reason: '3 of 3 members refused the credentials',
      advice: 'Check the password of the instance, or upstream.auth if it contains other credentials.',
    },
  ]);
  book.accepted('m6', book.current);
  book.accepted('m6', book.current);
  expect(faults.map(({ active }) => active)).toEqual([true, false]);
  expect(book.faulty).toBe(false);
});

test('credentials: three members of twenty that refuse are no fault of the source', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  for (let number = 0; number < 17; number += 1) book.accepted(`good${number}`, book.current);
  for (const member of ['m1', 'm2', 'm3']) book.refused(member, book.current);
  expect([book.faulty, faults]).toEqual([false, []]);
});

test.each<[string, Partial<SourceSettings>, without: boolean, reason: string, advice: RegExp]>([
  [
    'the instance',
    { auth: 'instance' },
    false,
    'refused the credentials',
    /^Check the password of the instance/,
  ],
  [
    'the instance, when members ask',
    {},
    true,
    'refused the credentials',
    /^Check the password of the instance/,
  ],
  [
    'others',
    { auth: { username: 'u', password: new Secret('p') }, neverInstance: true },
    false,
    'refused the credentials',
    /^Check the password of the instance, or upstream\.auth/,
  ],
  [
    'none',
    { auth: 'none', password: undefined } as unknown as Partial<SourceSettings>,
    false,
    'require credentials, and none are configured',
    /^Bind this machine's public address/,
  ],
])('credentials: the advice after refused credentials of %s', (_, access, without, reason, advice) => {
  const { book, faults } = makeBook(access);
  const sent = without ? makeBook({ auth: 'instance' }).book.current : book.current;
  for (const member of ['m1', 'm2', 'm3']) book.refused(member, sent);
  expect(faults).toEqual([
    {
      source: 'city',
      active: true,
      reason: `3 of 3 members ${reason}`,
      advice: expect.stringMatching(advice),
    },
  ]);
});

test('credentials: a 407 to a request in absolute form is no refusal, because it may come from the target', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  for (let n = 0; n < 5; n += 1) book.challenged(`m${n}`, book.current);
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: a source that never gets credentials is never faulty', () => {
  const { book, faults } = makeBook({ neverInstance: true });
  for (const member of ['m1', 'm2', 'm3']) book.refused(member, undefined);
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: after a reset, the next acceptance or the next three refusals are reported', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  const refuse = () => {
    for (const member of ['m1', 'm2', 'm3']) book.refused(member, book.current);
  };
  refuse();
  book.resetRefusals();
  expect(book.faulty).toBe(false);
  refuse();
  book.resetRefusals();
  book.accepted('m1', book.current);
  expect(faults.map(({ active }) => active)).toEqual([true, true, false]);
});

test('credentials: printing a login shows no secret', () => {
  const { book } = makeBook({ auth: 'instance' });
  const printed = [
    inspect(book.current, { depth: 9 }),
    JSON.stringify(book.current),
    String(book.current?.password),
  ];
  expect(printed.join()).not.toMatch(/12345678|Basic|MjAy/);
});

test("credentials: what a member answers to its own credentials says nothing about the source's", () => {
  const { book, faults } = makeBook({ auth: { username: 'all', password: new Secret('members') } });
  const own = book.firstFor({ username: 'one', password: new Secret('member') });
  expect(own?.authorization.reveal()).toBe(`Basic ${btoa('one:member')}`);
  for (const member of ['m1', 'm2', 'm3', 'm4']) {
    expect(book.refused(member, own)).toBeUndefined();
    book.accepted(`${member}b`, own);
    book.challenged(member, own);
  }
  expect([book.faulty, faults]).toEqual([false, []]);
  expect(book.current?.username).toBe('all');
  expect([book.isFaultOfMember(own), book.isFaultOfMember(book.current)]).toEqual([true, false]);
});

test.each<[string, Partial<SourceSettings>, own: boolean, accepted: readonly boolean[], boolean]>([
  ['its own login', {}, true, [], true],
  ['the source has none to send', { neverInstance: true }, false, [], true],
  ['nothing is known', {}, false, [], false],
  ['others work without', {}, false, [false], true],
  ['others work with some', {}, false, [true], false],
  ['it got some, and nothing is known', { auth: 'instance' }, false, [], false],
  ['it got some, others work with them', { auth: 'instance' }, false, [true], true],
  ['it got some, others work without', { auth: 'instance' }, false, [false], false],
])('credentials: whether a refusal is the fault of the member: %s', (_, access, own, accepted, expected) => {
  const { book } = makeBook(access);
  const sent = book.firstFor(own ? { username: 'm1', password: new Secret('own') } : undefined);
  const others = makeBook({ auth: 'instance' }).book.current;
  for (const hasLogin of accepted) book.accepted('m2', hasLogin ? others : undefined);
  expect(book.isFaultOfMember(sent)).toBe(expected);
});

test('credentials: two refused names of one account are a fault of the source, unless most names work', () => {
  const { book, faults } = makeBook({ auth: 'none', oneAccount: true });
  const name = (username: string) => book.firstFor({ username, password: new Secret('pw') });
  for (const user of ['a', 'b']) book.accepted(user, name(user));
  expect(book.current, 'the name of one member is not for the others').toBeUndefined();
  for (const user of ['c', 'd']) book.refused(user, name(user));
  expect([book.faulty, faults]).toEqual([false, []]);
  book.refused('e', name('e'));
  expect([book.faulty, book.refused('f', name('f'))]).toEqual([true, undefined]);
  expect(faults).toMatchObject([
    { active: true, reason: 'the gateway refused the credentials of 3 of 5 members' },
  ]);
});

test('credentials: two refused names of one account are enough, two members of other sources are not', () => {
  for (const oneAccount of [true, false]) {
    const { book } = makeBook({ auth: 'none', oneAccount });
    for (const username of ['a', 'b']) {
      book.refused(
        username,
        oneAccount ? book.firstFor({ username, password: new Secret('pw') }) : undefined,
      );
    }
    expect(book.faulty).toBe(oneAccount);
  }
});
