import { expect, test } from 'vitest';
import type { AbsoluteAnswer } from '../../src/dialer/contract.ts';
import { ForwardModeMemory } from '../../src/dialer/forward-mode.ts';
import { ManualClock } from '../support/manual-clock.ts';

const answer = (status: number, changes: Partial<AbsoluteAnswer> = {}): AbsoluteAnswer => ({
  status,
  fields: [],
  isRead: true,
  ...changes,
});

function learnedMode() {
  const clock = ManualClock.dayOld();
  const mode = new ForwardModeMemory(clock, 'direct');
  for (const name of ['a:80', 'b:80', 'c:80']) mode.answered(name, answer(200), 403);
  return { clock, mode };
}

test('forward mode: refusals of CONNECT alone change nothing', () => {
  const mode = new ForwardModeMemory(ManualClock.dayOld(), 'direct');
  for (let number = 0; number < 9; number += 1) {
    expect(mode.connectRefused(`m${number}`, 80), 'this member gets absolute form').toBe(true);
    expect(mode.first('dead:80')).toBe('direct');
  }
});

test('forward mode: a target that only absolute form reached gets absolute form first; after three such targets, all do', () => {
  const mode = new ForwardModeMemory(ManualClock.dayOld(), 'direct');
  mode.answered('a:80', answer(200), 403);
  expect([mode.first('a:80'), mode.first('z:80')]).toEqual(['absolute', 'direct']);
  mode.answered('a:80', answer(304), 403);
  mode.answered('b:80', answer(302), 403);
  expect(mode.first('z:80')).toBe('direct');
  mode.answered('c:80', answer(404), 403);
  expect(mode.first('z:80'), 'an error may be that of the member').toBe('direct');
  mode.answered('c:80', answer(200), 403);
  expect(mode.first('z:80')).toBe('absolute');
});

test('forward mode: CONNECT is tried again ten minutes later, after a 405, or when a member accepts it', () => {
  const later = learnedMode();
  later.clock.advance(10 * 60_000);
  expect(later.mode.first('z:80')).toBe('absolute');
  later.clock.advance(1);
  expect(later.mode.first('a:80')).toBe('direct');
  for (const status of [405, 501]) {
    const { mode } = learnedMode();
    mode.answered('z:80', answer(status), undefined);
    expect(mode.first('a:80')).toBe('direct');
  }
  const { mode } = learnedMode();
  mode.connectAccepted(80);
  expect(mode.first('a:80')).toBe('direct');
});

test('forward mode: where CONNECT works for the port, only three refusals in a row allow absolute form', () => {
  const clock = ManualClock.dayOld();
  const mode = new ForwardModeMemory(clock, 'direct');
  mode.connectAccepted(80);
  expect([mode.connectRefused('m1', 80), mode.connectRefused('m1', 80)]).toEqual([false, false]);
  mode.connectAccepted(80);
  expect(['m2', 'm3', 'm4'].map((member) => mode.connectRefused(member, 80))).toEqual([false, false, true]);
  mode.connectAccepted(443);
  expect(mode.connectRefused('m5', 8080), 'another port').toBe(true);
});

test.each<[string, AbsoluteAnswer, connectStatus: number | undefined, isError: boolean]>([
  ['200', answer(200), 403, false],
  ['404 of the target', answer(404), 403, false],
  ['the same status as to CONNECT', answer(404), 404, true],
  ['405 to a GET', answer(405), 403, true],
  ['405 to a GET in a source that has learned absolute form', answer(405), undefined, true],
  ['501 to a GET', answer(501), 403, true],
  ['405 to a POST, which targets send too', answer(405, { isRead: false }), 403, false],
  ['503 of squid itself', answer(503, { fields: [['Server', 'squid/5.7']] }), undefined, true],
  [
    '503 of a squid without a name',
    answer(503, { fields: [['X-Squid-Error', 'ERR_DNS_FAIL 0']] }),
    403,
    true,
  ],
  ['500 of tinyproxy itself', answer(500, { fields: [['Server', 'tinyproxy/1.11.1']] }), 403, true],
  ['502 of an older 3proxy', answer(502, { fields: [['Proxy-Connection', 'close']] }), 403, true],
  ['502 of a proxy with Proxy-Agent', answer(502, { fields: [['Proxy-Agent', 'Some/1.0']] }), 403, true],
  [
    '504 of a proxy by RFC 9209',
    answer(504, { fields: [['Proxy-Status', 'p1; error=dns_error']] }),
    403,
    true,
  ],
  ['504 that a proxy passed on', answer(504, { fields: [['Proxy-Status', 'p1; next-hop=t']] }), 403, false],
  ['200 that a proxy passed on', answer(200, { fields: [['Proxy-Connection', 'close']] }), 403, false],
  ['503 of the target', answer(503, { fields: [['Server', 'nginx']] }), 403, false],
])('forward mode: decides whether the member itself answered with %s', (_, given, connectStatus, isError) => {
  const mode = new ForwardModeMemory(ManualClock.dayOld(), 'direct');
  expect(mode.answered('t:80', given, connectStatus)).toBe(isError);
});

test('forward mode: a source with `absolute` always uses absolute form and passes every answer on', () => {
  const mode = new ForwardModeMemory(ManualClock.dayOld(), 'absolute');
  expect([mode.first('a:80'), mode.answered('a:80', answer(405), undefined)]).toEqual(['absolute', false]);
});

test('forward mode: neither a target that CONNECT may reach, nor one that answered with an error, teaches anything', () => {
  const mode = new ForwardModeMemory(ManualClock.dayOld(), 'direct');
  mode.answered('a:80', answer(200), undefined);
  mode.answered('b:80', answer(400), 403);
  expect([mode.first('a:80'), mode.first('b:80')]).toEqual(['direct', 'direct']);
  mode.answered('b:80', answer(399), 403);
  expect(mode.first('b:80')).toBe('absolute');
});
