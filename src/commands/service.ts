/** The commands that make one call to the service within its pace: `extract`, `areas` and `instances`; and `key`. */
import type { Config, FleetConfig, SourceConfig } from '../config/config.ts';
import { translate } from '../core/chinese.ts';
import { holdingClock, systemBoot, systemClock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { Ownership } from '../core/ownership.ts';
import { escapeAll } from '../core/printable.ts';
import { systemRandom } from '../core/random.ts';
import { Secret } from '../core/secret.ts';
import { connectStore } from '../daemon/fleet.ts';
import { callOf, guardOfCommand, refusesOf, serviceTunnel } from '../daemon/part-options.ts';
import { Pace, paceKey } from '../refill/pace.ts';
import type { Settlement } from '../refill/pace-rule.ts';
import { outcomeOfAnswer, reactTo } from '../refill/reaction.ts';
import { areas, extract as callService, instances } from '../service/client.ts';
import { meaningOf, SUCCESS } from '../service/codes.ts';
import { printEntry } from '../service/fields.ts';
import { type CodeScope, INSTANCE_STATUSES, type InstanceStatus, OPERATIONS } from '../service/operations.ts';
import { keyFromPassword, type ServiceAddress, serviceUrl } from '../service/request.ts';
import { Transport, type WriteGate } from '../service/transport.ts';
import { openState } from '../state/folder.ts';
import { createTimekeeper } from '../state/moment.ts';
import type { PaceStore } from '../state/pace-file.ts';
import { command, type Flag } from './command.ts';
import { CONFIG_FLAG, readConfig } from './config.ts';
import { formatTable } from './table.ts';
import { badUsage, languageOfTerminal, printResult, type Terminal } from './terminal.ts';

export interface ServiceFlags {
  readonly config?: string;
  readonly json?: boolean;
  readonly count?: string;
  readonly keyword?: string;
  readonly status?: InstanceStatus;
}

const JSON_FLAG: Flag = ['--json', "print a JSON array with the service's field names"];

/** Records the call where a running noria sees it, so that its next call is not too early. */
export async function callWithinPace<Answer extends { readonly code: string }>(
  { timeoutMs, stateDir, openTunnel, fleet }: ReturnType<typeof callSettingsOf>,
  call: ServiceAddress & {
    readonly instance: string;
    readonly intervalMs: number;
    send(transport: Transport, gate: WriteGate): Promise<Answer>;
    settle?(answer: Answer): Settlement;
  },
  terminal: Terminal,
): Promise<Answer> {
  const clock = holdingClock;
  const warn = (message: string) => terminal.printError(`noria: ${message}`);
  const owner = new Ownership();
  const folder = { dir: stateDir, daemon: false, fleet: fleet?.name };
  const state = await owner.open('state', openState({ ...folder, clock, warn }));
  const store =
    fleet === undefined ? state.pace : state.addOwnCalls(await openSharedPace(fleet, timeoutMs, owner));
  const pace = new Pace(paceKey(call), { store, clock, random: systemRandom });
  const place = pace.enter({ intervalMs: call.intervalMs, callTimeoutMs: timeoutMs });
  const never = new AbortController().signal;
  let hasWaited = false;
  try {
    for (;;) {
      for await (const ms of place.waits(never)) {
        const text = `waiting ${Math.ceil(ms / SECOND_MS)} s: the pace does not allow the call earlier`;
        if (!hasWaited) terminal.printError(translate(text, languageOfTerminal(terminal)));
        hasWaited = true;
      }
      const options = { timeoutMs, clock, openTunnel, signal: never };
      const transport = await Transport.open(serviceUrl(call), options);
      try {
        const sent = await place.send((permit) => call.send(transport, permit), call.settle);
        if (sent !== undefined) return sent.result;
      } finally {
        transport.close();
      }
    }
  } finally {
    await place.leave();
    await owner.close();
  }
}

async function openSharedPace(fleet: FleetConfig, timeoutMs: number, owner: Ownership): Promise<PaceStore> {
  const store = await owner.open('fleet', connectStore(fleet, holdingClock, systemRandom));
  const { RedisPaceStore } = await import('../fleet/redis/pace-store.ts');
  const { stopwatch } = createTimekeeper(holdingClock, systemBoot());
  return new RedisPaceStore({ store, clock: holdingClock, stopwatch, callTimeoutMs: () => timeoutMs });
}

function requireSuccess(
  operation: CodeScope,
  answer: { readonly code: string; readonly message: string },
): void {
  if (answer.code === SUCCESS) return;
  const { summary, advice } = meaningOf(operation, answer.code);
  const own = answer.message === '' ? '' : ` (message of the service: ${answer.message})`;
  throw new NoriaError('service-refused', `code ${answer.code}: ${summary} ${advice}${own}`, {
    context: { code: answer.code },
  });
}

function sourceNamed(config: Config, name: string): SourceConfig {
  const source = config.sources.find((candidate) => candidate.name === name);
  if (source !== undefined) return source;
  const known = config.sources.map((candidate) => candidate.name).join(', ');
  throw badUsage(`${config.file} has no source ${name}; its sources are: ${known}`);
}

function callSettingsOf(config: Config) {
  return {
    timeoutMs: config.service.timeoutMs,
    stateDir: config.state?.dir,
    /** Its store records the calls, too. */
    fleet: config.fleet,
    openTunnel: serviceTunnel(config, guardOfCommand(config)),
  };
}

const DROP_REASONS: Readonly<Record<string, string>> = {
  address: 'no usable address',
  duplicate: 'named twice',
  port: 'no usable port',
  private: 'private address; set pool.allowPrivateAddresses to accept it',
  own: 'an address of noria itself',
  protocol: 'unknown protocol',
  expired: 'already expired',
  credentials: 'no user name and password',
  excess: 'beyond the limit of 1,000 entries in one answer',
};

export function dropTexts(dropped: Readonly<Record<string, number>>): string[] {
  return Object.entries(dropped).map(([why, count]) => `${count} dropped: ${DROP_REASONS[why] ?? why}`);
}

function printRecords(
  records: readonly Readonly<Record<string, unknown>>[],
  fields: readonly string[],
  flags: ServiceFlags,
  terminal: Terminal,
): void {
  const columns = fields.map((field) => ({
    title: field.toUpperCase(),
    cell: (record: Readonly<Record<string, unknown>>) => escapeAll(String(record[field] ?? '')),
  }));
  printResult(terminal, flags, records, () => formatTable(records, columns));
  if (flags.json !== true && records.length === 0) terminal.printError('no records');
}

export const extractCommand = command({
  name: 'extract',
  about: 'make one extraction call for a source as soon as the pace allows, and print the result',
  args: [['<source>', 'a source of the configuration']],
  flags: [['-n, --count <count>', 'how many proxies to ask for (default: 1)'], JSON_FLAG, CONFIG_FLAG],
  examples: ['extract city', 'extract city -n 5 --json | jq -r \'.[] | "\\(.ip):\\(.port)"\''],
  run: async ({ terminal }, name: string, flags: ServiceFlags) => {
    const config = readConfig(flags.config, terminal);
    const source = sourceNamed(config, name);
    const call = callOf(config, source);
    if (call.product === 'gateway' || call.product === 'list')
      throw badUsage(
        `source ${name} has the product ${call.product}, which makes no extraction call; noria members lists its members`,
      );
    const { number, fields, count: limits } = OPERATIONS[source.product];
    const count = readCount(flags.count, limits.max);
    const { secrets } = source;
    const refuses = refusesOf(config, []);
    const answer = await callWithinPace(
      callSettingsOf(config),
      {
        ...call,
        intervalMs: source.intervalMs,
        send: (transport, gate) => callService(transport, { ...call, count }, { secrets, gate, refuses }),
        settle: (received) =>
          reactTo(outcomeOfAnswer(source.product, received), {
            ...{ source: name, consecutive: 1 },
            ...{ clock: systemClock, random: systemRandom },
          }).settlement,
      },
      terminal,
    );
    requireSuccess(number, answer);
    const rows = answer.entries.map((entry) => printEntry(entry, fields));
    printRecords(rows, fields, flags, terminal);
    for (const line of dropTexts(answer.dropped)) terminal.printError(line);
  },
});

function readCount(text: string | undefined, max = 1_000): number {
  if (text === undefined) return 1;
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (count >= 1 && count <= max) return count;
  throw badUsage(`--count ${text} is not a whole number from 1 to ${max}`);
}

/** The service's code for an empty list. For this command, an empty list is not an error. */
const NO_MATCHING_AREA = '14006';

export const areasCommand = command({
  name: 'areas',
  about: 'list the area lines (location and carrier) from which an exclusive instance can get more servers',
  args: [['<source>', 'an exclusive source of the configuration']],
  flags: [
    ['--keyword <keywords>', 'list only area lines with these keywords, separated by commas'],
    JSON_FLAG,
    CONFIG_FLAG,
  ],
  examples: ['areas dedicated', 'areas dedicated --keyword 广东,江苏 --json'],
  run: async ({ terminal }, name: string, flags: ServiceFlags) => {
    const config = readConfig(flags.config, terminal);
    const source = sourceNamed(config, name);
    if (source.product !== 'exclusive') {
      throw badUsage(
        `source ${name} has the product ${source.product}; only exclusive sources have area lines`,
      );
    }
    const { baseUrl, instance, key, intervalMs } = source;
    const asked = { baseUrl, instance, key, method: config.service.method };
    const areaKeyword = flags.keyword;
    const answer = await callWithinPace(
      callSettingsOf(config),
      {
        ...{ baseUrl, instance, intervalMs },
        send: (transport, gate) =>
          areas(transport, { ...asked, ...(areaKeyword !== undefined && { areaKeyword }) }, gate),
      },
      terminal,
    );
    if (answer.code !== NO_MATCHING_AREA) requireSuccess(9, answer);
    printRecords(answer.records, Object.keys(OPERATIONS.areas.fields), flags, terminal);
  },
});

const NO_MATCHING_INSTANCE = '18003';
/** The minimum time between two calls. noria chose it; the service specifies none for this operation. */
const INTERVAL_MS = 1_000;

export const instancesCommand = command({
  name: 'instances',
  about: 'list the instances of the product "exclusive" in the configured account',
  flags: [
    [
      '--status <status>',
      'list only instances with this status',
      { choices: Object.keys(INSTANCE_STATUSES) },
    ],
    JSON_FLAG,
    CONFIG_FLAG,
  ],
  examples: ['instances', 'instances --status near-expiry --json'],
  run: async ({ terminal }, flags: ServiceFlags) => {
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
        send: (transport, gate) =>
          instances(
            transport,
            { method, baseUrl, ...account, ...(flags.status && { status: INSTANCE_STATUSES[flags.status] }) },
            gate,
          ),
      },
      terminal,
    );
    if (answer.code !== NO_MATCHING_INSTANCE) requireSuccess(10, answer);
    printRecords(answer.records, Object.keys(OPERATIONS.instances.fields), flags, terminal);
  },
});

/** Reads the password from standard input, because an argument would be visible in the history of the shell. */
export const keyCommand = command({
  name: 'key',
  about: 'print the 16-character key of a password read from standard input (hidden on a terminal)',
  examples: ['key', 'key < password-file'],
  run: async ({ terminal }) => {
    const typed = await terminal.readHidden('password: ');
    const password = typed.replace(/\r?\n$/, '');
    if (password === '') throw badUsage('no password on standard input');
    terminal.print(keyFromPassword(new Secret(password)).reveal());
  },
});
