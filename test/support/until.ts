/** Resolves when `holds()` is true; throws, naming `what`, when `limitMs` have passed. */
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
