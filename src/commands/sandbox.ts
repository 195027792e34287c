/**
 * `noria sandbox`: runs only the sandbox of the extraction service. Use it to test a configuration, or another client
 * of the service.
 */
import type { Command } from 'commander';
import { openSandbox } from '../sandbox/open-sandbox.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import { type CommandContext, fractionOption, integerOption, portOption, untilSignal } from './command.ts';
import { formatTable } from './table.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface SandboxFlags {
  readonly port: number;
  readonly extractPort: number;
  readonly targetPort: number;
  readonly members: number;
  readonly dead: number;
  readonly slow: number;
  readonly pace?: number;
  readonly scenario?: string;
}

export function addSandboxCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('sandbox')
    .description(
      'run the sandbox of the extraction service: all ten operations, links of other vendors, real members on loopback, a target site',
    )
    .option('--port <port>', 'port of the service; 0 takes a free port', portOption, 0)
    .option(
      '--extract-port <port>',
      'port of the extraction server for short-pure; 0 takes a free port',
      portOption,
      0,
    )
    .option('--target-port <port>', 'port of the target site; 0 takes a free port', portOption, 0)
    .option(
      '--members <count>',
      'number of proxies that exist at a time for each instance',
      integerOption(1, 1_000),
      20,
    )
    .option('--dead <fraction>', 'fraction of proxies that are dead when drawn, 0 to 1', fractionOption, 0)
    .option('--slow <fraction>', 'fraction of proxies with a delay of 2 s, 0 to 1', fractionOption, 0)
    .option(
      '--pace <ms>',
      'minimum time in ms between two calls (default: the minimum of each operation)',
      integerOption(0, 600_000),
    )
    .option('--scenario <file>', 'a YAML or JSON file that says what fails, and when')
    .addHelpText(
      'after',
      '\nExamples:\n  noria sandbox --port 9090\n  noria sandbox --dead 0.2 --pace 1000\n  noria sandbox --scenario scenario.yaml\n\ndocs/sandbox.md explains how to make the sandbox answer with any code.',
    )
    .action(action((flags: SandboxFlags) => runSandbox(flags, terminal)));
}

async function runSandbox({ pace, ...flags }: SandboxFlags, terminal: Terminal): Promise<number> {
  const signalled = untilSignal();
  const sandbox = await openSandbox({ ...flags, ...(pace === undefined ? {} : { paceMs: pace }) });
  try {
    for (const line of describeSandbox(sandbox)) terminal.print(line);
    await signalled;
    return EXIT.fine;
  } finally {
    await sandbox.close();
  }
}

function describeSandbox(sandbox: Sandbox): string[] {
  return [
    `sandbox of the extraction service: ${sandbox.url}`,
    `  target   ${sandbox.targetUrl}/ip  answers with the client's exit address`,
    `  control  ${sandbox.url}/_control/  lists calls and sets faults`,
    `  account  ${sandbox.account.username}, password ${sandbox.account.password}  (for the command "noria instances")`,
    '',
    ...formatTable(sandbox.instances, [
      { title: 'PRODUCT', cell: ({ product }) => product },
      { title: 'INSTANCE', cell: ({ id }) => id },
      { title: 'PASSWORD', cell: ({ password }) => password },
      { title: 'KEY', cell: ({ akey }) => akey },
      { title: 'BASE URL', cell: ({ baseUrl }) => baseUrl },
    ]),
    '',
    'Extraction links of other vendors:',
    ...sandbox.links.map(({ url }) => `  ${url}`),
    '',
    'The passwords are public. A configuration that uses the sandbox needs pool.allowPrivateAddresses: true. Stop the sandbox with Ctrl-C.',
  ];
}
