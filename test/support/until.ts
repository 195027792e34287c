/** Polls until `holds()` is true. @throws Error that names `what` after `limitMs`, so that a test cannot hang. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  limitMs = 60_000,
): Promise<void> {
  const endMs = performance.now() + limitMs;
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error(`gave up after ${limitMs} ms: ${what}`);
    await new Promise((next) => setTimeout(next, 5));
  }
}
