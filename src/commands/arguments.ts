/** Reading numbers from the command line, with words about what was wanted. */
import { InvalidArgumentError } from 'commander';
import { parsePort } from '../core/host-port.ts';

/** A TCP port; 0 takes a free one. */
export function readPort(text: string): number {
  const port = text === '0' ? 0 : parsePort(text);
  if (port === undefined)
    throw new InvalidArgumentError('wanted: a port from 1 to 65535, or 0 for a free one.');
  return port;
}

/** A whole number between two bounds, both included. */
export function readWhole(from: number, to: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= from && value <= to) return value;
    throw new InvalidArgumentError(`wanted: a whole number from ${from} to ${to}.`);
  };
}

/** A share from 0 to 1. */
export function readFraction(text: string): number {
  const value = /^\d*\.?\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= 0 && value <= 1) return value;
  throw new InvalidArgumentError('wanted: a share from 0 to 1, for example 0.2.');
}
