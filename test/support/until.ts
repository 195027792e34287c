/**
 * Polls until `holds()` is true.
 *
 * @throws Error that contains `what`, or its result, after `limitMs`, a safety net for a hanging test.
 */
export async function until(
  what: string | (() => string),
  holds: () => boolean | Promise<boolean>,
  limitMs = 60_000,
): Promise<void> {
  const endMs = performance.now() + limitMs;
  while (!(await holds())) {
    if (performance.now() > endMs) {
      throw new Error(`gave up after ${limitMs} ms: ${typeof what === 'string' ? what : what()}`);
    }
    await new Promise((next) => setTimeout(next, 5));
  }
}
