import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { hasCode, NoriaError } from '../../src/core/faults.ts';
import { hostPort, parseHostPort } from '../../src/core/host-port.ts';
import { Secret } from '../../src/core/secret.ts';
import { Access, type AccessOptions } from '../../src/listener/access.ts';
import { ManualClock } from '../support/manual-clock.ts';

const CLIENT = '192.0.2.1';

function access(options: Partial<AccessOptions> = {}): Access {
  return new Access({ users: [], allow: [], denyTargets: [], clock: ManualClock.dayOld(), ...options });
}

function users(...pairs: readonly [username: string, password: string][]) {
  return pairs.map(([username, password]) => ({ username, password: new Secret(password) }));
}

describe('access: client addresses', () => {
  test('access: without an allow list every address may connect', () => {
    expect(access().admits(CLIENT)).toBe(true);
    expect(access().admits(undefined)).toBe(true);
  });

  test('access: an allow list admits its networks, also as v4-mapped addresses', () => {
    const listed = access({ allow: ['192.0.2.0/24', '2001:db8::/32'] });
    for (const address of [CLIENT, `::ffff:${CLIENT}`, '2001:db8::1']) {
      expect(listed.admits(address), address).toBe(true);
    }
    for (const address of ['192.0.3.1', '2001:db9::1', '::1', undefined]) {
      expect(listed.admits(address), address).toBe(false);
    }
  });
});

describe('access: users', () => {
  test("access: without users every client is user '' and only the routing options are read", () => {
    const open = access();
    expect(open.requiresCredentials).toBe(false);
    expect(open.identify(undefined, CLIENT)).toEqual({ user: '', routingText: '' });
    const credentials = { username: 'my-app-session-1', password: 'ignored' };
    expect(open.identify(credentials, CLIENT)).toEqual({ user: '', routingText: 'session-1' });
  });

  const GOOD: readonly [username: string, password: string, user: string, routingText: string][] = [
    ['ann', 'a', 'ann', ''],
    ['ann-', 'a', 'ann', ''],
    ['ann-session-x', 'a', 'ann', 'session-x'],
    ['ann,session-x,adr-y', 'a', 'ann', 'session-x,adr-y'],
    ['ann-lee', 'b', 'ann-lee', ''],
    ['ann-lee-session-x', 'b', 'ann-lee', 'session-x'],
    ['ann-leeward', 'a', 'ann', 'leeward'],
    ['session', 'c', 'session', ''],
    ['session-session-x', 'c', 'session', 'session-x'],
    ['müller-session-x', 'pässword', 'müller', 'session-x'],
  ];
  const known = users(['ann', 'a'], ['ann-lee', 'b'], ['session', 'c'], ['müller', 'pässword']);

  test.each(GOOD)(
    'access: %s is the longest matching user, and the rest is routing options',
    (username, password, user, routingText) => {
      expect(access({ users: known }).identify({ username, password }, CLIENT)).toEqual({
        user,
        routingText,
      });
    },
  );

  const WRONG: readonly [username: string, password: string][] = [
    ['ann', 'b'],
    ['ann', ''],
    ['ann', 'a '],
    ['ann', 'A'],
    ['Ann', 'a'],
    ['ann-lee', 'a'], // the longer name matches, so the password of the shorter one is wrong
    ['ann-lee-session-x', 'a'],
    ['anna', 'a'],
    ['ann_lee', 'a'],
    ['', ''],
    ['-ann', 'a'],
    ['bob', 'a'],
    ['constructor', ''],
    ['bob', ''],
  ];

  test.each(WRONG)('access: %j with password %j is refused', (username, password) => {
    const outcome = access({ users: known }).identify({ username, password }, CLIENT);
    expect(hasCode(outcome, 'auth-required')).toBe(true);
  });

  test('access: passwords are compared to their last character', () => {
    const long = access({ users: users(['ann', 'correct-horse-battery'], ['bob', 'correct-horse']) });
    const identify = (username: string, password: string) => long.identify({ username, password }, CLIENT);
    for (const [name, password] of [
      ['ann', 'correct-horse-batterz'],
      ['ann', 'correct-horse-batter'],
      ['ann', 'correct-horse-battery!'],
      ['ann', 'correct-horse'],
      ['bob', 'correct-horse-battery'],
      ['bob', 'correct-hors'],
    ] as const)
      expect(hasCode(identify(name, password), 'auth-required'), `${name} ${password}`).toBe(true);
    expect(identify('ann', 'correct-horse-battery')).toMatchObject({ user: 'ann' });
    expect(identify('bob', 'correct-horse')).toMatchObject({ user: 'bob' });
  });

  test('access: missing credentials do not count as a failed attempt', () => {
    const closed = access({ users: known });
    expect(closed.requiresCredentials).toBe(true);
    for (let index = 0; index < 100; index += 1) {
      expect(hasCode(closed.identify(undefined, CLIENT), 'auth-required')).toBe(true);
    }
    expect(closed.identify({ username: 'ann', password: 'a' }, CLIENT)).toEqual({
      user: 'ann',
      routingText: '',
    });
  });

  test('access: an error contains neither the password nor the user name', () => {
    const outcome = access({ users: known }).identify({ username: 'intruder', password: 'guess' }, CLIENT);
    expect(outcome).toBeInstanceOf(NoriaError);
    expect(String(outcome)).not.toMatch(/intruder|guess/);
  });
});

