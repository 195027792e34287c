/**
 * The forecasts of the sources, which the primary sends to the workers. Between two messages, a worker reduces the received
 * forecasts by the time since their arrival.
 */
import type { Clock } from '../../core/clock.ts';
import type { SourceForecast } from '../../pool/lease.ts';

const TOLERANCE_MS = 100;

export class RemoteForecasts {
  readonly #clock: Clock;
  #sent: readonly SourceForecast[] = [];
  #receivedAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  receive(sent: readonly SourceForecast[]): void {
    this.#sent = sent;
    this.#receivedAt = this.#clock.monotonic();
  }

  read(): readonly SourceForecast[] {
    const passedMs = this.#clock.monotonic() - this.#receivedAt;
    return this.#sent.map((sent) => later(sent, passedMs));
  }

  differsFrom(current: readonly SourceForecast[]): boolean {
    const expected = this.read();
    return (
      expected.length !== current.length ||
      expected.some((forecast, index) => !isNear(forecast, current[index]))
    );
  }
}

function later(
  { suspendedMs, nextDrawMs, nextMemberMs, ...sent }: SourceForecast,
  passedMs: number,
): SourceForecast {
  return {
    ...sent,
    ...(nextDrawMs !== undefined && { nextDrawMs: Math.max(0, nextDrawMs - passedMs) }),
    ...(nextMemberMs !== undefined && { nextMemberMs: Math.max(0, nextMemberMs - passedMs) }),
    suspendedMs: Math.max(0, suspendedMs - passedMs),
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
