import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { MEMBER_PROTOCOLS } from '../../src/core/protocol.ts';
import {
  ROUTING_KEYS,
  type RoutingContext,
  type RoutingKeyName,
  type RoutingSettings,
  readRoutingOptions,
  routingTextWithoutUsers,
} from '../../src/listener/routing-options.ts';
import type { RoutingOptions } from '../../src/pool/lease.ts';
import { runsOf } from '../support/properties.ts';

const LISTENER: RoutingSettings = { session: 'none', sourceNames: () => ['city', 'other.source'] };
const context: RoutingContext = {
  listener: LISTENER,
  user: '',
  client: 'local',
  socket: { remoteAddress: '192.0.2.1' },
  localPort: 8888,
  targetHost: 'example.com',
};

function read(
  text: string,
  headers: readonly (readonly [string, string])[] = [],
  { session, source, ...more }: Partial<RoutingSettings & RoutingContext> = {},
): RoutingOptions | string {
  const listener = { ...LISTENER, ...(session && { session }), ...(source && { source }) };
  const routing = readRoutingOptions(text, headers, { ...context, listener, ...more });
  if (!(routing instanceof NoriaError)) {
    const { sessionOwner: _owner, client, ...options } = routing;
    expect(client).toBe(context.client);
    return options;
  }
  expect(routing.code).toBe('bad-routing');
  return routing.message;
}

const GOOD: readonly [text: string, routing: RoutingOptions][] = [
  ['', {}],
  ['session-abc', { session: 'abc' }],
  ['session-A.b_c~9', { session: 'A.b_c~9' }],
  ['SESSION-abc', { session: 'abc' }],
  ['session-abc-ttl-90', { session: 'abc', sessionTtlMs: 90_000 }],
  ['session-abc-ttl-500ms', { session: 'abc', sessionTtlMs: 500 }],
  ['session-abc-sesstime-10', { session: 'abc', sessionTtlMs: 600_000 }],
  ['session-abc-sessTime-10', { session: 'abc', sessionTtlMs: 600_000 }],
  ['session-abc-sessionduration-10', { session: 'abc', sessionTtlMs: 600_000 }],
  ['session-abc-sessionttl-10', { session: 'abc', sessionTtlMs: 600_000 }],
  ['session-abc-lifetime-10', { session: 'abc', sessionTtlMs: 600_000 }],
  ['session-abc-lifetime-10s', { session: 'abc', sessionTtlMs: 10_000 }],
  ['session-abc-sessionlength-300', { session: 'abc', sessionTtlMs: 300_000 }],
  ['session-abc-sessionlength-5m', { session: 'abc', sessionTtlMs: 300_000 }],
  ['session-abc-ttl-168h', { session: 'abc', sessionTtlMs: 604_800_000 }],
  ['ttl-10m', {}],
  ['source-city', { source: 'city' }],
  ['pool-other.source', { source: 'other.source' }],
  ['adr-Shanghai', { location: 'Shanghai' }],
  [`adr-${'a'.repeat(64)}`, { location: 'a'.repeat(64) }],
  ['adr-%E4%B8%8A%E6%B5%B7', { location: '上海' }],
  ['adr-上海', { location: '上海' }],
  ['city-New_York', { location: 'New York' }],
  ['city-a%2Db%2Cc%5Fd', { location: 'a-b,c_d' }],
  ['life-30', { minLifeMs: 30_000 }],
  ['life-2m', { minLifeMs: 120_000 }],
  ['minlife-1h', { minLifeMs: 3_600_000 }],
  ['protocol-socks5', { protocol: 'socks5' }],
  ['protocol-HTTP', { protocol: 'http' }],
  ['rotate', {}],
  ['rotate-session-abc', { session: 'abc' }],
  ['session-abc,adr-Shanghai', { session: 'abc', location: 'Shanghai' }],
  ['session-abc-life-30s,adr-Shanghai,rotate', { session: 'abc', minLifeMs: 30_000, location: 'Shanghai' }],
];

