/**
 * The log: one line for each event, as JSON or as pretty text.
 *
 * Other parts do not import this file: they emit events, and the table below defines the level and the message of
 * each event. Levels: `error`: an operator must act; `warn`: noria worked around a problem; `info`: a change of
 * state; `debug`: one line for each connection or forwarded request; `trace`: the steps of a connection.
 */
import { createRequire } from 'node:module';
import { type DestinationStream, pino } from 'pino';
import { BoundedMap } from './bounded-map.ts';
import { type Clock, EarliestTimer } from './clock.ts';
import type { EventBus, EventName, NoriaEvents } from './events.ts';
import type { FaultCode } from './faults.ts';
import type { LOG_FORMATS, LogLevel } from './log-options.ts';
import { escapeAll, escapeFormat } from './printable.ts';

export interface Log {
  level: string;
  trace(fields: object, message: string): void;
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Fields that the log masks. The type Secret already masks them; this is a second line of defence. */
const REDACTED = ['password', 'akey', 'key', 'token', 'authorization', 'proxyAuthorization'];

export function createLog(options: {
  readonly level: LogLevel;
  readonly format: (typeof LOG_FORMATS)[number];
  readonly destination?: DestinationStream;
  /** The name of the replica. noria adds it to every line when several replicas write to one log. */
  readonly replica?: string;
}): Log {
  const asPretty =
    options.format === 'pretty' || (options.format === 'auto' && process.stderr.isTTY === true);
  const plain = options.destination ?? pino.destination({ fd: 2, sync: true });
  const destination = asPretty ? prettyStream(options.destination) : plain;
  return pino(
    {
      level: options.level,
      base: options.replica === undefined ? null : { replica: options.replica },
      formatters: { log: roundDurations },
      // The pretty stream parses the JSON line, which removes one backslash. So an escape needs two backslashes.
      hooks: { streamWrite: (line) => escapeFormat(line, asPretty ? '\\\\' : '\\') },
      redact: { paths: REDACTED.flatMap((name) => [name, `*.${name}`]), censor: '[secret]' },
      ...(asPretty ? {} : { timestamp: pino.stdTimeFunctions.isoTime }),
    },
    destination,
  );
}

function roundDurations(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      typeof value === 'number' && /(^m|M)s$/.test(name) ? Math.round(value * 10) / 10 : value,
    ]),
  );
}

/** Loaded only here: most daemons log JSON and start faster without it. */
function prettyStream(destination: DestinationStream | undefined): DestinationStream {
  const colorize = process.stderr.isTTY === true && (process.env['NO_COLOR'] ?? '') === ''; // see https://no-color.org
  const pretty: typeof import('pino-pretty') = createRequire(import.meta.url)('pino-pretty');
  return pretty({
    colorize,
    singleLine: true,
    messageFormat: (log, key) => escapeAll(String(log[key] ?? '')),
    translateTime: 'SYS:HH:MM:ss',
    sync: true,
    destination: destination ?? 2,
  });
}

type Level = 'trace' | 'debug' | 'info' | 'warn' | 'error';
type Line<Name extends EventName> = (event: NoriaEvents[Name]) => readonly [Level, string];

/** Changes from one of these states to another are normal operation, so their log level is `debug`. */
const ROUTINE_STATES = new Set(['ready', 'drawing', 'waiting']);

const ROUTINE_READINESS = new Set(['serving', 'degraded']);

/** RefusalLog limits the lines for `client.refused`; the access log has the requests. */
type UnlimitedEvent = Exclude<EventName, 'client.refused' | 'request.ended' | 'request.grew'>;

const LINES: { readonly [Name in UnlimitedEvent]: Line<Name> } = {
  'member.joined': () => ['debug', 'member joined'],
  'member.quarantined': () => ['warn', 'member quarantined'],
  'member.restored': () => ['info', 'member restored'],
  'member.drained': () => ['debug', 'member drained'],
  'member.left': ({ reason }) => [reason === 'failed' ? 'warn' : 'debug', 'member left'],
  'site.banned': () => ['info', 'exit banned for a site'],
  'demand.rose': () => ['trace', 'demand rose'],
  'client.waited': () => ['trace', 'client waited for a member'],
  'session.bound': () => ['debug', 'session bound'],
  'session.moved': ({ reason }) => [reason === 'loaded' ? 'debug' : 'info', 'session moved'],
  'session.ended': () => ['debug', 'session ended'],
  'draw.started': () => ['debug', 'draw started'],
  'draw.done': ({ code }) => [code === '10001' ? 'info' : 'warn', 'draw done'],
  'source.moved': ({ from, to }) => [sourceLevel(from, to), 'source state changed'],
  'source.warned': () => ['warn', 'source warning'],
  'readiness.changed': (event) => [readinessLevel(event), 'readiness changed'],
  'fleet.store': ({ up, code }) => {
    if (up) return ['info', "fleet's store connected"];
    return code === 'fleet-store-unusable'
      ? ['error', "fleet's store refuses noria"]
      : ['warn', "fleet's store lost"];
  },
  'fleet.claimed': () => ['trace', 'fleet claim attempted'],
  'fleet.answered': () => ['trace', "fleet's store answered"],
  'fleet.followed': () => ['trace', 'fleet change applied'],
  'fleet.loaded': ({ movedSessions }) => [movedSessions === 0 ? 'debug' : 'info', 'fleet data loaded'],
  'fleet.warned': () => ['warn', 'fleet warning'],
  'fleet.unagreed': () => ['debug', 'session not agreed in time'],
  'dial.attempted': ({ outcome }) => [outcome === 'accepted' ? 'trace' : 'debug', 'dial attempted'],
  // A failed dial also has level debug, because its `client.refused` line has level info.
  'dial.ended': () => ['debug', 'dial ended'],
  'hedge.ended': () => ['trace', 'hedge ended'],
  'network.judged': ({ down }) => [
    down ? 'error' : 'info',
    down ? 'network of this machine failed; noria evicts no members' : 'network of this machine works again',
  ],
  'connection.opened': () => ['trace', 'connection opened'],
  // level trace if the connection succeeded: at level debug, the `dial ended` line already reports its success
  'connection.closed': ({ outcome }) => [outcome === 'ok' ? 'trace' : 'debug', 'connection closed'],
  'tunnel.closed': () => ['trace', 'tunnel closed'],
};

