/**
 * `noria simulate`: predicts what a configuration costs and yields. Uses a simulated clock and makes no network calls.
 */
import { InvalidArgumentError } from 'commander';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { poolSettings, refillSettings } from '../daemon/part-options.ts';
import { formatReport } from '../refill/simulation/report.ts';
import { simulate } from '../refill/simulation/simulate.ts';
import { command, integerOption } from './command.ts';
import { CONFIG_FLAG, readConfig } from './config.ts';
import { EXIT, type Terminal } from './terminal.ts';

const HOURS_PER_DAY = 24;
const MAX_DAYS = 366;
const MAX_REQUESTS_PER_MINUTE = 100_000;
const MAX_TUNNEL_SECONDS = 3_600;
const MAX_SEED = 999_999_999;

interface SimulateFlags {
  readonly config?: string;
  readonly days: number;
  readonly requests: number;
  readonly hours: readonly [from: number, to: number];
  readonly tunnel: number;
  readonly seed: number;
  readonly json?: boolean;
}

export const simulateCommand = command({
  name: 'simulate',
  about:
    'predict for a configuration: calls, waiting times, and drawn, used and wasted members; makes no network calls',
  flags: [
    CONFIG_FLAG,
    ['--days <days>', 'days to simulate', { read: integerOption(1, MAX_DAYS), fallback: 1 }],
    [
      '--requests <count>',
      'average client requests per minute',
      { read: integerOption(1, MAX_REQUESTS_PER_MINUTE), fallback: 30 },
    ],
    [
      '--hours <from-to>',
      'hours of the day with client requests',
      { read: readHours, fallback: [0, HOURS_PER_DAY] },
    ],
    [
      '--tunnel <seconds>',
      'average duration of a tunnel',
      { read: integerOption(1, MAX_TUNNEL_SECONDS), fallback: 10 },
    ],
    [
      '--seed <number>',
      'random seed; the same seed gives the same result',
      { read: integerOption(0, MAX_SEED), fallback: 1 },
    ],
    ['--json', 'print the result as JSON'],
  ],
  examples: [
    'simulate',
    'simulate -c noria.yaml --days 7 --requests 120 --hours 8-20',
    'simulate --json | jq .wasted',
  ],
  help: 'The simulation assumes that members live as long as the product and its timespan promise.',
  run: ({ terminal }, flags: SimulateFlags) => predict(flags, terminal),
});

async function predict(flags: SimulateFlags, terminal: Terminal): Promise<number> {
  const config = readConfig(flags.config, terminal);
  if (config.sources.length === 0) {
    throw new NoriaError(
      'bad-config',
      `${config.file}: sources: empty; the command "noria simulate" requires at least one source`,
    );
  }
  const { days, seed, requests, hours, tunnel } = flags;
  const report = await simulate({
    refill: refillSettings(config),
    pool: poolSettings(config),
    waitForMemberMs: config.dial.waitForMemberMs,
    days,
    seed,
    load: { requestsPerMinute: requests, activeHours: hours, tunnelMs: tunnel * SECOND_MS },
  });
  terminal.print(flags.json === true ? JSON.stringify(report, undefined, 2) : formatReport(report));
  return EXIT.fine;
}

function readHours(text: string): [from: number, to: number] {
  const [, from, to] = /^(\d{1,2})-(\d{1,2})$/.exec(text) ?? [];
  const hours: [number, number] = [Number(from ?? Number.NaN), Number(to ?? Number.NaN)];
  if (hours[0] < hours[1] && hours[1] <= HOURS_PER_DAY) return hours;
  throw new InvalidArgumentError(
    'Expected a start hour and an end hour, each from 0 to 24, for example 8-20.',
  );
}
