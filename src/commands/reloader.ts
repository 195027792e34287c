/**
 * Reads the configuration file of a running noria again and applies it: after SIGHUP, for the admin API, and with
 * --watch after a change of the file. If the new configuration is invalid, all errors are reported, and the previous
 * configuration stays in force.
 */
import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { ReloadOutcome } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { isSame } from '../core/is-same.ts';
import { formatListenAddress } from '../core/listen-address.ts';
import type { Log } from '../core/log.ts';
import type { Daemon } from '../daemon/daemon.ts';
import { changesForRestart } from '../daemon/part-options.ts';

interface ReloaderOptions {
  /** Resolves when the daemon runs. A reload that is requested earlier waits for this promise. */
  readonly daemon: Promise<Pick<Daemon, 'config' | 'startConfig' | 'reload'>>;
  readonly log: Log;
  readonly file: string;
  /**
   * Reads the file again.
   *
   * @throws NoriaError bad-config
   */
  readonly read: () => Config;
  /** Called at the start and at the end of each reload. `noria run` then notifies systemd. */
  readonly onPhase?: (phase: 'reloading' | 'ready') => void;
  readonly clock?: Clock;
}

/** A reload starts when the file has not changed for this time. An editor may write a file in several steps. */
const QUIET_MS = 200;
/** Kubernetes replaces this symbolic link when a file in a mounted volume changes. */
const KUBERNETES_DATA_LINK = '..data';

/** Runs one reload at a time, and logs its outcome. */
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

  /** Reloads after each SIGHUP, until the caller disposes of the result. */
  onHangup(): Disposable {
    const onHangup = () => this.#reloadUnasked('SIGHUP');
    process.on('SIGHUP', onHangup);
    return { [Symbol.dispose]: () => process.off('SIGHUP', onHangup) };
  }

  /**
   * Reloads after each change of the file, until the caller disposes of the result. Watches the folder of the file,
   * because an editor or Kubernetes may replace the file instead of writing to it.
   */
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

/**
 * For these sections, `changedKeys` returns only the name of a changed section. For `sources` and `listeners`, it
 * returns each changed entry.
 */
const SECTIONS = [
  'service',
  'account',
  'pool',
  'rotation',
  'dial',
  'health',
  'admin',
  'log',
  'state',
  'shutdown',
  'workers',
  'fleet',
  'proxyPool',
] as const satisfies readonly (keyof Config)[];

/**
 * Returns the changes between two configurations, without values, for example `pool`, `source city added`, `listener
 * 127.0.0.1:8888 changed`.
 */
export function changedKeys(before: Config, next: Config): readonly string[] {
  const sources = (config: Config) => new Map(config.sources.map((source) => [source.name, source]));
  const listeners = (config: Config) =>
    new Map(config.listeners.map((listener) => [formatListenAddress(listener.address), listener]));
  return [
    ...SECTIONS.filter((section) => !isSame(before[section], next[section])),
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
