import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { Handshake } from '../../src/dialer/handshake.ts';
import { Socks4Handshake, Socks5Handshake, socks4CanReach } from '../../src/dialer/handshake.ts';
import { feed, summary } from './feed.ts';
import { targetOf } from './make-dialer.ts';

const LOGIN = { username: 'user', password: new Secret('pässword') };
const LOGIN_HEX = '01' + '04' + '75736572' + '09' + '70c3a473' + '73776f7264';

function hex(text: string): Buffer {
  return Buffer.from(text.replaceAll(' ', ''), 'hex');
}

/** Plays a whole conversation: each server message, and the step that must follow. */
function play(handshake: Handshake, steps: readonly (readonly [server: string, client: string])[]): void {
  for (const [server, client] of steps) expect(summary(handshake.take(hex(server)))).toBe(client);
}

test('socks5 handshake: without a login offers no authentication; a name is sent as a name', () => {
  const handshake = new Socks5Handshake(targetOf('target.example:443'), undefined);
  expect(handshake.opening).toEqual(hex('05 01 00'));
  play(handshake, [
    ['0500', 'send 050100030e7461726765742e6578616d706c6501bb'],
    ['05000001000000000000', 'accepted ""'],
  ]);
});

test('socks5 handshake: with a login offers only that; its lengths are in bytes', () => {
  const handshake = new Socks5Handshake(targetOf('192.0.2.7:80'), LOGIN);
  expect(handshake.opening).toEqual(hex('05 01 02'));
  play(handshake, [
    ['0502', `send ${LOGIN_HEX}`],
    ['0100', 'send 05010001c00002070050'],
    ['0500000100000000000068690d0a', 'accepted "hi\\r\\n"'],
  ]);
});

test('socks5 handshake: an IPv6 address is sent as sixteen bytes', () => {
  for (const [target, bytes] of [
    ['[2001:db8::1]:443', '20010db8000000000000000000000001'],
    ['[::]:443', '00000000000000000000000000000000'],
    ['[::ffff:192.0.2.7]:443', '00000000000000000000ffffc0000207'],
    ['[1:2:3:4:5:6:7:8]:443', '00010002000300040005000600070008'],
    ['[fe80::]:443', 'fe800000000000000000000000000000'],
  ] as const) {
    play(new Socks5Handshake(targetOf(target), undefined), [['0500', `send 05010004${bytes}01bb`]]);
  }
});

test('socks5 handshake: the longest name fits its length byte', () => {
  const name = `${Array.from({ length: 4 }, () => 'a'.repeat(60)).join('.')}.example`;
  const step = new Socks5Handshake(targetOf(`${name}:1`), undefined).take(hex('0500'));
  expect(step.kind === 'send' && step.bytes[4]).toBe(name.length);
});

const METHODS: readonly [answer: string, login: boolean, outcome: string][] = [
  ['05ff', false, 'member-auth: method 255'],
  ['05ff', true, 'member-auth: method 255'],
  ['0502', false, 'member-auth: method 2'],
  ['0500', true, 'member-protocol: the member chose method 0, which noria did not offer'],
  ['0501', false, 'member-protocol: the member chose method 1, which noria did not offer'],
  ['0400', false, 'member-protocol: not a SOCKS5 reply'],
  ['48545450', false, 'member-protocol: not a SOCKS5 reply'],
  ['050005', false, 'member-protocol: extra bytes after the reply'],
];

test.each(METHODS)(
  'socks5 handshake: method reply %s (with a login: %s) means %s',
  (answer, login, outcome) => {
    expect(
      summary(new Socks5Handshake(targetOf('a.example:1'), login ? LOGIN : undefined).take(hex(answer))),
    ).toBe(outcome);
  },
);

test('socks5 handshake: reads a login reply with any version byte', () => {
  for (const [answer, outcome] of [
    ['0101', 'member-auth: login status 1'],
    ['05ff', 'member-auth: login status 255'],
    ['0500', 'send 0501000309612e6578616d706c650001'],
    ['010005', 'member-protocol: extra bytes after the reply'],
  ] as const) {
    const handshake = new Socks5Handshake(targetOf('a.example:1'), LOGIN);
    handshake.take(hex('0502'));
    expect(summary(handshake.take(hex(answer)))).toBe(outcome);
  }
});

const REPLIES: readonly [reply: string, outcome: string][] = [
  ['05000001 7f000001 0050', 'accepted ""'],
  ['05000001 7f000001 0050 ff', 'accepted "ÿ"'],
  ['05000004 20010db8000000000000000000000001 0050', 'accepted ""'],
  ['05000003 00 0050', 'accepted ""'],
  ['05000003 04 686f7374 0050', 'accepted ""'],
  [`05000003 ff ${'61'.repeat(255)} 0050 62`, 'accepted "b"'],
  ['05000003 04 686f7374 00', 'more'],
  ['05000001 7f000001 00', 'more'],
  ['05000000 7f000001 0050', 'member-protocol: the reply has the unknown address type 0'],
  ['05000000 7f', 'member-protocol: the reply has the unknown address type 0'],
  ['0400', 'member-protocol: not a SOCKS5 reply'],
  ['0501', 'member-refused: reply 1'],
  ['0502', 'member-refused: reply 2'],
  ['05030001 00000000 0000', 'target-doubted: reply 3'],
  ['0504', 'target-doubted: reply 4'],
  ['0505', 'target-doubted: reply 5, target refused'],
  ['0506', 'target-doubted: reply 6'],
  ['0507', 'member-refused: reply 7'],
  ['0508', 'member-refused: reply 8'],
  ['0599', 'member-refused: reply 153'],
];

