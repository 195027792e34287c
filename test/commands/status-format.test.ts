import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { formatMembers, formatStatus } from '../../src/commands/status.ts';
import { displayWidth } from '../../src/commands/table.ts';
import type { Language } from '../../src/core/chinese.ts';
import { FAULTS } from '../../src/core/faults.ts';
import { MEMBER, SOURCE, STATUS } from '../admin/fake-backend.ts';

const NOW = Date.UTC(2030, 0, 1);
const PLAIN = { now: NOW, colour: false, columns: 80, language: 'en' as const };
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

test('status: prints a summary, the sources with advice, and the members with a bar for their remaining life', () => {
  const waiting = { ...SOURCE, nextCallAt: new Date(NOW + 6_200).toISOString() };
  const members = [MEMBER, { ...MEMBER, id: 'm2', remainingSeconds: null, latencyMs: null, location: null }];
  expect(formatStatus({ ...STATUS, sources: [waiting, HALTED] }, members, PLAIN)).toEqual([
    'noria 1.2.3: serving: 20 members are usable',
    'listening on 127.0.0.1:8888, 1 client, 1 open tunnel, 0 waiting, 1 session, up',
    '  12 s',
    '',
    'SOURCE   STATE   USABLE  NEXT DRAW  DRAWN  USED  WASTED  QUOTA    BUDGET',
    'city     ready    20/20     in 7 s     25    11       3',
    '  all 20 members are there',
    'harbour  halted   20/20          -     25    11       3    799  201/2000',
    '  12001: The key is wrong.',
    '  Check the password.',
    '  The service says: wrong [2Jkey',
    '',
    'MEMBER  SOURCE  STATE  LIFE        LEFT  LOCATION  OPEN  USES  FAULTS  LATENCY',
    'm1      city    ready  ██████████  90 s  Shanghai     1     4       0    31 ms',
    'm2      city    ready  ?·········     ?               1     4       0',
  ]);
});

test('status: a bar shows the remaining life relative to the longest in the source', () => {
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
  const lines = formatStatus(STATUS, members, PLAIN).slice(-5);
  expect(lines.map((line) => /[█▏▎▍▌▋▊▉·]{10}/.exec(line)?.[0])).toEqual([
    '██████████',
    '█████·····',
    '▏·········',
    '█████·····',
    '··········',
  ]);
});

test('status: colours change no text, and control characters of the service are removed', () => {
  const sources = [HALTED];
  const members = [{ ...MEMBER, location: 'Shang\u001b]0;title\u0007hai' }];
  const plain = formatStatus({ ...STATUS, sources }, members, PLAIN);
  const coloured = formatStatus({ ...STATUS, sources }, members, { ...PLAIN, colour: true });
  expect(coloured.map(stripVTControlCharacters)).toEqual(plain);
  expect(coloured.join('\n')).not.toBe(plain.join('\n'));
  expect(plain.join('')).not.toMatch(/\p{Cc}/u);
});

test('status: says that the pool is empty', () => {
  expect(formatStatus(STATUS, [], PLAIN).at(-1)).toBe('no members');
});

test('status: fits 80 columns, with the whole reason and advice', () => {
  const reason = `12009: ${'The service has no proxy that matches the parameters at the moment. '.repeat(3)}`;
  const status = {
    ...STATUS,
    state: 'degraded' as const,
    problems: [
      { kind: 'draw-failed' as const, source: 'harbour', reason, advice: null, nextAttemptSeconds: 30 },
    ],
    sources: [{ ...HALTED, name: 'a_source_with_a_name_of_forty_characters_', reason, advice: reason }],
  };
  const member = {
    ...MEMBER,
    source: 'a_source_with_a_name_of_forty_characters_',
    location: '广东省广州市 电信',
  };
  const lines = formatStatus(status, [member], PLAIN);
  expect(lines.filter((line) => displayWidth(line) > 80)).toEqual([]);
  const words = lines.join(' ').replace(/\s+/g, ' ');
  expect(words.split(reason.trim()).length - 1, 'headline, reason and advice').toBe(3);
});

