/** The proxies that are measured, each in a process of its own, and what they are told. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { World } from './world.ts';

export interface SubjectOptions {
  readonly world: World;
  /** What the members speak. */
  readonly protocol: 'http' | 'socks5';
  readonly members: number;
  /** Members that must be usable before the load begins. */
  readonly usable: number;
  /** noria alone: processes that serve clients; 1 when absent. */
  readonly workers?: number;
}

export const SUBJECTS = {
  noria: 'subject-noria.ts',
  'proxy-chain': 'subject-proxy-chain.ts',
  bare: 'subject-bare.ts',
} as const;

export type SubjectName = keyof typeof SUBJECTS;

/** Sent to a subject: it throws its garbage away, and answers with what it then holds. */
export const WEIGH = 'weigh';

/** What a subject answers to WEIGH. */
export interface Weight {
  readonly kib: number;
}

/** Starts the proxy with the first message and tells its port; weighs it when asked; ends with the bench. */
export function serveSubject(open: (options: SubjectOptions) => Promise<number>): void {
  process.once('message', (options: SubjectOptions) => {
    process.on('message', (message) => {
      if (message === WEIGH) process.send?.(weigh());
    });
    void open(options).then((port) => process.send?.({ port }));
  });
  process.on('disconnect', () => process.exit(0));
}

/** Resident memory after two full collections: the second one frees what the first one's finalisers let go. */
function weigh(): Weight {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  collect();
  collect();
  return { kib: process.memoryUsage.rss() / 1_024 };
}
