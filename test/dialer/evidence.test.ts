import { expect, test } from 'vitest';
import { SiteEvidence, type SiteResponse } from '../../src/dialer/evidence.ts';
import { ManualClock } from '../support/manual-clock.ts';

function makeEvidence(onStatus: 'auto' | 'off' | readonly number[] = 'auto') {
  const clock = ManualClock.dayOld();
  const bans: string[] = [];
  const evidence = new SiteEvidence(clock, {
    sites: { of: () => ({ rule: { ban: { onStatus } } }) },
    banExit: ({ exit, evidence: why, forMs }) =>
      bans.push(`${exit} ${why}${forMs === undefined ? '' : ` ${forMs}`}`),
    unbanExit: (_, exit) => bans.push(`${exit} lifted`),
  });
  const use = (exit: string) => ({ host: 'shop.example', exit, source: 'city' });
  return {
    ...{ clock, bans },
    answer: (exit: string) => evidence.answered(use(exit)),
    respond: (exit: string, status: number, path = '/', more: Partial<SiteResponse> = {}) =>
      evidence.responded(use(exit), { status, path, ...more }),
    reset: (exit: string, hasRelayed = false) => evidence.reset(use(exit), hasRelayed),
    hasAnswered: (exit: string, host = 'shop.example') => evidence.hasAnswered(host, exit),
  };
}

test.each([
  ['429', 429, {}, ['a status']],
  ['429 with Retry-After', 429, { retryAfterMs: 7_000 }, ['a status 7000']],
  ['403 with Retry-After', 403, { retryAfterMs: 0 }, ['a status 0']],
  ['503 with Retry-After', 503, { retryAfterMs: 60_000 }, ['a status 60000']],
  ['a single 403', 403, {}, []],
  ['503', 503, {}, []],
  ['500 with Retry-After', 500, { retryAfterMs: 7_000 }, []],
  ['404', 404, {}, []],
] as const)('evidence: %s counts while another exit gets pages', (_, status, more, expected) => {
  const { respond, bans } = makeEvidence();
  respond('b', 200);
  respond('a', status, '/', more);
  expect(bans).toEqual(expected);
});

test('evidence: a status counts only if another exit got a page of the host within a minute', () => {
  const { respond, bans, clock } = makeEvidence();
  respond('a', 429);
  respond('a', 200);
  respond('a', 429);
  respond('b', 404);
  respond('a', 429);
  expect(bans, 'nobody else got a page').toEqual([]);
  respond('b', 302);
  clock.advance(60_001);
  respond('a', 429);
  expect(bans, 'too long ago').toEqual([]);
  respond('b', 200);
  respond('a', 429);
  expect(bans).toEqual(['a status']);
});

test('evidence: 403 on two different pages with no other answer between', () => {
  const { respond, bans } = makeEvidence();
  respond('b', 200, '/home');
  respond('a', 403, '/1');
  respond('a', 403, '/1');
  respond('a', 404, '/x');
  respond('a', 403, '/2');
  expect(bans).toEqual([]);
  respond('a', 403, '/3');
  expect(bans).toEqual(['a status']);
});

test('evidence: a page that is 403 for every exit bans nobody, also on a site whose other pages work', () => {
  const { respond, bans } = makeEvidence();
  for (let round = 0; round < 3; round += 1) {
    for (const exit of ['a', 'b', 'c']) {
      respond(exit, 403, '/secret');
      respond(exit, 200, `/home/${exit}`);
      respond(exit, 403, '/secret');
    }
  }
  expect(bans).toEqual([]);
});

test('evidence: a ban ends when all its pages turn out to be 403 for everybody', () => {
  const { respond, bans } = makeEvidence();
  respond('b', 200, '/home');
  respond('a', 403, '/1');
  respond('a', 403, '/2');
  respond('c', 403, '/1');
  expect(bans).toEqual(['a status']);
  respond('c', 403, '/2');
  expect(bans).toEqual(['a status', 'a lifted']);
});

test('evidence: two resets in a row while another exit is answered', () => {
  const { reset, answer, bans, clock } = makeEvidence();
  answer('a');
  answer('b');
  clock.advance(10);
  reset('a');
  reset('a');
  expect(bans, 'the host may be down').toEqual([]);
  clock.advance(10);
  answer('b');
  reset('a');
  expect(bans).toEqual(['a reset']);
  reset('c');
  answer('c');
  reset('c');
  answer('b');
  expect(bans, 'an answer between').toEqual(['a reset']);
  for (let time = 0; time < 3; time += 1) {
    reset('dead');
    answer('b');
  }
  expect(bans, 'a member that relays nothing').toEqual(['a reset']);
});

test('evidence: onStatus names the statuses, or switches them off', () => {
  const named = makeEvidence([418]);
  named.respond('a', 418);
  named.respond('a', 429);
  expect(named.bans).toEqual(['a status']);
  const off = makeEvidence('off');
  off.respond('b', 200);
  for (const path of ['/1', '/2', '/3']) off.respond('a', 403, path, { retryAfterMs: 1 });
  expect(off.bans).toEqual([]);
});

