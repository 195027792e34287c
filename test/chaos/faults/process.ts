/** Faults of noria's processes: reloads, signals, crashes. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Fault, oneOf } from './fault.ts';

const STOPPED_MS = 2_000;

const reload: Fault = {
  name: 'reload',
  promise: 'served',
  begin: async ({ configure }) => {
    await configure({ appended: '# changed' });
    return () => configure({});
  },
};

const brokenReload: Fault = {
  name: 'reload of a broken file',
  promise: 'served',
  begin: async ({ configure }) => {
    await configure({ appended: 'sources: { this is not: [valid' });
    return () => configure({});
  },
};

const changedListeners: Fault = {
  name: 'listeners change',
  promise: 'served',
  begin: async ({ configure }) => {
    await configure({ moreListeners: '  - address: "127.0.0.1:0"' });
    return () => configure({});
  },
};

const killed: Fault = {
  name: 'noria is killed',
  promise: 'broken',
  begin: async ({ subjects, random }) => {
    const subject = oneOf(random, subjects);
    await subject.kill();
    return () => subject.start();
  },
};

const stopped: Fault = {
  name: 'noria is stopped and continued',
  promise: 'broken',
  begin: async ({ subjects, random }) => {
    const subject = oneOf(random, subjects);
    const processes = [subject.pid, ...subject.workers];
    for (const pid of processes) process.kill(pid, 'SIGSTOP');
    const timer = setTimeout(() => resume(processes), STOPPED_MS);
    return () => {
      clearTimeout(timer);
      resume(processes);
    };
  },
};

const workerDies: Fault = {
  name: 'a worker dies',
  promise: 'broken',
  begin: async ({ subjects, random }) => {
    const subject = oneOf(random, subjects);
    const [worker] = subject.workers;
    if (worker !== undefined) process.kill(worker, 'SIGKILL');
    return () => {};
  },
};

/** Kills noria and damages the files that it has written, before it starts again. */
const corruptState: Fault = {
  name: 'noria is killed and its state damaged',
  promise: 'broken',
  begin: async ({ subjects, random }) => {
    const subject = oneOf(random, subjects);
    await subject.kill();
    const folder = join(dirname(subject.file), 'state');
    for (const name of readdirSync(folder).filter((name) => !name.startsWith('pace'))) {
      const path = join(folder, name);
      if (!statSync(path).isFile()) continue;
      const bytes = readFileSync(path);
      writeFileSync(path, bytes.subarray(0, Math.floor(bytes.length * random())));
    }
    return () => subject.start();
  },
};

export const PROCESS_FAULTS: readonly Fault[] = [
  reload,
  brokenReload,
  changedListeners,
  killed,
  stopped,
  workerDies,
  corruptState,
];

function resume(processes: readonly number[]): void {
  for (const pid of processes) {
    try {
      process.kill(pid, 'SIGCONT');
    } catch {
      // ignored: the process has ended
    }
  }
}
