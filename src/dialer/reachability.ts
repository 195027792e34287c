/**
 * What recent dials showed about targets and members, as evidence for blame: which targets were reached, which members
 * worked, and how many targets in a row a member reported as unreachable.
 *
 * The size is limited. Forgetting the oldest entries only makes blame more cautious.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/** How long a target counts as reachable after a member reached it. */
const TARGET_REACHED_MS = 30_000;
/** How long a member counts as working after it reached a target. */
const MEMBER_WORKED_MS = 60_000;
/** A busy proxy renews an entry at most this often, not for every tunnel. */
const RENEW_INTERVAL_MS = 1_000;
const MAX_TARGETS = 1_024;
const MAX_MEMBERS = 4_096;
/** More targets than blame ever asks for. */
const MAX_TARGETS_PER_MEMBER = 16;

export class Reachability {
  readonly #clock: Clock;
  readonly #targetReachedAt = new BoundedMap<string, number>(MAX_TARGETS);
  readonly #memberWorkedAt = new BoundedMap<string, number>(MAX_MEMBERS);
  readonly #unreachable = new BoundedMap<string, Set<string>>(MAX_MEMBERS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `member` reached `target`. */
  recordReached(member: string, target: string): void {
    const now = this.#clock.monotonic();
    renew(this.#targetReachedAt, target, now);
    renew(this.#memberWorkedAt, member, now);
    if (this.#unreachable.size > 0) this.#unreachable.delete(member);
  }

  /** `member` reported `target` as unreachable. @returns for how many different targets in a row it has done so. */
  recordUnreachable(member: string, target: string): number {
    const targets = this.#unreachable.get(member) ?? new Set<string>();
    if (targets.size < MAX_TARGETS_PER_MEMBER) targets.add(target);
    this.#unreachable.set(member, targets);
    return targets.size;
  }

  /** The member was blamed for its reports: starts a new count. */
  resetUnreachable(member: string): void {
    this.#unreachable.delete(member);
  }

  /** Whether any member reached the target recently. */
  targetReached(target: string): boolean {
    return this.#isRecent(this.#targetReachedAt.get(target), TARGET_REACHED_MS);
  }

  /** Whether the member reached any target recently. */
  memberWorked(member: string): boolean {
    return this.#isRecent(this.#memberWorkedAt.get(member), MEMBER_WORKED_MS);
  }

  #isRecent(at: number | undefined, withinMs: number): boolean {
    return at !== undefined && this.#clock.monotonic() - at <= withinMs;
  }
}

function renew(moments: BoundedMap<string, number>, key: string, now: number): void {
  const before = moments.get(key);
  if (before === undefined || now - before >= RENEW_INTERVAL_MS) moments.set(key, now);
}
