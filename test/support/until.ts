/** The shortest pause between two checks. */
const PAUSE_MS = 5;

/**
 * Polls until `holds()` is true. Pauses three times as long as the last check took, because slow checks would take the CPU time
 * from the work for which they wait.
 *
 * @throws Error that contains `what`, or its result, after `limitMs`, a safety net for a hanging test.
 */
export async function until(
  what: string | (() => string),
  holds: () => boolean | Promise<boolean>,
  limitMs = 60_000,
): Promise<void> {
  const endMs = performance.now() + limitMs;
  for (;;) {
    const startMs = performance.now();
    if (await holds()) return;
    const nowMs = performance.now();
    if (nowMs > endMs) {
      throw new Error(`gave up after ${limitMs} ms: ${typeof what === 'string' ? what : what()}`);
    }
    await new Promise((next) => setTimeout(next, Math.max(PAUSE_MS, 3 * (nowMs - startMs))));
  }
}
