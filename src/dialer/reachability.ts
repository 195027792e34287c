/**
 * The results of recent dials, by which later ones choose members and decide blame. What a bound forgets can only
 * make noria blame fewer members.
 */
import { AgedMap, BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { LatestBy } from './evidence.ts';

const TARGET_REACHED_MS = 30_000;
const MEMBER_WORKED_MS = 60_000;
/** Just shorter than the first quarantine, so that the member is tried again when that ends. */
const AVOIDED_MS = 9_999;
const MAX_AVOIDED = 64;
const NONE: readonly string[] = [];
/** How long to wait for the first byte of a target whose first bytes are unknown. */
const UNKNOWN_FIRST_BYTE_MS = 4_000;
/** A target is silent for too long if it takes this multiple of its slowest recent first byte. */
const FIRST_BYTE_FACTOR = 3;
const MIN_MUTE_MS = 1_000;
/** So that an old maximum fades. */
const FIRST_BYTE_DECAY = 0.98;
const FIRST_BYTES_MS = 10 * 60_000;
const MAX_TARGETS = 1_024;
const MAX_MEMBERS = 4_096;

export class Reachability {
  readonly #clock: Clock;
  readonly #reached: AgedMap<string>;
  readonly #answered = new BoundedMap<string, ReturnType<typeof makeHistory>>(MAX_TARGETS);
  /** By target; usually empty. */
  readonly #avoided = new BoundedMap<string, AgedMap<string>>(MAX_TARGETS);
  readonly #workingMembers: AgedMap<string>;
  /** By target, in ms. */
  readonly #firstBytes: AgedMap<string, number>;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#reached = new AgedMap(clock, TARGET_REACHED_MS, MAX_TARGETS);
    this.#firstBytes = new AgedMap(clock, FIRST_BYTES_MS, MAX_TARGETS);
    this.#workingMembers = new AgedMap(clock, MEMBER_WORKED_MS, MAX_MEMBERS);
  }

  recordReached(member: string, target: string, now = this.#clock.monotonic()): void {
    this.#reached.renew(target, true, now);
    this.#workingMembers.renew(member, true, now);
  }

  /** Records that `member` failed for `target`, and that the member or its exit alone is the cause. */
  avoid(member: string, target: string): void {
    const makeMembers = () => new AgedMap<string>(this.#clock, AVOIDED_MS, MAX_AVOIDED);
    this.#avoided.getOrMake(target, makeMembers).set(member, true);
  }

  membersToAvoid(target: string): readonly string[] {
    if (this.#avoided.size === 0) return NONE;
    const members = this.#avoided.get(target)?.keys() ?? NONE;
    if (members.length === 0) this.#avoided.delete(target);
    return members;
  }

  recordFirstByte(target: string, ms: number): void {
    this.#firstBytes.set(target, Math.max(ms, FIRST_BYTE_DECAY * (this.#firstBytes.get(target) ?? 0)));
  }

  muteAfterMs(target: string): number {
    const slowestMs = this.#firstBytes.get(target);
    if (slowestMs === undefined) return UNKNOWN_FIRST_BYTE_MS;
    return Math.max(MIN_MUTE_MS, FIRST_BYTE_FACTOR * slowestMs);
  }

  recordAnswered(member: string, target: string): void {
    this.#answered.getOrMake(target, makeHistory).answers.add(member, this.#clock.monotonic());
  }

  /**
   * @returns whether the member is at fault: the target recently answered through another one, and no other has
   * closed a connection to it since. If others do as well, the target may have stopped answering.
   */
  recordCut(member: string, target: string): boolean {
    const now = this.#clock.monotonic();
    const { answers, cuts } = this.#answered.getOrMake(target, makeHistory);
    const answeredAt = answers.latestOfOther(member);
    const isCompared = now - answeredAt <= TARGET_REACHED_MS && answeredAt > cuts.latestOfOther(member);
    cuts.add(member, now);
    return isCompared;
  }

  /** Exact to a second; Infinity if no member reached the target recently. */
  sinceReachedMs(target: string): number {
    return this.#reached.ageMs(target);
  }

  memberWorked(member: string): boolean {
    return this.#workingMembers.has(member);
  }
}

function makeHistory() {
  return { answers: new LatestBy(), cuts: new LatestBy() };
}
