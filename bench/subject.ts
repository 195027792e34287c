/** The proxies under test, each in a separate process, and their options. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { World } from './world.ts';

export interface SubjectOptions {
  readonly world: World;
  readonly protocol: 'http' | 'socks5' | 'socks4';
  /** Whether the members require a login. */
  readonly login?: boolean;
  readonly members: number;
  /** How many members must be usable before the load starts. */
  readonly usable: number;
  /** The number of noria's worker processes; default 1. */
  readonly workers?: number;
  /** Makes noria the only replica of a fleet with the store on this port. */
  readonly storePort?: number;
  /** Whether noria records no requests, and so has no ledger. */
  readonly unrecorded?: boolean;
}

export const SUBJECTS = {
  noria: 'subject-noria.ts',
  'proxy-chain': 'subject-proxy-chain.ts',
  bare: 'subject-bare.ts',
  tinyproxy: 'subject-tinyproxy.ts',
  squid: 'subject-squid.ts',
} as const;

export type SubjectName = keyof typeof SUBJECTS;

/** On this message, a subject collects its garbage and answers with its memory use. */
export const MEASURE_MEMORY = 'measure memory';

/** On this message, a world answers with the number of connections that its members have accepted. */
export const COUNT_ACCEPTED = 'count accepted';

export interface MemoryUse {
  readonly kib: number;
}

/** Starts the proxy at the first message and answers with its port. Ends when the benchmark disconnects. */
export function serveSubject(open: (options: SubjectOptions) => Promise<number>): void {
  process.once('message', (options: SubjectOptions) => {
    process.on('message', (message) => {
      if (message === MEASURE_MEMORY) process.send?.(measureMemory());
    });
    void open(options).then((port) => process.send?.({ port }));
  });
  process.on('disconnect', () => process.exit(0));
}

/**
 * Returns the resident memory after two full collections, because the second one frees what finalizers of the first one
 * have released.
 */
function measureMemory(): MemoryUse {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  collect();
  collect();
  return { kib: process.memoryUsage.rss() / 1_024 };
}
