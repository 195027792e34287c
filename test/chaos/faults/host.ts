/** What the machine lacks: descriptors, disk. By `prlimit`, so that only noria lacks it. */
import { readFileSync } from 'node:fs';
import type { Fault } from './fault.ts';

/** Enough for what is open, hardly anything for new connections. */
const SPARE_DESCRIPTORS = 4;

const descriptors: Fault = {
  name: 'descriptors run out',
  promise: 'broken',
  begin: async ({ subjects }) => {
    const before = openFilesLimit();
    for (const subject of subjects) {
      subject.limit(`--nofile=${subject.footprint().descriptors + SPARE_DESCRIPTORS}:`);
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

export const HOST_FAULTS: readonly Fault[] = [descriptors, disk];

/** The soft limit of this process, which its children inherit. */
function openFilesLimit(): string {
  return /Max open files\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? 'unlimited';
}
