/** `noria run`: runs noria until a signal ends it. */
import type { Command } from 'commander';
import { readinessHeadline } from '../admin/readiness-text.ts';
import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { systemBoot, systemClock } from '../core/clock.ts';
import { collectGarbageOfStart, tuneForShortLives } from '../core/engine.ts';
import type { NoriaError } from '../core/faults.ts';
import { createLog, type Log } from '../core/log.ts';
import type { LogLevel } from '../core/log-options.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { type CommandContext, untilSignal } from './command.ts';
import { configOption, findConfigFile } from './config-file.ts';
import { logWarnings, Reloader } from './reloader.ts';
import { inheritedSockets, openServiceManager, type ServiceManager } from './service-manager.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface RunFlags {
  readonly config?: string;
  readonly watch?: boolean;
}

export function addRunCommand(program: Command, { action, terminal, logLevel }: CommandContext): void {
  program
    .command('run')
    .description('run the daemon until SIGTERM or SIGINT, then wait for open tunnels')
    .addOption(configOption())
    .option('--watch', 'reload the configuration when its file changes, as on SIGHUP')
    .addHelpText(
      'after',
      '\nExamples:\n  noria run\n  noria run --watch\n  noria run -c /etc/noria/noria.yaml --log-level debug',
    )
    .action(action((flags: RunFlags) => run(flags, terminal, logLevel())));
}

async function run(flags: RunFlags, { env }: Terminal, level: LogLevel | undefined): Promise<number> {
  tuneForShortLives();
  const file = findConfigFile(flags.config);
  const read = () => withLogLevel(loadConfig(file, { env }), level);
  const config = read();
  const log = createLog(config.log);
  // registered before noria starts: as PID 1, noria would otherwise ignore signals
  const signalled = untilSignal((signal) =>
    log.info({ signal }, 'noria ends at once, because of a second signal'),
  );
  const started = Promise.withResolvers<Daemon>();
  const onPhase = (phase: 'reloading' | 'ready') => manager[phase]();
  const reloader = new Reloader({ daemon: started.promise, log, file, read, onPhase });
  const hangups = reloader.onHangup(); // registered before noria starts: without a handler, SIGHUP ends the process
  logWarnings(config, log);
  const daemon = await startDaemon({
    config,
    log,
    reload: (answered) => reloader.reload('admin API', answered),
    inheritedFds: inheritedSockets(env, process.pid),
  });
  const status = () => readinessHeadline(daemon.control.status());
  const manager = openServiceManager({ env, clock: systemClock, boot: systemBoot(), log, status });
  const observers = [
    daemon.bus.on('readiness.changed', () => manager.statusChanged()),
    hangups,
    ...(flags.watch === true ? [reloader.onFileChange()] : []),
  ];
  started.resolve(daemon);
  collectGarbageOfStart();
  logAddresses(daemon, log);
  manager.ready();
  const end = await Promise.race([signalled, daemon.failed]);
  logShutdown(end, log);
  for (const observer of observers) observer[Symbol.dispose]();
  await stop(daemon, manager);
  const { cutConnections } = daemon;
  log.info(cutConnections === 0 ? {} : { cutConnections }, 'noria has ended');
  if (typeof end !== 'string') throw end;
  return EXIT.fine;
}

function logAddresses({ addresses: { listeners, admin, proxyPool } }: Daemon, log: Log): void {
  const fields = { listeners, admin: admin ?? 'off', ...(proxyPool !== undefined && { proxyPool }) };
  log.info(fields, 'noria is running');
}

function logShutdown(end: string | NoriaError, log: Log): void {
  if (typeof end === 'string') log.info({ signal: end }, 'noria is shutting down');
  else log.error({ error: end.message }, 'noria failed and is shutting down');
}

async function stop(daemon: Daemon, manager: ServiceManager): Promise<void> {
  const closing = daemon.close();
  manager.stopping(daemon.config.shutdown.drainTimeoutMs);
  await closing;
  await manager.close();
}

/** --log-level overrides the level in the file, also after a reload. */
function withLogLevel(config: Config, level: LogLevel | undefined): Config {
  return level === undefined ? config : { ...config, log: { ...config.log, level } };
}
