import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { HOUR_MS } from '../../src/core/duration.ts';
import { PACE_SLACK_MS } from '../../src/refill/pace-rule.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { until } from '../support/until.ts';

const INTERVAL_MS = 50;

interface CallEvent {
  readonly what: 'start' | 'end';
  readonly at: number;
  readonly pid: number;
}

test('pace: five processes on one folder, some of them killed, keep one pace', async () => {
  const folder = temporaryFolder();
  const events: CallEvent[] = [];
  const open = () => openCaller(folder, events);
  const first = Array.from({ length: 5 }, open);
  const starts = () => events.filter(({ what }) => what === 'start').sort((a, b) => a.at - b.at);

  await until('the first calls', () => starts().length >= 4);
  const killed = first.slice(0, 3);
  for (const caller of killed) caller.kill('SIGKILL');
  await Promise.all(killed.map((caller) => once(caller, 'exit')));
  for (let more = 0; more < 3; more += 1) open();
  const callers = () => new Set(starts().map(({ pid }) => pid)).size;
  await until('more calls, by several processes', () => starts().length >= 12 && callers() > 1);

  const all = starts();
  const gaps = all.slice(1).map(({ at }, index) => at - (all[index]?.at ?? 0));
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(INTERVAL_MS + PACE_SLACK_MS);
  expect(overlaps(events)).toEqual([]);
});

test('pace: the place in the queue of a killed process does not hold the next process', async () => {
  const folder = temporaryFolder();
  const events: CallEvent[] = [];
  const killed = openCaller(folder, events, HOUR_MS);
  const queue = () => readdirSync(folder).flatMap((name) => queuedIn(join(folder, name)));
  await until('a call', () => events.some(({ what }) => what === 'end'));
  await until('a place in the queue for the next hour', () => queue().includes(killed.pid ?? 0));
  killed.kill('SIGKILL');
  await once(killed, 'exit');
  const next = openCaller(folder, events);
  await until('a call of the next process', () => events.some(({ pid }) => pid === next.pid));
  const [first, second] = events.filter(({ what }) => what === 'start');
  expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(INTERVAL_MS + PACE_SLACK_MS);
});

/** Returns the pids of the processes whose turns a version of the pace file has in its queue. */
function queuedIn(path: string): number[] {
  if (!/pace\.\d+\.json$/.test(path)) return [];
  const text = readFileSync(path, { encoding: 'utf8', flag: 'r' });
  return [...text.matchAll(/"process":\{"pid":(\d+)/g)].map(([, pid]) => Number(pid));
}

function openCaller(folder: string, events: CallEvent[], intervalMs = INTERVAL_MS): ChildProcess {
  const script = join(import.meta.dirname, 'pacing-process.ts');
  const caller = spawn(process.execPath, [script, folder, String(intervalMs)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(async () => {
    if (caller.exitCode !== null || caller.signalCode !== null) return;
    caller.kill('SIGKILL');
    await once(caller, 'exit');
  });
  createInterface(caller.stdout).on('line', (line) => events.push(JSON.parse(line)));
  return caller;
}

/** Returns the calls that started while another one was in flight. The call of a killed process has no end. */
function overlaps(events: readonly CallEvent[]): CallEvent[] {
  let latest: CallEvent | undefined;
  return [...events]
    .sort((a, b) => a.at - b.at)
    .filter((next) => {
      const overlaps =
        next.what === 'start' &&
        latest !== undefined &&
        events.some((end) => end.what === 'end' && end.pid === latest?.pid && end.at > next.at);
      latest = next.what === 'start' ? next : undefined;
      return overlaps;
    });
}
