/** Where a command finds its configuration, and how it is told of what is wrong with it. */
import { existsSync } from 'node:fs';
import { Option } from 'commander';
import type { Config } from '../config/config.ts';
import { DEFAULT_FILES, loadConfig } from '../config/load.ts';
import { NoriaError } from '../core/faults.ts';
import type { Terminal } from './terminal.ts';

/** `-c FILE`, as every command that reads a configuration takes it. */
export function configOption(): Option {
  return new Option('-c, --config <file>', `the configuration (default: ${DEFAULT_FILES.join(', then ')})`);
}

/** The file that was named, or the first of the default ones that exists. @throws NoriaError bad-config */
export function findConfigFile(named: string | undefined): string {
  const file = named ?? DEFAULT_FILES.find((candidate) => existsSync(candidate));
  if (file !== undefined) return file;
  throw new NoriaError(
    'bad-config',
    `noria: no configuration: neither ${DEFAULT_FILES.join(' nor ')} exists; name one with -c FILE, or try noria demo, which needs none`,
  );
}

/** Reads the configuration and tells its warnings. @throws NoriaError bad-config with every problem at once */
export async function readConfig(named: string | undefined, terminal: Terminal): Promise<Config> {
  return loadConfig(findConfigFile(named), { env: terminal.env });
}
