/** A noria under test, in a separate process that faults stop, kill and starve. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { childEnvironment } from '../support/environment.ts';
import { FAKE_CLOCK } from '../support/tools.ts';
import { until } from '../support/until.ts';

export interface SubjectOptions {
  readonly name: string;
  /** The path of its configuration. */
  readonly file: string;
  readonly adminPort: number;
  readonly adminToken: string;
}

export interface Footprint {
  readonly rssBytes: number;
  /** The memory of buffers, outside the heap. */
  readonly externalBytes: number;
  readonly descriptors: number;
}

/** What a process of noria had before its first client, and at its end. */
export interface Life {
  readonly first: Footprint;
  last: Footprint;
  /** Whether the last footprint was taken while clients were busy, because a fault ended the process. */
  readonly isCut: boolean;
}

const KEPT_OUTPUT_BYTES = 16 * 2 ** 20;
const MEASURE = new URL('measure.ts', import.meta.url).href;

export class Subject {
  readonly name: string;
  readonly file: string;
  readonly #options: SubjectOptions;
  #child: ChildProcess | undefined;
  #started: Promise<void> | undefined;
  #output = '';
  /** The exits of the process that no fault caused. */
  readonly crashes: string[] = [];
  /** The lives of its earlier processes, which faults have ended. */
  readonly lives: Life[] = [];
  #first: Footprint | undefined;
  #expectedToDie = false;

  constructor(options: SubjectOptions) {
    this.name = options.name;
    this.file = options.file;
    this.#options = options;
  }

  /** Everything that the process and its predecessors have printed. */
  get output(): string {
    return this.#output;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new TypeError(`${this.name} does not run`);
    return pid;
  }

  /** The pids of its worker processes. */
  get workers(): readonly number[] {
    const children = readFileSync(`/proc/${this.pid}/task/${this.pid}/children`, 'utf8');
    return children.split(' ').filter(Boolean).map(Number);
  }

  /** Starts the noria and waits until its admin API answers. @param nodeOptions - further options of Node. */
  start(nodeOptions: readonly string[] = []): Promise<void> {
    this.#started = this.#start(nodeOptions);
    return this.#started;
  }

  async #start(nodeOptions: readonly string[]): Promise<void> {
    const entry = join(process.cwd(), 'src/main.ts');
    const child = spawn(
      process.execPath,
      ['--expose-gc', `--import=${MEASURE}`, ...nodeOptions, entry, 'run', '-c', this.file],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...childEnvironment(), ...this.#clockEnvironment(), NORIA_TEST_MEASURES: this.#measures },
      },
    );
    this.#child = child;
    this.#expectedToDie = false;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        if (this.#output.length < KEPT_OUTPUT_BYTES) this.#output += text;
      });
    }
    child.once('exit', (code, signal) => {
      if (!this.#expectedToDie) this.crashes.push(`${this.name} exited with ${signal ?? code}`);
    });
    const answers = () =>
      child.exitCode !== null || child.signalCode !== null || this.get('/healthz').then(isOk, no);
    await until(`${this.name} answers`, answers).catch((error: unknown) => {
      throw new Error(`it has printed: ${this.#output.slice(-2_000)}`, { cause: error });
    });
    this.#first = await this.footprint();
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Makes it read its configuration again. One that starts reads what was written before, or is told when it answers. */
  async reload(): Promise<void> {
    await this.#started;
    if (this.isRunning) this.#child?.kill('SIGHUP');
  }

  /** Kills the process. What it holds until then counts for the judgement. */
  async kill(): Promise<void> {
    const life = await this.life(true);
    if (life !== undefined) this.lives.push(life);
    await this.#end('SIGKILL');
  }

  /** The life of the running process so far; undefined if none runs. */
  async life(isCut: boolean): Promise<Life | undefined> {
    const last = await this.footprint();
    return this.#first && last && { first: this.#first, last, isCut };
  }

  /** Stops the process as an operator does. @returns the exit code. */
  async stop(): Promise<number | null> {
    return this.#end('SIGTERM');
  }

  /** Sends a request to the admin API. @throws if there is no answer within `limitMs`. */
  get(path: string, limitMs = 2_000): Promise<Response> {
    return fetch(`http://127.0.0.1:${this.#options.adminPort}${path}`, {
      headers: { Authorization: `Bearer ${this.#options.adminToken}` },
      signal: AbortSignal.timeout(limitMs),
    });
  }

  /** The footprint of all its processes together; undefined if they have ended. */
  async footprint(): Promise<Footprint | undefined> {
    try {
      return await this.#footprint();
    } catch (error) {
      if (this.isRunning) throw error;
      return undefined; // handled: a noria that has died is among the crashes
    }
  }

  async #footprint(): Promise<Footprint> {
    const pids = [this.pid, ...this.workers];
    const files = pids.map((pid) => `${this.#measures}.${pid}`);
    for (const file of files) rmSync(file, { force: true });
    for (const pid of pids) process.kill(pid, 'SIGUSR2');
    await until(
      `${this.name} has measured its memory`,
      () => !this.isRunning || files.every((file) => existsSync(file)),
      20_000,
    );
    const rssKib = pids.map((pid) => Number(/VmRSS:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1] ?? 0));
    return {
      rssBytes: rssKib.reduce((sum, kib) => sum + kib * 1_024, 0),
      externalBytes: files.reduce((sum, file) => sum + Number(read(file)), 0),
      descriptors: this.descriptors(),
    };
  }

  /** The open descriptors of all its processes. */
  descriptors(): number {
    return [this.pid, ...this.workers].reduce((sum, pid) => sum + readdirSync(`/proc/${pid}/fd`).length, 0);
  }

  /** Sets its wall clock to this difference from the true time. @returns false if that is not possible. */
  setClock(bySeconds: number): boolean {
    if (FAKE_CLOCK === undefined) return false;
    writeFileSync(this.#clockFile, bySeconds < 0 ? String(bySeconds) : `+${bySeconds}`);
    return true;
  }

  /** Limits a resource of the running processes. @param option - an option of `prlimit`, such as `--nofile=64`. */
  limit(option: string): void {
    for (const pid of [this.pid, ...this.workers]) execFileSync('prlimit', ['--pid', String(pid), option]);
  }

  get #measures(): string {
    return `${this.file}.measures`;
  }

  get #clockFile(): string {
    return `${this.file}.clock`;
  }

  #clockEnvironment(): Readonly<Record<string, string>> {
    if (!this.setClock(0)) return {};
    return {
      LD_PRELOAD: FAKE_CLOCK ?? '',
      DONT_FAKE_MONOTONIC: '1',
      FAKETIME_TIMESTAMP_FILE: this.#clockFile,
      FAKETIME_CACHE_DURATION: '1',
    };
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return null;
    this.#expectedToDie = true;
    const exited = once(child, 'exit');
    child.kill(signal);
    const [code] = await exited;
    return code;
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // ignored: the process has ended
  }
}

const isOk = (response: Response) => response.ok;
const no = () => false;
