import fc from 'fast-check';
import { expect, test } from 'vitest';
import { address, formatAddress, isLocalAddress, overlap } from '../../src/config/address.ts';
import type { Address } from '../../src/config/config.ts';

function read(text: string): Address {
  const reading = address('range').read(text);
  if ('value' in reading) return reading.value;
  throw new Error(`${text} ${reading.wrong}`);
}

test.each([
  ['127.0.0.1:8888', { kind: 'tcp', host: '127.0.0.1', port: 8888, lastPort: 8888 }],
  ['[::1]:8888', { kind: 'tcp', host: '::1', port: 8888, lastPort: 8888 }],
  ['[0:0::1]:0', { kind: 'tcp', host: '::1', port: 0, lastPort: 0 }],
  ['LOCALHOST:1', { kind: 'tcp', host: 'localhost', port: 1, lastPort: 1 }],
  ['0.0.0.0:24000-24019', { kind: 'tcp', host: '0.0.0.0', port: 24_000, lastPort: 24_019 }],
  ['fd:3', { kind: 'fd', fd: 3 }],
])('address: %s', (text, expected) => {
  expect(read(text)).toEqual(expected);
});

test('address: what is written is read as the same', () => {
  const host = fc.oneof(
    fc.ipV4(),
    fc.ipV6().map((ip) => `[${ip}]`),
    fc.domain(),
  );
  const tcp = fc
    .tuple(host, fc.integer({ min: 1, max: 64_000 }), fc.integer({ min: 0, max: 999 }))
    .map(([name, port, more]) => `${name}:${port}-${port + more}`);
  fc.assert(
    fc.property(
      fc.oneof(
        tcp,
        fc.integer({ min: 3, max: 9999 }).map((fd) => `fd:${fd}`),
      ),
      (text) => {
        const once = read(text);
        expect(read(formatAddress(once))).toEqual(once);
      },
    ),
  );
});

test('address: any text is an address or a reason, and never throws', () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      const reading = address('one').read(text);
      expect('value' in reading ? formatAddress(reading.value) : reading.wrong).not.toBe('');
    }),
  );
});

test('address: only loopback is local; a socket handed over is judged when it is opened', () => {
  const local = ['127.0.0.1:1', '127.9.9.9:1', '[::1]:1', '[::ffff:127.0.0.1]:1', 'localhost:1', 'fd:3'];
  const open = ['0.0.0.0:1', '[::]:1', '10.0.0.1:1', '192.0.2.1:1', 'proxy.example:1', 'localhost.example:1'];
  expect(local.filter((text) => !isLocalAddress(read(text)))).toEqual([]);
  expect(open.filter((text) => isLocalAddress(read(text)))).toEqual([]);
});

test.each([
  ['127.0.0.1:1', '127.0.0.1:1', true],
  ['127.0.0.1:1', '127.0.0.1:2', false],
  ['127.0.0.1:0', '127.0.0.1:0', false],
  ['127.0.0.1:1', '127.0.0.2:1', false],
  ['127.0.0.1:1-9', '127.0.0.1:9-12', true],
  ['127.0.0.1:1-9', '127.0.0.1:10-12', false],
  ['0.0.0.0:5', '127.0.0.1:5', true],
  ['0.0.0.0:5', '[::1]:5', false],
  ['[::]:5', '127.0.0.1:5', true],
  ['localhost:5', '[::1]:5', true],
  ['localhost:5', '127.0.0.2:5', false],
  ['fd:3', 'fd:3', true],
  ['fd:3', 'fd:4', false],
  ['fd:3', '127.0.0.1:3', false],
])('address: %s and %s overlap: %s', (one, other, expected) => {
  expect(overlap(read(one), read(other))).toBe(expected);
  expect(overlap(read(other), read(one))).toBe(expected);
});

test('address: where one port is wanted, a socket handed over is refused too', () => {
  expect(address('one').read('fd:3')).toEqual({ wrong: 'is a socket handed over' });
  expect(address('one').read('127.0.0.1:80')).toMatchObject({ value: { port: 80 } });
});