/** Invalid routing options, each with the text that the message must contain. */
const BAD: readonly [text: string, named: RegExp][] = [
  ['colour-red', /unknown key "colour"/],
  ['session-abc-colour-red', /unknown key "colour"/],
  ['session-abc,colour-red', /unknown key "colour"/],
  ['session-abc-', /unknown key ""/],
  ['session-abc,', /unknown key ""/],
  ['-session-abc', /unknown key ""/],
  ['session-abc--life-30', /unknown key ""/],
  ['constructor-1', /unknown key "constructor"/],
  ['session', /session has no value/],
  ['life-30-session', /session has no value/],
  ['session,adr-Shanghai', /session has no value/],
  ['session-', /invalid value "" for key session/],
  ['session-a b', /invalid value "a b" for key session/],
  ['session-a:b', /for key session/],
  ['session-client=1', /for key session/],
  [`session-${'a'.repeat(65)}`, /for key session/],
  ['session-abc-session-abd', /key session is given twice/],
  ['session-abc-sid-abc', /key session is given twice/],
  ['country-cn-city-shanghai', /key adr is given twice/],
  ['ttl-0', /for key ttl/],
  ['ttl-', /for key ttl/],
  ['ttl--5', /for key ttl/],
  ['ttl-1.5h', /for key ttl/],
  ['ttl-5d', /for key ttl/],
  ['ttl-169h', /for key ttl/],
  ['ttl-99999999999', /for key ttl/],
  ['sesstime-10081', /for key sesstime/],
  ['life-soon', /for key life/],
  ['source-nowhere', /value "nowhere" of the key source/],
  ['zone-', /for key zone/],
  ['adr-', /for key adr/],
  ['adr-_', /for key adr/],
  ['adr-%', /for key adr/],
  ['adr-%E4', /for key adr/],
  ['adr-a%00b', /for key adr/],
  ['adr-a%0d%0ab', /for key adr/],
  [`adr-${'a'.repeat(65)}`, /for key adr/],
  ['protocol-ftp', /for key protocol/],
  ['rotate-yes', /unknown key "yes"/],
];

describe('routing options: user name', () => {
  test.each(GOOD)('routing options: %s is valid', (text, routing) => {
    expect(read(text)).toEqual(routing);
  });

  test.each(BAD)('routing options: %s is refused with the key in the message', (text, named) => {
    expect(read(text)).toMatch(named);
  });

  test('routing options: a message quotes at most 40 characters of the client, on one line', () => {
    const message = read(`${'x'.repeat(41)}\r\nSet-Cookie: a`);
    expect(message).toMatch(/^unknown key "x+…" in the user name$/);
    expect(message).toHaveLength(40 + 1 + 'unknown key "" in the user name'.length);
    expect(read('a\r\nb-1')).toBe('unknown key "a\\r\\nb" in the user name');
  });

  test('routing options: every key and alias of the table works', () => {
    const samples: Record<RoutingKeyName, readonly [before: string, value: string, routing: RoutingOptions]> =
      {
        session: ['', '-abc', { session: 'abc' }],
        ttl: ['session-abc-', '-5m', { session: 'abc', sessionTtlMs: 300_000 }],
        source: ['', '-city', { source: 'city' }],
        adr: ['', '-Shanghai', { location: 'Shanghai' }],
        life: ['', '-5m', { minLifeMs: 300_000 }],
        protocol: ['', '-http', { protocol: 'http' }],
        rotate: ['', '', {}],
        tag: ['', '-r1', { tag: 'r1' }],
        exclusive: ['session-abc-', '', { session: 'abc', exclusive: true }],
        fixed: ['session-abc-', '', { session: 'abc', fixed: true }],
      };
    const names = ROUTING_KEYS.flatMap(({ key, aliases }) =>
      [key, ...aliases].map((name) => ({ key, name })),
    );
    expect(names.length).toBeGreaterThan(20);
    expect(new Set(names.map(({ name }) => name)).size, 'names are unique').toBe(names.length);
    for (const { key, name } of names) {
      const [before, value, routing] = samples[key];
      expect(read(before + name + value, [], { session: 'none' }), name).toEqual(routing);
    }
  });
});

