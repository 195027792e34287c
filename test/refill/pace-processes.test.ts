import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { PACE_SLACK_MS } from '../../src/refill/pace-rule.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { until } from '../support/until.ts';

const INTERVAL_MS = 50;
/** Between reading the moment of a start and telling it. */
const TELLING_MS = 3;

interface Told {
  readonly what: 'start' | 'end';
  readonly at: number;
  readonly pid: number;
}

test('pace: five processes on one folder, some of them killed, keep it together', async () => {
  const folder = temporaryFolder();
  const told: Told[] = [];
  const open = () => openCaller(folder, told);
  const first = Array.from({ length: 5 }, open);
  const starts = () => told.filter(({ what }) => what === 'start').sort((a, b) => a.at - b.at);

  await until('calls were made', () => starts().length >= 4);
  const killed = first.slice(0, 3);
  for (const caller of killed) caller.kill('SIGKILL');
  await Promise.all(killed.map((caller) => once(caller, 'exit')));
  for (let more = 0; more < 3; more += 1) open();
  await until('more calls were made, by newcomers too', () => starts().length >= 12);

  const all = starts();
  const gaps = all.slice(1).map(({ at }, index) => at - (all[index]?.at ?? 0));
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(INTERVAL_MS + PACE_SLACK_MS - TELLING_MS);
  expect(new Set(all.map(({ pid }) => pid)).size, 'only one process ever called').toBeGreaterThan(1);
  expect(overlaps(told)).toEqual([]);
});

function openCaller(folder: string, told: Told[]): ChildProcess {
  const script = join(import.meta.dirname, 'pacing-process.ts');
  const caller = spawn(process.execPath, [script, folder, String(INTERVAL_MS)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(async () => {
    if (caller.exitCode !== null || caller.signalCode !== null) return;
    caller.kill('SIGKILL');
    await once(caller, 'exit');
  });
  createInterface(caller.stdout).on('line', (line) => told.push(JSON.parse(line)));
  return caller;
}

/** Calls that began while another one was under way. One that was killed has no end. */
function overlaps(told: readonly Told[]): Told[] {
  let open: Told | undefined;
  return [...told]
    .sort((a, b) => a.at - b.at)
    .filter((next) => {
      const overlaps =
        next.what === 'start' &&
        open !== undefined &&
        told.some((end) => end.what === 'end' && end.pid === open?.pid && end.at > next.at);
      open = next.what === 'start' ? next : undefined;
      return overlaps;
    });
}