describe('access: wrong credentials', () => {
  const right = { username: 'ann', password: 'a' };
  const wrong = { username: 'ann', password: 'guess' };
  const identity = { user: 'ann', routingText: '' };

  function limited() {
    const clock = ManualClock.dayOld();
    const counted: unknown[] = [];
    const onWrongCredentials = (attempt: unknown) => void counted.push(attempt);
    const closed = access({ users: users(['ann', 'a'], ['bob-b', 'b']), clock, onWrongCredentials });
    const fail = (times: number, address: string, credentials = wrong) => {
      for (let index = 0; index < times; index += 1) closed.identify(credentials, address);
    };
    /** Sends one more wrong attempt and returns the code. */
    const codeOf = (address: string, credentials = wrong) => {
      const outcome = closed.identify(credentials, address);
      return outcome instanceof NoriaError ? outcome.code : 'identified';
    };
    return { clock, closed, counted, fail, codeOf };
  }

  test('access: right credentials always pass, after any number of wrong ones from the same address', () => {
    const { closed, fail } = limited();
    for (let round = 0; round < 30; round += 1) {
      fail(20, CLIENT);
      expect(closed.identify(right, CLIENT)).toEqual(identity);
    }
  });

  test('access: after 20 wrong attempts within a minute, further wrong ones must wait', () => {
    const { clock, closed, fail } = limited();
    fail(10, CLIENT);
    clock.advance(10_000);
    fail(9, CLIENT);
    expect(hasCode(closed.identify(wrong, CLIENT), 'auth-required'), 'the 20th').toBe(true);
    const refused = closed.identify(wrong, CLIENT);
    expect(hasCode(refused, 'too-many-requests')).toBe(true);
    expect(refused).toHaveProperty('context', { retryAfterMs: 50_000 });
    fail(500, CLIENT);
    clock.advance(49_999);
    expect(hasCode(closed.identify(wrong, CLIENT), 'too-many-requests')).toBe(true);
    clock.advance(1);
    expect(hasCode(closed.identify(wrong, CLIENT), 'auth-required'), 'a new window').toBe(true);
  });

  test('access: counts by address and user, also by user names that do not exist', () => {
    const { fail, codeOf } = limited();
    fail(20, CLIENT);
    const session = { username: 'ann-session-7', password: 'x' };
    expect(codeOf(CLIENT, session), 'the same user').toBe('too-many-requests');
    for (const username of ['bob-b', 'bob', 'eve']) {
      expect(codeOf(CLIENT, { username, password: 'x' }), username).toBe('auth-required');
    }
    expect(codeOf('192.0.2.2')).toBe('auth-required');
    fail(20, CLIENT, { username: 'eve-session-1', password: 'x' });
    expect(codeOf(CLIENT, { username: 'eve,session-2', password: 'x' })).toBe('too-many-requests');
  });

  test('access: a v4-mapped address counts as IPv4, and an IPv6 /64 as one client', () => {
    const { fail, codeOf } = limited();
    fail(20, `::ffff:${CLIENT}`);
    expect(codeOf(CLIENT)).toBe('too-many-requests');
    for (let host = 1; host <= 20; host += 1) fail(1, `2001:db8::${host}`);
    expect(codeOf('2001:db8::ffff')).toBe('too-many-requests');
    expect(codeOf('2001:db8:0:1::1')).toBe('auth-required');
  });

  test('access: beyond 10,000 addresses the one with the oldest window is forgotten', () => {
    const { clock, fail, codeOf } = limited();
    fail(20, 'first');
    fail(20, 'second');
    clock.advance(1_000);
    for (let index = 0; index < 9_999; index += 1) fail(1, `address ${index}`);
    clock.advance(1_000);
    expect(codeOf('second')).toBe('too-many-requests');
    expect(codeOf('first')).toBe('auth-required');
  });

  test('access: while all clients send 2,000 wrong attempts in a second, only those with too many go unchecked', () => {
    const { clock, closed, counted, fail } = limited();
    fail(2_000, CLIENT);
    fail(1_000, CLIENT);
    expect(counted).toHaveLength(2_000);
    expect(hasCode(closed.identify(right, CLIENT), 'too-many-requests'), 'not checked').toBe(true);
    expect(closed.identify(right, '192.0.2.2'), 'another address').toEqual(identity);
    expect(closed.identify({ username: 'bob-b', password: 'b' }, CLIENT), 'another user').toMatchObject({
      user: 'bob-b',
    });
    clock.advance(1_000);
    expect(closed.identify(right, CLIENT), 'in the next second').toEqual(identity);
  });

  test('access: attempts that other processes saw count too', () => {
    const { closed, codeOf } = limited();
    for (let index = 0; index < 20; index += 1)
      closed.countWrongCredentials({ address: CLIENT, user: 'ann' });
    expect(codeOf(CLIENT)).toBe('too-many-requests');
    expect(closed.identify(right, CLIENT)).toEqual(identity);
  });

  test('access: a password that begins with the right one is wrong', () => {
    const { codeOf } = limited();
    for (const rest of ['a', 'aa', 'a'.repeat(10_000)]) {
      expect(codeOf(CLIENT, { username: 'ann', password: `a${rest}` })).toBe('auth-required');
    }
  });
});

