/**
 * Applies a change that another replica of the pool reported. A change may arrive twice, or after its member has left.
 * So every change is idempotent, and a change of an unknown member has no effect.
 */

import { WORKED_MS } from './health.ts';
import type { Members } from './members.ts';
import { partOf } from './options.ts';
import type { Sessions } from './sessions.ts';
import { departureOf, type PoolChange } from './shared-member.ts';

type ChangeOf<Kind extends PoolChange['kind']> = Extract<PoolChange, { readonly kind: Kind }>;

interface ChangedParts {
  readonly members: Members;
  readonly sessions: Sessions;
}

interface ApplyOptions {
  readonly now: number;
  /**
   * Whether the other replica runs on this machine. If so, its evidence about a member counts like evidence of this
   * process.
   */
  readonly sameMachine: boolean;
}

export function applyChange(parts: ChangedParts, change: PoolChange, options: ApplyOptions): void {
  const { members, sessions } = parts;
  const { now } = options;
  switch (change.kind) {
    case 'member.joined': {
      const source = members.sources.get(change.member.source);
      if (source !== undefined) members.addShared(source, change.member, now);
      break;
    }
    case 'member.quarantined':
      quarantine(members, change, options);
      break;
    case 'member.restored':
      restore(members, change, options);
      break;
    case 'member.left':
      remove(members, change, now);
      break;
    case 'member.banned':
      changeBan(members, change, now);
      break;
    case 'session.moved':
      sessions.adopt(change.session, change.reason, now);
      break;
    case 'session.ended':
      sessions.forget(change.name);
      break;
    case 'source.restricted':
      restrict(members, change, now);
      break;
    case 'evictions.frozen':
      members.freezeEvictions(change.on, now);
      break;
    case 'member.suspected': {
      const member = members.find(change.member);
      member?.source.suspected.add(member);
      break;
    }
  }
}

function quarantine(
  members: Members,
  { member: id, quarantine: { untilAt, fault, replaced, health } }: ChangeOf<'member.quarantined'>,
  { now, sameMachine }: ApplyOptions,
): void {
  const member = members.find(id);
  if (member === undefined) return;
  const { phase } = member;
  if (phase.name !== 'ready' && phase.name !== 'quarantined') return;
  if (phase.name === 'quarantined' && phase.untilAt === untilAt) return;
  if (sameMachine) member.health.inherit(health, now);
  else if ((member.lastSuccessAt ?? Number.NEGATIVE_INFINITY) > now - WORKED_MS) return;
  members.quarantineUntil(member, { untilAt, fault, replaced }, now);
}

function restore(
  members: Members,
  { member: id, elsewhere = false }: ChangeOf<'member.restored'>,
  { now, sameMachine }: ApplyOptions,
): void {
  const member = members.find(id);
  if (member === undefined) return;
  const { name } = member.phase;
  if (name !== 'joining' && name !== 'quarantined') return;
  if (sameMachine && !elsewhere) member.health.accepted(now);
  members.admit(member, now);
}

function remove(members: Members, change: ChangeOf<'member.left'>, now: number): void {
  const member = members.find(change.member);
  if (member === undefined) return;
  member.uses = Math.max(member.uses, change.uses ?? 0);
  members.remove(member, departureOf(change), now);
}

function changeBan(
  members: Members,
  { member: id, host, lifted }: ChangeOf<'member.banned'>,
  now: number,
): void {
  const member = members.find(id);
  if (member === undefined) return;
  const site = members.sites.of(host);
  const { forMs } = site.rule.ban;
  const { exit, source } = member;
  members.sites.adopt({
    ...{ site: site.name, exit, source: source.name, sinceAt: now, forMs, spacingMs: 0 },
    untilAt: lifted ? 0 : now + forMs,
  });
  if (lifted) members.index.membersFreed = true;
}

function restrict(members: Members, change: ChangeOf<'source.restricted'>, now: number): void {
  const { source: name, blockedReason, leaseLimit } = change;
  const source = members.sources.get(name);
  if (source === undefined) return;
  const part = leaseLimit === undefined ? Infinity : partOf(leaseLimit, members.index.part);
  members.restrict(source, { blockedReason, leaseLimit: part }, now);
}
