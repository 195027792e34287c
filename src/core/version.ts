/** Reads noria's version from package.json in the parent folder of `src` or `dist`. */
import { readFileSync } from 'node:fs';

export function readVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version }: { version?: unknown } = JSON.parse(text);
  if (typeof version !== 'string') throw new TypeError('package.json has no version');
  return version;
}