test('evidence: a host has answered an exit after bytes or a response that is no evidence, another host has not', () => {
  const { answer, respond, reset, hasAnswered } = makeEvidence();
  answer('a');
  respond('b', 200);
  respond('c', 403);
  reset('d', true);
  expect(['a', 'b', 'c', 'd'].filter((exit) => hasAnswered(exit))).toEqual(['a', 'b']);
  expect(hasAnswered('a', 'other.example')).toBe(false);
});

test('evidence: a reset after relayed bytes shows that the exit relays', () => {
  const { reset, answer, bans } = makeEvidence();
  for (const exit of ['relays', 'dead']) {
    reset(exit, exit === 'relays');
    answer('b');
    reset(exit);
  }
  expect(bans).toEqual(['relays reset']);
});

test('evidence: the pages of the exit itself do not count as those of another, those before them do', () => {
  const { respond, bans } = makeEvidence();
  respond('a', 200, '/1');
  respond('a', 200, '/2');
  respond('a', 429);
  expect(bans).toEqual([]);
  respond('b', 200);
  respond('a', 200);
  respond('a', 429);
  expect(bans).toEqual(['a status']);
});

test('evidence: a page that another exit gets is not 403 for everybody', () => {
  const { respond, bans } = makeEvidence();
  respond('a', 403, '/1');
  respond('b', 200, '/1');
  respond('c', 403, '/1');
  respond('c', 403, '/2');
  expect(bans).toEqual(['c status']);
});

test('evidence: a refusal with Retry-After of a page that is 403 for another exit bans nobody, 429 does', () => {
  const { respond, bans } = makeEvidence();
  respond('b', 200, '/home');
  respond('a', 403, '/1');
  respond('c', 403, '/1', { retryAfterMs: 5 });
  expect(bans).toEqual([]);
  respond('a', 403, '/1', { retryAfterMs: 6 });
  respond('c', 429, '/1');
  expect(bans).toEqual(['a status 6', 'c status']);
});

test('evidence: forgets the exits that were answered first, beyond 64 of one host', () => {
  const { answer, hasAnswered } = makeEvidence();
  for (let exit = 0; exit < 64; exit += 1) answer(`e${exit}`);
  answer('e0');
  expect(hasAnswered('e0')).toBe(true);
  answer('e64');
  expect(['e0', 'e1', 'e64'].map((exit) => hasAnswered(exit))).toEqual([false, true, true]);
});

test('evidence: an exit relays for ten minutes after its last answer', () => {
  for (const [ms, expected] of [
    [600_000, ['a reset']],
    [600_001, []],
  ] as const) {
    const { answer, reset, bans, clock } = makeEvidence();
    answer('a');
    clock.advance(ms);
    reset('a');
    answer('b');
    reset('a');
    expect(bans).toEqual(expected);
  }
});

test('evidence: after a ban the count of resets begins again, and pages of a lifted ban do not lift another', () => {
  const { answer, reset, respond, bans } = makeEvidence();
  answer('a');
  reset('a');
  answer('b');
  reset('a');
  reset('a');
  expect(bans, 'one reset since the ban').toEqual(['a reset']);
  bans.length = 0;
  respond('b', 200, '/home');
  respond('c', 403, '/1');
  respond('d', 403, '/1');
  expect(bans, 'there was no ban to lift').toEqual([]);
});

test.each([
  [403, undefined, 'auto', ['/1', '/2'], ['a status']],
  [403, undefined, [403], ['/1'], ['a status']],
  [403, 5, 'auto', ['/1'], ['a status 5']],
  [404, undefined, 'auto', ['/1', '/2'], []],
] as const)(
  'evidence: %i with Retry-After %s and onStatus %j',
  (status, retryAfterMs, onStatus, paths, expected) => {
    const { respond, bans } = makeEvidence(onStatus);
    respond('b', 399);
    for (const path of paths) respond('a', status, path, { retryAfterMs });
    expect(bans).toEqual(expected);
  },
);

test('evidence: one page counts once, however often it is 403, and not at all after it was 403 for another exit', () => {
  const repeated = makeEvidence();
  repeated.respond('b', 200, '/home');
  for (const path of ['/1', '/1', '/2']) repeated.respond('a', 403, path);
  expect(repeated.bans).toEqual(['a status']);
  const shared = makeEvidence();
  shared.respond('b', 200, '/home');
  shared.respond('a', 403, '/1');
  shared.respond('b', 403, '/1');
  for (const path of ['/1', '/2']) shared.respond('a', 403, path);
  expect(shared.bans).toEqual([]);
});

test.each([
  [399, 0, ['a status']],
  [400, 0, []],
  [200, 60_000, ['a status']],
  [200, 60_001, []],
])('evidence: %i through another exit, %i ms ago, and then a 429', (status, ms, expected) => {
  const { respond, bans, clock } = makeEvidence();
  respond('b', status);
  clock.advance(ms);
  respond('a', 429);
  expect(bans).toEqual(expected);
});
