/**
 * The record of one client request or tunnel, built once on its way: the listener opens and ends it, the dialer adds its
 * attempts. The access log, `noria why`, usage and limits read it.
 */
import type { Clock } from './clock.ts';
import type { FaultCode } from './faults.ts';
import { systemRandom } from './random.ts';

interface AttemptRecord {
  readonly member: string;
  readonly source: string;
  readonly exit: string | null;
  readonly ms: number;
  readonly code: string | null;
  /** Monotonic, of the process that served the request. */
  readonly startedAt: number;
}

export type RequestProtocol = 'connect' | 'forward' | 'socks5' | 'socks4' | 'unknown';

/** What is known of a request at its end, in this process or in the worker that served it. */
export type RequestRecord = Readonly<Omit<OpenRequest, 'addAttempt' | 'noteFirstByte' | 'end' | 'source'>>;

/** Unique in a fleet: a random word for the process, and a number. */
const PROCESS = Math.floor(systemRandom() * 36 ** 5)
  .toString(36)
  .padStart(5, '0');
let opened = 0;

/** Its public fields are plain data, because workers send it to the primary. */
export class OpenRequest {
  readonly id: string;
  readonly at: number;
  user: string | null = null;
  session: string | null = null;
  tag: string | null = null;
  readonly client: string | null;
  protocol: RequestProtocol = 'unknown';
  target: string | null = null;
  outcome: 'served' | 'failed' = 'served';
  code: FaultCode | null = null;
  readonly attempts: AttemptRecord[] = [];
  /** On the member's connection after its handshake, as in noria_bytes_total. */
  bytesUp = 0;
  bytesDown = 0;
  firstByteMs: number | null = null;
  ms = 0;
  /** How many of the bytes `request.grew` has reported. */
  countedUp = 0;
  countedDown = 0;
  readonly #clock: Clock;
  readonly #startedAt: number;

  constructor(clock: Clock, client: string) {
    opened += 1;
    this.id = `${PROCESS}-${opened.toString(36)}`;
    this.at = clock.now();
    this.client = client === '' ? null : client;
    this.#clock = clock;
    this.#startedAt = clock.monotonic();
  }

  /** The source of the member that carries the request; '' before a member has accepted it. */
  get source(): string {
    return this.attempts.findLast(({ code }) => code === null)?.source ?? '';
  }

  /** Blame for a failed attempt may be decided after a later one has ended. */
  addAttempt(attempt: AttemptRecord): void {
    const { attempts } = this;
    const at = attempts.findLastIndex(({ startedAt }) => startedAt <= attempt.startedAt) + 1;
    if (at === attempts.length) attempts.push(attempt);
    else attempts.splice(at, 0, attempt);
  }

  noteFirstByte(): void {
    this.firstByteMs ??= roundMs(this.#clock.monotonic() - this.#startedAt);
  }

  end(code: FaultCode | null): void {
    this.code = code;
    if (code !== null) this.outcome = 'failed';
    this.ms = roundMs(this.#clock.monotonic() - this.#startedAt);
  }
}

export function recordJson({ countedUp: _up, countedDown: _down, ...record }: RequestRecord) {
  return {
    ...record,
    at: new Date(record.at).toISOString(),
    attempts: record.attempts.map(({ startedAt: _, ...attempt }) => attempt),
  };
}

export function roundMs(ms: number): number {
  return Math.round(ms * 10) / 10;
}
