/** Reads noria's version from package.json: an asset of the single executable, or in the parent folder of `src` or `dist`. */
import { readFileSync } from 'node:fs';
import { getAsset, isSea } from 'node:sea';

export function readVersion(): string {
  const text = isSea()
    ? getAsset('package.json', 'utf8')
    : readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version }: { version?: unknown } = JSON.parse(text);
  if (typeof version !== 'string') throw new TypeError('package.json has no version');
  return version;
}
