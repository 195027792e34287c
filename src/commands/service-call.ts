/**
 * Makes one call to the service within its pace, and prints the records of the answer. Used by the commands `extract`,
 * `areas`, `instances` and `link`.
 */
import type { Config, FleetConfig, SourceConfig } from '../config/config.ts';
import { holdingClock, systemBoot } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { Ownership } from '../core/ownership.ts';
import { escapeAll } from '../core/printable.ts';
import { systemRandom } from '../core/random.ts';
import { connectStore } from '../daemon/fleet.ts';
import { callOf, refusesOf, serviceTunnel } from '../daemon/part-options.ts';
import { Pace, paceKey } from '../refill/pace.ts';
import type { Settlement } from '../refill/pace-rule.ts';
import { ServiceClient, type ServiceConnection } from '../service/client.ts';
import { meaningOf, SUCCESS } from '../service/codes.ts';
import type { RefuseAddress } from '../service/decode.ts';
import type { CodeScope } from '../service/operations.ts';
import type { ServiceAddress } from '../service/request.ts';
import type { OpenTunnel, WriteGate } from '../service/transport.ts';
import { openState } from '../state/folder.ts';
import { createTimekeeper } from '../state/moment.ts';
import type { PaceStore } from '../state/pace-file.ts';
import { formatTable } from './table.ts';
import type { Terminal } from './terminal.ts';

/** What a call needs from the configuration. */
export interface CallSettings {
  readonly timeoutMs: number;
  /** The state folder, which records calls. Without it and without a fleet, the command does not know earlier calls. */
  readonly stateDir: string | undefined;
  readonly refuses: RefuseAddress;
  /**
   * If there is a fleet, its store records the calls. The command then knows the earlier calls in the store and in the
   * state folder.
   */
  readonly fleet?: FleetConfig | undefined;
  /** Connects to the service through the front proxy. If undefined, noria connects directly. */
  readonly openTunnel: OpenTunnel | undefined;
}

/** What decides when a call may be sent: the address of the service, the instance or account, and the interval. */
interface PacedAddress extends ServiceAddress {
  readonly instance: string;
  readonly intervalMs: number;
}

interface PacedCall<Answer> extends PacedAddress {
  send(connection: ServiceConnection, gate: WriteGate): Promise<Answer>;
  /** Returns how the answer affects the pace. If absent, the next call waits for the usual interval. */
  settle?(answer: Answer): Settlement;
}

/**
 * Makes one call as soon as the pace allows it, and prints how long it waits. Records the call in the state folder, or
 * with a fleet in the fleet's store, so that the next call of a running noria is not too early.
 */
export async function callWithinPace<Answer extends { readonly code: string }>(
  { timeoutMs, stateDir, refuses, openTunnel, fleet }: CallSettings,
  call: PacedCall<Answer>,
  terminal: Terminal,
): Promise<Answer> {
  const clock = holdingClock;
  const warn = (message: string) => terminal.printError(`noria: ${message}`);
  const owner = new Ownership();
  const folder = { dir: stateDir, daemon: false, fleet: fleet?.name };
  const state = await owner.open('state', openState({ ...folder, clock, warn }));
  const store =
    fleet === undefined ? state.pace : state.addOwnCalls(await openSharedPace(fleet, timeoutMs, owner));
  const client = new ServiceClient({ timeoutMs, clock, openTunnel, refuses });
  const pace = new Pace(paceKey(call), { store, clock, random: systemRandom });
  const place = pace.enter({ intervalMs: call.intervalMs, callTimeoutMs: timeoutMs });
  const never = new AbortController().signal;
  let hasWaited = false;
  try {
    for (;;) {
      for await (const ms of place.waits(never)) {
        const seconds = Math.ceil(ms / SECOND_MS);
        if (!hasWaited) terminal.printError(`waiting ${seconds} s: the pace does not allow the call earlier`);
        hasWaited = true;
      }
      const connection = await client.connect(call);
      try {
        const permit = await place.claim();
        const sent = permit && (await place.send(permit, () => sendCall(call, connection, permit)));
        if (sent !== undefined) return sent.result;
      } finally {
        connection.close();
      }
    }
  } finally {
    await place.leave();
    client.close();
    await owner.close();
  }
}

async function sendCall<Answer>(call: PacedCall<Answer>, connection: ServiceConnection, gate: WriteGate) {
  const result = await call.send(connection, gate);
  return { result, settlement: call.settle?.(result) ?? { kind: 'done' as const } };
}

async function openSharedPace(fleet: FleetConfig, timeoutMs: number, owner: Ownership): Promise<PaceStore> {
  const store = await owner.open('fleet', connectStore(fleet, holdingClock, systemRandom));
  const { RedisPaceStore } = await import('../fleet/redis/redis-pace-store.ts');
  const { stopwatch } = createTimekeeper(holdingClock, systemBoot());
  return new RedisPaceStore({ store, clock: holdingClock, stopwatch, callTimeoutMs: () => timeoutMs });
}

/**
 * @throws NoriaError service-refused if the code is not success. The message has the meaning of the code and the
 * service's own text.
 */
export function requireSuccess(
  operation: CodeScope,
  answer: { readonly code: string; readonly message: string },
): void {
  if (answer.code === SUCCESS) return;
  const { summary, advice } = meaningOf(operation, answer.code);
  const own = answer.message === '' ? '' : ` (message of the service: ${answer.message})`;
  throw new NoriaError('service-refused', `code ${answer.code}: ${summary}${own} ${advice}`, {
    context: { code: answer.code },
  });
}

/** @throws NoriaError bad-usage if there is no such source. The message has the names of all sources. */
export function sourceNamed(config: Config, name: string): SourceConfig {
  const source = config.sources.find((candidate) => candidate.name === name);
  if (source !== undefined) return source;
  const known = config.sources.map((candidate) => candidate.name).join(', ');
  throw new NoriaError('bad-usage', `${config.file} has no source ${name}; its sources are: ${known}`);
}

export function callSettingsOf(config: Config): CallSettings {
  return {
    timeoutMs: config.service.timeoutMs,
    stateDir: config.state?.dir,
    fleet: config.fleet,
    refuses: refusesOf(config, []),
    openTunnel: serviceTunnel(config),
  };
}

export function pacedAs(config: Config, source: SourceConfig): PacedAddress {
  return { ...callOf(config, source), intervalMs: source.intervalMs };
}

const DROP_REASONS: Readonly<Record<string, string>> = {
  address: 'no usable address',
  port: 'no usable port',
  private: 'private address; set pool.allowPrivateAddresses to accept it',
  own: 'an address of noria itself',
  protocol: 'unknown protocol',
  expired: 'already expired',
  credentials: 'no user name and password',
  excess: 'beyond the limit of 1,000 entries in one answer',
};

export function dropText(reason: string): string {
  return DROP_REASONS[reason] ?? reason;
}

/** Prints records as a table or as a JSON array, with the service's field names. */
export function printRecords(
  records: readonly Readonly<Record<string, string | number | boolean>>[],
  { fields, json }: { readonly fields: readonly string[]; readonly json: boolean },
  terminal: Terminal,
): void {
  if (json) {
    terminal.print(JSON.stringify(records, undefined, 2));
    return;
  }
  const columns = fields.map((field) => ({
    title: field.toUpperCase(),
    cell: (record: Readonly<Record<string, unknown>>) => escapeAll(String(record[field] ?? '')),
  }));
  for (const line of formatTable(records, columns)) terminal.print(line);
  if (records.length === 0) terminal.printError('no records');
}