describe('routing options: X-Noria headers', () => {
  test('routing options: a header works like a key, with any of its names and in any letter case', () => {
    expect(read('', [['X-Noria-Session', 'abc']])).toEqual({ session: 'abc' });
    expect(read('', [['x-noria-sessid', 'abc']])).toEqual({ session: 'abc' });
    expect(read('', [['X-NORIA-CITY', 'New York']])).toEqual({ location: 'New York' });
    expect(read('session-a', [['X-Noria-SessTime', '10']])).toEqual({ session: 'a', sessionTtlMs: 600_000 });
  });

  test('routing options: a header overrides the user name, also with another alias', () => {
    const headers = [
      ['X-Noria-Sid', 'header'],
      ['X-Noria-Country', 'there'],
    ] as const;
    expect(read('session-name-adr-here-life-5', headers)).toEqual({
      session: 'header',
      location: 'there',
      minLifeMs: 5_000,
    });
  });

  test('routing options: an invalid user name is refused even if headers override it', () => {
    expect(read('sesion-a', [['X-Noria-Session', 'b']])).toMatch(/unknown key "sesion"/);
  });

  test('routing options: unknown or repeated X-Noria headers are refused, other headers ignored', () => {
    expect(read('', [['X-Noria-Colour', 'red']])).toBe('unknown header "X-Noria-Colour"');
    expect(read('', [['X-Noria-', '']])).toEqual({});
    expect(read('', [['X-Noria-Life', 'soon']])).toMatch(/invalid value "soon" for key life/);
    const twice = [
      ['X-Noria-Session', 'a'],
      ['X-Noria-Sid', 'a'],
    ] as const;
    expect(read('', twice)).toBe('key session is given twice in headers');
    const others = [
      ['Session', 'a'],
      ['X-Noria', 'a'],
      ['X-Noriasession', 'a'],
      ['Cookie', 'x-noria-session=a'],
    ] as const;
    expect(read('', others)).toEqual({});
  });

  test('routing options: an unknown key gets the nearest one as advice, and a long word none', () => {
    const reason = (text: string, headers: readonly (readonly [string, string])[] = []) => {
      const routing = readRoutingOptions(text, headers, context);
      return routing instanceof NoriaError ? routing.context['reason'] : undefined;
    };
    expect(reason('sesion-a')).toMatch(/unknown key; did you mean session\? The keys are session, ttl/);
    expect(reason('', [['X-Noria-Contry', 'x']])).toMatch(/unknown key; did you mean country\? The keys are/);
    expect(reason('sessionsessionsessionsessionsessions-a')).toMatch(
      /unknown key; the keys are session, ttl/,
    );
  });

  test('routing options: the rotate header accepts the usual words for yes and no', () => {
    const sessions = (value: string) => read('', [['X-Noria-Rotate', value]], { session: 'port' as const });
    for (const yes of ['', '1', 'true', 'YES', 'on']) expect(sessions(yes), yes).toEqual({});
    for (const no of ['0', 'false', 'No', 'off']) expect(sessions(no), no).toEqual({ session: 'port=8888' });
    expect(sessions('maybe')).toMatch(/invalid value "maybe" for key rotate/);
  });
});

