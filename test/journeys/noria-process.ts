/** A noria in a separate process, as an operator runs it: with signals and a log. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import { childEnvironment } from '../support/environment.ts';
import { BUILD } from '../support/noria-build.ts';
import { until } from '../support/until.ts';

/** A folder for temporary files that every user can enter: TMPDIR may belong to one user. */
export const OPEN_FOLDER = [tmpdir(), '/tmp', '/var/tmp'].find(isOpen) ?? tmpdir();

/**
 * Runs noria as the user `nobody` if the tests run as root, else as the user of the tests. That user may not be able to enter the
 * checkout: it runs copies in `OPEN_FOLDER`.
 */
export const UNPRIVILEGED = process.getuid?.() === 0 && isOpen(OPEN_FOLDER) ? { uid: 65_534 } : {};

function isOpen(folder: string): boolean {
  if (!existsSync(folder) || (statSync(folder).mode & 0o001) === 0) return false;
  return folder === '/' || isOpen(dirname(folder));
}

export interface NoriaProcess {
  readonly child: ChildProcess;
  /** Resolves with exit code and signal when the process has ended. */
  readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>;
  /** Everything on standard output so far. */
  out(): string;
  /** Everything on standard error so far. */
  err(): string;
  /** The log lines with this message so far. */
  lines(message: string): readonly Readonly<Record<string, unknown>>[];
  /** Waits until the log has `count` lines with this message, and returns the last one. */
  line(message: string, count?: number): Promise<Readonly<Record<string, unknown>>>;
}

/** The program that the journeys run: a build of this checkout, or the single executable that `NORIA_TEST_PROGRAM` names. */
export const NORIA: readonly [string, ...string[]] =
  process.env['NORIA_TEST_PROGRAM'] === undefined
    ? [process.execPath, process.env[BUILD] ?? join(process.cwd(), 'src/main.ts')]
    : [process.env['NORIA_TEST_PROGRAM']];

/** A folder that is removed after the test. @param parent - `OPEN_FOLDER` for an unprivileged process. */
export function testFolder(parent = tmpdir()): string {
  const folder = mkdtempSync(join(parent, 'noria-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file that only its owner can read, and returns its path. */
export function writeIn(folder: string, name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

/** Runs a program to its end. */
export function runProgram(program: string, args: readonly string[], cwd: string, timeout = LIMIT_MS) {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8', timeout });
  return { status, out: stdout, err: stderr };
}

const LIMIT_MS = 280_000;

/** Runs `command`, by default `NORIA`. It is killed at the end of the test. */
export function runNoria(
  args: readonly string[],
  options: {
    readonly env?: Readonly<Record<string, string>>;
    readonly command?: readonly [string, ...string[]];
    readonly cwd?: string;
    /** The user and the group of the process; default: those of the test. */
    readonly uid?: number;
  } = {},
): NoriaProcess {
  const [program, ...before] = options.command ?? NORIA;
  const child = spawn(program, [...before, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...childEnvironment(), ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let printed = '';
  let text = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    printed += chunk;
  });
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  const ended = once(child, 'close').then(([code, signal]) => [code, signal] as const);
  const lines = (message: string) => linesOf(text).filter(({ msg }) => msg === message);
  return {
    child,
    ended,
    out: () => printed,
    err: () => text,
    lines,
    async line(message, count = 1) {
      const wanted = () => `the log contains "${message}"; it is:\n${text}`;
      await until(wanted, () => lines(message).length >= count || child.exitCode !== null);
      const line = lines(message).at(-1);
      if (line === undefined) throw new Error(`noria ended with ${child.exitCode} before ${wanted()}`);
      return line;
    },
  };
}

function linesOf(text: string): Record<string, unknown>[] {
  return text
    .split('\n')
    .slice(0, -1) // leaves out the last line, which may be incomplete
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));
}
