import fc from 'fast-check';
import { expect, test } from 'vitest';
import { substitute } from '../../src/config/document.ts';

const ENV = { NAME: 'value', EMPTY: '', TWICE: '${NAME}', _x9: 'y' };

test.each([
  ['plain', 'plain'],
  ['$NAME and $ and {NAME}', '$NAME and $ and {NAME}'],
  ['${NAME}', 'value'],
  ['a-${NAME}-${_x9}', 'a-value-y'],
  ['${EMPTY}', ''],
  ['${EMPTY:-default}', 'default'],
  ['${NOT_SET:-default}', 'default'],
  ['${NOT_SET:-}', ''],
  ['${NOT_SET:-a:-b}', 'a:-b'],
  ['${NAME:-default}', 'value'],
  ['$${NAME}', '${NAME}'],
  ['$$${NAME}', '$${NAME}'],
])('environment: %s becomes %s', (text, expected) => {
  expect(substitute(text, ENV)).toMatchObject({ text: expected, problems: [] });
});

test('environment: a reference in a value is not replaced', () => {
  expect(substitute('${TWICE}', ENV)).toEqual({ text: '${NAME}', variables: ['TWICE'], problems: [] });
});

test('environment: an unset variable without a default is a problem that names it', () => {
  const { problems } = substitute('${NAME}${NOT_SET}${NOR_THIS}', ENV);
  expect(problems).toEqual([
    'the environment variable NOT_SET is not set; run export NOT_SET=… before noria, or write ${NOT_SET:-default}',
    'the environment variable NOR_THIS is not set; run export NOR_THIS=… before noria, or write ${NOR_THIS:-default}',
  ]);
});

test.each(['${', '${NAME', '${}', '${9A}', '${NAME-x}', '${NAME:?x}', '${ NAME }'])(
  'environment: %s is a problem, and the message does not quote it',
  (text) => {
    const { problems } = substitute(text, ENV);
    expect(problems).toEqual([
      'contains an invalid reference; write ${NAME} or ${NAME:-default}, or $${ for a literal ${',
    ]);
  },
);

test('environment: property names of Object.prototype are not variables', () => {
  expect(substitute('${constructor}', {}).problems).toHaveLength(1);
  expect(substitute('${__proto__:-x}', {}).text).toBe('x');
});

test('environment: a text without a reference stays as it is', () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      fc.pre(!text.includes('${'));
      expect(substitute(text, ENV)).toEqual({ text, variables: [], problems: [] });
    }),
  );
});
