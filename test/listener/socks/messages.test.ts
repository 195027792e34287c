import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  authStatus,
  methodSelection,
  requestReply,
  type SocksFault,
  type SocksMessage,
  SocksReader,
  type SocksVersion,
  socks4AuthRejection,
} from '../../../src/listener/socks.ts';

type Outcome = SocksMessage | SocksFault | undefined;

const bytes = (...parts: readonly (number | string | readonly number[])[]): Buffer =>
  Buffer.concat(
    parts.map((part) =>
      typeof part === 'string' ? Buffer.from(part) : Buffer.from(typeof part === 'number' ? [part] : part),
    ),
  );
/** A string after its length byte. */
const counted = (text: string): Buffer => bytes(Buffer.byteLength(text), text);

/** Parses the expected messages from chunks. The last element is the rest of the bytes. */
function read(version: SocksVersion, expected: readonly SocksMessage['kind'][], pieces: readonly Buffer[]) {
  const wire = new SocksReader(version);
  const outcomes: Outcome[] = [];
  for (const piece of pieces) {
    wire.push(piece);
    for (let next = expected[outcomes.length]; next !== undefined; next = expected[outcomes.length]) {
      const outcome = wire.next(next);
      if (outcome === undefined) break;
      outcomes.push(outcome);
      if (outcome.kind === 'fault') return { outcomes, rest: '' };
    }
  }
  return { outcomes, rest: wire.rest.toString('hex') };
}

const readOne = (expected: SocksMessage['kind'], message: Buffer, version: SocksVersion = 5): Outcome =>
  read(version, [expected], [message]).outcomes[0];

const target = (host: string, port: number, kind: 'name' | 'ipv4' | 'ipv6', userId = '') => ({
  kind: 'request',
  target: { host, port, kind, text: kind === 'ipv6' ? `[${host}]:${port}` : `${host}:${port}` },
  userId,
});

const IPV6_BYTES = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

describe('socks messages: SOCKS5', () => {
  test('socks messages: a greeting lists its methods', () => {
    expect(readOne('greeting', bytes(5, 1, 0))).toEqual({ kind: 'greeting', methods: [0] });
    expect(readOne('greeting', bytes(5, 3, 0, 1, 2))).toEqual({ kind: 'greeting', methods: [0, 1, 2] });
    expect(readOne('greeting', bytes(5, 0))).toEqual({ kind: 'greeting', methods: [] });
    const all = Array.from({ length: 255 }, (_, method) => method);
    expect(readOne('greeting', bytes(5, 255, all))).toEqual({ kind: 'greeting', methods: all });
  });

  test('socks messages: credentials are UTF-8 text of 0 to 255 bytes each', () => {
    const said = (username: string, password: string) =>
      readOne('credentials', bytes(1, [...counted(username)], [...counted(password)]));
    for (const [username, password] of [
      ['ann', 'secret'],
      ['', ''],
      ['müller', '密码'],
      ['u'.repeat(255), 'p'.repeat(255)],
    ] as const) {
      expect(said(username, password)).toEqual({ kind: 'credentials', username, password });
    }
  });

  const REQUESTS: readonly [what: string, message: Buffer, outcome: object][] = [
    ['an IPv4 address', bytes(5, 1, 0, 1, [192, 0, 2, 1], [1, 187]), target('192.0.2.1', 443, 'ipv4')],
    ['an IPv6 address', bytes(5, 1, 0, 4, IPV6_BYTES, [0, 80]), target('2001:db8::1', 80, 'ipv6')],
    ['a name', bytes(5, 1, 0, 3, [...counted('Example.COM')], [1, 187]), target('example.com', 443, 'name')],
    [
      'an IDN',
      bytes(5, 1, 0, 3, [...counted('bücher.example')], [0, 80]),
      target('xn--bcher-kva.example', 80, 'name'),
    ],
    ['IPv4 as a name', bytes(5, 1, 0, 3, [...counted('127.1')], [0, 80]), target('127.0.0.1', 80, 'ipv4')],
    [
      'IPv6 as a name',
      bytes(5, 1, 0, 3, [...counted('2001:DB8::1')], [0, 80]),
      target('2001:db8::1', 80, 'ipv6'),
    ],
    [
      'IPv6 as a name in brackets',
      bytes(5, 1, 0, 3, [...counted('[::1]')], [0, 80]),
      target('::1', 80, 'ipv6'),
    ],
    ['another reserved byte', bytes(5, 1, 9, 1, [192, 0, 2, 1], [0, 80]), target('192.0.2.1', 80, 'ipv4')],
    ['the highest port', bytes(5, 1, 0, 1, [192, 0, 2, 1], [255, 255]), target('192.0.2.1', 65_535, 'ipv4')],
  ];

  test.each(REQUESTS)('socks messages: a request for %s', (_, message, outcome) => {
    expect(readOne('request', message)).toEqual(outcome);
  });
});

