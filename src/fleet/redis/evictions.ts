/** Finds out whether a store deletes data of the fleet when its memory is full. */
import { NoriaError } from '../../core/faults.ts';
import { StoreRefusal } from './store-client.ts';
import type { StoreConnection } from './store-connection.ts';

export type StoreInfo = Readonly<Record<string, string>>;

/** Parses the answer to INFO into its fields. */
export function parseInfo(text: string): StoreInfo {
  const lines = text.split('\r\n').map((line) => /^([^#:][^:]*):(.*)$/.exec(line));
  return Object.fromEntries(lines.flatMap((line) => (line ? [[line[1], line[2]]] : [])));
}

/**
 * Returns a warning if the store deletes data when its memory is full. Returns undefined if it never does, or does not
 * report its policy.
 */
export function evictionWarning({ maxmemory, maxmemory_policy: policy }: StoreInfo): string | undefined {
  if (maxmemory === undefined || maxmemory === '0') return undefined;
  if (policy === undefined || policy === 'noeviction') return undefined;
  return `the store has maxmemory-policy ${policy}, so it deletes data of the fleet when its memory is full, such as the pace, the members and the sessions; set maxmemory-policy to noeviction`;
}

/**
 * Reads the memory settings of the store and returns the warning of `evictionWarning`. Returns undefined if the store
 * refuses INFO or the connection is lost.
 */
export async function readEvictionWarning(connection: StoreConnection): Promise<string | undefined> {
  try {
    return evictionWarning(parseInfo(String(await connection.call(['INFO', 'memory']))));
  } catch (error) {
    // handled: this function only looks for a warning; `noria check` reports the error
    if (error instanceof StoreRefusal || error instanceof NoriaError) return undefined;
    throw error;
  }
}