test('members: 80 columns have room for the location, and a pipe for all columns', () => {
  const member = {
    ...MEMBER,
    source: 'harbour',
    state: 'quarantined' as const,
    location: '广东省 深圳市 电信',
  };
  const [narrow = '', row = ''] = formatMembers([member], PLAIN);
  expect(narrow).toMatch(/LEFT {2}LOCATION/);
  expect(row).toContain('广东省 深圳市 电信');
  const [titles, all] = formatMembers([member], { ...PLAIN, columns: Number.POSITIVE_INFINITY });
  expect(titles?.split(/ +/)).toEqual([
    ...['MEMBER', 'SOURCE', 'STATE', 'LIFE', 'LEFT', 'LOCATION'],
    ...['OPEN', 'USES', 'FAULTS', 'LATENCY', 'PROTOCOL'],
  ]);
  expect(all).toMatch(/ 广东省 深圳市 电信 .* http$/);
});

test('status: says who wrote the message of the last call', () => {
  const messageOf = (code: string, language: Language = 'en') =>
    formatStatus({ ...STATUS, sources: [{ ...HALTED, code, message: 'no way' }] }, [], {
      ...PLAIN,
      language,
    }).find((line) => line.endsWith('no way'));
  expect(messageOf('12001')).toBe('  The service says: no way');
  for (const code of ['transport', 'fleet-store-lost', 'fleet-store-unusable'])
    expect(messageOf(code), code).toBe('  Details: no way');
  expect(messageOf('12001', 'zh-CN')).toBe('  服务返回：no way');
  expect(messageOf('transport', 'zh-CN')).toBe('  详情：no way');
});

test('status: names the noria that drew a member, in a fleet', () => {
  const wide = { ...PLAIN, columns: 200 };
  expect(formatMembers([MEMBER], wide)[0]).not.toContain('DRAWN BY');
  const [titles, row] = formatMembers([{ ...MEMBER, drawnBy: 'two' }], wide);
  expect(titles).toMatch(/LATENCY {2}DRAWN BY {2}PROTOCOL/);
  expect(row).toMatch(/ two +http/);
});

test('status: has a line about the fleet, and says for how long its store is lost', () => {
  const replica = { version: '1.2.3', clients: 1, lastSeenSeconds: 0 };
  const fleet = {
    ...{ name: 'crawl', replica: 'one', store: 'connected' as const, reason: null, lostForSeconds: 0 },
    replicas: ['one', 'two'].map((name) => ({ ...replica, name })),
  };
  const lineOf = (status: typeof STATUS) =>
    formatStatus(status, [], { ...PLAIN, columns: 200 }).filter((line) => line.startsWith('fleet'));
  expect(lineOf({ ...STATUS, fleet })).toEqual(['fleet crawl: store connected; this is one, with two']);
  const lost = { ...fleet, store: 'lost' as const, reason: 'gone', lostForSeconds: 75, replicas: [] };
  expect(lineOf({ ...STATUS, fleet: lost })).toEqual([
    'fleet crawl: no connection to the store for 75 s (run noria check to see why); this is one, no other noria is known',
  ]);
  expect(lineOf(STATUS)).toEqual([]);
});

test('status: reasons and advice come in the language of the terminal', () => {
  const { summary, advice } = FAULTS['service-transport'];
  const halted = { ...HALTED, reason: summary, advice };
  const lines = formatStatus({ ...STATUS, sources: [halted] }, [], { ...PLAIN, language: 'zh-CN' });
  const [reason, todo] = FAULTS['service-transport'].chinese;
  const text = lines.join('').replace(/\s/g, '');
  expect(text).toContain(reason.replace(/\s/g, ''));
  expect(text).toContain(todo.replace(/\s/g, ''));
  expect(text).not.toContain(summary.replace(/\s/g, ''));
});
