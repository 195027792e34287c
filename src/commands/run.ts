/** `noria run`: the daemon, until a signal ends it. */
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { createLog, type Log, type LogLevel } from '../core/log.ts';
import { startDaemon } from '../daemon.ts';
import { configOption, findConfigFile } from './config-file.ts';
import type { CommandContext } from './context.ts';
import { untilSignalled } from './lifecycle.ts';
import { reloadOnDemand } from './reload.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface RunFlags {
  readonly config?: string;
  readonly watch?: boolean;
}

export function addRunCommand(program: Command, { action, terminal, logLevel }: CommandContext): void {
  program
    .command('run')
    .description('the daemon, until SIGTERM or SIGINT; open tunnels finish first')
    .addOption(configOption())
    .option('--watch', 'reload when the file changes, as SIGHUP does')
    .addHelpText(
      'after',
      '\nExamples:\n  noria run\n  noria run --watch\n  noria run -c /etc/noria/noria.yaml --log-level debug',
    )
    .action(action((flags: RunFlags) => run(flags, terminal, logLevel())));
}

async function run(flags: RunFlags, terminal: Terminal, level: LogLevel | undefined): Promise<number> {
  const file = findConfigFile(flags.config);
  const read = () => withLevel(loadConfig(file, { env: terminal.env }), level);
  const config = read();
  const log = createLog(config.log);
  tellWarnings(config, log);
  const daemon = await startDaemon({ config, log });
  const reloading = reloadOnDemand({ daemon, log, file, read, watch: flags.watch === true });
  const { listeners, admin } = daemon.addresses;
  log.info({ listeners, admin: admin ?? 'off' }, 'noria is running');
  const signal = await untilSignalled();
  log.info({ signal }, 'noria is shutting down');
  reloading[Symbol.dispose]();
  await daemon.close();
  log.info({}, 'noria has ended');
  return EXIT.fine;
}

/** --log-level wins over the file, also over a reloaded one. */
function withLevel(config: Config, level: LogLevel | undefined): Config {
  return level === undefined ? config : { ...config, log: { ...config.log, level } };
}

function tellWarnings(config: Config, log: Log): void {
  for (const { line, column, path, message } of config.warnings) {
    log.warn({ place: `${config.file}:${line}:${column}`, path, warning: message }, 'configuration warning');
  }
}
