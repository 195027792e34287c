/** `noria instances`: the exclusive-pool instances of the account (operation 10). */
import { type Command, Option } from 'commander';
import { NoriaError } from '../core/faults.ts';
import { INSTANCE_STATUSES, type InstanceStatus, OPERATIONS } from '../service/operations.ts';
import { configOption, readConfig } from './config-file.ts';
import type { CommandContext } from './context.ts';
import { printRecords } from './records.ts';
import { callWithinPace, requireSuccess } from './service-call.ts';
import { EXIT, type Terminal } from './terminal.ts';

/** "No instance meets the condition": an empty list, not a failure. */
const NONE_MEETS = '18003';
/** No pace is published for this operation; as often as a person types is enough. */
const INTERVAL_MS = 1_000;

interface InstancesFlags {
  readonly config?: string;
  readonly status?: InstanceStatus;
  readonly json?: boolean;
}

export function addInstancesCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('instances')
    .description('the exclusive-pool instances of the account in the configuration')
    .addOption(new Option('--status <status>', 'only these').choices(Object.keys(INSTANCE_STATUSES)))
    .option('--json', "print an array in the service's own field names")
    .addOption(configOption())
    .addHelpText('after', '\nExamples:\n  noria instances\n  noria instances --status near-expiry --json')
    .action(action((flags: InstancesFlags) => listInstances(flags, terminal)));
}

async function listInstances(flags: InstancesFlags, terminal: Terminal): Promise<number> {
  const config = await readConfig(flags.config, terminal);
  const { account } = config;
  const { baseUrl, method } = config.service;
  if (account === undefined) {
    throw new NoriaError(
      'bad-config',
      `${config.file}: account: noria instances needs username and password of the account here`,
    );
  }
  if (baseUrl === undefined)
    throw new NoriaError('bad-config', `${config.file}: service.baseUrl: noria instances needs it`);
  const answer = await callWithinPace(
    config,
    { baseUrl, instance: `account ${account.username}`, intervalMs: INTERVAL_MS },
    terminal,
    (client) =>
      client.instances({
        method,
        baseUrl,
        username: account.username,
        key: account.key,
        ...(flags.status === undefined ? {} : { status: INSTANCE_STATUSES[flags.status] }),
      }),
    () => ({ kind: 'done' }),
  );
  if (answer.code !== NONE_MEETS) requireSuccess(10, answer);
  printRecords(answer.records, Object.keys(OPERATIONS.instances.fields), flags.json === true, terminal);
  return EXIT.fine;
}
