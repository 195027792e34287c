/**
 * Converts the moments in facts, states and beats from one clock to another clock, for example from the store's clock
 * to the replica's.
 */
import type { MemberActivity, MemberQuarantine, SharedMember, SharedSession } from '../pool/shared-member.ts';
import type { Beat, Fact, MemberRecord, SharedState, SourceReport } from './shared-pool.ts';

export type Shift = (moment: number) => number;

export function shiftFact(fact: Fact, shift: Shift): Fact {
  switch (fact.kind) {
    case 'member.joined':
      return { ...fact, member: shiftMember(fact.member, shift) };
    case 'member.quarantined':
      return { ...fact, quarantine: shiftQuarantine(fact.quarantine, shift) };
    case 'session.moved':
      return { ...fact, session: shiftSession(fact.session, shift) };
    case 'source.reported':
      return shiftReport(fact, shift);
    case 'member.restored':
    case 'member.left':
    case 'member.banned':
    case 'session.ended':
    case 'source.commanded':
    case 'source.restricted':
    case 'evictions.frozen':
    case 'member.suspected':
      return fact;
  }
}

export function shiftState(state: SharedState, shift: Shift): SharedState {
  return {
    ...state,
    members: state.members.map((record) => shiftRecord(record, shift)),
    sessions: state.sessions.map((session) => shiftSession(session, shift)),
    ...(state.reports && { reports: state.reports.map((report) => shiftReport(report, shift)) }),
  };
}

export function shiftBeat(beat: Beat, shift: Shift): Beat {
  const demand = Object.entries(beat.demand).map(([source, each]) => [
    source,
    { ...each, lastWantedAt: shift(each.lastWantedAt) },
  ]);
  return {
    ...beat,
    demand: Object.fromEntries(demand),
    members: beat.members.map((use) => shiftUse(use, shift)),
    sessions: beat.sessions.map((use) => ({ ...use, usedAt: shift(use.usedAt) })),
  };
}

export function shiftSession(session: SharedSession, shift: Shift): SharedSession {
  return { ...session, usedAt: shift(session.usedAt) };
}

function shiftMember(member: SharedMember, shift: Shift): SharedMember {
  return { ...member, joinedAt: shift(member.joinedAt), endsAt: shift(member.endsAt) };
}

function shiftQuarantine(quarantine: MemberQuarantine, shift: Shift): MemberQuarantine {
  return { ...quarantine, untilAt: shift(quarantine.untilAt) };
}

function shiftReport(report: SourceReport, shift: Shift): SourceReport {
  const { suspension } = report;
  if (suspension?.untilAt === undefined) return report;
  return { ...report, suspension: { ...suspension, untilAt: shift(suspension.untilAt) } };
}

function shiftRecord(record: MemberRecord, shift: Shift): MemberRecord {
  const member = shiftMember(record.member, shift);
  const { quarantine } = record;
  return quarantine === undefined
    ? { ...record, member }
    : { ...record, member, quarantine: shiftQuarantine(quarantine, shift) };
}

function shiftUse(use: MemberActivity, shift: Shift): MemberActivity {
  return use.endsAt === undefined ? use : { ...use, endsAt: shift(use.endsAt) };
}
