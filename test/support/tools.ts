/**
 * Programs and packages of this machine that tests use. A test that needs a missing or unusable one is skipped. `.ci/run` installs
 * them all and fails if a test is skipped in every place.
 */
import { spawn } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';

/** The programs, and the arguments with which each only says what it is. Without arguments: it has no such option, or needs a second. */
const PROGRAMS: Readonly<Record<string, readonly string[] | undefined>> = {
  curl: ['--version'],
  wget: ['--version'],
  git: ['--version'],
  bash: ['--version'],
  zsh: ['--version'],
  fish: ['--version'],
  pgrep: ['--version'],
  unshare: ['--version'],
  'systemd-analyze': ['--version'],
  'systemd-notify': ['--version'],
  'systemd-socket-activate': ['--version'],
  promtool: ['--version'],
  'redis-server': ['--version'],
  tinyproxy: ['-v'],
  squid: ['-v'],
  microsocks: undefined,
  dpkg: ['--version'],
  man: ['--version'],
  python3: ['-c', 'pass'],
  go: ['version'],
  javac: undefined,
};

/** The longest time that a program may take to say what it is. All are asked at once, and usually answer within 0.1 s. */
const LIMIT_MS = 10_000;
const VARIABLE = 'NORIA_TEST_UNUSABLE';
/** The variable that lists everything that this machine lacks. */
export const NOT_HERE = 'NORIA_TEST_NOT_HERE';

/** Whether a program of this name is in the search path, and was usable when the tests began. */
export function hasCommand(name: string): boolean {
  if ((process.env[VARIABLE] ?? '').split(' ').includes(name)) return false;
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => isExecutable(join(folder, name)));
}

/** Starts each program once. The test processes inherit the result. @returns the programs that are missing or do not work. */
export async function findUnusable(): Promise<readonly string[]> {
  const entries = Object.entries(PROGRAMS);
  const missing = entries.map(([name]) => name).filter((name) => !hasCommand(name));
  const broken = await Promise.all(
    entries.map(async ([name, args]) =>
      args === undefined || missing.includes(name) || (await works(name, args)) ? [] : [name],
    ),
  );
  process.env[VARIABLE] = broken.flat().join(' ');
  return [...missing, ...broken.flat()];
}

function works(name: string, args: readonly string[]): Promise<boolean> {
  const child = spawn(name, args, { stdio: 'ignore', timeout: LIMIT_MS, killSignal: 'SIGKILL' });
  return new Promise((resolve) => {
    child.on('error', () => resolve(false)).on('exit', (code) => resolve(code === 0));
  });
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

/** Debian's libfaketime; undefined if it is not installed. Without it, the wall clock of a process cannot be set. */
export const FAKE_CLOCK = ['x86_64', 'aarch64']
  .map((machine) => `/usr/lib/${machine}-linux-gnu/faketime/libfaketimeMT.so.1`)
  .find((path) => existsSync(path));

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
