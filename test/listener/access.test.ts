import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { hasCode, NoriaError } from '../../src/core/faults.ts';
import { hostPort, parseHostPort } from '../../src/core/host-port.ts';
import { Secret } from '../../src/core/secret.ts';
import { Access, type AccessOptions } from '../../src/listener/access.ts';
import { ManualClock } from '../support/manual-clock.ts';

const CLIENT = '192.0.2.1';

function access(options: Partial<AccessOptions> = {}): Access {
  return new Access({ users: [], allow: [], denyTargets: [], clock: new ManualClock(), ...options });
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
    ['ann-lee', 'a'], // the longer name matches, so the shorter one's password is wrong
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

describe('access: failed attempts', () => {
  const right = { username: 'ann', password: 'a' };
  const wrong = { username: 'ann', password: 'guess' };

  function limited() {
    const clock = new ManualClock();
    const closed = access({ users: users(['ann', 'a']), clock });
    const fail = (times: number, address: string) => {
      for (let index = 0; index < times; index += 1) closed.identify(wrong, address);
    };
    return { clock, closed, fail };
  }

  test('access: after 20 failures within a minute an address must wait, also with correct credentials', () => {
    const { clock, closed, fail } = limited();
    fail(19, CLIENT);
    expect(closed.identify(right, CLIENT)).toEqual({ user: 'ann', routingText: '' });
    clock.advance(10_000);
    fail(1, CLIENT);
    const refused = closed.identify(right, CLIENT);
    expect(hasCode(refused, 'too-many-requests')).toBe(true);
    expect(refused).toHaveProperty('context', { retryAfterMs: 50_000 });
    expect(closed.identify(right, '192.0.2.2'), 'another address').toEqual({ user: 'ann', routingText: '' });
    clock.advance(49_999);
    expect(hasCode(closed.identify(right, CLIENT), 'too-many-requests')).toBe(true);
    clock.advance(1);
    expect(closed.identify(right, CLIENT)).toEqual({ user: 'ann', routingText: '' });
  });

  test('access: attempts during the wait do not extend it', () => {
    const { clock, closed, fail } = limited();
    fail(500, CLIENT);
    clock.advance(60_000);
    expect(closed.identify(right, CLIENT)).toEqual({ user: 'ann', routingText: '' });
    fail(20, CLIENT);
    expect(hasCode(closed.identify(right, CLIENT), 'too-many-requests'), 'a new window').toBe(true);
  });

  test('access: failures older than a minute do not count', () => {
    const { clock, closed, fail } = limited();
    fail(19, CLIENT);
    clock.advance(60_000);
    fail(19, CLIENT);
    expect(closed.identify(right, CLIENT)).toEqual({ user: 'ann', routingText: '' });
  });

  test('access: a new window of an address becomes the newest one', () => {
    const { clock, closed, fail } = limited();
    fail(20, 'first');
    clock.advance(60_000);
    fail(1, 'second');
    fail(20, 'first');
    for (let index = 0; index < 9_999; index += 1) fail(1, `address ${index}`);
    expect(hasCode(closed.identify(right, 'first'), 'too-many-requests'), 'second is the oldest').toBe(true);
  });

  test('access: a v4-mapped address counts as IPv4, and an IPv6 /64 as one client', () => {
    const { closed, fail } = limited();
    fail(20, `::ffff:${CLIENT}`);
    expect(hasCode(closed.identify(right, CLIENT), 'too-many-requests')).toBe(true);
    for (let host = 1; host <= 20; host += 1) fail(1, `2001:db8::${host}`);
    expect(hasCode(closed.identify(right, '2001:db8::ffff'), 'too-many-requests')).toBe(true);
    expect(closed.identify(right, '2001:db8:0:1::1')).toEqual({ user: 'ann', routingText: '' });
  });

  test('access: beyond 10,000 addresses the one with the oldest window is forgotten', () => {
    const { closed, fail } = limited();
    fail(20, 'first');
    fail(20, 'second');
    for (let index = 0; index < 9_999; index += 1) fail(1, `address ${index}`);
    expect(closed.identify(right, 'first')).toEqual({ user: 'ann', routingText: '' });
    expect(hasCode(closed.identify(right, 'second'), 'too-many-requests')).toBe(true);
  });
});

describe('access: targets', () => {
  test("access: refuses targets by the rules, and noria's own addresses", () => {
    const own: { host: string; port: number }[] = [];
    const some = access({ denyTargets: ['smtp'], ownAddresses: () => own });
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
