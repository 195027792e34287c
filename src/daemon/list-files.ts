/** Watches the files of the sources with `product: list`, and calls `changed` with the name of a source. */
import { type StatsListener, unwatchFile, watchFile } from 'node:fs';
import type { Config } from '../config/config.ts';

/** A file is looked at this often. Unlike events of the system, this also notices a file that is replaced or appears. */
const LOOK_EVERY_MS = 1_000;

export class ListFiles {
  readonly #changed: (source: string) => void;
  readonly #watched: { readonly file: string; readonly listener: StatsListener }[] = [];

  constructor(changed: (source: string) => void) {
    this.#changed = changed;
  }

  watch({ sources }: Config): void {
    this.close();
    for (const source of sources) {
      if (source.product !== 'list' || source.file === undefined) continue;
      const { name, file } = source;
      const listener: StatsListener = (now, before) => {
        if (now.mtimeMs !== before.mtimeMs || now.ino !== before.ino) this.#changed(name);
      };
      watchFile(file, { interval: LOOK_EVERY_MS, persistent: false }, listener);
      this.#watched.push({ file, listener });
    }
  }

  close(): void {
    for (const { file, listener } of this.#watched.splice(0)) unwatchFile(file, listener);
  }
}
