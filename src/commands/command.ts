/** What several commands share: their context, readers of numeric options, and signals. */
import { constants } from 'node:os';
import { InvalidArgumentError } from 'commander';
import { parsePort } from '../core/host-port.ts';
import type { LogLevel } from '../core/log-options.ts';
import type { Terminal } from './terminal.ts';

export interface CommandContext {
  readonly terminal: Terminal;
  /** The value of --log-level; undefined without the option. */
  logLevel(): LogLevel | undefined;
  /** Makes an action for commander from a function that returns an exit code. */
  action<Args extends readonly unknown[]>(
    run: (...args: Args) => Promise<number>,
  ): (...args: Args) => Promise<void>;
}

const ENDING_SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** If a signal ends a process, its exit code in a shell is this number plus the number of the signal. */
const SIGNAL_EXIT_BASE = 128;

/** Reads a TCP port. 0 means any free port. */
export function portOption(text: string): number {
  const port = text === '0' ? 0 : parsePort(text);
  if (port !== undefined) return port;
  throw new InvalidArgumentError('Expected a port from 1 to 65535, or 0 for a free one.');
}

export function integerOption(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}.`);
  };
}

export function fractionOption(text: string): number {
  const value = /^(?:\d+(?:\.\d+)?|\.\d+)$/.test(text) ? Number(text) : Number.NaN;
  if (value >= 0 && value <= 1) return value;
  throw new InvalidArgumentError('Expected a fraction from 0 to 1, for example 0.2.');
}

/**
 * Resolves at the first SIGINT or SIGTERM. A second signal ends the process immediately.
 * @param onSecond - called before the process ends.
 */
export function untilSignal(onSecond?: (signal: NodeJS.Signals) => void): Promise<NodeJS.Signals> {
  const endNow = (signal: NodeJS.Signals) => {
    onSecond?.(signal);
    process.exit(SIGNAL_EXIT_BASE + constants.signals[signal]);
  };
  return new Promise((resolve) => {
    const onFirst = (signal: NodeJS.Signals) => {
      for (const name of ENDING_SIGNALS) {
        process.off(name, onFirst);
        process.once(name, endNow);
      }
      resolve(signal);
    };
    for (const name of ENDING_SIGNALS) process.on(name, onFirst);
  });
}
