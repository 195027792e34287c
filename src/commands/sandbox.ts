/** `noria sandbox`: the stand-in service alone, for trying a configuration or another client against it. */
import type { Command } from 'commander';
import { openSandbox, type Sandbox } from '../sandbox/sandbox.ts';
import { readFraction, readPort, readWhole } from './arguments.ts';
import type { CommandContext } from './context.ts';
import { untilSignalled } from './lifecycle.ts';
import { formatTable } from './table.ts';
import { EXIT } from './terminal.ts';

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
      'the sandbox of the extraction service alone: all ten operations, real loopback members, a target',
    )
    .option('--port <port>', "the service's port, 0 for a free one", readPort, 0)
    .option('--extract-port <port>', "the pure edition's extraction server, 0 for a free one", readPort, 0)
    .option('--target-port <port>', "the target site's port, 0 for a free one", readPort, 0)
    .option('--members <count>', 'proxies that exist at a time, for each instance', readWhole(1, 1_000), 20)
    .option('--dead <share>', 'share of proxies that are dead on arrival, from 0 to 1', readFraction, 0)
    .option('--slow <share>', 'share of proxies that are slow by 2 s, from 0 to 1', readFraction, 0)
    .option(
      '--pace <ms>',
      "least time between two calls, ms, instead of each operation's own",
      readWhole(0, 600_000),
    )
    .option('--scenario <file>', 'what goes wrong, and when: YAML or JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  noria sandbox --port 9090\n  noria sandbox --dead 0.2 --pace 1000\n  noria sandbox --scenario scenario.yaml\n\ndocs/sandbox.md tells how to make it answer any code.',
    )
    .action(
      action(async ({ pace, ...flags }: SandboxFlags) => {
        const sandbox = await openSandbox({ ...flags, ...(pace === undefined ? {} : { paceMs: pace }) });
        try {
          for (const line of describeSandbox(sandbox)) terminal.print(line);
          await untilSignalled();
          return EXIT.fine;
        } finally {
          await sandbox.close();
        }
      }),
    );
}

function describeSandbox(sandbox: Sandbox): string[] {
  const rows = sandbox.instances.map(({ product, id, password, akey, baseUrl }) => [
    product,
    id,
    password,
    akey,
    baseUrl,
  ]);
  return [
    `sandbox of the extraction service: ${sandbox.url}`,
    `  target   ${sandbox.targetUrl}/ip  tells which exit it saw`,
    `  control  ${sandbox.url}/_control/  what was called, and what goes wrong from now on`,
    `  account  ${sandbox.account.username}, password ${sandbox.account.password}  for noria instances`,
    '',
    ...formatTable(
      [
        { title: 'PRODUCT' },
        { title: 'INSTANCE' },
        { title: 'PASSWORD' },
        { title: 'KEY' },
        { title: 'BASE ADDRESS' },
      ],
      rows,
    ),
    '',
    'These passwords protect nothing. A configuration needs pool.allowPrivateAddresses: true. Ctrl-C ends it.',
  ];
}
