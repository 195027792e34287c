/**
 * Detects that our own network is down: connections to several members in a row get no answer, and no other machine
 * answers in the meantime. A refused connection is an answer, because another machine sent it. While the network is
 * down, noria blames no members.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import { ANSWER_CODES, LOCAL_CODES } from './member-socket.ts';

export const MIN_LOST_MEMBERS = 4;
const LOST_WITHIN_MS = 60_000;
/** After this time, dead members are a likelier cause than the network. */
const MAX_DOWN_MS = 2 * 60_000;

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
