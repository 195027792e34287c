/**
 * Applies the consequence of a member's fault: nothing, a quarantine, a probe or an eviction. The member's health
 * decides which. docs/health.md explains the rules.
 */
import type { FaultCode } from '../core/faults.ts';
import { type SuspectFailure, WORKED_MS } from './health.ts';
import type { Member } from './member.ts';
import type { Members } from './members.ts';

interface FaultOfLease {
  readonly fault: FaultCode;
  readonly leasedAt: number;
}

export class MemberFaults {
  readonly #members: Members;
  #evictionsFrozen = false;

  constructor(members: Members) {
    this.#members = members;
  }

  recordFault(member: Member, { fault, leasedAt }: FaultOfLease, now: number): void {
    if (!this.#mayBlame(member, leasedAt)) return;
    const verdict = member.health.fault(now, member.endsAt - member.joinedAt, this.#members.settings.health);
    // One fault evicts an unproven member: it has never worked, so it is probably dead.
    if (verdict === 'evict' || member.phase.name === 'joining') {
      this.#members.remove(member, { reason: 'failed', fault }, now);
    } else this.#quarantine(member, { fault, replaced: true }, now);
  }

  recordSuspicion(
    member: Member,
    { fault, leasedAt, ...failure }: FaultOfLease & SuspectFailure & { readonly cut: boolean },
    now: number,
  ): void {
    const { evidence } = member.source;
    const sourceTotals = failure.cut ? evidence.answers : evidence.accepts;
    sourceTotals.failures += 1;
    if (!this.#mayBlame(member, leasedAt) || member.phase.name === 'joining') return;
    const otherClientsServed = evidence.servedOther(failure.client, now);
    const { maxFailures } = this.#members.settings.health;
    const verdict = member.health.suspect(
      failure,
      { otherClientsServed, sourceTotals },
      { now, halfLifeMs: member.endsAt - member.joinedAt, maxFailures },
    );
    switch (verdict) {
      case 'none':
        return;
      case 'evict':
        this.#members.remove(member, { reason: 'failed', fault }, now);
        return;
      case 'probe':
        if (now - member.undecidedAt < WORKED_MS) return;
        member.undecidedAt = now;
        this.#probe(member);
        return;
      case 'exclude-and-probe':
        this.#probe(member);
        break;
      case 'exclude':
      case 'quarantine':
    }
    this.#quarantine(member, { fault, replaced: verdict === 'quarantine' || member.onTrial }, now);
  }

  /**
   * Handles a probe that could not decide whether the member is at fault. If no member of its source works, a draw replaces this
   * member, to find out whether new members work.
   */
  recordUndecidedProbe(member: Member, { fault, leasedAt }: FaultOfLease, now: number): void {
    const { evidence, options } = member.source;
    const worked = fault === 'member-cut' ? evidence.answers : evidence.accepts;
    if (member.onTrial || member.phase.name === 'joining' || !this.#mayBlame(member, leasedAt)) return;
    if (now - worked.succeededAt <= WORKED_MS || !evidence.spendTrial(options.size)) return;
    member.onTrial = true;
    this.#quarantine(member, { fault, replaced: true }, now);
  }

  /**
   * If `on` is true, faults of members do not count from now on. If it is false, faults count again. All quarantines
   * then end, so that clients may try the quarantined members at once.
   */
  freezeEvictions(on: boolean, now: number): void {
    this.#evictionsFrozen = on;
    for (const observer of this.#members.observers) observer.evictionsFrozen(on);
    if (on) return;
    for (const source of this.#members.sources.values()) {
      for (const member of source.quarantined) {
        member.endQuarantine(now);
        this.#members.index.update(member, now);
      }
    }
  }

  #probe(member: Member): void {
    member.source.suspected.add(member);
    for (const observer of this.#members.observers) observer.memberSuspected(member);
  }

  /**
   * Whether a fault of a lease counts. If the lease began before the current quarantine, its fault probably has the same cause as
   * the quarantine, so it does not count again.
   */
  #mayBlame({ phase }: Member, leasedAt: number): boolean {
    if (this.#evictionsFrozen || phase.name === 'draining') return false;
    return phase.name !== 'quarantined' || leasedAt >= phase.sinceAt;
  }

  #quarantine(
    member: Member,
    { fault, replaced }: { readonly fault: FaultCode; readonly replaced: boolean },
    now: number,
  ): void {
    const forMs = Math.min(
      member.health.nextQuarantineMs(this.#members.settings.health),
      member.endsAt - now,
    );
    this.#members.quarantineUntil(member, { untilAt: now + forMs, fault, replaced }, now);
  }
}
