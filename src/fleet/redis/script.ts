/** Lua scripts that run in the store. Each one runs as one atomic step. */
import { createHash } from 'node:crypto';
import { type Reply, StoreRefusal } from './store-client.ts';

/** A connection that can run a script. */
export interface ScriptRunner {
  call(command: readonly string[]): Promise<Reply>;
}

export class Script {
  readonly #source: string;
  readonly #sha1: string;

  /** @param parts - Lua source, joined in this order. */
  constructor(...parts: readonly string[]) {
    this.#source = parts.join('\n');
    this.#sha1 = createHash('sha1').update(this.#source).digest('hex');
  }

  /** Runs the script by its hash. Sends the source only if the store lacks it, after a restart or SCRIPT FLUSH. */
  async run(
    store: ScriptRunner,
    keys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<Reply> {
    const rest = [String(keys.length), ...keys, ...args.map(String)];
    try {
      return await store.call(['EVALSHA', this.#sha1, ...rest]);
    } catch (error) {
      if (!(error instanceof StoreRefusal) || !error.message.startsWith('NOSCRIPT')) throw error;
      return store.call(['EVAL', this.#source, ...rest]);
    }
  }
}