describe('routing options: what the listener adds', () => {
  test('routing options: each session mode assigns its session', () => {
    const of = (session: RoutingSettings['session'], more = {}) => read('', [], { session, ...more });
    expect(of('none')).toEqual({});
    expect(of('client-ip')).toEqual({ session: 'client-ip=192.0.2.1' });
    expect(of('client-ip', { socket: { remoteAddress: '::ffff:192.0.2.1' } })).toEqual({
      session: 'client-ip=192.0.2.1',
    });
    expect(of('client-ip', { socket: { remoteAddress: '2001:db8::1' } })).toEqual({
      session: 'client-ip=2001:db8::1',
    });
    expect(of('client-ip', { socket: {} }), 'a client that has left').toEqual({});
    expect(of('port')).toEqual({ session: 'port=8888' });
    expect(of('target-host')).toEqual({ session: 'target-host=example.com' });
    expect(of('port', { user: 'ann' })).toEqual({ user: 'ann', session: 'ann:port=8888' });
  });

  test('routing options: a session of the client replaces that of the listener, and rotate drops it', () => {
    const more = { session: 'port' as const };
    expect(read('session-abc', [], more)).toEqual({ session: 'abc' });
    expect(read('rotate', [], more)).toEqual({});
    expect(read('rotate-session-abc', [], more)).toEqual({ session: 'abc' });
    expect(read('ttl-5m', [], more)).toEqual({ session: 'port=8888', sessionTtlMs: 300_000 });
  });

  test('routing options: a session belongs to its user', () => {
    expect(read('session-abc', [], { user: 'ann' })).toEqual({ user: 'ann', session: 'ann:abc' });
    expect(read('session-abc', [], { user: 'bob' })).toEqual({ user: 'bob', session: 'bob:abc' });
  });

  test('routing options: a session carries its owner, and without a session no address is read', () => {
    const ownerOf = (text: string, session: RoutingSettings['session'] = 'none', socket = context.socket) => {
      const listener = { ...LISTENER, session };
      const routing = readRoutingOptions(text, [], { ...context, listener, user: 'ann', socket });
      return routing instanceof NoriaError ? routing : routing.sessionOwner;
    };
    const ann = { user: 'ann', address: '192.0.2.1' };
    expect(ownerOf('session-abc')).toEqual(ann);
    expect(ownerOf('', 'target-host')).toEqual(ann);
    expect(ownerOf('', 'port'), 'of the port').toEqual({ user: '', address: 'port=8888' });
    expect(ownerOf('session-abc', 'port')).toEqual(ann);
    const unread = {
      get remoteAddress(): string {
        throw new Error('read');
      },
    };
    expect(ownerOf('life-30s', 'none', unread)).toBeUndefined();
  });

  test('routing options: no client can choose a session name of the listener', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[A-Za-z0-9_.~]{1,64}$/), (name) => {
        const chosen = read(`session-${name}`);
        for (const session of ['client-ip', 'port', 'target-host'] as const) {
          expect(chosen).not.toEqual(read('', [], { session }));
        }
      }),
    );
  });

  test('routing options: a listener with one source uses it and refuses another', () => {
    const more = { source: 'city' };
    expect(read('', [], more)).toEqual({ source: 'city' });
    expect(read('source-city', [], more)).toEqual({ source: 'city' });
    expect(read('source-other.source', [], more)).toMatch(/uses only the source city/);
  });
});

/** Random routing options, and one of the many ways to write them. */
const written = fc
  .record({
    session: fc.option(fc.stringMatching(/^[A-Za-z0-9_.~]{1,64}$/), { nil: undefined }),
    ttlS: fc.option(fc.integer({ min: 1, max: 604_800 }), { nil: undefined }),
    source: fc.option(fc.constantFrom(...LISTENER.sourceNames()), { nil: undefined }),
    location: fc.option(fc.stringMatching(/^[\p{L}\d,%/-][\p{L}\d ,%_/-]{0,30}[\p{L}\d]$/u), {
      nil: undefined,
    }),
    lifeS: fc.option(fc.integer({ min: 1, max: 604_800 }), { nil: undefined }),
    protocol: fc.option(fc.constantFrom(...MEMBER_PROTOCOLS), { nil: undefined }),
    separators: fc.array(fc.constantFrom('-', ','), { minLength: 6, maxLength: 6 }),
    order: fc.shuffledSubarray([0, 1, 2, 3, 4, 5], { minLength: 6 }),
  })
  .map(({ session, ttlS, source, location, lifeS, protocol, separators, order }) => {
    const pairs = [
      session === undefined ? undefined : `session-${session}`,
      ttlS === undefined ? undefined : `ttl-${ttlS}s`,
      source === undefined ? undefined : `source-${source}`,
      location === undefined ? undefined : `adr-${encodeLocation(location)}`,
      lifeS === undefined ? undefined : `life-${lifeS}`,
      protocol === undefined ? undefined : `protocol-${protocol}`,
    ];
    const ordered = order.flatMap((index) => pairs[index] ?? []);
    const text = ordered.reduce(
      (sum, pair, index) => (index === 0 ? pair : sum + separators[index] + pair),
      '',
    );
    const routing: RoutingOptions = {
      ...(session === undefined ? {} : { session }),
      ...(session === undefined || ttlS === undefined ? {} : { sessionTtlMs: ttlS * 1000 }),
      ...(source === undefined ? {} : { source }),
      ...(location === undefined ? {} : { location }),
      ...(lifeS === undefined ? {} : { minLifeMs: lifeS * 1000 }),
      ...(protocol === undefined ? {} : { protocol }),
    };
    return { text, routing };
  });

