/** A fake file system for configurations, and a small configuration to vary. */
import type { Config } from '../../src/config/config.ts';
import type { ConfigFiles } from '../../src/config/files.ts';
import { parseConfig } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/problems.ts';

export const FILE = '/etc/noria/noria.yaml';

/** A file system that has these texts at absolute paths. Every user can read some of them. */
export function filesOf(
  texts: Readonly<Record<string, string>>,
  worldReadable: readonly string[] = [],
): ConfigFiles {
  const missing = (path: string) =>
    Object.assign(new Error(`ENOENT: no such file or directory, open '${path}'`), { code: 'ENOENT' });
  return {
    read(path) {
      const text = texts[path];
      if (text === undefined) throw missing(path);
      return Buffer.from(text, 'utf8');
    },
    isWorldReadable: (path) => worldReadable.includes(path),
  };
}

/** A configuration with one source. `source` is added to the source and `rest` to the file, as YAML. */
export function configOf(source = '', rest = '', files = filesOf({})): Config {
  const text = `service: { baseUrl: https://extract.example.com }
sources:
  - name: city
    product: short-classic
    instance: "202611210001"
    password: correct horse
${indent(source)}
${rest}`;
  return parseConfig(text, FILE, { env: {}, files });
}

/** `path: message` for each error of a configuration. */
export function problemsOf(build: () => unknown): string[] {
  try {
    build();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map(({ path, message }) => `${path}: ${message}`);
    throw error;
  }
  return [];
}

function indent(text: string): string {
  return text.replace(/^/gm, '    ');
}
