/**
 * `noria simulate`: predicts what a configuration costs and yields, and which settings serve the load at the least cost.
 * Uses a simulated clock and makes no network calls.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { InvalidArgumentError } from 'commander';
import { z } from 'zod';
import type { Config } from '../config/config.ts';
import { DAY_MS, SECOND_MS } from '../core/duration.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { poolSettings, refillSettings } from '../daemon/part-options.ts';
import { advise, formatAdvice } from '../refill/simulation/advice.ts';
import { rateInHours, type SimulatedLoad } from '../refill/simulation/clients.ts';
import { formatReport } from '../refill/simulation/report.ts';
import { type SimulationOptions, simulate } from '../refill/simulation/simulate.ts';
import { readStatistics } from '../refill/source-statistics.ts';
import { OPERATIONS } from '../service/operations.ts';
import { readStateFile } from '../state/state-files.ts';
import { command, integer } from './command.ts';
import { CONFIG_FLAG, readConfig } from './config.ts';
import { badUsage, EXIT } from './terminal.ts';

const HOURS_PER_DAY = 24;
const MAX_DAYS = 366;
const MAX_REQUESTS_PER_MINUTE = 100_000;
const MAX_TUNNEL_SECONDS = 3_600;
const MAX_SEED = 999_999_999;
const MAX_REPLICAS = 100;
const MAX_SESSIONS = 100_000;
const MAX_PAGES = 1_000_000;
const WEEK_SECONDS = 604_800;
const TIMESPANS = [1, 3, 5];

interface SimulateFlags {
  readonly config?: string;
  readonly days: number;
  readonly requests: readonly number[];
  readonly hours: readonly [from: number, to: number];
  readonly log?: string;
  readonly sessions?: number;
  readonly length: number;
  readonly pagesPerExit?: number;
  readonly tunnel: number;
  readonly dead?: number;
  readonly slow: number;
  readonly early: number;
  readonly replicas: number;
  readonly seed: number;
  readonly json?: boolean;
}

export const simulateCommand = command({
  name: 'simulate',
  about:
    'predict for a configuration: calls, waiting times, drawn, used and wasted members, and their cost; then advise cheaper settings; makes no network calls',
  flags: [
    CONFIG_FLAG,
    ['--days <days>', 'days to simulate', integer(1, MAX_DAYS, 1)],
    [
      '--requests <rate>',
      'average client requests: 40/s, 10/m (also: 10) or 6/h; other rates for some hours follow it: 10/m,8-20=40/m,12-13=5/s',
      { read: readRates, fallback: rateInHours(30), shown: '30/m' },
    ],
    [
      '--hours <from-to>',
      'hours of the day with client requests',
      { read: readHours, fallback: [0, HOURS_PER_DAY], shown: '0-24' },
    ],
    ['--log <file>', 'take the moments of the requests from an access log of noria, instead of --requests'],
    ['--sessions <count>', 'sessions at a time that share the requests', integer(1, MAX_SESSIONS)],
    ['--length <seconds>', 'how long a session lasts', integer(1, WEEK_SECONDS, 60)],
    [
      '--pages-per-exit <count>',
      'the site bans an exit for ten minutes after this many pages in a minute',
      integer(1, MAX_PAGES),
    ],
    ['--tunnel <seconds>', 'average duration of a tunnel', integer(1, MAX_TUNNEL_SECONDS, 10)],
    [
      '--dead <share>',
      'share of IPs that never work, 0 to 0.9; default: what state.dir remembers, else 0',
      { read: readShare },
    ],
    ['--slow <share>', 'share of IPs that take two seconds longer', { read: readShare, fallback: 0 }],
    [
      '--early <share>',
      'share of IPs that die after a third of their life',
      { read: readShare, fallback: 0 },
    ],
    ['--replicas <count>', 'norias that share one pool (fleet)', integer(1, MAX_REPLICAS, 1)],
    ['--seed <number>', 'random seed; the same seed gives the same result', integer(0, MAX_SEED, 1)],
    ['--json', 'print the result as JSON'],
  ],
  examples: [
    'simulate',
    'simulate -c noria.yaml --days 7 --requests 2/s --hours 8-20 --dead 0.2',
    'simulate --requests 1/m,9-18=20/m,12-13=2/s',
    'simulate --requests 10/m --sessions 3 --length 120 --replicas 2',
    'simulate --json | jq .costPerDay',
  ],
  help: 'The simulation assumes that members live as long as the product and its timespan promise. The advice assumes that an IP costs the same whatever its timespan; check that with the vendor.',
  run: async ({ terminal }, flags: SimulateFlags) => {
    const config = readConfig(flags.config, terminal);
    if (config.sources.length === 0) {
      throw new NoriaError(
        'bad-config',
        `${config.file}: sources: empty; the command "noria simulate" requires at least one source`,
      );
    }
    const options = await optionsOf(config, flags);
    const report = await simulate(options);
    const advice = await advise(options, timespansOf(config));
    if (flags.json === true) terminal.print(JSON.stringify({ ...report, advice }, undefined, 2));
    else terminal.print(`${formatReport(report)}\n\n${formatAdvice(advice)}`);
    return EXIT.fine;
  },
});

async function optionsOf(config: Config, flags: SimulateFlags): Promise<SimulationOptions> {
  const { days, seed, replicas, slow, early } = flags;
  const { requests, hours, log, sessions, length, pagesPerExit, tunnel } = flags;
  const dead = flags.dead ?? (await rememberedDeadShare(config));
  const prices = config.sources.flatMap(({ name, price }) =>
    price === undefined ? [] : [[name, price] as const],
  );
  return {
    refill: refillSettings(config),
    pool: poolSettings(config),
    waitForMemberMs: config.dial.waitForMemberMs,
    ...{ days, seed, replicas },
    prices: new Map(prices),
    vendor: { dead, slow, early },
    load: {
      ratesByHour: requests.map((rate, hour) => (hours[0] <= hour && hour < hours[1] ? rate : 0)),
      tunnelMs: tunnel * SECOND_MS,
      ...(log !== undefined && { log: readLog(log) }),
      ...(sessions !== undefined && { sessions: { count: sessions, lengthMs: length * SECOND_MS } }),
      ...(pagesPerExit !== undefined && { pagesPerExit }),
    },
  };
}

/** The mean share of members that were dead on arrival, as the sources in the state folder remember it. */
async function rememberedDeadShare({ state, sources }: Config): Promise<number> {
  if (state === undefined) return 0;
  const text = await readStateFile(join(state.dir, 'snapshot.json')).catch(() => undefined); // ignored: no history then
  if (text === undefined) return 0;
  const snapshot = z
    .object({ parts: z.object({ refill: z.object({ value: z.unknown() }) }) })
    .safeParse(parsed(text));
  const statistics = readStatistics(snapshot.data?.parts.refill.value);
  const shares = sources.map(({ name }) => statistics.get(name)?.deadShare ?? 0);
  return shares.reduce((sum, share) => sum + share, 0) / Math.max(1, shares.length);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // handled: a damaged snapshot is no history
  }
}

