/** Detects a function that reads its input in quadratic time or worse: the call is terminated, not timed. */
import { Script } from 'node:vm';

const LIMIT_MS = 60_000;
const CALL = Symbol.for('noria test: call to terminate');
const script = new Script(`globalThis[Symbol.for(${JSON.stringify(CALL.description)})]()`);

/**
 * Runs `call` to its end and returns its result. Give it so much input that a linear reader needs milliseconds and a
 * quadratic one needs hours.
 *
 * @throws Error `ERR_SCRIPT_EXECUTION_TIMEOUT` after a minute, even in the middle of a regular expression.
 */
export function runOrTerminate<T>(call: () => T): T {
  Object.assign(globalThis, { [CALL]: call });
  try {
    return script.runInThisContext({ timeout: LIMIT_MS });
  } finally {
    Reflect.deleteProperty(globalThis, CALL);
  }
}
