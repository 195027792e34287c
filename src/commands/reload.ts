/**
 * Reloads a running daemon on SIGHUP, and optionally when the configuration file changes. An invalid configuration is refused
 * with all its errors in the log, and the previous one stays in force.
 */
import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Config } from '../config/config.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { isSame } from '../core/is-same.ts';
import { formatListenAddress } from '../core/listen-address.ts';
import type { Log } from '../core/log.ts';
import type { Daemon } from '../daemon/daemon.ts';

export interface ReloadOptions {
  readonly daemon: Pick<Daemon, 'config' | 'reload'>;
  readonly log: Log;
  readonly file: string;
  /** Reads the file again. @throws NoriaError bad-config */
  readonly read: () => Config;
  /** Reloads also when the file changes. */
  readonly watch: boolean;
  /** Called before and after each reload, for systemd. */
  readonly onPhase?: (phase: 'reloading' | 'ready') => void;
  readonly clock?: Clock;
}

/** An editor writes a file in several steps: a reload waits until it has not changed for this long. */
const QUIET_MS = 200;
/** A mounted Kubernetes volume replaces this link when a file in it changes. */
const KUBERNETES_DATA_LINK = '..data';

/** Reloads on demand until disposed of. */
export function reloadOnDemand(options: ReloadOptions): Disposable {
  const onHangup = () => void reload(options, 'SIGHUP');
  process.on('SIGHUP', onHangup);
  const watching = options.watch ? watchFile(options) : undefined;
  return {
    [Symbol.dispose]: () => {
      process.off('SIGHUP', onHangup);
      watching?.[Symbol.dispose]();
    },
  };
}

export function logWarnings({ file, warnings }: Config, log: Log): void {
  for (const { line, column, path, message } of warnings) {
    log.warn({ place: `${file}:${line}:${column}`, path, warning: message }, 'configuration warning');
  }
}

async function reload({ daemon, log, file, read, onPhase }: ReloadOptions, cause: string): Promise<void> {
  onPhase?.('reloading');
  try {
    const [before, next] = [daemon.config, read()];
    const needRestart = await daemon.reload(next);
    log.info({ file, cause, changed: changedKeys(before, next) }, 'configuration reloaded');
    logWarnings(next, log);
    if (needRestart.length > 0) log.warn({ keys: needRestart }, 'some changes need a restart');
  } catch (error) {
    const message = error instanceof NoriaError ? error.message : describeError(error);
    log.error(
      { file, cause, errors: message.split('\n') },
      'configuration refused; the previous one stays in force',
    );
  } finally {
    onPhase?.('ready');
  }
}

/** Watches the folder, because editors and mounted secrets replace the file. */
function watchFile(options: ReloadOptions): Disposable {
  const { clock = systemClock, log, file } = options;
  let quiet: Disposable | undefined;
  const watcher: FSWatcher = watch(dirname(file), (_event, name) => {
    if (name !== null && name !== basename(file) && name !== KUBERNETES_DATA_LINK) return;
    quiet?.[Symbol.dispose]();
    quiet = clock.after(QUIET_MS, () => void reload(options, 'the file changed'));
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

/** Sections whose change is reported by their name. Of `sources` and `listeners`, the changed entries are reported. */
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
] as const satisfies readonly (keyof Config)[];

/** What differs, without values: for example `['pool', 'source city added', 'listener 127.0.0.1:8888 changed']`. */
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
