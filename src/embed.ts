/** noria inside another program: `import { startNoria } from 'noria'`. It handles no signals, and prints nothing. */
import type { Config } from './config/config.ts';
import { parseConfig } from './config/load.ts';
import { NoriaError } from './core/faults.ts';
import { createLog } from './core/log.ts';
import type { LogLevel } from './core/log-options.ts';
import { type Daemon, startDaemon } from './daemon/daemon.ts';

export type { Daemon } from './daemon/daemon.ts';

export interface EmbedOptions {
  /** The configuration as YAML, like a noria.yaml. Relative paths in it start at the working folder. */
  readonly config: string;
  /** Variables for `${NAME}` in the configuration; the environment of the process by default. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Receives each log line as JSON with its newline. Without it nothing is logged. */
  readonly onLogLine?: (line: string) => void;
}

/** A noria that runs in this process. */
export interface Noria extends Omit<Daemon, 'reload' | 'failed'> {
  /**
   * Applies another configuration, like `Daemon.reload`.
   *
   * @returns changed keys that take effect only after a restart.
   * @throws NoriaError bad-config or listen-failed. Nothing changes then.
   */
  reload(config: string): Promise<readonly string[]>;
}

/**
 * Starts noria. Its listeners are open when the promise resolves. `close()` stops it completely.
 *
 * @throws NoriaError bad-config with all problems of the configuration; listen-failed, state-locked, state-unwritable.
 */
export async function startNoria({ config: text, env, onLogLine }: EmbedOptions): Promise<Noria> {
  const read = (yaml: string) =>
    requireOneProcess(parseConfig(yaml, 'noria.yaml', env === undefined ? {} : { env }));
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

/** Workers would change the settings of node:cluster, which are process-wide and belong to the embedding program. */
function requireOneProcess(config: Config): Config {
  if (config.workers === 1) return config;
  throw new NoriaError(
    'bad-config',
    `noria.yaml: workers: ${config.workers} works only with noria run; an embedded noria needs workers: 1`,
  );
}
