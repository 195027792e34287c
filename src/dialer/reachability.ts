/**
 * What earlier dials saw, as far as it helps to judge the next one: which targets were reached a moment ago, which
 * members worked, and how many targets in a row a member alone called dead.
 *
 * Bounded: the oldest are forgotten first, which only makes a verdict more cautious.
 */
import type { Clock } from '../core/clock.ts';

/** How long a target counts as reachable after somebody reached it. */
const REACHED_MS = 30_000;
/** How long a member counts as working after it carried something. */
const PROVEN_MS = 60_000;
/** A note is renewed no sooner than this, so that a busy proxy does not write one for every tunnel. */
const NOTE_MS = 1_000;
const MOST_TARGETS = 1_024;
const MOST_MEMBERS = 4_096;
/** More different targets than any verdict asks for. */
const MOST_DOUBTS = 16;

export class Reachability {
  readonly #clock: Clock;
  readonly #reachedAt = new Map<string, number>();
  readonly #provenAt = new Map<string, number>();
  readonly #doubts = new Map<string, Set<string>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `member` reached `target`. */
  recordReached(member: string, target: string): void {
    const now = this.#clock.monotonic();
    note(this.#reachedAt, target, now, MOST_TARGETS);
    note(this.#provenAt, member, now, MOST_MEMBERS);
    if (this.#doubts.size > 0) this.#doubts.delete(member);
  }

  /** `member` said that `target` is unreachable. @returns of how many different targets it has said so in a row. */
  recordUnreachable(member: string, target: string): number {
    const targets = this.#doubts.get(member) ?? new Set<string>();
    if (targets.size < MOST_DOUBTS) targets.add(target);
    keep(this.#doubts, member, targets, MOST_MEMBERS);
    return targets.size;
  }

  /** The count of `doubted` led to a verdict; it starts anew. */
  resetUnreachable(member: string): void {
    this.#doubts.delete(member);
  }

  /** Whether anybody reached the target a moment ago. */
  targetReached(target: string): boolean {
    return this.#isRecent(this.#reachedAt.get(target), REACHED_MS);
  }

  /** Whether the member carried anything a moment ago. */
  memberWorked(member: string): boolean {
    return this.#isRecent(this.#provenAt.get(member), PROVEN_MS);
  }

  #isRecent(at: number | undefined, withinMs: number): boolean {
    return at !== undefined && this.#clock.monotonic() - at <= withinMs;
  }
}

function note(map: Map<string, number>, key: string, now: number, most: number): void {
  const before = map.get(key);
  if (before !== undefined && now - before < NOTE_MS) return;
  keep(map, key, now, most);
}

/** Sets it as the youngest entry; the oldest makes room. */
function keep<Value>(map: Map<string, Value>, key: string, value: Value, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= most) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}