function encodeLocation(location: string): string {
  return encodeURIComponent(location).replaceAll('-', '%2D').replaceAll('_', '%5F').replaceAll('%20', '_');
}

test('routing options: any options in any order and form are parsed correctly', () => {
  fc.assert(
    fc.property(
      written,
      fc.constantFrom('', 'base', 'my-app', 'customer-USER'),
      ({ text, routing }, base) => {
        expect(read(text)).toEqual(routing);
        if (text === '') return;
        expect(routingTextWithoutUsers(base === '' ? text : `${base}-${text}`), 'behind a BASE').toBe(text);
      },
    ),
  );
});

test('routing options: no text throws', () => {
  const words = ROUTING_KEYS.flatMap((entry) => [entry.key, ...entry.aliases]);
  const piece = fc.oneof(
    fc.constantFrom('-', ',', '%', '_', '0', '10', ...words),
    fc.string({ maxLength: 5 }),
  );
  const text = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''));
  fc.assert(
    fc.property(text, text, text, (username, header, value) => {
      const rest = routingTextWithoutUsers(username);
      expect(username.endsWith(rest)).toBe(true);
      read(rest, [[`X-Noria-${header}`, value]]);
    }),
    { numRuns: runsOf(1_000) },
  );
});

/** User names for a listener without users: what follows BASE, and the outcome. */
const BASES: readonly [username: string, routingText: string, outcome: RoutingOptions | 'refused'][] = [
  ['', '', {}],
  ['scraper', '', {}],
  ['my-app', '', {}],
  ['city', '', {}],
  ['user-', '', {}],
  ['session-abc', 'session-abc', { session: 'abc' }],
  ['-session-abc', 'session-abc', { session: 'abc' }],
  [',session-abc', 'session-abc', { session: 'abc' }],
  ['user-session-abc', 'session-abc', { session: 'abc' }],
  ['user,session-abc', 'session-abc', { session: 'abc' }],
  ['my-app-session-1', 'session-1', { session: '1' }],
  ['session-abc,adr-Shanghai', 'session-abc,adr-Shanghai', { session: 'abc', location: 'Shanghai' }],
  ['user-country-us-session-x', 'country-us-session-x', { location: 'us', session: 'x' }],
  [
    'customer-USER-cc-US-sessid-abc123-sesstime-10',
    'cc-US-sessid-abc123-sesstime-10',
    { location: 'US', session: 'abc123', sessionTtlMs: 600_000 },
  ],
  ['brd-customer-hl_1a2b-zone-city-session-x', 'zone-city-session-x', { source: 'city', session: 'x' }],
  [
    'package-257-country-us-sessionid-x-sessionlength-300',
    'country-us-sessionid-x-sessionlength-300',
    { location: 'us', session: 'x', sessionTtlMs: 300_000 },
  ],
  ['groups-RESIDENTIAL,session-x,country-US', 'session-x,country-US', { session: 'x', location: 'US' }],
  ['user-rotate', 'rotate', {}],
  ['rotate', 'rotate', {}],
  // Too many words before the first key, or no key at all: refused as an unknown key.
  ['user-colour-red', 'colour-red', 'refused'],
  ['user-sesion-abc', 'sesion-abc', 'refused'],
  ['my-cool-app', 'cool-app', 'refused'],
  ['user-colour-red-session-abc', 'colour-red-session-abc', 'refused'],
  ['user-session-abc-colour-red', 'session-abc-colour-red', 'refused'],
  ['my-session', 'session', 'refused'],
  ['user-session-', 'session-', 'refused'],
];

test.each(BASES)(
  'routing options: without users, %j has the routing options %j',
  (username, routingText, outcome) => {
    expect(routingTextWithoutUsers(username)).toBe(routingText);
    const routing = read(routingText);
    if (outcome === 'refused') expect(routing).toBeTypeOf('string');
    else expect(routing).toEqual(outcome);
  },
);