describe('socks messages: faults and their reply codes', () => {
  const FAULTS: readonly [
    what: string,
    expected: SocksMessage['kind'],
    message: Buffer,
    code: string,
    reply: number,
  ][] = [
    ['a SOCKS4 greeting', 'greeting', bytes(4, 1), 'bad-request', 0x01],
    ['an HTTP request', 'greeting', bytes('GET'), 'bad-request', 0x01],
    ['another version of the credentials', 'credentials', bytes(5, 1), 'bad-request', 0x01],
    ['another version of the request', 'request', bytes(4, 1), 'bad-request', 0x01],
    ['BIND', 'request', bytes(5, 2, 0, 1), 'not-implemented', 0x07],
    ['UDP ASSOCIATE', 'request', bytes(5, 3), 'not-implemented', 0x07],
    ['an unknown command', 'request', bytes(5, 0x83), 'not-implemented', 0x07],
    ['an unknown address type', 'request', bytes(5, 1, 0, 2), 'not-implemented', 0x08],
    ['an empty name', 'request', bytes(5, 1, 0, 3, 0, [0, 80]), 'bad-request', 0x01],
    ['port 0', 'request', bytes(5, 1, 0, 1, [192, 0, 2, 1], [0, 0]), 'bad-request', 0x01],
    ['a name with a space', 'request', bytes(5, 1, 0, 3, [...counted('a b')], [0, 80]), 'bad-request', 0x01],
    [
      'a name with NUL',
      'request',
      bytes(5, 1, 0, 3, [...counted('a\0.example')], [0, 80]),
      'bad-request',
      0x01,
    ],
    [
      'a name with a port',
      'request',
      bytes(5, 1, 0, 3, [...counted('a.example:80')], [0, 80]),
      'bad-request',
      0x01,
    ],
    [
      'a name that is not UTF-8',
      'request',
      bytes(5, 1, 0, 3, 3, [0x61, 0xff, 0x62], [0, 80]),
      'bad-request',
      0x01,
    ],
    ['a name of 255 bytes', 'request', bytes(5, 1, 0, 3, 255, 'a'.repeat(255), [0, 80]), 'bad-request', 0x01],
  ];

  test.each(FAULTS)('socks messages: %s', (_, expected, message, code, reply) => {
    expect(readOne(expected, message)).toMatchObject({ kind: 'fault', code, reply });
  });

  test('socks messages: a fault contains numbers, never text of the client', () => {
    expect(readOne('request', bytes(5, 2))).toHaveProperty('detail', 'command BIND');
    expect(readOne('request', bytes(5, 9))).toHaveProperty('detail', 'command 9');
    expect(readOne('request', bytes(5, 1, 0, 2))).toHaveProperty(
      'detail',
      'the request has the unknown address type 2',
    );
    expect(readOne('request', bytes(5, 1, 0, 3, [...counted('a b')], [0, 80]))).toHaveProperty(
      'detail',
      'the target is not a valid host and port',
    );
  });
});

describe('socks messages: SOCKS4 and SOCKS4a', () => {
  const PORT = [0, 80];
  const REQUESTS: readonly [what: string, message: Buffer, outcome: object][] = [
    ['an address', bytes(4, 1, PORT, [192, 0, 2, 1], 0), target('192.0.2.1', 80, 'ipv4')],
    [
      'a user id',
      bytes(4, 1, PORT, [192, 0, 2, 1], 'a-session-b', 0),
      target('192.0.2.1', 80, 'ipv4', 'a-session-b'),
    ],
    ['a name', bytes(4, 1, PORT, [0, 0, 0, 1], 0, 'Example.com', 0), target('example.com', 80, 'name')],
    [
      'both',
      bytes(4, 1, PORT, [0, 0, 0, 255], 'me', 0, 'a.example', 0),
      target('a.example', 80, 'name', 'me'),
    ],
    [
      '0.0.0.0, which is no sign of a name',
      bytes(4, 1, PORT, [0, 0, 0, 0], 0),
      target('0.0.0.0', 80, 'ipv4'),
    ],
    ['0.0.1.0, which is none either', bytes(4, 1, PORT, [0, 0, 1, 0], 0), target('0.0.1.0', 80, 'ipv4')],
    [
      'the longest user id',
      bytes(4, 1, PORT, [192, 0, 2, 1], 'u'.repeat(512), 0),
      target('192.0.2.1', 80, 'ipv4', 'u'.repeat(512)),
    ],
  ];

  test.each(REQUESTS)('socks messages: a SOCKS4 request with %s', (_, message, outcome) => {
    expect(readOne('request', message, 4)).toEqual(outcome);
  });

  const FAULTS: readonly [what: string, message: Buffer, code: string][] = [
    ['BIND', bytes(4, 2), 'not-implemented'],
    ['another version', bytes(5, 1), 'bad-request'],
    ['port 0', bytes(4, 1, [0, 0], [192, 0, 2, 1], 0), 'bad-request'],
    ['an empty name', bytes(4, 1, PORT, [0, 0, 0, 1], 0, 0), 'bad-request'],
    ['a user id without an end', bytes(4, 1, PORT, [192, 0, 2, 1], 'u'.repeat(513)), 'bad-request'],
    ['a name without an end', bytes(4, 1, PORT, [0, 0, 0, 1], 0, 'a'.repeat(256)), 'bad-request'],
  ];

  test.each(FAULTS)('socks messages: a SOCKS4 request with %s is refused', (_, message, code) => {
    expect(readOne('request', message, 4)).toMatchObject({ kind: 'fault', code });
  });
});

