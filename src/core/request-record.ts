/**
 * The record of one client request or tunnel, built once on its way: the listener opens and ends it, the dialer adds its
 * attempts. The access log, `noria why`, usage and limits read it.
 */
import type { Clock } from './clock.ts';
import type { FaultCode } from './faults.ts';
import { systemRandom } from './random.ts';

export interface AttemptRecord {
  readonly member: string;
  readonly source: string;
  readonly exit: string | null;
  readonly ms: number;
  /** Why the attempt failed; null if the member accepted the request. */
  readonly code: string | null;
}

export type RequestProtocol = 'connect' | 'forward' | 'socks5' | 'socks4' | 'unknown';

export interface RequestRecord {
  readonly id: string;
  /** In epoch ms. */
  readonly at: number;
  readonly user: string | null;
  readonly session: string | null;
  readonly tag: string | null;
  readonly client: string | null;
  readonly protocol: RequestProtocol;
  readonly target: string | null;
  readonly outcome: 'served' | 'failed';
  readonly code: FaultCode | null;
  readonly attempts: readonly AttemptRecord[];
  /** On the member's connection after its handshake, as in noria_bytes_total. */
  readonly bytesUp: number;
  readonly bytesDown: number;
  readonly firstByteMs: number | null;
  readonly ms: number;
}

/** Unique in a fleet: a random word for the process, and a number. */
const PROCESS = Math.floor(systemRandom() * 36 ** 5)
  .toString(36)
  .padStart(5, '0');
let opened = 0;

export class OpenRequest {
  readonly id: string;
  readonly attempts: AttemptRecord[] = [];
  user: string | null = null;
  session: string | null = null;
  tag: string | null = null;
  target: string | null = null;
  protocol: RequestProtocol = 'unknown';
  bytesUp = 0;
  bytesDown = 0;
  /** How many of the bytes `request.grew` has reported. */
  countedUp = 0;
  countedDown = 0;
  readonly client: string | null;
  readonly #clock: Clock;
  readonly #at: number;
  readonly #startedAt: number;
  readonly #starts: number[] = [];
  #firstByteMs: number | null = null;

  constructor(clock: Clock, client: string) {
    opened += 1;
    this.id = `${PROCESS}-${opened.toString(36)}`;
    this.client = client === '' ? null : client;
    this.#clock = clock;
    this.#at = clock.now();
    this.#startedAt = clock.monotonic();
  }

  /** The source of the member that carries the request; '' before a member has accepted it. */
  get source(): string {
    return this.attempts.findLast(({ code }) => code === null)?.source ?? '';
  }

  /**
   * Adds an attempt. They are in the order in which they started; blame for a failed one may be decided later.
   * @param startedAt - monotonic
   */
  addAttempt(attempt: AttemptRecord, startedAt: number): void {
    const at = this.#starts.findLastIndex((start) => start <= startedAt) + 1;
    if (at === this.attempts.length) {
      this.attempts.push(attempt);
      this.#starts.push(startedAt);
    } else {
      this.attempts.splice(at, 0, attempt);
      this.#starts.splice(at, 0, startedAt);
    }
  }

  noteFirstByte(): void {
    this.#firstByteMs ??= roundMs(this.#clock.monotonic() - this.#startedAt);
  }

  end(code: FaultCode | null): RequestRecord {
    const { id, user, session, tag, client, protocol, target, attempts, bytesUp, bytesDown } = this;
    return {
      id,
      at: this.#at,
      user,
      session,
      tag,
      client,
      protocol,
      target,
      outcome: code === null ? 'served' : 'failed',
      code,
      attempts,
      bytesUp,
      bytesDown,
      firstByteMs: this.#firstByteMs,
      ms: roundMs(this.#clock.monotonic() - this.#startedAt),
    };
  }
}

/** The record as JSON has it. */
export function recordJson(record: RequestRecord) {
  return { ...record, at: new Date(record.at).toISOString() };
}

export function roundMs(ms: number): number {
  return Math.round(ms * 10) / 10;
}
