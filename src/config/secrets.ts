/** Secrets of the configuration: given in place or in a file of their own. */
import { describeError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import { besideConfig, type ConfigFiles } from './files.ts';
import type { Kind } from './kinds.ts';
import type { Problems } from './problems.ts';

/** What one may say about one secret. */
export interface SecretKeys {
  /** Of the map that holds both keys. */
  readonly path: string;
  /** The key that holds it; with `File` behind it, the one that names its file. */
  readonly name: string;
  readonly plain: Secret | undefined;
  readonly file: string | undefined;
}

/** Reads secrets, and tells what is wrong or unwise about how they are kept. */
export class SecretReader {
  readonly #configFile: string;
  readonly #files: ConfigFiles;
  readonly #problems: Problems;
  #firstLiteral: string | undefined;

  constructor(configFile: string, files: ConfigFiles, problems: Problems) {
    this.#configFile = configFile;
    this.#files = files;
    this.#problems = problems;
  }

  /** The first key whose secret stands in the configuration itself. */
  get firstLiteral(): string | undefined {
    return this.#firstLiteral;
  }

  /** The secret, or undefined when none is given or it cannot be read, which is a problem then. */
  read({ path, name, plain, file }: SecretKeys, kind: Kind<Secret>): Secret | undefined {
    const plainPath = `${path}.${name}`;
    const filePath = `${plainPath}File`;
    if (plain !== undefined && this.#problems.isLiteral(plainPath)) this.#firstLiteral ??= plainPath;
    if (file === undefined) return plain;
    if (this.#problems.isGiven(plainPath)) {
      this.#problems.error(filePath, `stands beside ${name}; give one of them`, 'key');
      return undefined;
    }
    return this.#readFile(filePath, besideConfig(this.#configFile, file), kind);
  }

  #readFile(path: string, file: string, kind: Kind<Secret>): Secret | undefined {
    const text = this.readText(path, file);
    if (text === undefined) return undefined;
    const reading = kind.read(text.replace(/\r?\n$/, ''));
    if ('value' in reading) return reading.value;
    this.#problems.error(path, `the text of ${file} ${reading.wrong}; wants ${kind.wants}`);
    return undefined;
  }

  /** The text of a secret file; a problem at `path` where it cannot be read, a warning where everyone can. */
  readText(path: string, file: string): string | undefined {
    try {
      const text = this.#files.read(file).toString('utf8');
      if (this.#files.isWorldReadable(file)) {
        this.#problems.warn(path, `everyone on this machine can read ${file}; chmod 600 it`);
      }
      return text;
    } catch (error) {
      this.#problems.error(path, `the file cannot be read: ${describeError(error)}`);
      return undefined;
    }
  }
}