function sourceLevel(from: string, to: string): Level {
  if (to === 'halted') return 'error';
  if (to === 'paused' || to === 'backoff') return 'warn';
  return ROUTINE_STATES.has(from) && ROUTINE_STATES.has(to) ? 'debug' : 'info';
}

/** If `problems` is empty, `degraded` only means that the pool is empty for a moment. */
function readinessLevel(event: NoriaEvents['readiness.changed']): Level {
  const { from, to, ready, problems, shuttingDown, cleared } = event;
  if (!ready) return shuttingDown ? 'info' : 'error';
  if (problems.length > 0) return 'warn';
  const isRoutine = ROUTINE_READINESS.has(from) && ROUTINE_READINESS.has(to);
  return isRoutine && !cleared ? 'debug' : 'info';
}

export function logEvents(bus: EventBus, log: Log, clock: Clock): Disposable {
  const names = Object.keys(LINES) as UnlimitedEvent[];
  const refusals = new RefusalLog(clock, log);
  const subscriptions = [
    ...names.map((name) => logEvent(bus, log, name)),
    bus.on('client.refused', (event) => refusals.add(event)),
    refusals,
  ];
  return {
    [Symbol.dispose]: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}

function logEvent<Name extends UnlimitedEvent>(bus: EventBus, log: Log, name: Name): Disposable {
  const line: Line<Name> = LINES[name];
  return bus.on(name, (event) => {
    const [level, message] = line(event);
    log[level](event, message);
  });
}

const MAX_LOGGED_REFUSALS = 5;
const REFUSAL_WINDOW_MS = 10_000;
const MAX_CLIENTS = 200;
const OTHER_CLIENTS = 'others';

interface Window {
  readonly endsAt: number;
  logged: number;
  count: number;
  readonly codes: Partial<Record<FaultCode, number>>;
}

/**
 * A client that retries again and again would fill the disk. In each client's window of time, only the first refusals get
 * a line each; at its end, one more line states the number of further ones.
 */
class RefusalLog implements Disposable {
  readonly #clock: Clock;
  readonly #log: Log;
  /** The windows that have not ended, oldest first. All windows have the same length, so the oldest ends first. */
  readonly #windows = new BoundedMap<string, Window>(MAX_CLIENTS + 1);
  readonly #timer: EarliestTimer;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
    this.#timer = new EarliestTimer(clock, () => this.#closeWindows(clock.monotonic()));
  }

  add(refusal: NoriaEvents['client.refused']): void {
    const window = this.#windowOf(refusal.client);
    if (window.logged < MAX_LOGGED_REFUSALS) {
      window.logged += 1;
      this.#log.info(refusal, 'client refused');
      return;
    }
    window.count += 1;
    window.codes[refusal.code] = (window.codes[refusal.code] ?? 0) + 1;
  }

  [Symbol.dispose](): void {
    this.#timer.disarm();
    this.#closeWindows(Number.POSITIVE_INFINITY);
  }

  #windowOf(client: string): Window {
    const isOther = !this.#windows.has(client) && this.#windows.size >= MAX_CLIENTS;
    const name = isOther ? OTHER_CLIENTS : client;
    const open = this.#windows.get(name);
    if (open !== undefined) return open;
    const endsAt = this.#clock.monotonic() + REFUSAL_WINDOW_MS;
    const window: Window = { endsAt, logged: 0, count: 0, codes: {} };
    this.#windows.set(name, window);
    this.#timer.armBy(endsAt);
    return window;
  }

  #closeWindows(now: number): void {
    for (const [client, { endsAt, count, codes }] of this.#windows) {
      if (endsAt > now) {
        this.#timer.armBy(endsAt);
        return;
      }
      this.#windows.delete(client);
      const summary = { client, count, codes, ms: REFUSAL_WINDOW_MS };
      if (count > 0) this.#log.info(summary, 'client refused repeatedly');
    }
  }
}