describe('access: targets', () => {
  test("access: refuses targets by the rules, and noria's own addresses", () => {
    const own: { host: string; port: number }[] = [];
    const some = access({ denyTargets: ['smtp'], guard: { mark: 'noria-0', ownAddresses: () => own } });
    const denies = (host: string, port: number) => {
      const target = hostPort(host, port);
      if (target === undefined) throw new Error(`the test names no target: ${host}`);
      return some.checkTarget(target)?.message;
    };
    expect(denies('example.com', 25)).toBe(
      'target example.com:25 refused: the port of the target is in denyTargets',
    );
    expect(denies('127.0.0.1', 8889)).toBeUndefined();
    own.push({ host: '127.0.0.1', port: 8889 }); // the admin server has started
    expect(denies('127.0.0.1', 8889)).toBe(
      'target 127.0.0.1:8889 refused: the target is an address of noria itself',
    );
    expect(denies('example.com', 443)).toBeUndefined();
  });
});

describe('access: reading targets', () => {
  test('access: a target is parsed the same way the first and the second time', () => {
    const some = access();
    const text = fc.oneof(
      fc.constantFrom('example.com:443', 'EXAMPLE.com:443', '[::1]:80', '127.1:80', 'example.com', 'a:0', ''),
      fc.string(),
      fc.tuple(fc.domain(), fc.nat(70_000)).map(([host, port]) => `${host}:${port}`),
    );
    fc.assert(
      fc.property(text, (authority) => {
        const parsed = parseHostPort(authority);
        expect(some.readTarget(authority)).toEqual(parsed);
        expect(some.readTarget(authority)).toEqual(parsed);
      }),
    );
  });

  test('access: recent targets are cached, old and long ones are not', () => {
    const some = access();
    const first = some.readTarget('example.com:443');
    expect(some.readTarget(['example.com', '443'].join(':'))).toBe(first);
    for (let n = 0; n < 1_024; n += 1) some.readTarget(`h${n}.example:443`);
    expect(some.readTarget('example.com:443')).not.toBe(first);
    const long = `${'a.'.repeat(100)}example:443`;
    expect(some.readTarget(long)).not.toBe(some.readTarget(long));
  });
});

test('access: wrong attempts count for each user, and for unknown names by their first letters', () => {
  const clock = ManualClock.dayOld();
  const listed = access({ clock, users: users(['ann', 'a'], ['bob', 'b']) });
  const attempt = (username: string) => {
    const identity = listed.identify({ username, password: 'wrong' }, CLIENT);
    return identity instanceof NoriaError ? identity.code : 'identified';
  };
  const exhaust = (name: (nth: number) => string) => {
    for (let nth = 0; nth < 20; nth += 1) expect(attempt(name(nth))).toBe('auth-required');
  };
  exhaust((nth) => `eve${nth}-session-${nth}`);
  expect([attempt('evelyn'), attempt('mallory'), attempt('ann')]).toEqual([
    'too-many-requests',
    'auth-required',
    'auth-required',
  ]);
  exhaust((nth) => `bob-session-${nth}`);
  expect(attempt('bob')).toBe('too-many-requests');
  clock.advance(60_000);
  exhaust(() => 'bob');
  expect(attempt('bob'), 'in the next minute').toBe('too-many-requests');
});
