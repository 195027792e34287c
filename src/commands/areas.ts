/** `noria areas SOURCE`: the idle area lines that can be added to an exclusive pool (operation 9). */
import type { Command } from 'commander';
import { NoriaError } from '../core/faults.ts';
import { OPERATIONS } from '../service/operations.ts';
import { configOption, readConfig } from './config-file.ts';
import type { CommandContext } from './context.ts';
import { printRecords } from './records.ts';
import { callWithinPace, pacedAs, requireSuccess, sourceNamed } from './service-call.ts';
import { EXIT, type Terminal } from './terminal.ts';

/** "No area line matches": an empty list, not a failure. */
const NONE_MATCHES = '14006';

interface AreasFlags {
  readonly config?: string;
  readonly keyword?: string;
  readonly json?: boolean;
}

export function addAreasCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('areas')
    .description('the area lines that can be added to the pool of an exclusive source')
    .argument('<source>', 'an exclusive source of the configuration')
    .option('--keyword <keywords>', 'only area lines with these keywords, comma separated')
    .option('--json', "print an array in the service's own field names")
    .addOption(configOption())
    .addHelpText(
      'after',
      '\nExamples:\n  noria areas dedicated\n  noria areas dedicated --keyword 广东,江苏 --json',
    )
    .action(action((name: string, flags: AreasFlags) => listAreas(name, flags, terminal)));
}

async function listAreas(name: string, flags: AreasFlags, terminal: Terminal): Promise<number> {
  const config = await readConfig(flags.config, terminal);
  const source = sourceNamed(config, name);
  if (source.product !== 'exclusive') {
    throw new NoriaError(
      'bad-usage',
      `source ${name} is ${source.product}; area lines are of exclusive sources`,
    );
  }
  const { baseUrl, instance, key } = source;
  const answer = await callWithinPace(
    config,
    pacedAs(config, source),
    terminal,
    (client) =>
      client.areas({
        method: config.service.method,
        instance,
        key,
        ...(baseUrl === undefined ? {} : { baseUrl }),
        ...(flags.keyword === undefined ? {} : { areaKeyword: flags.keyword }),
      }),
    () => ({ kind: 'done' }),
  );
  if (answer.code !== NONE_MATCHES) requireSuccess(9, answer);
  printRecords(answer.records, Object.keys(OPERATIONS.areas.fields), flags.json === true, terminal);
  return EXIT.fine;
}
