/** The processes of the benchmark: starts them, sends them requests over IPC, and reads their CPU time and memory. */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { FleetWork, FleetWorkResult } from './fleet-replicas.ts';
import type { Load, LoadResult } from './load.ts';
import {
  COUNT_ACCEPTED,
  MEASURE_MEMORY,
  type MemoryUse,
  SUBJECTS,
  type SubjectName,
  type SubjectOptions,
} from './subject.ts';
import type { World, WorldOptions } from './world.ts';

const NS_PER_MS = 1e6;
/** The unit of process times in /proc (USER_HZ). */
const MS_PER_TICK = 10;

/** A proxy under test. */
export interface Running {
  readonly child: ChildProcess;
  readonly port: number;
}

/** A process of clients. It runs one load at a time. */
export class Client {
  readonly child: ChildProcess;

  constructor(child: ChildProcess) {
    this.child = child;
  }

  load(load: Load): Promise<LoadResult> {
    return request(this.child, load);
  }

  /** Like `load`. @throws Error if any part of the load failed, because its figure would be meaningless. */
  async loadOrThrow(load: Load): Promise<LoadResult> {
    const result = await this.load(load);
    const { done, failed, firstError } = result;
    if (failed > 0)
      throw new Error(`${failed} of ${done + failed} failed: ${firstError}: ${JSON.stringify(load)}`);
    return result;
  }
}

export interface CountedWorld {
  readonly child: ChildProcess;
  readonly world: World;
  /** Returns how many connections the members have accepted so far. */
  accepted(): Promise<number>;
}

/** Starts the processes of one benchmark, and ends them on close. */
export class Children {
  readonly #children: ChildProcess[] = [];

  async world(options: WorldOptions): Promise<World> {
    return (await this.countedWorld(options)).world;
  }

  /** Starts a world whose accepted connections can be counted. */
  async countedWorld(options: WorldOptions): Promise<CountedWorld> {
    const child = this.#start('world.ts');
    const world = await request<World>(child, options);
    const accepted = async () => (await request<{ accepted: number }>(child, COUNT_ACCEPTED)).accepted;
    return { child, world, accepted };
  }

  client(): Client {
    return new Client(this.#start('load.ts'));
  }

  /** Replicas of a fleet. */
  fleet(): { readonly child: ChildProcess; work(order: FleetWork): Promise<FleetWorkResult> } {
    const child = this.#start('fleet-replicas.ts');
    return { child, work: (order) => request(child, order) };
  }

  async subject(name: SubjectName, options: SubjectOptions): Promise<Running> {
    const child = this.#start(SUBJECTS[name]);
    const { port } = await request<{ port: number }>(child, options);
    return { child, port };
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

/** Returns the user and kernel CPU time of all threads of a process and its children, in ms. */
export function cpuMs(subject: Running): number {
  return processesOf(subject).reduce((sum, process) => sum + cpuMsOfPid(process), 0);
}

/** The same of one process. */
export function cpuMsOfPid(process: string | number): number {
  let ns = 0;
  // A thread that ends would take its time out of the sum; V8's threads start early and stay.
  for (const thread of readdirSync(`/proc/${process}/task`)) {
    ns += Number(readFileSync(`/proc/${process}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]);
  }
  return ns / NS_PER_MS;
}

/** Like `cpuMs`, but in steps of 10 ms and with the time of threads that have ended. */
export function cpuMsOfAllThreads(subject: Running): number {
  let ticks = 0;
  for (const process of processesOf(subject)) {
    const fields = readFileSync(`/proc/${process}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    ticks += Number(fields[11]) + Number(fields[12]); // utime and stime
  }
  return ticks * MS_PER_TICK;
}

function processesOf({ child: { pid } }: Running): string[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return [String(pid), ...children.split(' ').filter(Boolean)];
}

/** Returns the resident memory of a subject in KiB, after garbage collection. */
export async function memoryKib({ child }: Running): Promise<number> {
  return (await request<MemoryUse>(child, MEASURE_MEMORY)).kib;
}

/** Sends a request to a child and returns its answer. */
async function request<Answer>(child: ChildProcess, message: object | string): Promise<Answer> {
  const answered = new AbortController();
  const ended = once(child, 'exit', { signal: answered.signal }).then(([code]) => {
    throw new Error(`a process of the benchmark exited with ${code}`);
  });
  ended.catch(() => {}); // ignored: the wait is aborted after the answer
  try {
    child.send(message);
    const [answer] = await Promise.race([once(child, 'message', { signal: answered.signal }), ended]);
    return answer;
  } finally {
    answered.abort();
  }
}
