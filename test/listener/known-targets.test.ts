import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseHostPort } from '../../src/core/host-port.ts';
import { KnownTargets } from '../../src/listener/known-targets.ts';

test('known targets: each is read as if it were the first time, again and again', () => {
  const known = new KnownTargets();
  const text = fc.oneof(
    fc.constantFrom('example.com:443', 'EXAMPLE.com:443', '[::1]:80', '127.1:80', 'example.com', 'a:0', ''),
    fc.string(),
    fc.tuple(fc.domain(), fc.nat(70_000)).map(([host, port]) => `${host}:${port}`),
  );
  fc.assert(
    fc.property(text, (asked) => {
      const read = parseHostPort(asked);
      expect(known.read(asked)).toEqual(read);
      expect(known.read(asked)).toEqual(read);
    }),
  );
});

test('known targets: one that comes again is the same object', () => {
  const known = new KnownTargets();
  expect(known.read('example.com:443')).toBe(known.read(['example.com', '443'].join(':')));
});

test('known targets: no client makes them grow without end', () => {
  const known = new KnownTargets();
  for (let n = 0; n < 5_000; n += 1) known.read(`h${n}.example:443`);
  expect(known.size).toBeLessThanOrEqual(1_024);
  const size = known.size;
  known.read(`${'a.'.repeat(100)}example:443`);
  expect(known.size).toBe(size);
});
