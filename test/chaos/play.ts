/**
 * Plays one run: clients send requests without a pause, faults happen by the schedule, and the judge decides at the
 * end.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { seededRandom } from '../../src/core/random.ts';
import { CLIENT_KINDS, type ClientOptions, exchange } from './clients.ts';
import { storeFaults } from './faults/store.ts';
import { disturb } from './hostile-clients.ts';
import { type Judged, MOST_TIMES_AS_LATE, violationsOf } from './judge.ts';
import { type FaultSummary, Recording } from './record.ts';
import { type PlannedFault, planFaults, WARM_UP_MS } from './schedule.ts';
import { DEADLINE_MS, openStage, SECRETS, type Stage, USERNAME } from './stage.ts';
import type { Life } from './subject.ts';
import { Tombstones } from './tombstones.ts';

export interface RunOptions {
  readonly name: string;
  readonly norias: number;
  readonly workers: number;
  readonly seed: number;
  readonly durationMs: number;
}

export interface RunResult {
  readonly name: string;
  readonly exchanges: number;
  readonly bySuccess: number;
  readonly promised: number;
  /** One line for each failed exchange that no fault excuses. */
  readonly failures: readonly string[];
  readonly calls: number;
  readonly faults: readonly FaultSummary[];
  /** The last life of each noria; undefined for one that has died. */
  readonly lives: readonly (Life | undefined)[];
  readonly violations: readonly string[];
}

/** The time between the starts of two exchanges. A run of ten minutes has 24,000 exchanges. */
const EXCHANGE_EVERY_MS = 25;
const DISTURB_EVERY_MS = 200;
const SAMPLE_EVERY_MS = 500;
/** The time limit of a client, on a machine that delays nothing: noria's deadline, and some time for the network in between. */
const PATIENCE_MS = DEADLINE_MS + 2_000;
/** After the last fault, noria has this time to release what the fault has left. */
const COOL_DOWN_MS = 8_000;
/** The time limit of an admin page. It is long enough for a busy machine. */
const PAGE_LIMIT_MS = 20_000;
const PAGES = ['/api/status', '/api/members', '/api/sessions', '/metrics', '/openapi.json'];

export async function playRun({ name, norias, workers, seed, durationMs }: RunOptions): Promise<RunResult> {
  const stage = await openStage({ seed, norias, workers });
  try {
    const recording = new Recording();
    const startedAt = performance.now();
    const exits = new Set<string>();
    const own = monitorEventLoopDelay({ resolution: 10 });
    own.enable();
    const tombstones = new Tombstones(stage.sandbox);
    const [, asked] = stage.sandbox.instances;
    const askedExits = new Set<string>();
    const sample = () => {
      for (const { exit, instance } of stage.sandbox.members()) {
        exits.add(exit);
        if (instance === asked?.id) askedExits.add(exit);
      }
    };
    const isOfSource = (exit: string) => {
      if (!askedExits.has(exit)) sample();
      return askedExits.has(exit);
    };
    const ownDelayMs = () => own.percentile(99) / 1e6;
    const limitMs = () => PATIENCE_MS + MOST_TIMES_AS_LATE * ownDelayMs();
    const sampling = setInterval(sample, SAMPLE_EVERY_MS);
    const disturbing = keepDisturbing(stage, seed);
    const traffic = keepExchanging(stage, recording, { seed, startedAt, isOfSource, limitMs });
    await pause(WARM_UP_MS);
    const ofStore = stage.store === undefined ? [] : storeFaults(stage.store);
    await playFaults(stage, recording, planFaults(seed, durationMs - COOL_DOWN_MS, ofStore), startedAt);
    await pause(Math.max(0, startedAt + durationMs - COOL_DOWN_MS - performance.now()));
    disturbing.stop();
    await traffic.stop();
    clearInterval(sampling);
    sample(); // the last requests may have used members that are newer than the last sample
    own.disable();
    await pause(COOL_DOWN_MS);
    tombstones.close();
    const lives = await Promise.all(stage.on.map(({ subject }) => subject.life(false)));
    for (const [index, life] of lives.entries())
      if (life !== undefined) stage.on[index]?.subject.lives.push(life);
    const { served, eventLoopDelayMs } = await readPages(stage);
    const exitCodes = await Promise.all(stage.on.map(({ subject }) => subject.stop()));
    const stored = stage.store === undefined ? '' : contentsOf(stage.store.folder);
    const { lateMs } = tombstones;
    const measured = { lateMs, exits, served: served + stored, eventLoopDelayMs, ownDelayMs: ownDelayMs() };
    const violations = [
      ...violationsOf(judgedOf(stage), recording, measured),
      ...exitCodes
        .filter((code) => code !== 0)
        .map((code) =>
          code === null ? 'a noria was dead at the end' : `a noria ended with exit code ${code}`,
        ),
    ];
    return {
      name,
      exchanges: recording.exchanges.length,
      bySuccess: recording.exchanges.filter(({ outcome }) => outcome.kind === 'ok').length,
      promised: recording.promised,
      failures: recording.failures(),
      calls: stage.gates.reduce((sum, { count }) => sum + count, 0),
      faults: recording.summaries(),
      lives,
      violations,
    };
  } finally {
    await stage.close();
  }
}

