import { expect, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { createLog, logEvents } from '../../src/core/log.ts';
import type { LogLevel } from '../../src/core/log-options.ts';
import { Secret } from '../../src/core/secret.ts';

function openTestLog(level: LogLevel = 'trace') {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({
    level,
    format: 'json',
    destination: { write: (line) => void lines.push(JSON.parse(line)) },
  });
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const subscription = logEvents(bus, log);
  return { log, bus, lines, subscription };
}

/** The level numbers of pino. */
const LEVEL = { trace: 10, debug: 20, info: 30, warn: 40, error: 50 } as const;

const LISTENER = '127.0.0.1:8888';
const DIAL: NoriaEvents['dial.ended'] = {
  outcome: 'accepted',
  attempts: 1,
  ms: 12.3456789,
  waitedMs: 0.04,
  source: 'city',
  member: 'm1',
  target: 'a.example:443',
};

/** The events of a successful tunnel. */
function emitTunnel(bus: EventBus): void {
  const via = { source: 'city', member: 'm1' };
  bus.emit('connection.opened', { listener: LISTENER });
  bus.emit('dial.attempted', {
    ...via,
    outcome: 'accepted',
    phase: 'done',
    blame: 'nobody',
    ms: 12,
    hedge: false,
  });
  bus.emit('dial.ended', DIAL);
  bus.emit('tunnel.closed', { ...via, kind: 'tunnel', bytesUp: 1, bytesDown: 2, ms: 90 });
  bus.emit('connection.closed', { listener: LISTENER, protocol: 'connect', outcome: 'ok', ms: 91 });
}

test('log: a successful connection is one line at debug, with target and member, and none at info', () => {
  const debug = openTestLog('debug');
  emitTunnel(debug.bus);
  expect(debug.lines).toMatchObject([
    { msg: 'dial ended', target: 'a.example:443', member: 'm1', level: LEVEL.debug },
  ]);
  const info = openTestLog('info');
  emitTunnel(info.bus);
  expect(info.lines).toEqual([]);
});

test('log: changes of state are info, problems are warn, what needs an operator is error', () => {
  const { bus, lines } = openTestLog('info');
  const moved = { source: 'city', reason: 'why' };
  bus.emit('source.moved', { ...moved, from: 'waiting', to: 'drawing' });
  bus.emit('source.moved', { ...moved, from: 'waiting', to: 'idle' });
  bus.emit('source.moved', { ...moved, from: 'drawing', to: 'backoff' });
  bus.emit('source.moved', { ...moved, from: 'drawing', to: 'halted' });
  bus.emit('dial.ended', { ...DIAL, outcome: 'pool-empty' });
  bus.emit('client.refused', {
    listener: LISTENER,
    protocol: 'http',
    code: 'auth-required',
    detail: 'none given',
  });
  bus.emit('network.judged', { down: true });
  expect(lines.map(({ level, to, msg }) => [level, to ?? msg])).toEqual([
    [LEVEL.info, 'idle'],
    [LEVEL.warn, 'backoff'],
    [LEVEL.error, 'halted'],
    [LEVEL.info, 'client refused'],
    [LEVEL.error, 'network of this machine down: no members are evicted'],
  ]);
});

test('log: the level can be changed at any time', () => {
  const { bus, log, lines } = openTestLog('info');
  emitTunnel(bus);
  log.level = 'trace';
  emitTunnel(bus);
  log.level = 'silent';
  emitTunnel(bus);
  expect(lines).toHaveLength(5);
});

test('log: durations are rounded to a tenth of a millisecond, other numbers are not', () => {
  const { log, lines } = openTestLog();
  log.info({ ms: 12.3456, waitedMs: 0.04, forms: 1.23456, remaining: 1.23456, msTotal: 'x' }, 'said');
  expect(lines).toMatchObject([{ ms: 12.3, waitedMs: 0, forms: 1.23456, remaining: 1.23456, msTotal: 'x' }]);
});

test('log: masks secrets by type and by field name', () => {
  const { log, lines } = openTestLog();
  log.info({ given: new Secret('s1'), password: 's2', source: { akey: 's3', token: 's4' } }, 'said');
  expect(JSON.stringify(lines)).not.toMatch(/s[1-4]"/);
  expect(lines).toMatchObject([{ given: '[secret]', password: '[secret]', source: { akey: '[secret]' } }]);
});

test('log: logs no events once it is disposed of', () => {
  const { bus, lines, subscription } = openTestLog();
  subscription[Symbol.dispose]();
  emitTunnel(bus);
  expect(lines).toEqual([]);
});
