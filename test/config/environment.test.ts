import fc from 'fast-check';
import { expect, test } from 'vitest';
import { substitute } from '../../src/config/environment.ts';

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

test('environment: a value is taken as it is, and looked at no further', () => {
  expect(substitute('${TWICE}', ENV)).toEqual({ text: '${NAME}', variables: ['TWICE'], problems: [] });
});

test('environment: a variable that is not set and has no default is named', () => {
  const { problems } = substitute('${NAME}${NOT_SET}${NOR_THIS}', ENV);
  expect(problems).toEqual([
    'the environment variable NOT_SET is not set, and ${NOT_SET} has no default',
    'the environment variable NOR_THIS is not set, and ${NOR_THIS} has no default',
  ]);
});

test.each(['${', '${NAME', '${}', '${9A}', '${NAME-x}', '${NAME:?x}', '${ NAME }'])(
  'environment: %s is a mistake, and told without its text',
  (text) => {
    const { problems } = substitute(text, ENV);
    expect(problems).toEqual([
      'has a ${ that is neither ${NAME} nor ${NAME:-default}; write $${ for a literal one',
    ]);
  },
);

test('environment: names of the prototype are not variables', () => {
  expect(substitute('${constructor}', {}).problems).toHaveLength(1);
  expect(substitute('${__proto__:-x}', {}).text).toBe('x');
});

test('environment: a text without a reference is left alone, whatever it is', () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      fc.pre(!text.includes('${'));
      expect(substitute(text, ENV)).toEqual({ text, variables: [], problems: [] });
    }),
  );
});