test.each(REPLIES)('socks5 handshake: reply %s means %s, in one piece and byte by byte', (reply, outcome) => {
  const ready = () => {
    const handshake = new Socks5Handshake(targetOf('a.example:1'), undefined);
    handshake.take(hex('0500'));
    return handshake;
  };
  const bytes = hex(reply);
  expect(summary(ready().take(bytes))).toBe(outcome);
  const [step, left] = feed(
    ready(),
    [...bytes].map((byte) => Buffer.from([byte])),
  );
  const whole = step.kind === 'accepted' ? { ...step, rest: Buffer.concat([step.rest, left]) } : step;
  expect(summary(whole)).toBe(outcome);
});

test('socks5 handshake: any split of the reply loses no byte of the tunnel', () => {
  const bound = fc.oneof(
    fc.uint8Array({ minLength: 4, maxLength: 4 }).map((bytes) => [1, ...bytes]),
    fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => [4, ...bytes]),
    fc.uint8Array({ maxLength: 255 }).map((bytes) => [3, bytes.length, ...bytes]),
  );
  fc.assert(
    fc.property(
      bound,
      fc.uint8Array({ maxLength: 20 }),
      fc.array(fc.integer({ min: 1, max: 9 })),
      (bnd, rest, sizes) => {
        const handshake = new Socks5Handshake(targetOf('a.example:1'), undefined);
        handshake.take(hex('0500'));
        const bytes = Buffer.from([5, 0, 0, ...bnd, 0, 80, ...rest]);
        const pieces: Buffer[] = [];
        let at = 0;
        for (const size of sizes) {
          if (at < bytes.length) pieces.push(bytes.subarray(at, at + size));
          at += size;
        }
        if (at < bytes.length) pieces.push(bytes.subarray(at));
        const [step, left] = feed(handshake, pieces);
        expect(step.kind).toBe('accepted');
        if (step.kind === 'accepted') expect(Buffer.concat([step.rest, left])).toEqual(Buffer.from(rest));
      },
    ),
  );
});

test('socks4 handshake: an IPv4 target uses SOCKS4, a name SOCKS4A; a login gives the user id', () => {
  expect(new Socks4Handshake(targetOf('192.0.2.7:443'), undefined).opening).toEqual(
    hex('04 01 01bb c0000207 00'),
  );
  expect(new Socks4Handshake(targetOf('a.example:443'), LOGIN).opening).toEqual(
    hex('04 01 01bb 00000001 75736572 00 612e6578616d706c65 00'),
  );
});

test('socks4 handshake: rejects IPv6 targets', () => {
  expect(socks4CanReach(targetOf('[2001:db8::1]:443'))).toBe(false);
  expect(socks4CanReach(targetOf('a.example:443'))).toBe(true);
  expect(() => new Socks4Handshake(targetOf('[2001:db8::1]:443'), undefined)).toThrow(TypeError);
});

test.each([
  ['005a 0000 00000000', 'accepted ""'],
  ['045a 0000 00000000 6869', 'accepted "hi"'],
  ['005a 0000 000000', 'more'],
  ['005b 0000 00000000', 'target-doubted: reply 91'],
  ['005b', 'target-doubted: reply 91'],
  ['005c', 'member-auth: reply 92'],
  ['005d', 'member-auth: reply 93'],
  ['0000', 'member-protocol: reply 0'],
  ['0500', 'member-protocol: not a SOCKS4 reply'],
  ['00', 'more'],
])('socks4 handshake: reply %s means %s', (reply, outcome) => {
  expect(summary(new Socks4Handshake(targetOf('a.example:1'), undefined).take(hex(reply)))).toBe(outcome);
  const handshake = new Socks4Handshake(targetOf('a.example:1'), undefined);
  const [step, left] = feed(
    handshake,
    [...hex(reply)].map((byte) => Buffer.from([byte])),
  );
  const whole = step.kind === 'accepted' ? { ...step, rest: Buffer.concat([step.rest, left]) } : step;
  expect(summary(whole)).toBe(outcome);
});

test('socks5 handshake: without a target it goes as far as it can, and waits for one', () => {
  const target = targetOf('192.0.2.7:80');
  const request = '05010001c00002070050';
  const ready = new Socks5Handshake(undefined, LOGIN, true);
  expect(ready.opening, 'there is nothing to pipeline').toEqual(hex('05 01 02'));
  play(ready, [['0502', `send ${LOGIN_HEX}`]]);
  expect(ready.isWaiting).toBe(false);
  play(ready, [['0100', 'more']]);
  expect(ready.isWaiting).toBe(true);
  expect(ready.request(target)?.toString('hex')).toBe(request);
  expect(ready.isWaiting).toBe(false);
  play(ready, [['05000001000000000000', 'accepted ""']]);
  const early = new Socks5Handshake(undefined, undefined);
  expect(early.request(target), 'the member has not answered yet').toBeUndefined();
  play(early, [['0500', `send ${request}`]]);
});

test('socks5 handshake: each reply may arrive byte by byte, also when noria waits for none of them', () => {
  for (const isPipelined of [false, true]) {
    const handshake = new Socks5Handshake(targetOf('192.0.2.7:80'), LOGIN, isPipelined);
    const request = 'send 05010001c00002070050';
    play(handshake, [
      ['05', 'more'],
      ['02', isPipelined ? 'more' : `send ${LOGIN_HEX}`],
      ['01', 'more'],
      ['00', isPipelined ? 'more' : request],
      ['05', 'more'],
      ['00', 'more'],
      ['0001c0000207', 'more'],
      ['00', 'more'],
      ['50ff', 'accepted "ÿ"'],
    ]);
  }
});
