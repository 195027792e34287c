import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { drawStatus } from '../../src/commands/status-picture.ts';
import { MEMBER, SOURCE, STATUS } from '../admin/fake-backend.ts';

const NOW = Date.UTC(2030, 0, 1);
const PLAIN = { now: NOW, colour: false };
const HALTED = {
  ...SOURCE,
  name: 'harbour',
  state: 'halted' as const,
  reason: '12001: The key is wrong.',
  advice: 'Check the password.',
  message: 'wrong\u001b[2Jkey\n',
  quota: { remaining: 799 },
  budget: { limit: 2_000, used: 201 },
};

test('status: one sentence, the sources with what to do, the members with a bar of their life', () => {
  const waiting = { ...SOURCE, nextCallAt: new Date(NOW + 6_200).toISOString() };
  const members = [MEMBER, { ...MEMBER, id: 'm2', remainingSeconds: null, latencyMs: null, location: null }];
  expect(drawStatus({ ...STATUS, sources: [waiting, HALTED] }, members, PLAIN)).toEqual([
    'noria 1.2.3: ready: 20 members are usable',
    'listening on 127.0.0.1:8888, 1 client, 1 open tunnel, 0 waiting, 1 session, up 12 s',
    '',
    'SOURCE   PRODUCT        STATE   USABLE  NEXT DRAW  DRAWN  USED  WASTED  QUOTA    BUDGET  WHY',
    'city     short-classic  ready    20/20     in 7 s     25    11       3                   all 20 members are there',
    'harbour  short-classic  halted   20/20          -     25    11       3    799  201/2000  12001: The key is wrong.',
    '  harbour: Check the password. (wrong [2Jkey)',
    '',
    'MEMBER  SOURCE  SPEAKS  STATE  LIFE        LEFT  OPEN  USES  FAULTS  LATENCY  LOCATION',
    'm1      city    http    ready  ██████████  90 s     1     4       0    31 ms  Shanghai',
    'm2      city    http    ready  ?·········     ?     1     4       0',
  ]);
});

test('status: a bar is as long as the life is, beside the longest of its source', () => {
  const member = (id: string, source: string, remainingSeconds: number) => ({
    ...MEMBER,
    id,
    source,
    remainingSeconds,
  });
  const members = [
    member('m1', 'city', 180),
    member('m2', 'city', 90),
    member('m3', 'city', 2.5),
    member('m4', 'town', 15),
    member('m5', 'town', 0),
  ];
  const lines = drawStatus(STATUS, members, PLAIN).slice(-5);
  expect(lines.map((line) => /[█▏▎▍▌▋▊▉·]{10}/.exec(line)?.[0])).toEqual([
    '██████████',
    '█████·····',
    '▏·········',
    '█████·····',
    '··········',
  ]);
});

test('status: colours add nothing but colours, and nothing of the service is obeyed', () => {
  const sources = [HALTED];
  const members = [{ ...MEMBER, location: 'Shang\u001b]0;title\u0007hai' }];
  const plain = drawStatus({ ...STATUS, sources }, members, PLAIN);
  const coloured = drawStatus({ ...STATUS, sources }, members, { ...PLAIN, colour: true });
  expect(coloured.map(stripVTControlCharacters)).toEqual(plain);
  expect(coloured.join('\n')).not.toBe(plain.join('\n'));
  expect(plain.join('')).not.toMatch(/\p{Cc}/u);
});

test('status: an empty pool is said in words', () => {
  expect(drawStatus(STATUS, [], PLAIN).at(-1)).toBe('no members');
});
