/** Reads the files that a configuration names, and reports secrets that other users can read. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { describeError, errnoOf } from '../core/faults.ts';
import type { Problems } from './problems.ts';
import type { ScalarType } from './scalars.ts';

export interface ConfigFiles {
  read(path: string): Buffer;
  isWorldReadable(path: string): boolean;
}

const READABLE_BY_OTHERS = 0o004;

export const systemFiles: ConfigFiles = {
  read: (path) => readFileSync(path),
  isWorldReadable: (path) => (statSync(path).mode & READABLE_BY_OTHERS) !== 0,
};

export function whyUnreadable(error: unknown, file = 'the file'): string {
  return errnoOf(error) === 'ENOENT'
    ? `${file} does not exist; check the path`
    : `cannot read the file: ${describeError(error)}; check the path and the permissions of the file`;
}

/** Windows editors also write UTF-16 and GBK. */
export function decodeText(bytes: Buffer): { readonly value: string } | { readonly wrong: string } {
  const isUtf16 = /^(?:\xff\xfe|\xfe\xff|\0[^\0]|[^\0]\0)/s.test(bytes.toString('latin1', 0, 2));
  if (isUtf16) return { wrong: 'the file is UTF-16 text; save it as UTF-8' };
  try {
    return { value: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
  } catch {
    return { wrong: 'the file is not UTF-8 text; save it as UTF-8' }; // handled: the caller reports what is wrong
  }
}

/** noria tries these files in this order if the command line names no file. */
export const DEFAULT_FILES = ['./noria.yaml', '/etc/noria/noria.yaml'] as const;

export function findDefaultFile(): string | undefined {
  return DEFAULT_FILES.find((candidate) => existsSync(candidate));
}

export class FileReader {
  readonly #configFile: string;
  readonly #files: ConfigFiles;
  readonly problems: Problems;
  /** The first key whose secret is in the configuration file itself. */
  firstLiteral: string | undefined;

  constructor(configFile: string, files: ConfigFiles, problems: Problems) {
    this.#configFile = configFile;
    this.#files = files;
    this.problems = problems;
  }

  absolute(path: string): string {
    return resolve(dirname(this.#configFile), path);
  }

  noteSecret(path: string): void {
    if (this.problems.isLiteral(path)) this.firstLiteral ??= path;
  }

  /** @returns undefined if noria cannot read the secret; `problems` then says why. */
  readSecret(path: string, file: string, type: ScalarType<unknown>): string | undefined {
    const filePath = `${path}File`;
    if (this.problems.isGiven(path)) {
      const name = path.slice(path.lastIndexOf('.') + 1);
      this.problems.error(filePath, `cannot be combined with ${name}; keep one of them`, 'key');
      return undefined;
    }
    const text = this.readText(filePath, file, { isSecret: true })?.replace(/\r?\n$/, '');
    if (text === undefined) return undefined;
    const reading = type.read(text);
    if ('value' in reading) return text;
    const content = `the content of ${this.absolute(file)}`;
    this.problems.error(filePath, `${content} ${reading.wrong}; expected ${type.expected}`);
    return undefined;
  }

  readText(path: string, file: string, { isSecret }: { readonly isSecret: boolean }): string | undefined {
    const absolute = this.absolute(file);
    try {
      const text = this.#files.read(absolute).toString('utf8');
      if (isSecret && this.#files.isWorldReadable(absolute))
        this.problems.warn(path, readableByAll(absolute));
      return text;
    } catch (error) {
      this.problems.error(path, whyUnreadable(error, absolute));
      return undefined;
    }
  }
}

export function readableByAll(file: string): string {
  return `every user of this machine can read ${file}; run chmod 600 on it`;
}
