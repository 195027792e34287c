/**
 * The pace as the service sees it: real norias call a service through a proxy that delays their bytes, and are stopped and killed
 * at the worst moments. The service records when calls arrive: the time between two arrivals is never shorter than the interval.
 * The scenarios wait for real intervals, so they run at the same time.
 */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { until } from '../support/until.ts';
import { openStage, type Stage, type StageOptions } from './arrivals.ts';

const CLASSIC = {
  product: 'short-classic',
  sources: [{ name: 'city', intervalMs: 10_000 }],
  timeoutMs: 5_000,
};
const RESIDENTIAL = {
  product: 'residential-socks5',
  sources: [{ name: 'city', intervalMs: 1_000 }],
  timeoutMs: 5_000,
};
const DELAY_MS = 3_000;
const STOP_AFTER_CLAIM = new URL('stop-after-claim.ts', import.meta.url);

/** Opens a stage that delays the first call and no other. */
async function slowFirstCall(options: StageOptions): Promise<Stage> {
  const stage = await openStage({ ...options, delayMs: (connection) => (connection === 0 ? DELAY_MS : 0) });
  stage.run();
  await until('two calls have arrived', () => stage.arrivals.length >= 2);
  return stage;
}

async function killedCall(options: StageOptions): Promise<Stage> {
  const stage = await openStage({ ...options, delayMs: (connection) => (connection === 0 ? DELAY_MS : 0) });
  const noria = stage.run();
  await until('the request is on the way', () => stage.begun() === 1);
  noria.child.kill('SIGKILL');
  await noria.ended;
  stage.run();
  await until('a call after the restart has arrived', () => stage.arrivals.length >= 2);
  return stage;
}

async function stoppedBeforeCall(options: StageOptions): Promise<Stage> {
  const stage = await openStage(options);
  const noria = stage.run({ NODE_OPTIONS: `--import=${STOP_AFTER_CLAIM.href}` });
  await until('noria has stopped', () => {
    if (noria.child.exitCode !== null) throw new Error(`noria ended: ${noria.err()}`);
    return isStopped(noria.child.pid);
  });
  const extract = stage.extract('city');
  await until('the call of extract has arrived', () => stage.arrivals.length === 1);
  noria.child.kill('SIGCONT');
  await extract.ended;
  await until('the continued noria has called', () => stage.arrivals.length >= 2);
  return stage;
}

function isStopped(pid: number | undefined): boolean {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T');
}

const SCENARIOS: readonly (readonly [
  what: string,
  options: StageOptions,
  play: (options: StageOptions) => Promise<Stage>,
])[] = [
  ['a connection of 3 s, the next one at once', { ...CLASSIC, tls: true }, slowFirstCall],
  ['a request of 3 s, the next one at once', CLASSIC, slowFirstCall],
  ['a connection of 3 s at an interval of 1 s', { ...RESIDENTIAL, tls: true }, slowFirstCall],
  ['a request of 3 s at an interval of 1 s', RESIDENTIAL, slowFirstCall],
  ['killed while its call is on the way', CLASSIC, killedCall],
  ['stopped between claim and call', RESIDENTIAL, stoppedBeforeCall],
];

test('pace: no two calls arrive closer than the interval, whatever is delayed, stopped or killed', async () => {
  const gaps = await Promise.all(
    SCENARIOS.map(async ([what, options, play]) => {
      const [source] = options.sources;
      const intervalMs = source?.intervalMs ?? 0;
      const gapMs = (await play(options)).leastGapMs();
      if (process.env['PRINT_GAPS']) console.log(what, gapMs, intervalMs);
      return { what, gapMs, isKept: gapMs >= intervalMs };
    }),
  );
  expect(gaps.filter(({ isKept }) => !isKept)).toEqual([]);
});
