/** The option -c, which names a configuration file, and the search for a default file. */
import type { Config, FleetConfig } from '../config/config.ts';
import { schemaJson } from '../config/fields.ts';
import { DEFAULT_FILES, findDefaultFile } from '../config/files.ts';
import { loadConfig } from '../config/load.ts';
import { printConfig } from '../config/print.ts';
import { holdingClock, systemBoot } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { createTimekeeper } from '../state/moment.ts';
import { inspectFolder } from '../state/state-files.ts';
import { command, type Flag } from './command.ts';
import { EXIT, type Terminal } from './terminal.ts';

export const CONFIG_FLAG: Flag = [
  '-c, --config <file>',
  `the configuration file (default: ${DEFAULT_FILES.join(', then ')})`,
];

export function findConfigFile(given: string | undefined): string {
  const file = given ?? findDefaultFile();
  if (file !== undefined) return file;
  throw new NoriaError(
    'bad-config',
    `noria: no configuration file: neither ${DEFAULT_FILES.join(' nor ')} exists; name one with -c FILE, or try noria demo, which needs none`,
  );
}

export function readConfig(given: string | undefined, { env }: Terminal): Config {
  return loadConfig(findConfigFile(given), { env });
}

export const checkCommand = command({
  name: 'check',
  about: 'validate a configuration and print it with all defaults, secrets masked',
  flags: [
    CONFIG_FLAG,
    ['--schema', 'print the JSON Schema of the configuration instead, for use in editors'],
  ],
  examples: ['check', 'check -c /etc/noria/noria.yaml', 'check --schema > noria.schema.json'],
  help: 'If the file is invalid, the command prints every error with file:line:column. The command also checks the files in state.dir. With a fleet, it also connects to the store of the fleet.\n\nExit codes: 0 fine, 1 the store refuses noria or cannot serve a fleet, 2 invalid configuration or files, 3 store unreachable.',
  run: async ({ terminal }, flags: { readonly config?: string; readonly schema?: boolean }) => {
    if (flags.schema === true) {
      terminal.print(JSON.stringify(schemaJson(), undefined, 2));
      return EXIT.fine;
    }
    const config = readConfig(flags.config, terminal);
    terminal.print(printConfig(config).trimEnd());
    for (const { line, column, path, message } of config.warnings) {
      terminal.printError(`${config.file}:${line}:${column}: warning: ${path}: ${message}`);
    }
    const codes = [
      config.state === undefined ? EXIT.fine : await checkStateFolder(config.state.dir, terminal),
      config.fleet === undefined ? EXIT.fine : await checkStore(config, config.fleet, terminal),
    ];
    return codes.find((code) => code !== EXIT.fine) ?? EXIT.fine;
  },
});

async function checkStore(config: Config, fleet: FleetConfig, terminal: Terminal): Promise<number> {
  const { inspectStore } = await import('../fleet/redis/inspect-store.ts');
  const { storeAddressOf } = await import('../daemon/fleet.ts');
  const { configuredAddresses, fleetInstances, refusesOf } = await import('../daemon/part-options.ts');
  const address = storeAddressOf(fleet);
  const { version, isReachable, errors, warnings } = await inspectStore(address, fleet.name, holdingClock, {
    replica: fleet.replica,
    instances: fleetInstances(config),
    refuses: refusesOf(config, configuredAddresses(config)),
    timekeeper: createTimekeeper(holdingClock, systemBoot()),
  });
  for (const error of errors) terminal.printError(`error: fleet: ${error}`);
  for (const warning of warnings) terminal.printError(`warning: fleet: ${warning}`);
  if (errors.length > 0) return isReachable ? EXIT.failed : EXIT.unreachable;
  // A YAML comment, so that the whole output is a valid configuration.
  terminal.print(`# fleet: ${version} at ${address.label} is ready for noria`);
  return EXIT.fine;
}

/** A failure is only a warning: noria may run as another user, whose folder this one cannot read. */
async function checkStateFolder(folder: string, terminal: Terminal): Promise<number> {
  try {
    const problems = await inspectFolder(folder);
    for (const problem of problems) terminal.printError(`error: state.dir: ${problem}`);
    return problems.length === 0 ? EXIT.fine : EXIT.usage;
  } catch (error) {
    terminal.printError(`warning: state.dir was not checked: ${describeError(error)}`);
    return EXIT.fine;
  }
}
