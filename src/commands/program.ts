/** The command line: its commands, their common options, and the exit codes. */
import { Command, CommanderError, Option } from 'commander';
import { LOG_LEVELS } from '../core/log-options.ts';
import { readVersion } from '../core/version.ts';
import type { AddCommand } from './command.ts';
import { EXIT, exitCodeOf, printFailure, type Terminal } from './terminal.ts';

export async function runProgram(argv: readonly string[], terminal: Terminal): Promise<number> {
  let exitCode: number = EXIT.fine;
  const args = commandFirst(argv);
  try {
    const program = await buildProgram(args, terminal, (code) => {
      exitCode = code;
    });
    await program.parseAsync(args, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.fine : EXIT.usage;
    printFailure(terminal, error);
    return exitCodeOf(error);
  }
}

/** `noria -c FILE run` means `noria run -c FILE`. */
function commandFirst(argv: readonly string[]): readonly string[] {
  const [first = '', second = ''] = argv;
  const options = first === '-c' || first === '--config' ? [first, second] : [first];
  const command = argv[options.length];
  const isMoved = /^(?:-c|--config(?:=.*)?|-c.+)$/s.test(first) && command !== undefined;
  return isMoved && COMMANDS.has(command) ? [command, ...options, ...argv.slice(options.length + 1)] : argv;
}

/** In the order of the help. Imported only when it runs: `noria status` does not load the daemon. */
const COMMANDS: ReadonlyMap<string, () => Promise<AddCommand>> = new Map([
  ['run', async () => (await import('./run.ts')).runCommand],
  ['demo', async () => (await import('./demo.ts')).demoCommand],
  ['check', async () => (await import('./config.ts')).checkCommand],
  ['status', async () => (await import('./status.ts')).statusCommand],
  ['fleet', async () => (await import('./fleet.ts')).fleetCommand],
  ['members', async () => (await import('./steer.ts')).membersCommand],
  ['sessions', async () => (await import('./steer.ts')).sessionsCommand],
  ['why', async () => (await import('./steer.ts')).whyCommand],
  ['sites', async () => (await import('./steer.ts')).sitesCommand],
  ['usage', async () => (await import('./steer.ts')).usageCommand],
  ['pause', async () => (await import('./steer.ts')).sourceCommand('pause')],
  ['resume', async () => (await import('./steer.ts')).sourceCommand('resume')],
  ['refill', async () => (await import('./steer.ts')).sourceCommand('refill')],
  ['reload', async () => (await import('./steer.ts')).reloadCommand],
  ['simulate', async () => (await import('./simulate.ts')).simulateCommand],
  ['link', async () => (await import('./link.ts')).linkCommand],
  ['extract', async () => (await import('./service.ts')).extractCommand],
  ['areas', async () => (await import('./service.ts')).areasCommand],
  ['instances', async () => (await import('./service.ts')).instancesCommand],
  ['sandbox', async () => (await import('./demo.ts')).sandboxCommand],
  ['key', async () => (await import('./service.ts')).keyCommand],
  ['completion', async () => (await import('./completion.ts')).completionCommand],
]);

/** Has only the command that `argv` names; all commands for none and for `completion`; none for `--version`. */
export async function buildProgram(
  argv: readonly string[],
  terminal: Terminal,
  onExitCode: (code: number) => void,
): Promise<Command> {
  const program = new Command('noria');
  const logLevel = () => LOG_LEVELS.find((level) => level === program.opts()['logLevel']);
  describeProgram(program, terminal);
  for (const load of loadersFor(argv)) (await load())({ program, terminal, logLevel, onExitCode });
  for (const command of program.commands) command.copyInheritedSettings(program);
  return program;
}

const HELP_WIDTH = 80;

function describeProgram(program: Command, terminal: Terminal): void {
  const helpWidth = () => Math.min(terminal.columns, terminal.interactive ? Infinity : HELP_WIDTH);
  program
    .description(
      'A local rotating forward proxy over short-lived proxy IPs: one port, a healthy member behind every connection.',
    )
    .version(readVersion(), '--version', 'print the version')
    .addOption(
      new Option('--log-level <level>', 'the log level; the log goes to standard error').choices([
        ...LOG_LEVELS,
      ]),
    )
    .helpOption('--help', 'print help')
    .addHelpText('after', HELP_TAIL)
    .showHelpAfterError('Run noria help COMMAND for usage.')
    .showSuggestionAfterError()
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => terminal.print(text.trimEnd()),
      writeErr: (text) => terminal.printError(text.trimEnd()),
      getOutHelpWidth: helpWidth,
      getErrHelpWidth: helpWidth,
      getOutHasColors: () => terminal.colour,
      getErrHasColors: () => terminal.colour,
      outputError: (text, write) => write(text.replace(/^error: /, 'noria: ')),
    });
}

function loadersFor([first = '']: readonly string[]): Iterable<() => Promise<AddCommand>> {
  if (first === '--version') return [];
  const named = first === 'completion' ? undefined : COMMANDS.get(first);
  return named === undefined ? COMMANDS.values() : [named];
}

const HELP_TAIL = `
Examples:
  noria demo                     try noria without an account
  noria check -c noria.yaml      validate a configuration
  noria run -c noria.yaml        run the daemon
  noria status --watch           watch a running daemon

Exit codes: 0 success, 1 the operation failed, 2 bad usage or configuration,
3 noria, the service or the store is unreachable.`;
