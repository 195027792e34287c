import { expect, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { createLog, type LogLevel, logEvents } from '../../src/core/log.ts';
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
  const following = logEvents(bus, log);
  return { log, bus, lines, following };
}

/** pino's numbers of levels. */
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

/** What the parts tell of one tunnel that goes well. */
function tellTunnel(bus: EventBus): void {
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

test('log: a connection that goes well is one line at debug, with its target and its member, and none at info', () => {
  const debug = openTestLog('debug');
  tellTunnel(debug.bus);
  expect(debug.lines).toMatchObject([
    { msg: 'dial ended', target: 'a.example:443', member: 'm1', level: LEVEL.debug },
  ]);
  const info = openTestLog('info');
  tellTunnel(info.bus);
  expect(info.lines).toEqual([]);
});

test('log: changes of state are told at info, trouble at warn, what needs a person at error', () => {
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
    [LEVEL.error, 'own network judged down: members are not evicted meanwhile'],
  ]);
});

test('log: the level can be changed while it runs', () => {
  const { bus, log, lines } = openTestLog('info');
  tellTunnel(bus);
  log.level = 'trace';
  tellTunnel(bus);
  log.level = 'silent';
  tellTunnel(bus);
  expect(lines).toHaveLength(5);
});

test('log: durations are told to a tenth of a millisecond, and nothing else is touched', () => {
  const { log, lines } = openTestLog();
  log.info({ ms: 12.3456, waitedMs: 0.04, forms: 1.23456, remaining: 1.23456, msTotal: 'x' }, 'said');
  expect(lines).toMatchObject([{ ms: 12.3, waitedMs: 0, forms: 1.23456, remaining: 1.23456, msTotal: 'x' }]);
});

test('log: a secret is masked, as a Secret and by its name', () => {
  const { log, lines } = openTestLog();
  log.info({ given: new Secret('s1'), password: 's2', source: { akey: 's3', token: 's4' } }, 'said');
  expect(JSON.stringify(lines)).not.toMatch(/s[1-4]"/);
  expect(lines).toMatchObject([{ given: '[secret]', password: '[secret]', source: { akey: '[secret]' } }]);
});

test('log: it stops following the events', () => {
  const { bus, lines, following } = openTestLog();
  following[Symbol.dispose]();
  tellTunnel(bus);
  expect(lines).toEqual([]);
});
