/** `noria check`: validates a configuration and prints it with all defaults. */
import type { Command } from 'commander';
import type { FleetConfig } from '../config/config.ts';
import { schemaJson } from '../config/fields.ts';
import { printConfig } from '../config/print.ts';
import { holdingClock } from '../core/clock.ts';
import { describeError } from '../core/faults.ts';
import { inspectFolder } from '../state/state-files.ts';
import type { CommandContext } from './command.ts';
import { configOption, readConfig } from './config-file.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface CheckFlags {
  readonly config?: string;
  readonly schema?: boolean;
}

export function addCheckCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('check')
    .description('validate a configuration and print it with all defaults, secrets masked')
    .addOption(configOption())
    .option('--schema', 'print the JSON Schema of the configuration instead, for use in editors')
    .addHelpText(
      'after',
      '\nExamples:\n  noria check\n  noria check -c /etc/noria/noria.yaml\n  noria check --schema > noria.schema.json\n\nIf the file is invalid, the command prints every error with file:line:column. The command also checks the files in state.dir. With a fleet, it also connects to the store of the fleet.\n\nExit codes: 0 fine, 1 the store refuses noria or cannot serve a fleet, 2 invalid configuration or files, 3 store unreachable.',
    )
    .action(action((flags: CheckFlags) => check(flags, terminal)));
}

async function check(flags: CheckFlags, terminal: Terminal): Promise<number> {
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
    config.fleet === undefined ? EXIT.fine : await checkStore(config.fleet, terminal),
  ];
  return codes.find((code) => code !== EXIT.fine) ?? EXIT.fine;
}

async function checkStore(fleet: FleetConfig, terminal: Terminal): Promise<number> {
  const { inspectStore } = await import('../fleet/redis/inspect-store.ts');
  const { storeAddressOf } = await import('../daemon/fleet.ts');
  const address = storeAddressOf(fleet);
  const { version, isReachable, errors, warnings } = await inspectStore(address, fleet.name, holdingClock);
  for (const error of errors) terminal.printError(`error: fleet: ${error}`);
  for (const warning of warnings) terminal.printError(`warning: fleet: ${warning}`);
  if (errors.length > 0) return isReachable ? EXIT.failed : EXIT.unreachable;
  // A YAML comment, so that the whole output is a valid configuration.
  terminal.print(`# fleet: ${version} at ${address.label} is ready for noria`);
  return EXIT.fine;
}

/**
 * A failure is only a warning: the user of this command may lack access to the folder, because noria may run as another
 * user.
 */
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
