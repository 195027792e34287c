/** `noria run`: the daemon, until a signal ends it. */
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { systemBoot } from '../core/boot.ts';
import { systemClock } from '../core/clock.ts';
import { tuneForShortLives } from '../core/engine.ts';
import { createLog, type LogLevel } from '../core/log.ts';
import { startDaemon } from '../daemon/daemon.ts';
import { configOption, findConfigFile } from './config-file.ts';
import type { CommandContext } from './context.ts';
import { handedOverSockets } from './handed-over.ts';
import { untilSignalled } from './lifecycle.ts';
import { printWarnings, reloadOnDemand } from './reload.ts';
import { openServiceManager } from './service-manager.ts';
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
  tuneForShortLives();
  const file = findConfigFile(flags.config);
  const read = () => withLevel(loadConfig(file, { env: terminal.env }), level);
  const config = read();
  const log = createLog(config.log);
  printWarnings(config, log);
  const ended = untilSignalled(); // before anything is opened: as PID 1 a signal nobody waits for is lost
  const daemon = await startDaemon({
    config,
    log,
    inheritedFds: handedOverSockets(terminal.env, process.pid),
  });
  const manager = openServiceManager({
    env: terminal.env,
    clock: systemClock,
    boot: systemBoot(),
    log,
    status: () => daemon.control.status().reason,
  });
  const around = (phase: 'reloading' | 'ready') => manager[phase]();
  const reloading = reloadOnDemand({ daemon, log, file, read, watch: flags.watch === true, around });
  const { listeners, admin } = daemon.addresses;
  log.info({ listeners, admin: admin ?? 'off' }, 'noria is running');
  manager.ready();
  const end = await Promise.race([ended, daemon.failed]);
  if (typeof end === 'string') log.info({ signal: end }, 'noria is shutting down');
  else log.error({ error: end.message }, 'noria cannot go on');
  reloading[Symbol.dispose]();
  const closing = daemon.close();
  manager.stopping(daemon.config.shutdown.drainTimeoutMs);
  await closing;
  await manager.close();
  log.info({}, 'noria has ended');
  if (typeof end !== 'string') throw end;
  return EXIT.fine;
}

/** --log-level wins over the file, also over a reloaded one. */
function withLevel(config: Config, level: LogLevel | undefined): Config {
  return level === undefined ? config : { ...config, log: { ...config.log, level } };
}