function timespansOf({ sources }: Config): number[] {
  const ranges = sources.map(({ product }) => OPERATIONS[product].params['timespan']);
  return TIMESPANS.filter((minutes) =>
    ranges.every((range) => range?.kind === 'whole' && range.from <= minutes && minutes <= range.to),
  );
}

const requestSchema = z.object({ at: z.union([z.string(), z.number()]) });

function readLog(path: string): SimulatedLoad['log'] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw badUsage(`cannot read the log ${path}: ${describeError(error)}`);
  }
  const times = text.split('\n').flatMap((line) => {
    const { data } = requestSchema.safeParse(parsed(line));
    const at = data === undefined ? Number.NaN : new Date(data.at).getTime();
    return Number.isNaN(at) ? [] : [at];
  });
  times.sort((a, b) => a - b);
  const [first] = times;
  if (first === undefined)
    throw badUsage(`the log ${path} has no request: expected lines of JSON with the key "at"`);
  const moments = times.map((at) => at - first);
  const lengthMs = moments.at(-1) ?? 0;
  // after the last request, the usual time passes before the first one comes again
  return { moments, everyMs: lengthMs === 0 ? DAY_MS : lengthMs + lengthMs / (moments.length - 1) };
}

const UNITS: Readonly<Record<string, number>> = { s: 60, m: 1, h: 1 / 60 };

/** Reads a rate, and the rates of some hours, as requests per minute in each hour of the day. */
function readRates(text: string): number[] {
  const [all = '', ...some] = text.split(',');
  const rates = rateInHours(readRate(all));
  for (const part of some) {
    const [hours = '', rate = ''] = part.split('=');
    rates.fill(readRate(rate), ...readHours(hours));
  }
  return rates;
}

function readRate(text: string): number {
  const [, number, unit = 'm'] = /^(\d+(?:\.\d+)?)(?:\/([smh]))?$/.exec(text) ?? [];
  const perMinute = Number(number) * (UNITS[unit] ?? Number.NaN);
  if (perMinute > 0 && perMinute <= MAX_REQUESTS_PER_MINUTE) return perMinute;
  throw new InvalidArgumentError(
    `Expected a rate above 0 and at most ${MAX_REQUESTS_PER_MINUTE} a minute, for example 40/s, 10/m or 6/h.`,
  );
}

function readShare(text: string): number {
  const share = Number(text);
  if (text !== '' && share >= 0 && share <= 0.9) return share;
  throw new InvalidArgumentError('Expected a share from 0 to 0.9, for example 0.2.');
}

function readHours(text: string): [from: number, to: number] {
  const [, from, to] = /^(\d{1,2})-(\d{1,2})$/.exec(text) ?? [];
  const hours: [number, number] = [Number(from ?? Number.NaN), Number(to ?? Number.NaN)];
  if (hours[0] < hours[1] && hours[1] <= HOURS_PER_DAY) return hours;
  throw new InvalidArgumentError(
    'Expected a start hour and an end hour, each from 0 to 24, for example 8-20.',
  );
}
