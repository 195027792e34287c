/** `noria areas SOURCE`: prints the area lines from which an exclusive instance can get more servers (operation 9). */
import type { Command } from 'commander';
import { NoriaError } from '../core/faults.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { CommandContext } from './command.ts';
import { configOption, readConfig } from './config-file.ts';
import {
  callSettingsOf,
  callWithinPace,
  pacedAs,
  printRecords,
  requireSuccess,
  sourceNamed,
} from './service-call.ts';
import { EXIT, type Terminal } from './terminal.ts';

/** The service's code for an empty list. For this command, an empty list is not an error. */
const NO_MATCHING_AREA = '14006';

interface AreasFlags {
  readonly config?: string;
  readonly keyword?: string;
  readonly json?: boolean;
}

export function addAreasCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('areas')
    .description(
      'list the area lines (location and carrier) from which an exclusive instance can get more servers',
    )
    .argument('<source>', 'an exclusive source of the configuration')
    .option('--keyword <keywords>', 'list only area lines with these keywords, separated by commas')
    .option('--json', "print a JSON array with the service's field names")
    .addOption(configOption())
    .addHelpText(
      'after',
      '\nExamples:\n  noria areas dedicated\n  noria areas dedicated --keyword 广东,江苏 --json',
    )
    .action(action((name: string, flags: AreasFlags) => listAreas(name, flags, terminal)));
}

async function listAreas(name: string, flags: AreasFlags, terminal: Terminal): Promise<number> {
  const config = readConfig(flags.config, terminal);
  const source = sourceNamed(config, name);
  if (source.product !== 'exclusive') {
    throw new NoriaError(
      'bad-usage',
      `source ${name} has the product ${source.product}; only exclusive sources have area lines`,
    );
  }
  const { baseUrl, instance, key } = source;
  const answer = await callWithinPace(
    callSettingsOf(config),
    {
      ...pacedAs(config, source),
      send: (connection, gate) =>
        connection.areas(
          {
            method: config.service.method,
            instance,
            key,
            ...(baseUrl === undefined ? {} : { baseUrl }),
            ...(flags.keyword === undefined ? {} : { areaKeyword: flags.keyword }),
          },
          { gate },
        ),
    },
    terminal,
  );
  if (answer.code !== NO_MATCHING_AREA) requireSuccess(9, answer);
  const fields = Object.keys(OPERATIONS.areas.fields);
  printRecords(answer.records, { fields, json: flags.json === true }, terminal);
  return EXIT.fine;
}
