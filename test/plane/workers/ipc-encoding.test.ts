import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isSame, Secret } from '../../../src/core/secret.ts';
import { decodeFromIpc, encodeForIpc } from '../../../src/plane/workers/ipc-encoding.ts';

/** Encodes and decodes the settings as the pipe does. */
const carry = <Settings extends object>(settings: Settings): Settings =>
  decodeFromIpc<Settings>(JSON.parse(JSON.stringify(encodeForIpc(settings))));

test('ipc encoding: secrets stay secrets and maps stay maps, at any depth', () => {
  const settings = {
    sources: new Map([['city', { auth: { username: 'me', password: new Secret('pass&word') } }]]),
    users: [{ password: new Secret('other') }],
    gone: undefined,
    none: null,
    text: '[secret]',
    endless: Number.POSITIVE_INFINITY,
  };
  const arrived = carry(settings);
  expect(arrived.sources.get('city')?.auth.password).toBeInstanceOf(Secret);
  expect(arrived.sources.get('city')?.auth.password.reveal()).toBe('pass&word');
  expect(arrived.users[0]?.password.reveal()).toBe('other');
  expect(Object.keys(arrived)).toEqual(['sources', 'users', 'none', 'text', 'endless']);
  expect(arrived.text).toBe('[secret]');
  expect(arrived.endless).toBe(Number.POSITIVE_INFINITY);
});

test('ipc encoding: plain data is decoded unchanged', () => {
  const leaf = fc.oneof(
    fc.string(),
    fc.boolean(),
    fc.constant(null),
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => number + 0), // + 0 avoids -0, which JSON turns into 0
    fc.string().map((text) => new Secret(text)),
  );
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { depthSize: 'small' },
      leaf,
      fc.array(tie('tree')),
      fc.dictionary(fc.string(), tie('tree')),
    ),
  }));
  fc.assert(
    fc.property(tree, (value) => {
      const plain = { value };
      expect(isSame(carry(plain), plain)).toBe(true);
    }),
  );
});

test('ipc encoding: values that JSON would change are refused', () => {
  for (const odd of [Number.NaN, Number.NEGATIVE_INFINITY, () => 1, new Date(0), Symbol('odd'), 1n]) {
    expect(() => encodeForIpc({ odd })).toThrow(TypeError);
  }
});
