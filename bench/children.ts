/** The processes of the bench: started, asked over their channel, and weighed by what the kernel has counted for them. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Load, LoadResult } from './load.ts';
import { SUBJECTS, type SubjectName, type SubjectOptions, WEIGH, type Weight } from './subject.ts';
import type { World, WorldOptions } from './world.ts';

const NS_PER_MS = 1e6;
const MS_PER_SECOND = 1_000;

/** A proxy under test. */
export interface Running {
  readonly child: ChildProcess;
  readonly port: number;
}

/** Starts the processes of one bench and ends them with it. */
export class Children {
  readonly #children: ChildProcess[] = [];
  readonly #load: ChildProcess;
  /** Started when one is not enough to keep all workers of a proxy busy. */
  #secondLoad: ChildProcess | undefined;

  constructor() {
    this.#load = this.#start('load.ts');
  }

  world(options: WorldOptions): Promise<World> {
    return ask(this.#start('world.ts'), options);
  }

  async subject(name: SubjectName, options: SubjectOptions): Promise<Running> {
    const child = this.#start(SUBJECTS[name]);
    const { port } = await ask<{ port: number }>(child, options);
    return { child, port };
  }

  /** Runs one load to its end. */
  load(load: Load): Promise<LoadResult> {
    return ask(this.#load, load);
  }

  /** The same. @throws Error when anything failed: a figure of failures is none. */
  async flawless(load: Load): Promise<LoadResult> {
    const result = await this.load(load);
    const { done, failed } = result;
    if (failed > 0) throw new Error(`${failed} of ${done + failed} failed: ${JSON.stringify(load)}`);
    return result;
  }

  /** The same by two processes at once, each half of it; returns how many tunnels a second they opened together. */
  async tunnelsPerSecond(load: Extract<Load, { kind: 'tunnels' }>): Promise<number> {
    this.#secondLoad ??= this.#start('load.ts');
    const half = { ...load, count: Math.ceil(load.count / 2), beside: Math.ceil(load.beside / 2) };
    const startedAt = performance.now();
    const results = await Promise.all(
      [this.#load, this.#secondLoad].map((child) => ask<LoadResult>(child, half)),
    );
    const seconds = (performance.now() - startedAt) / MS_PER_SECOND;
    const failed = results.reduce((sum, result) => sum + result.failed, 0);
    if (failed > 0) throw new Error(`${failed} failed: ${JSON.stringify(load)}`);
    return results.reduce((sum, { done }) => sum + done, 0) / seconds;
  }

  close(): void {
    for (const child of this.#children) child.kill();
  }

  #start(file: string): ChildProcess {
    const path = fileURLToPath(new URL(file, import.meta.url));
    const child = fork(path, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.#children.push(child);
    return child;
  }
}

/**
 * CPU time that a process and those it has started have used so far, ms: of all their threads, of their own and in the kernel
 * for them.
 */
export function cpuMs({ child: { pid } }: Running): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  let ns = 0;
  for (const process of [pid, ...children]) {
    // Threads come and go at the start alone: the engine's helpers, which stay.
    for (const thread of readdirSync(`/proc/${process}/task`)) {
      ns += Number(readFileSync(`/proc/${process}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]);
    }
  }
  return ns / NS_PER_MS;
}

/** What a subject holds once its garbage is gone, KiB of resident memory. */
export async function weighKib({ child }: Running): Promise<number> {
  return (await ask<Weight>(child, WEIGH)).kib;
}

/** One question and its answer over the channel of a child. */
async function ask<Answer>(child: ChildProcess, message: object | string): Promise<Answer> {
  const answered = new AbortController();
  const ended = once(child, 'exit', { signal: answered.signal }).then(([code]) => {
    throw new Error(`a process of the bench ended with ${code}`);
  });
  ended.catch(() => {}); // ignored: aborted when the answer came first
  try {
    child.send(message);
    const [answer] = await Promise.race([once(child, 'message', { signal: answered.signal }), ended]);
    return answer;
  } finally {
    answered.abort();
  }
}
