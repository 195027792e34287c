/**
 * What recent dials showed about targets and members, as evidence for blame: which members reached a target, which got an
 * answer from it, and which members worked.
 *
 * The size is limited. Forgetting the oldest entries only makes blame more cautious.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/** How long the success of one member counts for a target. */
const TARGET_REACHED_MS = 30_000;
/** How long a member counts as working after it reached a target. */
const MEMBER_WORKED_MS = 60_000;
/** A busy proxy renews an entry at most this often, not for every tunnel. */
const RENEW_INTERVAL_MS = 1_000;
const MAX_TARGETS = 1_024;
const MAX_MEMBERS = 4_096;

export class Reachability {
  readonly #clock: Clock;
  readonly #reached = new BoundedMap<string, number>(MAX_TARGETS);
  readonly #answered = new BoundedMap<string, TargetHistory>(MAX_TARGETS);
  readonly #memberWorkedAt = new BoundedMap<string, number>(MAX_MEMBERS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `member` reached `target`. */
  recordReached(member: string, target: string): void {
    const now = this.#clock.monotonic();
    renew(this.#reached, target, now);
    renew(this.#memberWorkedAt, member, now);
  }

  /** `target` answered through `member`. */
  recordAnswered(member: string, target: string): void {
    this.#historyOf(target).answers.add(member, this.#clock.monotonic());
  }

  /**
   * `member` closed a connection to `target` before the first byte of an answer.
   *
   * @returns whether the target answered through another member recently, and after its last failure through another one:
   *   a target that stops to answer fails through all members.
   */
  recordCut(member: string, target: string): boolean {
    const now = this.#clock.monotonic();
    const { answers, cuts } = this.#historyOf(target);
    const answeredAt = answers.latestOfOther(member);
    const isCompared = now - answeredAt <= TARGET_REACHED_MS && answeredAt > cuts.latestOfOther(member);
    cuts.add(member, now);
    return isCompared;
  }

  /** Whether any member reached the target recently. */
  targetReached(target: string): boolean {
    return this.#isRecent(this.#reached.get(target), TARGET_REACHED_MS);
  }

  /** Whether the member reached any target recently. */
  memberWorked(member: string): boolean {
    return this.#isRecent(this.#memberWorkedAt.get(member), MEMBER_WORKED_MS);
  }

  #historyOf(target: string): TargetHistory {
    let history = this.#answered.get(target);
    if (history === undefined) {
      history = { answers: new LatestMembers(), cuts: new LatestMembers() };
      this.#answered.set(target, history);
    }
    return history;
  }

  #isRecent(at: number | undefined, withinMs: number): boolean {
    return at !== undefined && this.#clock.monotonic() - at <= withinMs;
  }
}

interface TargetHistory {
  readonly answers: LatestMembers;
  readonly cuts: LatestMembers;
}

/** The last two distinct members: enough to know the last moment of another member than any given one. */
class LatestMembers {
  #latest: string | undefined;
  #latestAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  add(member: string, now: number): void {
    if (member !== this.#latest) {
      this.#otherAt = this.#latestAt;
      this.#latest = member;
    }
    this.#latestAt = now;
  }

  latestOfOther(member: string): number {
    return member === this.#latest ? this.#otherAt : this.#latestAt;
  }
}

function renew(moments: BoundedMap<string, number>, key: string, now: number): void {
  const before = moments.get(key);
  if (before === undefined || now - before >= RENEW_INTERVAL_MS) moments.set(key, now);
}
