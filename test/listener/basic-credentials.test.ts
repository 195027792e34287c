import { expect, test } from 'vitest';
import { parseBasicCredentials } from '../../src/listener/access.ts';

function basic(text: string | Buffer): string {
  return `Basic ${Buffer.from(text).toString('base64')}`;
}

const READ: readonly [header: string, username: string, password: string][] = [
  [basic('ann:a'), 'ann', 'a'],
  [basic('ann:a:b:'), 'ann', 'a:b:'],
  [basic('ann'), 'ann', ''],
  [basic(':'), '', ''],
  [basic(':a'), '', 'a'],
  [basic('müller:pä'), 'müller', 'pä'],
  [basic(Buffer.from('müller:pä', 'latin1')), 'müller', 'pä'],
  [basic('ann:a').replace('Basic', 'bAsIc'), 'ann', 'a'],
  [basic('ann:a').replace(' ', '   '), 'ann', 'a'],
  [`${basic('ann:a')}  `, 'ann', 'a'],
  [basic('ann:ab').replaceAll('=', ''), 'ann', 'ab'],
];

test.each(READ)('credentials: %j is user %j with password %j', (header, username, password) => {
  expect(parseBasicCredentials(header)).toEqual({ username, password });
});

test('credentials: another scheme or invalid base64 is ignored', () => {
  const headers = [
    undefined,
    '',
    'Basic',
    'Basic ',
    'Basic a b',
    'Basic !',
    'Bearer YTpi',
    'Digest username="a"',
  ];
  for (const header of [...headers, 'YTpi', 'BasicYTpi', 'Basic YTpi, Basic YTpi']) {
    expect(parseBasicCredentials(header), String(header)).toBeUndefined();
  }
});
