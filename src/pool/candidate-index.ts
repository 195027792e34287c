/**
 * Seating: keeps every member in the berth where it belongs at each moment, and knows whose time comes next.
 *
 * It owns the lanes and one timer for the nearest change of any member: a life grown short, an end of life, a rest
 * that is over.
 */
import type { Clock } from '../core/clock.ts';
import { EarliestTimer } from '../core/earliest-timer.ts';
import type { Random } from '../core/random.ts';
import { Lanes } from './candidates.ts';
import { Heap } from './heap.ts';
import type { Mark, Member } from './member.ts';
import type { PoolSettings } from './options.ts';
import { type Berth, ENDING, LASTING, NOWHERE, RESTING } from './rotation/rotation.ts';

/** Who may be picked now, and who next changes. */
export class Seating {
  readonly lanes: Lanes;
  settings: PoolSettings;
  /** Members may be picked that could not before: whoever serves those that wait looks again, and clears it. */
  freed = false;

  readonly #changes = new Heap<Mark>();
  readonly #alarm: EarliestTimer;

  /** @param onDue - called when a member's time has come: `due` gives it. */
  constructor(parts: { clock: Clock; random: Random; settings: PoolSettings }, onDue: () => void) {
    this.lanes = new Lanes(parts.random);
    this.settings = parts.settings;
    this.#alarm = new EarliestTimer(parts.clock, () => {
      onDue();
      this.#alarm.armBy(this.#changes.firstKey);
    });
  }

  /** A member whose change is due, to be settled or to be let go. */
  due(now: number): Member | undefined {
    return this.#changes.firstKey <= now ? this.#changes.first?.member : undefined;
  }

  /** A new member takes its seats. Its end of life is set already. */
  enter(member: Member, now: number): void {
    this.lanes.enter(member);
    this.settle(member, now);
  }

  /** It takes nothing new any more. */
  leave(member: Member): void {
    this.#changes.remove(member.next);
    this.lanes.leave(member);
  }

  /** Its life ends at `endsAt`. It is to be settled afterwards. */
  setEnd(member: Member, endsAt: number): void {
    member.endsAt = endsAt;
    member.source.ends.update(member.end, endsAt - this.settings.safetyMarginMs);
    for (const seat of member.seats) seat.rotation?.changed(seat);
  }

  /** It was given to a client. */
  picked(member: Member, now: number): void {
    for (const seat of member.seats) seat.rotation?.picked(seat);
    this.settle(member, now);
  }

  /** One of its leases has ended. */
  eased(member: Member, now: number): void {
    for (const seat of member.seats) seat.rotation?.changed(seat);
    if (member.source.tunnelLimit !== Number.POSITIVE_INFINITY) this.freed = true;
    this.settle(member, now);
  }

  /** Puts the member into the berth where it now belongs, and notes when that changes by itself. */
  settle(member: Member, now: number): void {
    const { name } = member.phase;
    if (name === 'draining' || name === 'gone') return; // out of the lanes, and nothing left to wait for
    const berth = this.#berthOf(member, now);
    if (berth !== member.berth) {
      this.lanes.move(member, berth);
      if (berth !== NOWHERE) this.freed = true;
    }
    const changesAt = this.#changesAt(member, now);
    if (changesAt === member.next.key) return;
    this.#changes.update(member.next, changesAt);
    this.#alarm.armBy(changesAt);
  }

  /** Stops the timer. */
  close(): void {
    this.#alarm.disarm();
  }

  #berthOf(member: Member, now: number): Berth {
    const { phase, source } = member;
    if (phase.name !== 'ready' && phase.name !== 'quarantined') return NOWHERE;
    if (source.blocked !== undefined || this.#isFull(member)) return NOWHERE;
    if (phase.name === 'quarantined') {
      if (member.trial !== undefined) return NOWHERE; // one client tries it, never a crowd
      if (phase.untilAt > now) return RESTING;
    }
    return member.endsAt - this.settings.minRemainingMs > now ? LASTING : ENDING;
  }

  #isFull(member: Member): boolean {
    const { maxTunnelsPerMember, maxUsesPerMember } = this.settings.rotation;
    return (
      (maxTunnelsPerMember > 0 && member.open >= maxTunnelsPerMember) ||
      (maxUsesPerMember > 0 && member.uses + member.pending >= maxUsesPerMember)
    );
  }

  #changesAt(member: Member, now: number): number {
    const { phase, end } = member;
    if (phase.name === 'quarantined' && phase.untilAt > now) return Math.min(phase.untilAt, end.key);
    const endingAt = member.endsAt - this.settings.minRemainingMs;
    return endingAt > now ? Math.min(endingAt, end.key) : end.key;
  }
}
