#!/usr/bin/env node
/** From argv to a command to an exit code; no logic. */
import { runProgram } from './commands/program.ts';
import { openTerminal } from './commands/terminal.ts';

process.exitCode = await runProgram(process.argv.slice(2), openTerminal());
