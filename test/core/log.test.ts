import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { createLog, logEvents } from '../../src/core/log.ts';
import type { LogLevel } from '../../src/core/log-options.ts';
import { Secret } from '../../src/core/secret.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

function openTestLog(level: LogLevel = 'trace', clock = new ManualClock()) {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({
    level,
    format: 'json',
    destination: { write: (line) => void lines.push(JSON.parse(line)) },
  });
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const subscription = logEvents(bus, log, clock);
  return { log, bus, lines, subscription, clock };
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

test('log: the sessions that a fleet moved during an absence are one line at info, with their count', () => {
  const { bus, lines } = openTestLog('info');
  const moved = { session: 's1', from: 'm1', to: 'm2' };
  bus.emit('session.moved', { ...moved, reason: 'loaded' });
  bus.emit('fleet.loaded', { movedSessions: 0 });
  expect(lines).toEqual([]);
  bus.emit('fleet.loaded', { movedSessions: 75 });
  bus.emit('session.moved', { ...moved, reason: 'left' });
  expect(lines).toMatchObject([
    { msg: 'fleet data loaded', movedSessions: 75 },
    { msg: 'session moved', reason: 'left' },
  ]);
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
    client: '192.0.2.1',
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
    [LEVEL.error, 'network of this machine failed; noria evicts no members'],
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

const REFUSAL: NoriaEvents['client.refused'] = {
  listener: LISTENER,
  client: '192.0.2.1',
  protocol: 'connect',
  code: 'forbidden',
  detail: 'target 127.0.0.1:22 refused',
};
/** Every kind of character that a terminal interprets, with a letter on each side. */
const HOSTILE = 'a\u009b31mb\u202ec\u200bd\u2028e\u2066f\ufeffg\u007fh\u{e0041}i';
const ESCAPED = String.raw`a\u009b31mb\u202ec\u200bd\u2028e\u2066f\ufeffg\u007fh\udb40\udc41i`;

test('log: escapes control, bidirectional and zero-width characters in JSON, without changing the value', () => {
  const texts: string[] = [];
  const log = createLog({
    level: 'info',
    format: 'json',
    destination: { write: (line) => void texts.push(line) },
  });
  log.info({ detail: HOSTILE, list: [HOSTILE] }, HOSTILE);
  expect(texts).toHaveLength(1);
  expect(texts[0]).toContain(`"detail":"${ESCAPED}"`);
  expect(texts[0]).toContain(`"msg":"${ESCAPED}"`);
  expect(texts[0]).toMatch(/^[ -~]*\n$/);
  expect(JSON.parse(texts[0] ?? '')).toMatchObject({ detail: HOSTILE, list: [HOSTILE], msg: HOSTILE });
});

test('log: escapes them in pretty lines, in fields and in the message', async () => {
  let text = '';
  const destination = new Writable({
    write: (chunk, _encoding, done) => {
      text += String(chunk);
      done();
    },
  });
  const log = createLog({ level: 'info', format: 'pretty', destination });
  log.info({ detail: `${HOSTILE}\u001b[31m` }, `${HOSTILE}\u001b[31m\nforged`);
  await until('the line is written', () => text.endsWith('\n'));
  expect(text).toMatch(/^[ -~]*\n$/);
  expect(text).toContain(String.raw`${ESCAPED}\u001b[31m\u000aforged`);
});

test('log: of the refusals of a client within ten seconds, five are lines and the others a count', () => {
  const { bus, lines, clock } = openTestLog('info');
  for (let n = 0; n < 1_000; n += 1) bus.emit('client.refused', REFUSAL);
  bus.emit('client.refused', { ...REFUSAL, code: 'bad-request' });
  bus.emit('client.refused', { ...REFUSAL, client: '192.0.2.2' });
  expect(lines.map(({ msg, client }) => [msg, client])).toEqual([
    ...Array.from({ length: 5 }, () => ['client refused', '192.0.2.1']),
    ['client refused', '192.0.2.2'],
  ]);
  clock.advance(10_000);
  expect(lines.slice(6)).toMatchObject([
    {
      msg: 'client refused repeatedly',
      client: '192.0.2.1',
      count: 996,
      codes: { forbidden: 995, 'bad-request': 1 },
      ms: 10_000,
    },
  ]);
  expect(clock.armedCount).toBe(0);
  bus.emit('client.refused', REFUSAL);
  expect(lines, 'a new window').toHaveLength(8);
});

test('log: more than 200 clients refused at a time are counted together', () => {
  const { bus, lines, clock } = openTestLog('info');
  for (let n = 0; n < 100_000; n += 1) {
    bus.emit('client.refused', {
      ...REFUSAL,
      client: `2001:db8:${(n >> 8).toString(16)}:${(n & 255).toString(16)}::/64`,
    });
  }
  expect(lines).toHaveLength(205);
  clock.advance(4_000);
  for (let n = 0; n < 10; n += 1) bus.emit('client.refused', { ...REFUSAL, client: '192.0.2.9' });
  expect(lines).toHaveLength(205);
  clock.advance(6_000);
  expect(lines.slice(205)).toMatchObject([{ client: 'others', count: 99_805, codes: { forbidden: 99_805 } }]);
  expect(clock.armedCount).toBe(0);
});

test('log: what was counted is logged when the log closes', () => {
  const { bus, lines, clock, subscription } = openTestLog('info');
  for (let n = 0; n < 7; n += 1) bus.emit('client.refused', REFUSAL);
  subscription[Symbol.dispose]();
  expect(lines.at(-1)).toMatchObject({ msg: 'client refused repeatedly', count: 2 });
  expect(clock.armedCount).toBe(0);
});
