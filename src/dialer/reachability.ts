/**
 * The results of recent dials, by which later ones choose members and decide blame. What a bound forgets can only
 * make noria blame fewer members.
 */
import { AgedMap, BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import { LatestBy } from './evidence.ts';
import { ANSWER_CODES, LOCAL_CODES } from './member-socket.ts';

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
  /** By target. */
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
    return this.#avoided.get(target)?.keys() ?? NONE;
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

export const MIN_LOST_MEMBERS = 4;
const LOST_WITHIN_MS = 60_000;
/** After this time, dead members are a likelier cause than the network. */
const MAX_DOWN_MS = 2 * 60_000;

/**
 * Detects that our own network is down: connections to several members in a row get no answer, and no other machine
 * answers in the meantime. A refused connection is an answer, because another machine sent it. While the network is
 * down, noria blames no members.
 */
export class NetworkWatch {
  readonly #clock: Clock;
  readonly #onChange: (down: boolean) => void;
  readonly #lost: AgedMap<string>;
  /** `given-up`: no answer for MAX_DOWN_MS, so members are blamed again. Only an answer leads back to `up`. */
  #phase: 'up' | 'down' | 'given-up' = 'up';
  #downAt = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, onChange: (down: boolean) => void) {
    this.#clock = clock;
    this.#lost = new AgedMap(clock, LOST_WITHIN_MS, MIN_LOST_MEMBERS);
    this.#onChange = onChange;
  }

  get down(): boolean {
    if (this.#phase === 'down' && this.#clock.monotonic() - this.#downAt > MAX_DOWN_MS) {
      this.#move('given-up');
    }
    return this.#phase === 'down';
  }

  answered(now = this.#clock.monotonic()): void {
    this.#answeredAt = now;
    this.#lost.clear();
    if (this.#phase !== 'up') this.#move('up');
  }

  /** For `ms`, or because there is no route. */
  lost(member: string, ms: number): void {
    const now = this.#clock.monotonic();
    if (this.#answeredAt >= now - ms) return; // another machine answered during this attempt, so the network was up
    this.#lost.set(member, true, now);
    if (this.#phase !== 'up' || this.#lost.size < MIN_LOST_MEMBERS) return;
    this.#downAt = now;
    this.#move('down');
  }

  #move(phase: 'up' | 'down' | 'given-up'): void {
    const wasDown = this.#phase === 'down';
    this.#phase = phase;
    const isDown = phase === 'down';
    if (isDown !== wasDown) this.#onChange(isDown);
  }
}

/**
 * `up`: another machine answered, if only with a refusal. `down`: none did. `unknown`: noria has sent nothing, or the
 * failure is local.
 */
export function networkSign(fault: FaultCode, detail: string): 'up' | 'down' | 'unknown' {
  if (fault === 'member-incapable' || FAULTS[fault].side === 'front-proxy') return 'unknown';
  if (fault !== 'member-unreachable' || ANSWER_CODES.has(detail)) return 'up';
  // Node rejects an invalid address with a code of its own, such as ERR_SOCKET_BAD_PORT.
  return LOCAL_CODES.has(detail) || detail.startsWith('ERR_') ? 'unknown' : 'down';
}
