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

test("credentials: auto starts without any, and sends the instance's once to a member that requires them", () => {
  const { book } = makeBook();
  expect(book.current).toBeUndefined();
  const next = book.afterRefusal(undefined);
  expect(next?.username).toBe('202611210001');
  expect(next?.authorization.reveal()).toBe(`Basic ${btoa('202611210001:12345678')}`);
  expect(book.afterRefusal(next)).toBeUndefined();
});

test('credentials: the whole source gets what a member accepted; a late acceptance of none does not undo it', () => {
  const { book } = makeBook();
  const login = book.afterRefusal(undefined);
  book.accepted(login);
  expect(book.current).toBe(login);
  book.accepted(undefined);
  expect(book.current).toBe(login);
});

test('credentials: a 407 to a request in absolute form has the same effect', () => {
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
])('credentials: with %s nothing else is tried', (_, access, first) => {
  const { book } = makeBook(access);
  expect(book.current?.username).toBe(first);
  expect(book.afterRefusal(book.current)).toBeUndefined();
});

test("credentials: members of the free product never get the instance's credentials", () => {
  for (const auth of ['auto', 'instance', 'none'] as const) {
    const { book } = makeBook({ auth, neverInstance: true });
    book.challenged(undefined);
    expect([book.current, book.afterRefusal(undefined)]).toEqual([undefined, undefined]);
  }
});

test('credentials: two members that refuse mean a faulty source, reported once and resolved once', () => {
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

test('credentials: an acceptance between two refusals resets the count', () => {
  const { book, faults } = makeBook();
  book.refused('m1');
  book.accepted(undefined);
  book.refused('m2');
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: the advice depends on what is configured', () => {
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

test('credentials: a 407 to a request in absolute form is no refusal, because it may come from the target', () => {
  const { book, faults } = makeBook({ auth: 'instance' });
  for (let n = 0; n < 5; n += 1) book.challenged(book.current);
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: a source that never gets credentials is never faulty', () => {
  const { book, faults } = makeBook({ neverInstance: true });
  book.refused('m1');
  book.refused('m2');
  expect([book.faulty, faults]).toEqual([false, []]);
});

test('credentials: after a reset, the next acceptance or the next two refusals are reported', () => {
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

test('credentials: printing a login shows no secret', () => {
  const { book } = makeBook({ auth: 'instance' });
  const printed = [
    inspect(book.current, { depth: 9 }),
    JSON.stringify(book.current),
    String(book.current?.password),
  ];
  expect(printed.join()).not.toMatch(/12345678|Basic|MjAy/);
});
