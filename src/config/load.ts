/** Loads a configuration: reads the file and its secrets, checks them, and freezes the result. */
import { checkTree } from './check.ts';
import type { Config } from './config.ts';
import { type Environment, ParsedDocument } from './document.ts';
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

const MAX_BYTES = 1024 * 1024;

/** @throws ConfigError if noria cannot read the file, or if the file has errors. The error then lists all of them. */
export function loadConfig(path: string, options: Parameters<typeof parseConfig>[2] = {}): Config {
  const { files = systemFiles } = options;
  const unreadable = (message: string) =>
    new ConfigError(path, [{ path: '', line: 0, column: 0, message, excerpt: undefined }]);
  let bytes: Buffer;
  let isWorldReadable: boolean;
  try {
    bytes = files.read(path);
    isWorldReadable = files.isWorldReadable(path);
  } catch (error) {
    throw unreadable(whyUnreadable(error));
  }
  if (bytes.length > MAX_BYTES) throw unreadable(`the file is larger than ${MAX_BYTES / 1024} KiB`);
  const reading = decodeText(bytes);
  if ('wrong' in reading) throw unreadable(reading.wrong);
  return parseConfig(reading.value, path, { ...options, isWorldReadable });
}

/** @param file - the name for messages. Relative paths start at its folder. @throws ConfigError with all errors. */
export function parseConfig(
  text: string,
  file: string,
  {
    env = process.env,
    files: system = systemFiles,
    isWorldReadable = false,
  }: {
    readonly env?: Environment;
    readonly files?: ConfigFiles;
    readonly isWorldReadable?: boolean;
  } = {},
): Config {
  const document = new ParsedDocument(text, env);
  const problems = new Problems(document);
  if (document.tree === undefined) throw new ConfigError(file, problems.errors);
  const files = new FileReader(file, system, problems);
  const config = resolveConfig(checkTree(document.tree, files), file, files);
  if (problems.errors.length > 0) throw new ConfigError(file, problems.errors);
  checkWarnings(config, problems);
  if (isWorldReadable && files.firstLiteral !== undefined) {
    problems.warn(files.firstLiteral, `contains a secret, and ${readableByAll(file)}`);
  }
  return freeze({ ...config, warnings: problems.warnings });
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) freeze(inner);
  }
  return value;
}
