/**
 * Programs and packages of this machine that tests use. A test that needs a missing program or package is skipped. `.ci/run`
 * installs them all and fails if a test is skipped.
 */
import { accessSync, constants, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';

/** Whether a program of this name is in the search path. */
export function hasCommand(name: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => isExecutable(join(folder, name)));
}

/**
 * The path of a Chromium or Chrome; undefined if none is installed. The headless shell, which Playwright uses by default, has no
 * windows: a page takes it a sixth of the CPU time.
 */
export const CHROMIUM = [
  process.env['CHROMIUM'],
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((path) => path !== undefined && existsSync(path));

const fromHere = createRequire(import.meta.url);

/** Whether a package can be imported from the checkout. */
export function hasPackage(name: string): boolean {
  try {
    fromHere.resolve(name);
    return true;
  } catch {
    return false; // handled: the result is false
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false; // handled: the result is false
  }
}
