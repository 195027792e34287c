/**
 * The forecasts of the sources, which the primary sends to the workers. Between two messages, a worker reduces the received
 * forecasts by the time since their arrival.
 */
import type { Clock } from '../../core/clock.ts';
import type { SourceForecast } from '../../pool/lease.ts';

/** A forecast as plain data. `null` replaces `Infinity`, which JSON cannot express. */
export type SentForecast = Omit<SourceForecast, 'suspendedMs'> & { readonly suspendedMs: number | null };

/** Two forecasts that differ by at most this number of ms count as equal. */
const TOLERANCE_MS = 100;

export class RemoteForecasts {
  readonly #clock: Clock;
  #sent: readonly SentForecast[] = [];
  #receivedAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  receive(sent: readonly SentForecast[]): void {
    this.#sent = sent;
    this.#receivedAt = this.#clock.monotonic();
  }

  read(): readonly SourceForecast[] {
    const passedMs = this.#clock.monotonic() - this.#receivedAt;
    return this.#sent.map((sent) => later(sent, passedMs));
  }

  /** Whether `current` differs from the result of `read` by more than TOLERANCE_MS. */
  differsFrom(current: readonly SourceForecast[]): boolean {
    const expected = this.read();
    return (
      expected.length !== current.length ||
      expected.some((forecast, index) => !isNear(forecast, current[index]))
    );
  }
}

export function encodeForecasts(forecasts: readonly SourceForecast[]): readonly SentForecast[] {
  return forecasts.map((forecast) => ({
    ...forecast,
    suspendedMs: forecast.suspendedMs === Number.POSITIVE_INFINITY ? null : forecast.suspendedMs,
  }));
}

function later(
  { suspendedMs, nextDrawMs, nextMemberMs, ...sent }: SentForecast,
  passedMs: number,
): SourceForecast {
  return {
    ...sent,
    ...(nextDrawMs !== undefined && { nextDrawMs: Math.max(0, nextDrawMs - passedMs) }),
    ...(nextMemberMs !== undefined && { nextMemberMs: Math.max(0, nextMemberMs - passedMs) }),
    suspendedMs: suspendedMs === null ? Number.POSITIVE_INFINITY : Math.max(0, suspendedMs - passedMs),
  };
}

function isNear(one: SourceForecast, other: SourceForecast | undefined): boolean {
  if (other === undefined || one.name !== other.name) return false;
  const near = (a = -1, b = -1) => a === b || Math.abs(a - b) <= TOLERANCE_MS;
  return (
    one.state === other.state &&
    one.reason === other.reason &&
    near(one.nextDrawMs, other.nextDrawMs) &&
    near(one.nextMemberMs, other.nextMemberMs) &&
    near(one.suspendedMs, other.suspendedMs)
  );
}
