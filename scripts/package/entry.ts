/** The entry of the single executable, which Node runs as CommonJS: a command of noria, or a worker of a running noria. */
import cluster from 'node:cluster';
import { runProgram } from '../../src/commands/program.ts';
import { openTerminal } from '../../src/commands/terminal.ts';

if (cluster.isWorker) void import('../../src/plane/workers/worker.ts');
else
  void runProgram(process.argv.slice(2), openTerminal()).then((code) => {
    process.exitCode = code;
  });
