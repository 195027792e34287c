import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  formatListenAddress,
  isLocalAddress,
  type ListenAddress,
  overlap,
  readListenAddress,
} from '../../src/core/listen-address.ts';

function read(text: string): ListenAddress {
  const reading = readListenAddress(text);
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
])('listen address: %s', (text, expected) => {
  expect(read(text)).toEqual(expected);
});

test('listen address: reading what was formatted gives the same address', () => {
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
        expect(read(formatListenAddress(once))).toEqual(once);
      },
    ),
  );
});

test('listen address: any text gives an address or a reason', () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      const reading = readListenAddress(text);
      expect('value' in reading ? formatListenAddress(reading.value) : reading.wrong).not.toBe('');
    }),
  );
});

test('listen address: only loopback and inherited sockets are local', () => {
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
])('listen address: %s and %s overlap: %s', (one, other, expected) => {
  expect(overlap(read(one), read(other))).toBe(expected);
  expect(overlap(read(other), read(one))).toBe(expected);
});
