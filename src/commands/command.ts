/** How a command is declared, and what several commands share: readers of numeric options, and signals. */
import { constants } from 'node:os';
import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { parsePort } from '../core/host-port.ts';
import type { LogLevel } from '../core/log-options.ts';
import { EXIT, type Terminal } from './terminal.ts';

export type Flag = readonly [
  flags: string,
  about: string,
  value?: {
    readonly read?: (text: string) => unknown;
    readonly choices?: readonly string[];
    readonly fallback?: unknown;
    /** How the help writes the fallback, if it is no plain value. */
    readonly shown?: string;
  },
];

export type AddCommand = (context: {
  readonly program: Command;
  readonly terminal: Terminal;
  logLevel(): LogLevel | undefined;
  onExitCode(code: number): void;
}) => void;

export function command<Args extends readonly unknown[]>(spec: {
  readonly name: string;
  readonly about: string;
  readonly args?: readonly (readonly [name: string, about: string, choices?: readonly string[]])[];
  readonly flags?: readonly Flag[];
  readonly examples: readonly string[];
  readonly help?: string;
  run(context: Parameters<AddCommand>[0], ...args: Args): Promise<number> | Promise<void>;
}): AddCommand {
  const { name, about, args = [], flags = [], examples, help } = spec;
  return (context) => {
    const made = context.program.command(name).description(about);
    for (const [argument, text, choices] of args) {
      const added = new Argument(argument, text);
      made.addArgument(choices === undefined ? added : added.choices(choices));
    }
    for (const [flag, text, { read, choices, fallback, shown } = {}] of flags) {
      const option = new Option(flag, text);
      if (choices !== undefined) option.choices(choices);
      if (read !== undefined) option.argParser(read);
      made.addOption(fallback === undefined ? option : option.default(fallback, shown));
    }
    const shown = examples.map((example) => `\n  noria ${example}`).join('');
    made.addHelpText('after', `\nExamples:${shown}${help === undefined ? '' : `\n\n${help}`}`);
    made.action(async (...given: Args) => {
      const code = await spec.run(context, ...given);
      context.onExitCode(typeof code === 'number' ? code : EXIT.fine);
    });
  };
}

const ENDING_SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const SIGNAL_EXIT_BASE = 128;

export function portOption(text: string): number {
  const port = text === '0' ? 0 : parsePort(text);
  if (port !== undefined) return port;
  throw new InvalidArgumentError('Expected a port from 1 to 65535, or 0 for a free one.');
}

export function integer(min: number, max: number, fallback?: number) {
  return {
    fallback,
    read(text: string): number {
      const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
      if (value >= min && value <= max) return value;
      throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}.`);
    },
  };
}

export function fractionOption(text: string): number {
  const value = /^(?:\d+(?:\.\d+)?|\.\d+)$/.test(text) ? Number(text) : Number.NaN;
  if (value >= 0 && value <= 1) return value;
  throw new InvalidArgumentError('Expected a fraction from 0 to 1, for example 0.2.');
}

/** Resolves at the first signal. A second one ends the process at once, after `onSecond`. */
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
