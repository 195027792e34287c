import type { LogLevel } from '../core/log.ts';
import type { Terminal } from './terminal.ts';

/** What a command is given beside its own arguments. */
export interface CommandContext {
  readonly terminal: Terminal;
  /** The value of --log-level, when it was given. */
  logLevel(): LogLevel | undefined;
  /** Makes a commander action of a function that returns its exit code. */
  action<Args extends readonly unknown[]>(
    run: (...args: Args) => Promise<number>,
  ): (...args: Args) => Promise<void>;
}
