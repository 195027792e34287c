/** `noria instances`: prints the instances of the product `exclusive` in an account (operation 10). */
import { type Command, Option } from 'commander';
import { NoriaError } from '../core/faults.ts';
import { INSTANCE_STATUSES, type InstanceStatus, OPERATIONS } from '../service/operations.ts';
import type { CommandContext } from './command.ts';
import { configOption, readConfig } from './config-file.ts';
import { callSettingsOf, callWithinPace, printRecords, requireSuccess } from './service-call.ts';
import { EXIT, type Terminal } from './terminal.ts';

/** The service's code for an empty list. For this command, an empty list is not an error. */
const NO_MATCHING_INSTANCE = '18003';
/** The minimum time between two calls. noria chose it; the service specifies none for this operation. */
const INTERVAL_MS = 1_000;

interface InstancesFlags {
  readonly config?: string;
  readonly status?: InstanceStatus;
  readonly json?: boolean;
}

export function addInstancesCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('instances')
    .description('list the instances of the product "exclusive" in the configured account')
    .addOption(
      new Option('--status <status>', 'list only instances with this status').choices(
        Object.keys(INSTANCE_STATUSES),
      ),
    )
    .option('--json', "print a JSON array with the service's field names")
    .addOption(configOption())
    .addHelpText('after', '\nExamples:\n  noria instances\n  noria instances --status near-expiry --json')
    .action(action((flags: InstancesFlags) => listInstances(flags, terminal)));
}

async function listInstances(flags: InstancesFlags, terminal: Terminal): Promise<number> {
  const config = readConfig(flags.config, terminal);
  const { account } = config;
  const { baseUrl, method } = config.service;
  if (account === undefined) {
    throw new NoriaError(
      'bad-config',
      `${config.file}: account: missing; the command "noria instances" requires the account's username and password`,
    );
  }
  if (baseUrl === undefined)
    throw new NoriaError(
      'bad-config',
      `${config.file}: service.baseUrl: missing; the command "noria instances" requires it`,
    );
  const answer = await callWithinPace(
    callSettingsOf(config),
    {
      baseUrl,
      instance: `account ${account.username}`,
      intervalMs: INTERVAL_MS,
      send: (connection, gate) =>
        connection.instances(
          {
            method,
            baseUrl,
            username: account.username,
            key: account.key,
            ...(flags.status === undefined ? {} : { status: INSTANCE_STATUSES[flags.status] }),
          },
          { gate },
        ),
    },
    terminal,
  );
  if (answer.code !== NO_MATCHING_INSTANCE) requireSuccess(10, answer);
  const fields = Object.keys(OPERATIONS.instances.fields);
  printRecords(answer.records, { fields, json: flags.json === true }, terminal);
  return EXIT.fine;
}
