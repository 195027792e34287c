import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { hasCode } from '../../src/core/faults.ts';

const SOURCE = `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: short-classic, instance: "202611210001", password: hunter2hunter2 }]
`;

function targetsOf(text: string) {
  return parseConfig(`${SOURCE}targets: ${text}\n`, 'noria.yaml', { env: {} }).targets;
}

function messageOf(text: string): string {
  try {
    targetsOf(text);
  } catch (error) {
    if (hasCode(error, 'bad-config') && error instanceof Error) return error.message;
    throw error;
  }
  return 'no error';
}

test('targets: a rule has defaults, and its hosts are canonical', () => {
  expect(targetsOf('[{ match: [Shop.Example, "*.Shop.example", 192.0.2.7, "2001:DB8:0::1"] }]')).toEqual([
    {
      match: ['shop.example', '*.shop.example', '192.0.2.7', '2001:db8::1'],
      spacing: 'auto',
      tunnelsPerMember: 0,
      rate: 'off',
      ban: { forMs: 600_000, maxMs: 86_400_000, onStatus: 'auto' },
      drawsForBans: 60,
      source: undefined,
    },
  ]);
});

test('targets: each key is read', () => {
  const text =
    '[{ match: [a.example], spacing: 20s, tunnelsPerMember: 2, rate: 30/m, ban: { for: 5m, max: 1h, onStatus: [403, 429] }, drawsForBans: 0, source: city }]';
  expect(targetsOf(text)).toEqual([
    {
      match: ['a.example'],
      spacing: 20_000,
      tunnelsPerMember: 2,
      rate: 0.5,
      ban: { forMs: 300_000, maxMs: 3_600_000, onStatus: [403, 429] },
      drawsForBans: 0,
      source: 'city',
    },
  ]);
});

test.each([
  ['[{ match: [] }]', 'targets[0].match'],
  ['[{ match: [":443"] }]', 'names no host'],
  ['[{ match: [10.0.0.0/8] }]', 'names no host'],
  ['[{ match: [a.example], rate: fast }]', 'targets[0].rate: "fast" is not a rate'],
  ['[{ match: [a.example], ban: { onStatus: [200] } }]', 'targets[0].ban.onStatus[0]'],
  ['[{ match: [a.example], source: ciyt }]', 'is not a source (did you mean city?)'],
  ['[{ match: [a.example], spacng: 1s }]', 'did you mean spacing?'],
])('targets: %s is refused', (text, message) => {
  expect(messageOf(text)).toContain(message);
});
