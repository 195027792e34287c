/** Properties of the errors of invalid configurations: loading always returns or throws them, and they contain no secret. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/problems.ts';
import { runsOf } from '../support/properties.ts';
import { FILE, filesOf } from './files.ts';

const SECRET = 'hunter2';
const ENV = { S: SECRET };

/** Returns the error of a text, or undefined if the text is valid. Any other error fails the test. */
function answerTo(text: string): ConfigError | undefined {
  try {
    parseConfig(text, FILE, { env: ENV, files: filesOf({}) });
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
}

test('config errors: any text is a configuration, or has errors with places inside it', () => {
  const piece = fc.constantFrom(
    ...['service', 'sources', 'password', 'users', 'admin', 'pool', 'size', '<<', 'word', '5s', 'off', '1'],
    ...[
      ': ',
      ':',
      '- ',
      '\n',
      '\n  ',
      '{ ',
      ' }',
      '[',
      ']',
      ', ',
      '"',
      "'",
      ' # ',
      '|',
      '&a ',
      '*a',
      '!t ',
      '\t',
    ],
    ...['${S}', '${S:-x}', '${', '---', '? ', '%', '\0', '\ufeff', '\u2028'],
  );
  const text = fc.array(piece, { maxLength: 40 }).map((pieces) => pieces.join(''));
  fc.assert(
    fc.property(fc.oneof(text, fc.string({ maxLength: 60 })), (given) => {
      const error = answerTo(given);
      expect(error?.code).toBe('bad-config'); // so short a text is never valid
      for (const { line, column, message } of error?.problems ?? []) {
        expect(line).toBeLessThanOrEqual(given.split('\n').length);
        expect(column).toBeGreaterThan(0);
        expect(message).not.toBe('');
      }
    }),
    { numRuns: runsOf(500) },
  );
});

/** Keys whose error messages quote an invalid value. */
const openKey = fc.constantFrom('name', 'product', 'adr', 'address', 'size', 'key', 'username');
const openValue = fc.constantFrom('5', 'auto', 'nowhere');
const closedKey = fc.constantFrom(
  ...[
    'service',
    'baseUrl',
    'sources',
    'password',
    'pasword',
    'akey',
    'params',
    'upstream',
    'auth',
    'listeners',
  ],
  ...['users', 'tls', 'admin', 'token', 'account', 'pool', 'log', 'check', 'state', 'other'],
);
const closedValue = fc.constantFrom(
  SECRET,
  `u:${SECRET}@h`,
  `http://u:${SECRET}@h`,
  `${SECRET} ${SECRET}`,
  '${S}',
  'auto',
);
const { map, tree } = fc.letrec((tie) => ({
  map: fc
    .tuple(
      fc.dictionary(openKey, openValue, { maxKeys: 3 }),
      fc.dictionary(closedKey, tie('tree'), { maxKeys: 4 }),
    )
    .map(([open, closed]) => ({ ...open, ...closed })),
  tree: fc.oneof({ maxDepth: 4 }, closedValue, tie('map'), fc.array(tie('tree'), { maxLength: 3 })),
}));
const file = fc.record(
  {
    service: tree,
    account: tree,
    sources: fc.array(map, { maxLength: 3 }),
    pool: tree,
    listeners: fc.array(map, { maxLength: 3 }),
    admin: tree,
  },
  { requiredKeys: [] },
);

test('config errors: a secret in place of any value is never shown, whatever else is wrong', () => {
  let excerpts = 0;
  fc.assert(
    fc.property(file, fc.boolean(), fc.option(fc.nat(), { nil: undefined }), (content, flow, cut) => {
      const text = stringify(content, { collectionStyle: flow ? 'flow' : 'block', lineWidth: 0 });
      // Removes a character, which makes typical mistakes: a missing colon, quote, brace or line end.
      const at = cut === undefined ? text.length : cut % text.length;
      const given = text.slice(0, at) + text.slice(at + 1);
      // Excludes texts in which the secret is followed by a colon, because the secret is then a key.
      fc.pre(!new RegExp(`${SECRET}[^\\n]{0,2}:`).test(given));
      for (const { path, message, excerpt = '' } of answerTo(given)?.problems ?? []) {
        excerpts += excerpt === '' ? 0 : 1;
        expect(`${path} ${message}`, given).not.toContain(SECRET);
        expect(excerpt, given).not.toContain(SECRET);
      }
    }),
    { numRuns: runsOf(150) },
  );
  expect(excerpts, 'no excerpt was checked').toBeGreaterThan(runsOf(300));
});
