/** Loads a configuration: reads the file and its secrets, checks them, and freezes the result. */
import { checkTree } from './check.ts';
import type { Config } from './config.ts';
import { type Environment, readDocument } from './document.ts';
import {
  type ConfigFiles,
  decodeText,
  FileReader,
  readableByAll,
  systemFiles,
  whyUnreadable,
} from './files.ts';
import { ConfigError, Problems } from './problems.ts';
import { resolveConfig } from './resolve.ts';
import { checkWarnings } from './warnings.ts';

interface LoadOptions {
  readonly env?: Environment;
  readonly files?: ConfigFiles;
}

const MAX_BYTES = 1024 * 1024;

/** @throws ConfigError if noria cannot read the file, or if the file has errors. The error then lists all of them. */
export function loadConfig(path: string, options: LoadOptions = {}): Config {
  const { files = systemFiles } = options;
  let bytes: Buffer;
  let isWorldReadable: boolean;
  try {
    bytes = files.read(path);
    isWorldReadable = files.isWorldReadable(path);
  } catch (error) {
    throw unreadable(path, whyUnreadable(error));
  }
  return build(decode(bytes, path), { file: path, isWorldReadable }, options);
}

/**
 * Loads a configuration from text.
 *
 * @param file - the file name for messages. Relative paths in the text start at its folder.
 * @throws ConfigError with all errors.
 */
export function parseConfig(text: string, file: string, options: LoadOptions = {}): Config {
  return build(text, { file, isWorldReadable: false }, options);
}

function build(
  text: string,
  { file, isWorldReadable }: { readonly file: string; readonly isWorldReadable: boolean },
  options: LoadOptions,
): Config {
  const { env = process.env, files: system = systemFiles } = options;
  const document = readDocument(text, env);
  const problems = new Problems(document);
  if (document.tree === undefined) throw new ConfigError(file, problems.errors);
  const files = new FileReader(file, system, problems);
  const config = resolveConfig(checkTree(document.tree, files, problems), file, { files, problems });
  if (problems.errors.length > 0) throw new ConfigError(file, problems.errors);
  checkWarnings(config, problems);
  if (isWorldReadable && files.firstLiteral !== undefined) {
    problems.warn(files.firstLiteral, `contains a secret, and ${readableByAll(file)}`);
  }
  return freeze({ ...config, warnings: problems.warnings });
}

function decode(bytes: Buffer, path: string): string {
  if (bytes.length > MAX_BYTES) throw unreadable(path, `the file is larger than ${MAX_BYTES / 1024} KiB`);
  const reading = decodeText(bytes);
  if ('value' in reading) return reading.value;
  throw unreadable(path, reading.wrong);
}

function unreadable(path: string, message: string): ConfigError {
  return new ConfigError(path, [{ path: '', line: 0, column: 0, message, excerpt: undefined }]);
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) freeze(inner);
  }
  return value;
}
