/** Turns the answer of a draw into members for the pool. All functions are pure. */
import { hash } from 'node:crypto';
import type { DrawnMember } from '../pool/drawn-member.ts';
import type { DrawAnswer } from '../service/answer.ts';
import type { DrawnEntry } from '../service/fields.ts';
import type { DrawSourceOptions } from './options.ts';

/** An entry is left out if neither the entry nor the source names a protocol. */
export function drawnMembers({ entries, sentAt }: DrawAnswer, options: DrawSourceOptions): DrawnMember[] {
  return entries.flatMap((entry) => {
    const { host, port, exitIp, exitName, location, login } = entry;
    const protocol = entry.protocol ?? options.protocol;
    if (protocol === undefined) return [];
    const lifetimeMs =
      entry.lifetimeMs === 'unknown' ? undefined : (entry.lifetimeMs ?? options.defaultLifetimeMs);
    return {
      ...{ protocol, host, port, unproven: options.unproven, exitIp, exitName, location, login },
      endsAt: lifetimeMs === undefined ? undefined : sentAt + lifetimeMs,
      facts: factsOf(entry),
    };
  });
}

function factsOf(entry: DrawnEntry): DrawnMember['facts'] {
  const { area, serverId, lastScore, yesterdayScore, level, isNew, onlineMs } = entry;
  const all = { area, serverId, lastScore, yesterdayScore, level, isNew, onlineMs };
  const facts: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(all)) if (value !== undefined) facts[name] = value;
  return Object.keys(facts).length === 0 ? undefined : facts;
}

/**
 * The texts by which the budget counts distinct IPs: the exit IP, if the entry names it. Otherwise the address, with a
 * hash of the user name if the entry has one, because several exits may share an address.
 */
export function distinctIps({ entries }: DrawAnswer): string[] {
  return entries.map(({ exitIp, host, port, login }) => {
    if (exitIp !== undefined) return exitIp;
    return login === undefined ? `${host}:${port}` : `${host}:${port} ${hash('sha256', login.username)}`;
  });
}

/** The number of proxies that cost money, but whose address noria must not use: it is private, or noria's own. */
export function forbiddenIn({ dropped }: DrawAnswer): number {
  const { private: privateCount = 0, own = 0 } = dropped;
  return privateCount + own;
}
