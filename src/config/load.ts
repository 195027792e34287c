/**
 * A configuration from its file: read, checked against the table, completed, frozen. Either a whole `Config` comes out, or an
 * error with everything that is wrong.
 */
import { describeError } from '../core/faults.ts';
import { checkTree } from './check.ts';
import type { Config, Problem } from './config.ts';
import { readDocument } from './document.ts';
import type { Environment } from './environment.ts';
import { type ConfigFiles, systemFiles } from './files.ts';
import { ConfigError, Problems } from './problems.ts';
import { resolveConfig } from './resolve.ts';
import { logWarnings } from './warnings.ts';

/** What loading takes from outside. */
export interface LoadOptions {
  /** For `${NAME}`; default: the environment of the process. */
  readonly env?: Environment;
  /** Default: the file system. */
  readonly files?: ConfigFiles;
}

/** Where a configuration is looked for when no file is named; the first that is there. */
export const DEFAULT_FILES = ['./noria.yaml', '/etc/noria/noria.yaml'] as const;

const MAX_BYTES = 1024 * 1024;

/**
 * Reads the configuration from a file.
 *
 * @throws ConfigError (code `bad-config`) with every problem, also when the file cannot be read.
 */
export function loadConfig(path: string, options: LoadOptions = {}): Config {
  const { files = systemFiles } = options;
  let bytes: Buffer;
  let isWorldReadable: boolean;
  try {
    bytes = files.read(path);
    isWorldReadable = files.isWorldReadable(path);
  } catch (error) {
    throw unreadable(path, `the file cannot be read: ${describeError(error)}`);
  }
  return build(decode(bytes, path), path, options, isWorldReadable);
}

/**
 * The same for a text that is at hand already.
 *
 * @param file - what stands before every problem; relative paths in the text begin at its folder.
 * @throws ConfigError (code `bad-config`) with every problem.
 */
export function parseConfig(text: string, file: string, options: LoadOptions = {}): Config {
  return build(text, file, options, false);
}

function build(text: string, file: string, options: LoadOptions, isWorldReadable: boolean): Config {
  const { env = process.env, files = systemFiles } = options;
  const document = readDocument(text, env);
  const problems = new Problems(document);
  if (document.tree === undefined) throw new ConfigError(file, problems.errors);
  const { config, firstLiteral } = resolveConfig(checkTree(document.tree, problems), {
    file,
    files,
    problems,
  });
  if (problems.errors.length > 0) throw new ConfigError(file, problems.errors);
  logWarnings(config, problems);
  if (isWorldReadable && firstLiteral !== undefined) {
    problems.warn(
      firstLiteral,
      `everyone on this machine can read ${file}, and it holds secrets; chmod 600 it, or keep them elsewhere`,
    );
  }
  return freeze({ ...config, warnings: problems.warnings });
}

function decode(bytes: Buffer, path: string): string {
  if (bytes.length > MAX_BYTES) throw unreadable(path, `the file is larger than ${MAX_BYTES / 1024} KiB`);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw unreadable(path, 'the file is not text in UTF-8'); // handled: that is all there is to say about it
  }
}

function unreadable(path: string, message: string): ConfigError {
  const problem: Problem = { path: '', line: 0, column: 0, message, excerpt: undefined };
  return new ConfigError(path, [problem]);
}

/** Freezes a configuration through and through. */
function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) freeze(inner);
  }
  return value;
}
