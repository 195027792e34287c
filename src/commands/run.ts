/** `noria run`: runs noria until a signal ends it. */

import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { ReloadOutcome } from '../admin/backend.ts';
import { readinessHeadline } from '../admin/readiness-text.ts';
import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { type Clock, systemBoot, systemClock } from '../core/clock.ts';
import { collectGarbageOfStart, tuneForShortLives } from '../core/engine.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { formatListenAddress } from '../core/listen-address.ts';
import { createLog, type Log } from '../core/log.ts';
import type { LogLevel } from '../core/log-options.ts';
import { isSame } from '../core/secret.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { changesForRestart } from '../daemon/part-options.ts';
import { command, untilSignal } from './command.ts';
import { CONFIG_FLAG, findConfigFile } from './config.ts';
import { inheritedSockets, ServiceManager } from './service-manager.ts';

export const runCommand = command({
  name: 'run',
  about: 'run the daemon until SIGTERM or SIGINT, then wait for open tunnels',
  flags: [CONFIG_FLAG, ['--watch', 'reload the configuration when its file changes, as on SIGHUP']],
  examples: ['run', 'run --watch', 'run -c /etc/noria/noria.yaml --log-level debug'],
  run: async (
    { terminal: { env }, logLevel },
    flags: { readonly config?: string; readonly watch?: boolean },
  ) => {
    const level = logLevel();
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
    const manager = new ServiceManager({ env, clock: systemClock, boot: systemBoot(), log, status });
    const observers = [
      daemon.bus.on('readiness.changed', () => manager.statusChanged()),
      hangups,
      ...(flags.watch ? [reloader.onFileChange()] : []),
    ];
    started.resolve(daemon);
    collectGarbageOfStart();
    const { listeners, admin = 'off', proxyPool } = daemon.addresses;
    log.info({ listeners, admin, ...(proxyPool !== undefined && { proxyPool }) }, 'noria is running');
    manager.ready();
    const end = await Promise.race([signalled, daemon.failed]);
    if (typeof end === 'string') log.info({ signal: end }, 'noria is shutting down');
    else log.error({ error: end.message }, 'noria failed and is shutting down');
    for (const observer of observers) observer[Symbol.dispose]();
    const closing = daemon.close();
    manager.stopping(daemon.config.shutdown.drainTimeoutMs);
    await closing;
    await manager.close();
    const { cutConnections } = daemon;
    log.info(cutConnections === 0 ? {} : { cutConnections }, 'noria has ended');
    if (typeof end !== 'string') throw end;
  },
});

/** --log-level overrides the level in the file, also after a reload. */
function withLogLevel(config: Config, level: LogLevel | undefined): Config {
  return level === undefined ? config : { ...config, log: { ...config.log, level } };
}

interface ReloaderOptions {
  readonly daemon: Promise<Pick<Daemon, 'config' | 'startConfig' | 'reload'>>;
  readonly log: Log;
  readonly file: string;
  readonly read: () => Config;
  readonly onPhase?: (phase: 'reloading' | 'ready') => void;
  readonly clock?: Clock;
}

/** A reload starts when the file has not changed for this time. An editor may write a file in several steps. */
const QUIET_MS = 200;
/** Kubernetes replaces this symbolic link when a file in a mounted volume changes. */
const KUBERNETES_DATA_LINK = '..data';

