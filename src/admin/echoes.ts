/**
 * A request that found no way is told twice: by the dialer as `dial.ended`, with what it tried, and a moment later by the
 * listener as `client.refused`. Who counts both counts the second one as an echo of the first.
 */
import type { FaultCode } from '../core/faults.ts';

export class Echoes {
  readonly #expected = new Map<FaultCode, number>();

  /** A dial ended so; unless the client has left, the listener will say so too. */
  expect(code: FaultCode): void {
    if (code !== 'client-gone') this.#expected.set(code, (this.#expected.get(code) ?? 0) + 1);
  }

  /** Whether a refusal only repeats what a dial has told. */
  take(code: FaultCode): boolean {
    const expected = this.#expected.get(code) ?? 0;
    if (expected > 0) this.#expected.set(code, expected - 1);
    return expected > 0;
  }
}
