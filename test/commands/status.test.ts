import { expect, test } from 'vitest';
import { renderStatus } from '../../src/commands/status.ts';
import { MEMBER, SOURCE, STATUS } from '../admin/fake-watched.ts';

test('status: one sentence, the sources with what to do, the members with a bar of their life', () => {
  const halted = {
    ...SOURCE,
    name: 'harbour',
    state: 'halted' as const,
    reason: 'key wrong (12001)',
    advice: 'check the password',
  };
  const members = [MEMBER, { ...MEMBER, id: 'm2', remainingSeconds: null, latencyMs: null, location: null }];
  const lines = renderStatus({ ...STATUS, sources: [SOURCE, halted] }, members);
  expect(lines).toEqual([
    'noria 1.2.3: ready: 20 members are usable',
    '  listening on 127.0.0.1:8888; 1 open tunnels, 0 clients waiting, 1 sessions',
    '',
    'SOURCE   PRODUCT        STATE   READY  DRAWN  UNUSED  QUOTA  WHY',
    'city     short-classic  ready   20/20     25       3         all 20 members are there',
    'harbour  short-classic  halted  20/20     25       3         key wrong (12001): check the password',
    '',
    'MEMBER  SOURCE  SPEAKS  STATE  LIFE        LEFT  OPEN  USES  FAULTS  LATENCY  LOCATION',
    'm1      city    http    ready  █████·····  90 s     1     4       0    31 ms  Shanghai',
    'm2      city    http    ready  ?·········     ?     1     4       0',
  ]);
});
