import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { HandshakeStep } from '../../src/dialer/handshake.ts';
import { ConnectHandshake, MAX_RESPONSE_HEAD_BYTES, readResponseHead } from '../../src/dialer/handshake.ts';
import { feed, summary } from './feed.ts';
import { targetOf } from './make-dialer.ts';

function answer(text: string): string {
  return summary(
    new ConnectHandshake(targetOf('target.example:443'), undefined).take(Buffer.from(text, 'latin1')),
  );
}

test('connect handshake: one write, with the target in canonical form and IPv6 in brackets', () => {
  const opening = (target: string, login?: Secret) => new ConnectHandshake(targetOf(target), login).opening;
  expect(opening('Target.Example.:443')).toBe(
    'CONNECT target.example:443 HTTP/1.1\r\nHost: target.example:443\r\n\r\n',
  );
  expect(opening('[2001:DB8:0::1]:80')).toBe(
    'CONNECT [2001:db8::1]:80 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n',
  );
  expect(opening('192.0.2.7:22', new Secret('Basic eDp5'))).toBe(
    'CONNECT 192.0.2.7:22 HTTP/1.1\r\nHost: 192.0.2.7:22\r\nProxy-Authorization: Basic eDp5\r\n\r\n',
  );
});

const ANSWERS: readonly [string, string][] = [
  ['HTTP/1.1 200 OK\r\n\r\n', 'accepted ""'],
  ['HTTP/1.0 200 Connection established\r\n\r\n', 'accepted ""'],
  ['HTTP/1.1 200\r\n\r\n', 'accepted ""'],
  ['HTTP/1.1 299 Odd\r\nVia: x\r\n\r\n220 hi', 'accepted "220 hi"'],
  ['HTTP/1.1 200 OK\nVia: x\n\nrest', 'accepted "rest"'],
  ['HTTP/1.1 200 OK\nx\n\nrest', 'accepted "rest"'],
  ['HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello more', 'accepted "hello more"'],
  ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello', 'accepted "5\\r\\nhello"'],
  ['HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx', 'accepted "x"'],
  ['HTTP/1.1 100 Continue\r\n\r\n', 'more'],
  ['HTTP/1.1 200 OK\r\n', 'more'],
  ['HTTP', 'more'],
  ['HTTP/1.1 407 Who\r\n\r\n', 'member-auth: status 407'],
  ['HTTP/1.1 502 Bad\r\n\r\n<html>', 'target-doubted: status 502'],
  ['HTTP/1.1 503 Busy\r\n\r\n', 'target-doubted: status 503'],
  ['HTTP/1.1 504 Late\r\n\r\n', 'target-doubted: status 504'],
  ['HTTP/1.1 400 Bad\r\n\r\n', 'member-refused: status 400, no CONNECT'],
  ['HTTP/1.1 403 No\r\n\r\n', 'member-refused: status 403, no CONNECT'],
  ['HTTP/1.1 405 No\r\n\r\n', 'member-refused: status 405, no CONNECT'],
  ['HTTP/1.1 501 No\r\n\r\n', 'member-refused: status 501, no CONNECT'],
  ['HTTP/1.1 429 Slow\r\n\r\n', 'member-refused: status 429'],
  ['HTTP/1.1 300 Many\r\n\r\n', 'member-refused: status 300'],
  ['HTTP/1.1 302 There\r\n\r\n', 'member-refused: status 302'],
  ['HTTP/1.1 500 Oh\r\n\r\n', 'member-refused: status 500'],
  ['HTTP/1.1 101 Switch\r\n\r\n', 'member-protocol: status 101'],
  ['HTTP/1.1 099 Odd\r\n\r\n', 'member-protocol: status 99'],
  ['SSH-2.0-x\r\n', 'member-protocol: not an HTTP response'],
  ['HTTP/2 200\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['HTTP/1.1 20', 'more'],
  ['HTTP/1.1 2/0 OK\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['HTTP/1.1 2:0 OK\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['HTTP/1.1 2000 OK\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['HTTP/1.1  200 OK\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['http/1.1 200 OK\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['\r\nHTTP/1.1 200 OK\r\n\r\n', 'member-protocol: not an HTTP response'],
  ['<html>', 'member-protocol: not an HTTP response'],
  ['\x05\x00', 'member-protocol: not an HTTP response'],
];

test.each(ANSWERS)('connect handshake: %j means %s', (text, expected) => {
  expect(answer(text)).toBe(expected);
});

test.each(ANSWERS)('connect handshake: %j means the same byte by byte', (text, expected) => {
  const handshake = new ConnectHandshake(targetOf('target.example:443'), undefined);
  const bytes = Buffer.from(text, 'latin1');
  // Bytes after the head arrive after it was accepted, so they are not in `rest`.
  const [step] = feed(
    handshake,
    [...bytes].map((byte) => Buffer.from([byte])),
  );
  expect(summary(step).replace(/^accepted .*/, 'accepted')).toBe(
    expected.replace(/^accepted .*/, 'accepted'),
  );
});

test('connect handshake: any split of a response means the same, and no byte is lost', () => {
  const part = fc.stringMatching(/^[ -~]{0,40}$/);
  const head = fc
    .record({
      interim: fc.boolean(),
      status: fc.integer({ min: 102, max: 599 }),
      fields: fc.array(part, { maxLength: 5 }),
      newline: fc.constantFrom('\r\n', '\n'),
    })
    .map(({ interim, status, fields, newline }) => {
      const lines = [`HTTP/1.1 ${status} Some reason`, ...fields.map((value) => `X-Field: ${value}`), '', ''];
      return `${interim ? 'HTTP/1.1 100 Continue\r\n\r\n' : ''}${lines.join(newline)}`;
    });
  fc.assert(
    fc.property(
      head,
      fc.string({ maxLength: 30 }),
      fc.array(fc.nat(400), { maxLength: 12 }),
      (text, rest, cuts) => {
        const bytes = Buffer.concat([Buffer.from(text, 'latin1'), Buffer.from(rest)]);
        const whole = new ConnectHandshake(targetOf('target.example:443'), undefined).take(bytes);
        const places = [...new Set([0, ...cuts.map((cut) => cut % bytes.length), bytes.length])].sort(
          (a, b) => a - b,
        );
        const pieces = places.slice(1).map((end, index) => bytes.subarray(places[index], end));
        const [step, left] = feed(new ConnectHandshake(targetOf('target.example:443'), undefined), pieces);
        expect(summary(joined(step, left))).toBe(summary(whole));
        if (whole.kind === 'accepted') expect(whole.rest.toString()).toBe(Buffer.from(rest).toString());
      },
    ),
  );
});

test('connect handshake: random bytes are never accepted and never throw', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 200 }), (bytes) => {
      const handshake = new ConnectHandshake(targetOf('target.example:443'), undefined);
      expect(handshake.take(Buffer.from(bytes)).kind).not.toBe('accepted');
    }),
  );
});