function judgedOf({ sandbox, origin, gates, on }: Stage): Judged {
  return {
    keys: sandbox.instances.map(({ akey }) => akey),
    seen: origin.seen,
    gates,
    subjects: on.map(({ subject: { name, output, crashes, lives }, folder }) => ({
      name,
      output,
      crashes,
      lives,
      stateFolder: join(folder, 'state'),
    })),
  };
}

/** Returns the contents of all files of a store. */
function contentsOf(folder: string): string {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => readFileSync(join(parentPath, name), 'latin1'))
    .join('\n');
}

function keepExchanging(
  stage: Stage,
  recording: Recording,
  {
    seed,
    startedAt,
    isOfSource,
    limitMs,
  }: { readonly seed: number; readonly startedAt: number } & Pick<ClientOptions, 'isOfSource' | 'limitMs'>,
): { stop(): Promise<void> } {
  const random = seededRandom(seed + 2);
  const open = new Set<Promise<void>>();
  let count = 0;
  const begin = () => {
    const kind = CLIENT_KINDS[count % CLIENT_KINDS.length];
    const on = stage.on[count % stage.on.length];
    count += 1;
    if (kind === undefined || on === undefined) return;
    const { subject, port, openPort } = on;
    const beganAt = performance.now() - startedAt;
    const options = {
      port,
      openPort,
      origin: stage.origin,
      username: USERNAME,
      password: SECRETS.user,
      random,
      limitMs,
      isOfSource,
    };
    const one = exchange(kind, options).then((outcome) => {
      const endedAt = performance.now() - startedAt;
      recording.exchanges.push({ kind, subject: subject.name, beganAt, endedAt, outcome });
      open.delete(one);
    });
    open.add(one);
  };
  const timer = setInterval(begin, EXCHANGE_EVERY_MS);
  return {
    stop: async () => {
      clearInterval(timer);
      await Promise.all(open);
    },
  };
}

function keepDisturbing(stage: Stage, seed: number): { stop(): void } {
  const random = seededRandom(seed + 3);
  const removals: (() => void)[] = [];
  const timer = setInterval(() => {
    for (const { port } of stage.on) removals.push(disturb(port, random));
    removals.splice(0, Math.max(0, removals.length - 200));
  }, DISTURB_EVERY_MS);
  return {
    stop: () => {
      clearInterval(timer);
      for (const remove of removals) remove();
    },
  };
}

async function playFaults(
  stage: Stage,
  recording: Recording,
  tracks: readonly (readonly PlannedFault[])[],
  startedAt: number,
): Promise<void> {
  const sinceStart = () => performance.now() - startedAt;
  await Promise.all(
    tracks.map(async (track) => {
      // The faults of a track happen one after the other, because the end of a fault may take long, for example a start
      // on a busy machine.
      for (const { fault, atMs, forMs } of track) {
        await pause(atMs - sinceStart());
        const played = { fault, beganAt: sinceStart(), endedAt: Number.POSITIVE_INFINITY };
        recording.faults.push(played);
        try {
          const end = await fault.begin(stage.faults);
          await pause(forMs);
          await end();
        } catch (error) {
          const dead = stage.on.filter(({ subject }) => !subject.isRunning);
          if (dead.length === 0) throw error;
          for (const { subject } of dead)
            subject.crashes.push(`${subject.name} was dead during "${fault.name}"`);
          return; // the judge has its verdict
        }
        played.endedAt = sinceStart();
      }
    }),
  );
}

async function readPages(stage: Stage): Promise<{ served: string; eventLoopDelayMs: number[] }> {
  const eventLoopDelayMs: number[] = [];
  let served = '';
  for (const { subject } of stage.on) {
    for (const path of PAGES) {
      const text = await subject.get(path, PAGE_LIMIT_MS).then(
        (response) => response.text(),
        (error: unknown) => {
          subject.crashes.push(`${subject.name} did not answer ${path} at the end: ${error}`);
          return '';
        },
      );
      served += text;
      if (path === '/metrics') {
        eventLoopDelayMs.push(Number(/^nodejs_eventloop_lag_p99_seconds (\S+)/m.exec(text)?.[1]) * 1_000);
      }
    }
  }
  return { served, eventLoopDelayMs };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}
