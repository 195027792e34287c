/** The command line: which commands there are, what all of them share, and how they end. */
import { Command, CommanderError, Option } from 'commander';
import { LOG_LEVELS } from '../core/log.ts';
import { readVersion } from '../core/version.ts';
import type { CommandContext } from './context.ts';
import { EXIT, exitCodeOf, type Terminal, tellFailure } from './terminal.ts';

/** Runs one command line (without `node` and the file) to its end. Returns the exit code; never throws. */
export async function runProgram(argv: readonly string[], terminal: Terminal): Promise<number> {
  let exitCode: number = EXIT.fine;
  try {
    const program = await buildProgram(argv, terminal, (code) => {
      exitCode = code;
    });
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.fine : EXIT.usage; // it has said so
    tellFailure(terminal, error);
    return exitCodeOf(error);
  }
}

type AddCommand = (program: Command, context: CommandContext) => void;

/** In the order of the help. Loaded when wanted: a health check of a container shall not load a daemon. */
const COMMANDS: ReadonlyMap<string, () => Promise<AddCommand>> = new Map([
  ['run', async () => (await import('./run.ts')).addRunCommand],
  ['demo', async () => (await import('./demo.ts')).addDemoCommand],
  ['check', async () => (await import('./check.ts')).addCheckCommand],
  ['status', async () => (await import('./status.ts')).addStatusCommand],
  ['simulate', async () => (await import('./simulate.ts')).addSimulateCommand],
  ['extract', async () => (await import('./extract.ts')).addExtractCommand],
  ['areas', async () => (await import('./areas.ts')).addAreasCommand],
  ['instances', async () => (await import('./instances.ts')).addInstancesCommand],
  ['sandbox', async () => (await import('./sandbox.ts')).addSandboxCommand],
  ['key', async () => (await import('./key.ts')).addKeyCommand],
  ['completion', async () => (await import('./completion.ts')).addCompletionCommand],
]);

/**
 * The tree of commands: the one that `argv` begins with, or all of them where it begins with something else or asks for
 * the completion script, which reads the whole tree.
 *
 * @param exitWith - told the exit code of the command that ran.
 */
export async function buildProgram(
  argv: readonly string[],
  terminal: Terminal,
  exitWith: (code: number) => void,
): Promise<Command> {
  const program = new Command('noria');
  const context: CommandContext = {
    terminal,
    logLevel: () => LOG_LEVELS.find((level) => level === program.opts()['logLevel']),
    action:
      (run) =>
      async (...args) =>
        exitWith(await run(...args)),
  };
  program
    .description(
      'A local rotating forward proxy over short-lived proxy IPs: one port, a healthy member behind every connection.',
    )
    .version(readVersion(), '--version', 'print the version')
    .addOption(
      new Option('--log-level <level>', 'how much to log, on standard error').choices([...LOG_LEVELS]),
    )
    .helpOption('--help', 'print help')
    .addHelpText('after', HELP_TAIL)
    .showHelpAfterError('noria help COMMAND shows how it is used')
    .showSuggestionAfterError()
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => terminal.print(text.trimEnd()),
      writeErr: (text) => terminal.tell(text.trimEnd()),
      getOutHelpWidth: () => terminal.columns,
      getErrHelpWidth: () => terminal.columns,
      getOutHasColors: () => terminal.colour,
      getErrHasColors: () => terminal.colour,
      outputError: (text, write) => write(text.replace(/^error: /, 'noria: ')),
    });
  const named = argv[0] === 'completion' ? undefined : COMMANDS.get(argv[0] ?? '');
  for (const load of named === undefined ? COMMANDS.values() : [named]) (await load())(program, context);
  for (const command of program.commands) command.copyInheritedSettings(program);
  return program;
}

const HELP_TAIL = `
Examples:
  noria demo                     try it, with nothing to configure
  noria check -c noria.yaml      is the configuration right
  noria run -c noria.yaml        the daemon
  noria status --watch           what it is doing

Exit code: 0 fine, 1 the operation failed, 2 bad usage or configuration, 3 nothing reachable.`;