test('connect handshake: the limit of a head is 16 KiB, including interim responses', () => {
  const start = 'HTTP/1.1 200 OK\r\nX: ';
  const fitting = `${start}${'x'.repeat(MAX_RESPONSE_HEAD_BYTES - start.length - 4)}\r\n\r\n`;
  expect(answer(`${fitting}rest`)).toBe('accepted "rest"');
  const tooLong = `member-protocol: the response head is longer than ${MAX_RESPONSE_HEAD_BYTES} bytes`;
  expect(answer(`${start}x${fitting.slice(start.length)}`)).toBe(tooLong);
  expect(answer(`HTTP/1.1 100 Go\r\n\r\n${fitting}`)).toBe(tooLong);
  expect(answer(`${start}${'x'.repeat(MAX_RESPONSE_HEAD_BYTES)}`)).toBe(tooLong);
  const handshake = new ConnectHandshake(targetOf('target.example:443'), undefined);
  const endless = [Buffer.from(start), ...Array.from({ length: 200 }, () => Buffer.alloc(100, 'x'))];
  expect(summary(feed(handshake, endless)[0])).toBe(tooLong);
});

test('response head: finds an end that is split between two calls', () => {
  const whole = Buffer.from('HTTP/1.1 200 OK\r\nVia: x\r\n\r\n');
  for (let seen = 1; seen < whole.length; seen += 1) {
    expect(readResponseHead(whole.subarray(0, seen))).toBe('more');
    expect(readResponseHead(whole, seen)).toEqual({ status: 200, endBytes: whole.length });
  }
});

function joined(step: HandshakeStep, left: Buffer): HandshakeStep {
  return step.kind === 'accepted' ? { kind: 'accepted', rest: Buffer.concat([step.rest, left]) } : step;
}
