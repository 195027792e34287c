/**
 * noria inside another program: what `import { startNoria } from 'noria'` gives. The process stays the program's own: no
 * signal is handled, nothing is printed unless asked for.
 */
import type { Config } from './config/config.ts';
import { parseConfig } from './config/load.ts';
import { NoriaError } from './core/faults.ts';
import { createLog, type LogLevel } from './core/log.ts';
import { type Daemon, startDaemon } from './daemon/daemon.ts';

export type { Daemon } from './daemon/daemon.ts';

export interface EmbedOptions {
  /** The configuration, as YAML: what stands in a noria.yaml. Relative paths in it begin at the working folder. */
  readonly config: string;
  /** What `${NAME}` in it takes; the environment of the process when absent. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Takes the log lines, as JSON, each with its line end. Absent: nothing is logged. */
  readonly onLogLine?: (line: string) => void;
}

/** A noria that runs in this process. */
export interface Noria extends Omit<Daemon, 'reload' | 'failed'> {
  /**
   * Takes over another configuration without a loss.
   *
   * @returns sections that take effect only at the next start.
   * @throws NoriaError bad-config or listen-failed; everything stays as it was.
   */
  reload(config: string): Promise<readonly string[]>;
}

/**
 * Starts a noria that listens when the promise resolves. `close()` ends it, and leaves nothing behind.
 *
 * @throws NoriaError bad-config with every problem of the configuration; listen-failed, state-locked, state-unwritable.
 */
export async function startNoria({ config: text, env, onLogLine }: EmbedOptions): Promise<Noria> {
  const read = (yaml: string) =>
    inOneProcess(parseConfig(yaml, 'noria.yaml', env === undefined ? {} : { env }));
  const config = read(text);
  const level: LogLevel = onLogLine === undefined ? 'silent' : config.log.level;
  const log = createLog({ level, format: 'json', destination: { write: (line) => onLogLine?.(line) } });
  const daemon = await startDaemon({ config, log });
  return {
    get config() {
      return daemon.config;
    },
    get addresses() {
      return daemon.addresses;
    },
    bus: daemon.bus,
    control: daemon.control,
    reload: async (yaml) => daemon.reload(read(yaml)),
    close: () => daemon.close(),
  };
}

/** The process is another program's own: it is not for noria to start more of them. */
function inOneProcess(config: Config): Config {
  if (config.workers === 1) return config;
  throw new NoriaError(
    'bad-config',
    `noria.yaml: workers: ${config.workers} is for the command noria run; inside another program it is 1`,
  );
}
