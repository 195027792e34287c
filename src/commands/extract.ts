/**
 * `noria extract SOURCE`: makes one extraction call, within the pace of the source, and prints the result. A running
 * noria does not get these proxies.
 */
import type { Command } from 'commander';
import { systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { systemRandom } from '../core/random.ts';
import { callOf, secretsOf } from '../daemon/part-options.ts';
import { outcomeOfAnswer, reactTo } from '../refill/reaction.ts';
import { printEntry } from '../service/fields.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { CommandContext } from './command.ts';
import { configOption, readConfig } from './config-file.ts';
import {
  callSettingsOf,
  callWithinPace,
  dropText,
  pacedAs,
  printRecords,
  requireSuccess,
  sourceNamed,
} from './service-call.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface ExtractFlags {
  readonly config?: string;
  readonly json?: boolean;
  readonly count?: string;
}

export function addExtractCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('extract')
    .description('make one extraction call for a source as soon as the pace allows, and print the result')
    .argument('<source>', 'a source of the configuration')
    .option('-n, --count <count>', 'how many proxies to ask for (default: 1)')
    .option('--json', "print a JSON array with the service's field names")
    .addOption(configOption())
    .addHelpText(
      'after',
      '\nExamples:\n  noria extract city\n  noria extract city -n 5 --json | jq -r \'.[] | "\\(.ip):\\(.port)"\'',
    )
    .action(action((name: string, flags: ExtractFlags) => extract(name, flags, terminal)));
}

async function extract(name: string, flags: ExtractFlags, terminal: Terminal): Promise<number> {
  const config = readConfig(flags.config, terminal);
  const source = sourceNamed(config, name);
  const { number, fields, count: limits } = OPERATIONS[source.product];
  const count = readCount(flags.count, limits.max);
  const answer = await callWithinPace(
    callSettingsOf(config),
    {
      ...pacedAs(config, source),
      send: (connection, gate) =>
        connection.extract({ ...callOf(config, source), count }, { secrets: secretsOf(source), gate }),
      settle: (received) =>
        reactTo(outcomeOfAnswer(source.product, received), {
          consecutive: 1,
          wallAt: systemClock.now(),
          random: systemRandom,
        }).settlement,
    },
    terminal,
  );
  requireSuccess(number, answer);
  const rows = answer.entries.map((entry) => printEntry(entry, fields));
  printRecords(rows, { fields, json: flags.json === true }, terminal);
  for (const [reason, dropped] of Object.entries(answer.dropped)) {
    terminal.printError(`${dropped} dropped: ${dropText(reason)}`);
  }
  return EXIT.fine;
}

function readCount(text: string | undefined, max = 1_000): number {
  if (text === undefined) return 1;
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (count >= 1 && count <= max) return count;
  throw new NoriaError('bad-usage', `--count ${text} is not a whole number from 1 to ${max}`);
}
