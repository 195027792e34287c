#!/usr/bin/env node
/** From argv to a command to an exit code; no logic but this: a Node too old for what is imported is told so in words. */
const OLDEST_NODE = 22;

if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
  process.stderr.write(`noria: Node ${OLDEST_NODE} or newer is needed, and this is ${process.version}\n`);
  process.exit(2);
}
const { runProgram } = await import('./commands/program.ts');
const { openTerminal } = await import('./commands/terminal.ts');

process.exitCode = await runProgram(process.argv.slice(2), openTerminal());

export {};
