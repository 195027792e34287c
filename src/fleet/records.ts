/** Works on the records that replicas exchange (schemas.ts). A worker loads this file, but not the schemas. */
import type { Fact, SharedBan } from './schemas.ts';

/** noria treats two moments as equal if they are closer than this. The error of a conversion between two clocks is smaller. */
export const SAME_MOMENT_MS = 1_000;

export function sourceOf(each: Fact): string | undefined {
  return each.kind === 'member.joined' ? each.member.source : 'source' in each ? each.source : undefined;
}

export function banKey({ source, site, exit, user = '' }: SharedBan): string {
  return JSON.stringify([source, site, exit, user]);
}

/**
 * Whether the fact must stay on this machine, because it describes what only this machine has observed, or because it
 * contains the login of a member.
 */
export function staysOnMachine(each: Fact): boolean {
  if (each.kind === 'member.joined') return each.member.login !== undefined;
  return ['source.restricted', 'evictions.frozen', 'member.suspected'].includes(each.kind);
}

/** Converts all moments in `value`, at any depth: the numbers whose names end in `At`. */
export function shiftMoments<Value>(value: Value, shift: (moment: number) => number): Value {
  return shifted(value, shift) as Value;
}

function shifted(value: unknown, shift: (moment: number) => number): unknown {
  if (Array.isArray(value)) return value.map((each) => shifted(each, shift));
  if (typeof value !== 'object' || value === null) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value; // for example a Secret
  const copy: Record<string, unknown> = {};
  for (const [key, each] of Object.entries(value)) {
    if (key === 'facts')
      copy[key] = each; // the service's own fields
    else copy[key] = typeof each === 'number' && key.endsWith('At') ? shift(each) : shifted(each, shift);
  }
  return copy;
}