test('socks messages: the bytes of each reply', () => {
  expect(methodSelection(0x02)).toEqual(bytes(5, 2));
  expect(methodSelection(0xff)).toEqual(bytes(5, 0xff));
  expect(authStatus(true)).toEqual(bytes(1, 0));
  expect(authStatus(false)).toEqual(bytes(1, 1));
  expect(requestReply(5, 0)).toEqual(bytes(5, 0, 0, 1, [0, 0, 0, 0], [0, 0]));
  expect(requestReply(5, 7)).toEqual(bytes(5, 7, 0, 1, [0, 0, 0, 0], [0, 0]));
  expect(requestReply(4, 0)).toEqual(bytes(0, 0x5a, [0, 0], [0, 0, 0, 0]));
  expect(requestReply(4, 7)).toEqual(bytes(0, 0x5b, [0, 0], [0, 0, 0, 0]));
  expect(socks4AuthRejection()).toEqual(bytes(0, 0x5d, [0, 0], [0, 0, 0, 0]));
});

const anyBytes = (most: number) => fc.uint8Array({ maxLength: most }).map((array) => Buffer.from(array));
/** Whole handshakes followed by other bytes, and invalid bytes. */
const conversations = fc.oneof(
  fc
    .tuple(fc.string({ maxLength: 40 }), fc.string({ maxLength: 40 }), fc.domain(), anyBytes(30))
    .map(([username, password, host, rest]) => ({
      version: 5 as const,
      expected: ['greeting', 'credentials', 'request'] as const,
      sent: bytes(
        [5, 2, 0, 2],
        [1, ...counted(username), ...counted(password)],
        [5, 1, 0, 3, ...counted(host), 1, 187],
        [...rest],
      ),
    })),
  fc
    .tuple(fc.ipV6(), fc.stringMatching(/^[ -~]{0,40}$/), fc.domain(), anyBytes(30))
    .map(([, userId, host, rest]) => ({
      version: 4 as const,
      expected: ['request'] as const,
      sent: bytes([4, 1, 1, 187, 0, 0, 0, 7], userId, 0, host, 0, [...rest]),
    })),
  anyBytes(80).map((sent) => ({ version: 5 as const, expected: ['greeting', 'request'] as const, sent })),
  anyBytes(80).map((sent) => ({ version: 4 as const, expected: ['request'] as const, sent })),
);

function split(sent: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (sent.length + 1)).sort((a, b) => a - b), sent.length];
  return places.slice(1).map((end, index) => sent.subarray(places[index], end));
}

test('socks messages: the result does not depend on how the bytes are split', () => {
  let whole = 0;
  fc.assert(
    fc.property(conversations, fc.array(fc.nat(), { maxLength: 12 }), ({ version, expected, sent }, cuts) => {
      const atOnce = read(version, expected, [sent]);
      expect(read(version, expected, split(sent, cuts))).toEqual(atOnce);
      expect(
        read(
          version,
          expected,
          [...sent].map((byte) => Buffer.from([byte])),
        ),
        'byte by byte',
      ).toEqual(atOnce);
      if (atOnce.outcomes.length === expected.length) whole += 1;
    }),
    { numRuns: 500 },
  );
  expect(whole, 'some conversations are whole').toBeGreaterThan(50);
});

test('socks messages: when nothing follows a message, its reader holds no buffer of a read', () => {
  for (const [rest, isEmpty] of [
    ['', true],
    ['x', false],
  ] as const) {
    const reader = new SocksReader(5);
    reader.push(bytes(5, 1, 0, rest));
    expect(reader.next('greeting')).toMatchObject({ kind: 'greeting' });
    expect([reader.rest.toString(), reader.rest.buffer.byteLength === 0]).toEqual([rest, isEmpty]);
  }
});

test('socks messages: no bytes throw', () => {
  const message = fc.constantFrom<SocksMessage['kind']>('greeting', 'credentials', 'request');
  fc.assert(
    fc.property(anyBytes(800), message, fc.constantFrom<SocksVersion>(4, 5), (sent, expected, version) => {
      read(version, [expected], [sent]);
    }),
    { numRuns: 1_000 },
  );
});

test('socks messages: an endless message is refused or limited to the longest valid one', () => {
  for (const version of [4, 5] as const) {
    for (const expected of ['greeting', 'credentials', 'request'] as const) {
      for (const filler of [0x01, 0x04, 0x05, 0x41, 0xff]) {
        const head = version === 4 ? bytes(4, 1) : bytes(expected === 'credentials' ? 1 : 5);
        const { outcomes } = read(version, [expected], [head, Buffer.alloc(1_000, filler)]);
        expect(outcomes, `SOCKS${version} ${expected} filled with ${filler}`).toHaveLength(1);
      }
    }
  }
});
