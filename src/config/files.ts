/** The files a configuration refers to: how they are read, and who else can read them. */
import { readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** What loading needs of the file system; a test hands in its own. */
export interface ConfigFiles {
  /** The bytes of a file. Throws the system's error. */
  read(path: string): Buffer;
  /** Whether everyone on this machine may read it. Throws the system's error. */
  isWorldReadable(path: string): boolean;
}

const READABLE_BY_OTHERS = 0o004;

/** The file system of this machine. */
export const systemFiles: ConfigFiles = {
  read: (path) => readFileSync(path),
  isWorldReadable: (path) => (statSync(path).mode & READABLE_BY_OTHERS) !== 0,
};

/** A path of the configuration, made absolute: relative ones begin at the folder of the file, wherever noria is started. */
export function besideConfig(file: string, path: string): string {
  return resolve(dirname(file), path);
}
