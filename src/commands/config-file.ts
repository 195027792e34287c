/** The option -c, which names a configuration file, and the search for a default file. */
import { Option } from 'commander';
import type { Config } from '../config/config.ts';
import { DEFAULT_FILES, findDefaultFile } from '../config/files.ts';
import { loadConfig } from '../config/load.ts';
import { NoriaError } from '../core/faults.ts';
import type { Terminal } from './terminal.ts';

export function configOption(): Option {
  return new Option(
    '-c, --config <file>',
    `the configuration file (default: ${DEFAULT_FILES.join(', then ')})`,
  );
}

/**
 * Returns the file of -c, or else the first default file that exists.
 * @throws NoriaError bad-config if there is no file.
 */
export function findConfigFile(given: string | undefined): string {
  const file = given ?? findDefaultFile();
  if (file !== undefined) return file;
  throw new NoriaError(
    'bad-config',
    `noria: no configuration file: neither ${DEFAULT_FILES.join(' nor ')} exists; name one with -c FILE, or try noria demo, which needs none`,
  );
}

/** @throws NoriaError bad-config with all problems of the file. */
export function readConfig(given: string | undefined, { env }: Terminal): Config {
  return loadConfig(findConfigFile(given), { env });
}
