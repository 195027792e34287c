import { expect, test } from 'vitest';
import { MEMBER_MOVES, Member, type MemberPhaseName, PoolSource } from '../../src/pool/member.ts';
import { CITY } from '../support/pool-settings.ts';

const QUARANTINE = {
  name: 'quarantined',
  sinceAt: 0,
  untilAt: 10,
  fault: 'member-silent',
  replaced: true,
} as const;

/** The call that moves a member into each phase. */
const MOVE_INTO: Record<MemberPhaseName, (member: Member) => void> = {
  joining: (member) => member.moveTo({ name: 'joining' }),
  ready: (member) => member.moveTo({ name: 'ready' }),
  quarantined: (member) => member.moveTo(QUARANTINE),
  draining: (member) => member.moveTo({ name: 'draining', departure: { reason: 'evicted' } }),
  left: (member) => member.moveTo({ name: 'left' }),
};

const PATHS: Record<MemberPhaseName, readonly MemberPhaseName[]> = {
  joining: [],
  ready: ['ready'],
  quarantined: ['ready', 'quarantined'],
  draining: ['draining'],
  left: ['left'],
};

function newMember(unproven = true): Member {
  const location = { text: '', folded: '' };
  const source = new PoolSource(CITY);
  return new Member(
    { protocol: 'http', host: '203.0.113.7', port: 8000, endsAt: 0, unproven },
    { id: 'm1', source, location, joinedAt: 0, endsAt: 0 },
  );
}

function inPhase(phase: MemberPhaseName): Member {
  const member = newMember();
  for (const step of PATHS[phase]) MOVE_INTO[step](member);
  return member;
}

test('member: makes the moves of the table and no other', () => {
  const phases = Object.keys(MEMBER_MOVES).filter((name): name is MemberPhaseName => name in MEMBER_MOVES);
  expect(phases).toHaveLength(5);
  for (const from of phases) {
    for (const to of phases) {
      const allowed: readonly MemberPhaseName[] = MEMBER_MOVES[from];
      const member = inPhase(from);
      expect(member.phase.name).toBe(from);
      if (allowed.includes(to)) {
        MOVE_INTO[to](member);
        expect(member.phase.name, `${from} -> ${to}`).toBe(to);
      } else expect(() => MOVE_INTO[to](member), `${from} -> ${to}`).toThrow(TypeError);
    }
  }
});

test('member: each move updates the counts of its source', () => {
  const member = newMember(false);
  member.source.counts.ready += 1;
  member.moveTo(QUARANTINE);
  expect(member.source.counts).toMatchObject({ ready: 0, quarantined: 1 });
  member.moveTo({ name: 'left' });
  expect(member.source.counts).toMatchObject({ ready: 0, quarantined: 0, left: 1 });
});

test('member: a latency reading weighs more when the previous one is older', () => {
  const [soon, late] = [100, 60_000].map((gapMs) => {
    const member = newMember();
    member.recordSuccess(0, 100);
    member.recordSuccess(gapMs, 200);
    return member.latencyMs ?? 0;
  });
  expect(soon).toBeCloseTo(120);
  expect(late).toBeGreaterThan(199);
});

test('member: with age, a latency reading approaches the typical latency of the source', () => {
  const member = newMember();
  member.source.typicalLatencyMs = 80;
  expect(member.expectedLatencyMs(0)).toBe(80);
  member.recordSuccess(0, 2_000); // also moves the typical latency
  member.source.typicalLatencyMs = 80;
  expect(member.expectedLatencyMs(0)).toBe(2_000);
  expect(member.expectedLatencyMs(60_000)).toBeCloseTo(80 + 1_920 / Math.E);
  expect(member.expectedLatencyMs(600_000)).toBeCloseTo(80, 0);
});

test('member: the first latency is typical of its source, later ones move that by a twentieth', () => {
  const member = newMember();
  member.recordSuccess(0, undefined);
  expect([member.latencyMs, member.source.typicalLatencyMs]).toEqual([undefined, 0]);
  member.recordSuccess(0, 100);
  member.recordSuccess(0, 200);
  member.recordSuccess(0, undefined);
  expect([member.latencyMs, member.source.typicalLatencyMs]).toEqual([120, 105]);
});
