/** The command line: which commands there are, what all of them share, and how they end. */
import { Command, CommanderError, Option } from 'commander';
import { LOG_LEVELS } from '../core/log.ts';
import { readVersion } from '../core/version.ts';
import { addAreasCommand } from './areas.ts';
import { addCheckCommand } from './check.ts';
import { addCompletionCommand } from './completion.ts';
import type { CommandContext } from './context.ts';
import { addDemoCommand } from './demo.ts';
import { addExtractCommand } from './extract.ts';
import { addInstancesCommand } from './instances.ts';
import { addKeyCommand } from './key.ts';
import { addRunCommand } from './run.ts';
import { addSandboxCommand } from './sandbox.ts';
import { addStatusCommand } from './status.ts';
import { EXIT, exitCodeOf, type Terminal, tellFailure } from './terminal.ts';

/** Runs one command line (without `node` and the file) to its end. Returns the exit code; never throws. */
export async function runProgram(argv: readonly string[], terminal: Terminal): Promise<number> {
  let exitCode: number = EXIT.fine;
  const program = buildProgram(terminal, (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.fine : EXIT.usage; // it has said so
    tellFailure(terminal, error);
    return exitCodeOf(error);
  }
}

/** The tree of commands, also read by `completion` and by the test that holds the docs. */
export function buildProgram(terminal: Terminal, exitWith: (code: number) => void): Command {
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
    .showHelpAfterError('noria help COMMAND shows how it is used')
    .showSuggestionAfterError()
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => terminal.print(text.trimEnd()),
      writeErr: (text) => terminal.tell(text.trimEnd()),
    });
  for (const add of COMMANDS) add(program, context);
  for (const command of program.commands) command.copyInheritedSettings(program);
  return program;
}

const COMMANDS: readonly ((program: Command, context: CommandContext) => void)[] = [
  addRunCommand,
  addDemoCommand,
  addCheckCommand,
  addStatusCommand,
  addExtractCommand,
  addAreasCommand,
  addInstancesCommand,
  addSandboxCommand,
  addKeyCommand,
  addCompletionCommand,
];
