/** Signals, as every long-running command takes them. */
import { constants } from 'node:os';

/** Signals that ask for an orderly end. */
const ENDINGS = ['SIGINT', 'SIGTERM'] as const;
/** 128 and the signal: what a shell reports for a process that a signal cut short. */
const CUT_SHORT = 128;

/**
 * Resolves with the first signal that asks to end. From then on a second one ends the process at once, whatever it is
 * still closing.
 */
export function untilSignalled(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const first = (signal: NodeJS.Signals) => {
      for (const name of ENDINGS) {
        process.off(name, first);
        process.once(name, () => process.exit(CUT_SHORT + constants.signals[name]));
      }
      resolve(signal);
    };
    for (const name of ENDINGS) process.on(name, first);
  });
}
