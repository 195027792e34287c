/**
 * Reloading while the daemon runs: by SIGHUP, and when the file changes where that is wanted. An invalid configuration is
 * refused with every error logged, and the one before goes on.
 */
import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Config } from '../config/config.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import type { Daemon } from '../daemon/daemon.ts';
import { changedKeys } from './changed-keys.ts';

export interface ReloadOptions {
  readonly daemon: Pick<Daemon, 'config' | 'reload'>;
  readonly log: Log;
  readonly file: string;
  /** Reads the file anew. @throws NoriaError bad-config */
  readonly read: () => Config;
  /** Also when the file changes. */
  readonly watch: boolean;
  /** Told before and after each reload (systemd). */
  readonly around?: (phase: 'reloading' | 'ready') => void;
  readonly clock?: Clock;
}

/** An editor writes a file in several steps: wait until it has been still for so long. */
const SETTLE_MS = 200;

/** Reloads from now on, until disposed of. */
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

/** Logs what is not wrong and yet worth a word. */
export function printWarnings({ file, warnings }: Config, log: Log): void {
  for (const { line, column, path, message } of warnings) {
    log.warn({ place: `${file}:${line}:${column}`, path, warning: message }, 'configuration warning');
  }
}

async function reload({ daemon, log, file, read, around }: ReloadOptions, cause: string): Promise<void> {
  around?.('reloading');
  try {
    const [before, next] = [daemon.config, read()];
    const waiting = await daemon.reload(next);
    log.info({ file, cause, changed: changedKeys(before, next) }, 'configuration reloaded');
    printWarnings(next, log);
    if (waiting.length > 0) log.warn({ sections: waiting }, 'these sections take effect at the next start');
  } catch (error) {
    const message = error instanceof NoriaError ? error.message : describeError(error);
    log.error({ file, cause, errors: message.split('\n') }, 'configuration refused: the one before goes on');
  } finally {
    around?.('ready');
  }
}

/** The folder is watched, not the file: editors and mounted secrets replace it by another one. */
function watchFile(options: ReloadOptions): Disposable {
  const { clock = systemClock, log, file } = options;
  let settling: Disposable | undefined;
  const watcher: FSWatcher = watch(dirname(file), (_event, name) => {
    if (name !== null && name !== basename(file) && name !== '..data') return; // ..data: a mounted Kubernetes volume
    settling?.[Symbol.dispose]();
    settling = clock.after(SETTLE_MS, () => void reload(options, 'the file changed'));
  });
  watcher.on('error', (error) =>
    log.warn({ file, error: describeError(error) }, 'the file is not watched any more'),
  );
  return {
    [Symbol.dispose]: () => {
      settling?.[Symbol.dispose]();
      watcher.close();
    },
  };
}
