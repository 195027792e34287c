import { expect, test } from 'vitest';
import { ServiceManager } from '../../src/commands/service-manager.ts';
import { createLog } from '../../src/core/log.ts';
import { ManualClock } from '../support/manual-clock.ts';

const ENV = { NOTIFY_SOCKET: '/run/systemd/notify', WATCHDOG_USEC: '30000000' };

/** A clock whose timers fire 3 s late, as with a blocked event loop. */
class HeldUpClock extends ManualClock {
  override after(ms: number, fn: () => void): Disposable {
    return super.after(ms + 3_000, fn);
  }
}

function open(
  env: Record<string, string>,
  sending: (fields: readonly string[]) => Promise<void> = async () => {},
  clock = new ManualClock(),
) {
  const sent: string[] = [];
  const lines: string[] = [];
  let status = 'ready: 1 member is usable';
  const manager = new ServiceManager({
    env,
    clock,
    boot: { id: 'b', elapsedMs: () => 1_234.5, uptimeMs: () => 1_234.5 },
    log: createLog({
      level: 'warn',
      format: 'json',
      destination: { write: (line) => void lines.push(line) },
    }),
    status: () => status,
    send: (fields) => {
      sent.push(fields.join(' '));
      return sending(fields);
    },
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const pass = async (ms: number) => {
    clock.advance(ms);
    await settle();
  };
  return { manager, clock, sent, lines, pass, settle, say: (text: string) => (status = text) };
}

test('service manager: notifies the watchdog three times per interval, and sends the status when it changes', async () => {
  const { manager, sent, pass, settle, say, clock } = open(ENV);
  manager.ready();
  await settle();
  await pass(10_000);
  say('ready: 2 members\nare usable');
  await pass(10_000);
  await pass(10_000);
  await manager.close();
  expect(clock.armedCount).toBe(0);
  expect(sent).toEqual([
    'READY=1 STATUS=ready: 1 member is usable',
    'WATCHDOG=1',
    'WATCHDOG=1 STATUS=ready: 2 members are usable',
    'WATCHDOG=1',
  ]);
});

test('service manager: sends only a changed status without a watchdog', async () => {
  const { manager, sent, pass, say } = open({ NOTIFY_SOCKET: '/run/systemd/notify' });
  manager.ready();
  await pass(10_000);
  say('not ready: nothing listens');
  await pass(10_000);
  await manager.close();
  expect(sent).toEqual(['READY=1 STATUS=ready: 1 member is usable', 'STATUS=not ready: nothing listens']);
});

test('service manager: ignores a watchdog of another process', async () => {
  const { manager, sent, pass } = open({ ...ENV, WATCHDOG_PID: '1' });
  manager.ready();
  await pass(60_000);
  await manager.close();
  expect(sent).toEqual(['READY=1 STATUS=ready: 1 member is usable']);
});

test('service manager: the reload notification has its monotonic time, and the stop notification how long stopping may take', async () => {
  const { manager, sent, settle } = open(ENV);
  manager.reloading();
  manager.stopping(30_000);
  await settle();
  expect(sent).toEqual([
    'RELOADING=1 MONOTONIC_USEC=1234500',
    'STOPPING=1 STATUS=ready: 1 member is usable EXTEND_TIMEOUT_USEC=35000000',
  ]);
});

test('service manager: sends one notification at a time, and queues no watchdog notification behind a slow one', async () => {
  const ends: (() => void)[] = [];
  const { manager, sent, pass, settle, say } = open(
    ENV,
    () => new Promise((resolve) => void ends.push(resolve)),
  );
  manager.ready();
  say('ready: 2 members are usable');
  for (let beat = 0; beat < 5; beat += 1) await pass(10_000);
  expect(sent.length).toBe(1);
  ends.shift()?.();
  await settle();
  await pass(10_000);
  ends.shift()?.();
  await manager.close();
  expect(sent).toEqual([
    'READY=1 STATUS=ready: 1 member is usable',
    'WATCHDOG=1 STATUS=ready: 2 members are usable',
  ]);
});

test('service manager: logs a blocked event loop', async () => {
  const { manager, lines, pass } = open(ENV, undefined, new HeldUpClock());
  manager.ready();
  await pass(13_000);
  await manager.close();
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { msg: 'event loop was blocked', lateMs: 3_000 },
  ]);
});

test('service manager: logs a failed notification once', async () => {
  const { manager, lines, pass } = open(ENV, () => Promise.reject(new Error('spawn ENOENT')));
  manager.ready();
  await pass(10_000);
  await pass(10_000);
  await manager.close();
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { msg: 'cannot notify systemd', error: 'spawn ENOENT' },
  ]);
});

test('service manager: does nothing without NOTIFY_SOCKET', async () => {
  const { manager, sent, clock } = open({});
  manager.ready();
  manager.reloading();
  manager.stopping(1);
  await manager.close();
  expect(sent).toEqual([]);
  expect(clock.armedCount).toBe(0);
});
