import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { type SourceAccess, SourceCredentials, type SourceFault } from '../../src/dialer/credentials.ts';

const ACCESS: SourceAccess = {
  auth: 'auto',
  instance: '202611210001',
  password: new Secret('12345678'),
  neverInstance: false,
};

function makeBook(access: Partial<SourceAccess> = {}) {
  const faults: SourceFault[] = [];
  const book = new SourceCredentials('city', { ...ACCESS, ...access }, (fault) => faults.push(fault));
  return { book, faults };
}

test('credentials: auto starts without, and gives the instance to a member that asks, once', () => {
  const { book } = makeBook();
  expect(book.current).toBeUndefined();
  const next = book.afterRefusal(undefined);
  expect(next?.username).toBe('202611210001');
  expect(next?.authorization.reveal()).toBe(`Basic ${btoa('202611210001:12345678')}`);
  expect(book.afterRefusal(next)).toBeUndefined();
});

test('credentials: what a member accepted goes to the whole source from then on, late answers aside', () => {
  const { book } = makeBook();
  const login = book.afterRefusal(undefined);
  book.accepted(login);
  expect(book.current).toBe(login);
  book.accepted(undefined);
  expect(book.current).toBe(login);
});

test('credentials: a request in absolute form that was asked for them teaches the same', () => {
  const { book } = makeBook();
  book.challenged(undefined);
  expect(book.current?.username).toBe('202611210001');
});

test.each<[string, Partial<SourceAccess>, first: string | undefined]>([
  ['none', { auth: 'none' }, undefined],
  ['instance', { auth: 'instance' }, '202611210001'],
  ['a login of its own', { auth: { username: 'me', password: new Secret('x') } }, 'me'],
  [
    'a login of its own for the free product',
    { neverInstance: true, auth: { username: 'me', password: new Secret('x') } },
    'me',
  ],
])('credentials: with %s nothing is tried but that', (_, access, first) => {
  const { book } = makeBook(access);
  expect(book.current?.username).toBe(first);
  expect(book.afterRefusal(book.current)).toBeUndefined();
});

test('credentials: the instance never reaches members of the free product', () => {
  for (const auth of ['auto', 'instance', 'none'] as const) {
    const { book } = makeBook({ auth, neverInstance: true });
    book.challenged(undefined);
    expect([book.current, book.afterRefusal(undefined)]).toEqual([undefined, undefined]);
  }
});

test('credentials: refused by one member it is that member, by two the source, told once and taken back once', () => {
  const { book, faults } = makeBook();
  book.refused('m1');
  book.refused('m1');
  expect([book.faulty, faults]).toEqual([false, []]);
  book.refused('m2');
  book.refused('m3');
  book.refused('m4');
  expect(book.faulty).toBe(true);
  expect(faults).toEqual([
    {
      source: 'city',
      active: true,
      reason: '2 different members refused the credentials',
      advice: 'Check the password of the instance, or upstream.auth if it contains other credentials.',
    },
  ]);
  book.accepted(undefined);
  book.accepted(undefined);
  expect(faults.map(({ active }) => active)).toEqual([true, false]);
  expect(book.faulty).toBe(false);
});

test('credentials: an acceptance between two refusals shows that it was the member', () => {
  const { book, faults } = makeBook();
  book.refused('m1');
  book.accepted(undefined);
  book.refused('m2');
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: the advice fits what is configured', () => {
  const { password: _, ...keyOnly } = ACCESS;
  const withoutPassword = makeBook();
  const faults: SourceFault[] = [];
  const book = new SourceCredentials('city', keyOnly, (fault) => faults.push(fault));
  book.refused('m1');
  book.refused('m2');
  expect(faults[0]?.reason).toBe('2 different members require credentials, and none are configured');
  expect(faults[0]?.advice).toContain('Bind this machine');
  expect(withoutPassword.faults).toEqual([]);
});

test('credentials: an answer to a request in absolute form, which may come from the target, is no evidence', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  for (let n = 0; n < 5; n += 1) book.challenged(book.current);
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: members that are never given any are each at fault alone', () => {
  const { book, faults } = makeBook({ neverInstance: true });
  book.refused('m1');
  book.refused('m2');
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: a source that is tried again is told when a member accepts, or when two more refuse', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  const refuse = () => {
    book.refused('m1');
    book.refused('m2');
  };
  refuse();
  book.resetRefusals();
  expect(book.faulty).toBe(false);
  refuse();
  book.resetRefusals();
  book.accepted(book.current);
  expect(faults.map(({ active }) => active)).toEqual([true, true, false]);
});

test('credentials: nothing of a login shows when it is printed', () => {
  const { book } = makeBook({ auth: 'instance' });
  const printed = [
    inspect(book.current, { depth: 9 }),
    JSON.stringify(book.current),
    String(book.current?.password),
  ];
  expect(printed.join()).not.toMatch(/12345678|Basic|MjAy/);
});
