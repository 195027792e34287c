/** The share of a test's limit that all its waits together may take: a wait that fails must still say what it waited for. */
const SHARE = 14 / 15;
/** The longest wait where no test runs. */
const LIMIT_MS = 280_000;
let testEndsMs = Infinity;

/** Runs before each test, with the limit of the test. */
export function startWaits(limitMs: number): void {
  testEndsMs = performance.now() + SHARE * limitMs;
}

/** The shortest and the longest pause between two checks. */
const [LEAST_PAUSE_MS, MOST_PAUSE_MS] = [5, 100];

/**
 * Polls until `holds()` is true. The pause between two checks grows with the time that a check takes, because checks without
 * a pause would take the CPU time from the work for which they wait.
 *
 * @throws Error that contains `what`, or its result, after `limitMs`, a safety net for a hanging test.
 */
export async function until(
  what: string | (() => string),
  holds: () => boolean | Promise<boolean>,
  limitMs = LIMIT_MS,
): Promise<void> {
  const startedMs = performance.now();
  const endMs = Math.min(startedMs + limitMs, testEndsMs);
  for (;;) {
    const startMs = performance.now();
    if (await holds()) return;
    const nowMs = performance.now();
    if (nowMs > endMs) {
      throw new Error(
        `gave up after ${Math.round(nowMs - startedMs)} ms: ${typeof what === 'string' ? what : what()}`,
      );
    }
    const pauseMs = Math.min(Math.max(LEAST_PAUSE_MS, 3 * (nowMs - startMs)), MOST_PAUSE_MS);
    await new Promise((next) => setTimeout(next, pauseMs));
  }
}