export class Reloader {
  readonly #options: ReloaderOptions;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: ReloaderOptions) {
    this.#options = options;
  }

  /**
   * @param answered - only for a reload through the admin API: resolves when the API has sent its answer. If the
   * section `admin` has changed, applying the configuration ends the admin API. So this method then first resolves with
   * `applied: false`, and applies the configuration after the answer.
   * @throws NoriaError bad-config, listen-failed, shutting-down. The previous configuration then stays in force.
   */
  reload(cause: string, answered?: Promise<void>): Promise<ReloadOutcome> {
    const early = Promise.withResolvers<ReloadOutcome>();
    const reload = this.#last.then(() =>
      this.#reload(cause, async (outcome) => {
        if (answered === undefined) return;
        early.resolve(outcome);
        await answered;
      }),
    );
    this.#last = reload.catch(() => {}); // ignored: the caller gets the error, and the log has it
    return Promise.race([early.promise, reload]);
  }

  onHangup(): Disposable {
    const onHangup = () => this.#reloadUnasked('SIGHUP');
    process.on('SIGHUP', onHangup);
    return { [Symbol.dispose]: () => process.off('SIGHUP', onHangup) };
  }

  /** Watches the folder, because an editor or Kubernetes may replace the file instead of writing to it. */
  onFileChange(): Disposable {
    const { clock = systemClock, log, file } = this.#options;
    let quiet: Disposable | undefined;
    const watcher: FSWatcher = watch(dirname(file), (_event, name) => {
      if (name !== null && name !== basename(file) && name !== KUBERNETES_DATA_LINK) return;
      quiet?.[Symbol.dispose]();
      quiet = clock.after(QUIET_MS, () => this.#reloadUnasked('the file changed'));
    });
    watcher.on('error', (error) =>
      log.warn({ file, error: describeError(error) }, 'configuration file is no longer watched'),
    );
    return {
      [Symbol.dispose]: () => {
        quiet?.[Symbol.dispose]();
        watcher.close();
      },
    };
  }

  #reloadUnasked(cause: string): void {
    this.reload(cause).catch(() => {}); // ignored: the log has the error
  }

  async #reload(
    cause: string,
    beforeAdminChanges: (outcome: ReloadOutcome) => Promise<void>,
  ): Promise<ReloadOutcome> {
    const { log, file, read, onPhase } = this.#options;
    const daemon = await this.#options.daemon;
    onPhase?.('reloading');
    try {
      const [before, next] = [daemon.config, read()];
      const outcome = {
        changed: [...changedKeys(before, next)],
        restart: changesForRestart(daemon.startConfig, next),
        warnings: warningLines(next),
      };
      if (!isSame(before.admin, next.admin)) await beforeAdminChanges({ ...outcome, applied: false });
      await daemon.reload(next);
      log.info({ file, cause, changed: outcome.changed }, 'configuration reloaded');
      logWarnings(next, log);
      if (outcome.restart.length > 0) log.warn({ keys: outcome.restart }, 'some changes need a restart');
      return { ...outcome, applied: true };
    } catch (error) {
      const message = error instanceof NoriaError ? error.message : describeError(error);
      log.error(
        { file, cause, errors: message.split('\n') },
        'configuration refused; the previous one stays in force',
      );
      throw error;
    } finally {
      onPhase?.('ready');
    }
  }
}

export function logWarnings({ file, warnings }: Config, log: Log): void {
  for (const { line, column, path, message } of warnings) {
    log.warn({ place: `${file}:${line}:${column}`, path, warning: message }, 'configuration warning');
  }
}

function warningLines({ file, warnings }: Config): string[] {
  return warnings.map(({ line, column, path, message }) => `${file}:${line}:${column}: ${path}: ${message}`);
}

/** The keys of Config that are no section, and the sections whose entries are compared one by one. */
const NO_SECTIONS = ['file', 'warnings', 'sources', 'listeners'];

export function changedKeys(before: Config, next: Config): readonly string[] {
  const sources = (config: Config) => new Map(config.sources.map((source) => [source.name, source]));
  const listeners = (config: Config) =>
    new Map(config.listeners.map((listener) => [formatListenAddress(listener.address), listener]));
  return [
    ...Object.keys({ ...before, ...next }).filter(
      (key) => !NO_SECTIONS.includes(key) && !isSame(Reflect.get(before, key), Reflect.get(next, key)),
    ),
    ...changedEntries('source', sources(before), sources(next)),
    ...changedEntries('listener', listeners(before), listeners(next)),
  ];
}

function changedEntries(
  kind: string,
  before: ReadonlyMap<string, unknown>,
  next: ReadonlyMap<string, unknown>,
): string[] {
  const names = new Set([...before.keys(), ...next.keys()]);
  return [...names].flatMap((name) => {
    if (!next.has(name)) return [`${kind} ${name} removed`];
    if (!before.has(name)) return [`${kind} ${name} added`];
    return isSame(before.get(name), next.get(name)) ? [] : [`${kind} ${name} changed`];
  });
}
