/** The processes of the bench: started, asked over their channel, and weighed by what the kernel has counted for them. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Load, LoadResult } from './load.ts';
import { SUBJECTS, type SubjectName, type SubjectOptions, WEIGH, type Weight } from './subject.ts';
import type { World, WorldOptions } from './world.ts';

const NS_PER_MS = 1e6;

/** A proxy under test. */
export interface Running {
  readonly child: ChildProcess;
  readonly port: number;
}

/** Starts the processes of one bench and ends them with it. */
export class Children {
  readonly #children: ChildProcess[] = [];
  readonly #load: ChildProcess;

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

/** CPU time that a process has used so far, ms: of all its threads, of its own and in the kernel for it. */
export function cpuMs({ child: { pid } }: Running): number {
  let ns = 0;
  // Threads come and go at the start alone: the engine's helpers, which stay.
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]);
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
