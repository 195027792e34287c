/**
 * What the machine does to noria: it limits descriptors and disk space (`prlimit`) or memory, and sets the clock
 * (libfaketime).
 */
import { readFileSync } from 'node:fs';
import { FAKE_CLOCK } from '../../support/tools.ts';
import { type Fault, oneOf } from './fault.ts';

/** Enough for what noria has open, but for hardly any new connection. */
const SPARE_DESCRIPTORS = 4;

const descriptors: Fault = {
  name: 'descriptors run out',
  promise: 'broken',
  begin: async ({ subjects }) => {
    const before = openFilesLimit();
    for (const subject of subjects) {
      subject.limit(`--nofile=${subject.descriptors() + SPARE_DESCRIPTORS}:`);
    }
    return () => {
      for (const subject of subjects) subject.limit(`--nofile=${before}:`);
    };
  },
};

/** Every write to a file fails, as on a full disk. */
const disk: Fault = {
  name: 'the disk is full',
  promise: 'served',
  begin: async ({ subjects }) => {
    for (const subject of subjects) subject.limit('--fsize=0:');
    return () => {
      for (const subject of subjects) subject.limit('--fsize=unlimited:');
    };
  },
};

/** Enough memory for a noria with some hundred tunnels, but not for one that keeps the data that it reads. */
const SMALL_HEAP = '--max-old-space-size=48';

const memory: Fault = {
  name: 'memory is short',
  promise: 'broken',
  begin: async ({ subjects, random }) => {
    const subject = oneOf(random, subjects);
    await subject.kill();
    await subject.start([SMALL_HEAP]);
    return () => {};
  },
};

const HOUR_S = 3_600;

function clockStep(name: string, bySeconds: number): Fault {
  return {
    name: `the clock steps ${name}`,
    promise: 'served',
    begin: async ({ subjects }) => {
      for (const subject of subjects) subject.setClock(bySeconds);
      return () => {
        for (const subject of subjects) subject.setClock(0);
      };
    },
  };
}

const CLOCK_STEPS = [clockStep('forward', HOUR_S), clockStep('back', -HOUR_S)];

export const HOST_FAULTS: readonly Fault[] = [
  descriptors,
  disk,
  memory,
  ...(FAKE_CLOCK === undefined ? [] : CLOCK_STEPS),
];

/** The faults that this machine cannot play, and why. */
export const SKIPPED_FAULTS: readonly string[] =
  FAKE_CLOCK === undefined ? CLOCK_STEPS.map(({ name }) => `${name} (libfaketime is not installed)`) : [];

/** Returns this process's soft limit on open files, which its children inherit. */
function openFilesLimit(): string {
  return /Max open files\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? 'unlimited';
}
