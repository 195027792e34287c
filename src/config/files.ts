/** The files that a configuration refers to: certificates and secrets, and who else can read the secrets. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { describeError } from '../core/faults.ts';
import { secretsIn } from '../core/secret.ts';
import type { Problems } from './problems.ts';
import type { Scalar } from './scalars.ts';

/** The file system as loading needs it; tests supply their own. Both functions throw the error of the system. */
export interface ConfigFiles {
  read(path: string): Buffer;
  /** Whether every user of this machine may read it. */
  isWorldReadable(path: string): boolean;
}

const READABLE_BY_OTHERS = 0o004;

export const systemFiles: ConfigFiles = {
  read: (path) => readFileSync(path),
  isWorldReadable: (path) => (statSync(path).mode & READABLE_BY_OTHERS) !== 0,
};

/** Where to look for a configuration when no file is named. */
export const DEFAULT_FILES = ['./noria.yaml', '/etc/noria/noria.yaml'] as const;

/** The first default file that exists. */
export function findDefaultFile(): string | undefined {
  return DEFAULT_FILES.find((candidate) => existsSync(candidate));
}

/** The value of a key `NAME` and of its twin `NAMEFile`. */
interface SecretKeys<T> {
  readonly plain: T | undefined;
  readonly file: string | undefined;
}

/** Reads the files next to one configuration, and reports what is wrong with them and how secrets are stored. */
export class FileReader {
  readonly #configFile: string;
  readonly #files: ConfigFiles;
  readonly #problems: Problems;
  #firstLiteral: string | undefined;

  constructor(configFile: string, files: ConfigFiles, problems: Problems) {
    this.#configFile = configFile;
    this.#files = files;
    this.#problems = problems;
  }

  /** The path of the first key whose secret is written in the configuration itself. */
  get firstLiteral(): string | undefined {
    return this.#firstLiteral;
  }

  /** Relative paths start at the folder of the configuration file. */
  absolute(path: string): string {
    return resolve(dirname(this.#configFile), path);
  }

  /**
   * The secret of the key at `path`, or the value that contains one, in place or from its file.
   *
   * @returns undefined when neither is given, or, with a problem reported, when it cannot be read.
   */
  readSecret<T>(path: string, { plain, file }: SecretKeys<T>, type: Scalar<T>): T | undefined {
    const filePath = `${path}File`;
    if (secretsIn(plain).length > 0 && this.#problems.isLiteral(path)) this.#firstLiteral ??= path;
    if (file === undefined) return plain;
    if (this.#problems.isGiven(path)) {
      const name = path.slice(path.lastIndexOf('.') + 1);
      this.#problems.error(filePath, `cannot be combined with ${name}; keep one of them`, 'key');
      return undefined;
    }
    const text = this.readText(filePath, file, { isSecret: true });
    if (text === undefined) return undefined;
    const { read, expected } = type.scalarType;
    const reading = read(text.replace(/\r?\n$/, ''));
    if ('value' in reading) return reading.value;
    const content = `the content of ${this.absolute(file)}`;
    this.#problems.error(filePath, `${content} ${reading.wrong}; expected ${expected}`);
    return undefined;
  }

  /** @returns undefined, with a problem reported, when it cannot be read. */
  readText(path: string, file: string, { isSecret }: { readonly isSecret: boolean }): string | undefined {
    const absolute = this.absolute(file);
    try {
      const text = this.#files.read(absolute).toString('utf8');
      if (isSecret && this.#files.isWorldReadable(absolute))
        this.#problems.warn(path, readableByAll(absolute));
      return text;
    } catch (error) {
      this.#problems.error(path, `cannot read the file: ${describeError(error)}`);
      return undefined;
    }
  }
}

export function readableByAll(file: string): string {
  return `every user of this machine can read ${file}; run chmod 600 on it`;
}
