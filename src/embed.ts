/**
 * The API for programs that run noria inside their own process: `import { startNoria } from 'noria'`. Handles no
 * signals and prints nothing.
 */
import type { Config } from './config/config.ts';
import { parseConfig } from './config/load.ts';
import { NoriaError } from './core/faults.ts';
import { createLog } from './core/log.ts';
import type { LogLevel } from './core/log-options.ts';
import { type Daemon, startDaemon } from './daemon/daemon.ts';

export type { Daemon } from './daemon/daemon.ts';

export interface EmbedOptions {
  /** The configuration in YAML, as in a noria.yaml. Relative paths start at the working folder. */
  readonly config: string;
  /** The values for `${NAME}` in the configuration. Default: the environment of the process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Receives each log line: JSON with a newline. If absent, noria logs nothing. */
  readonly onLogLine?: (line: string) => void;
}

/** A noria that runs in this process. */
export interface Noria extends Omit<Daemon, 'reload' | 'failed' | 'startConfig' | 'cutConnections'> {
  /**
   * Applies another configuration. If an error is thrown, the previous configuration stays in force.
   * @returns the keys that differ from the configuration with which noria started, and take effect only after a restart.
   * @throws NoriaError bad-config, listen-failed; shutting-down after `close()`
   */
  reload(config: string): Promise<readonly string[]>;
}

/**
 * Starts noria. Resolves when its listeners are open. The `close()` of the result stops noria completely.
 * @throws NoriaError bad-config with all problems of the configuration, or listen-failed, state-locked,
 * state-unwritable.
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

/**
 * Throws if the configuration has several workers: worker processes would change the settings of node:cluster for the
 * whole program.
 */
function requireOneProcess(config: Config): Config {
  if (config.workers === 1) return config;
  throw new NoriaError(
    'bad-config',
    `noria.yaml: workers: ${config.workers} works only with noria run; an embedded noria needs workers: 1`,
  );
}
