/** From an answer of the service to what the pool is offered, and to the event that tells of it. Pure. */
import type { NoriaEvents } from '../core/events.ts';
import type { AddedMembers, DrawnMember } from '../pool/drawn-member.ts';
import type { DrawAnswer, DrawnEntry } from '../service/answer.ts';
import { SUCCESS } from '../service/codes.ts';
import type { DrawSourceOptions } from './options.ts';
import type { DrawOutcome } from './reaction.ts';

export const NOTHING_POURED: AddedMembers = { joined: 0, renewed: 0, rejected: 0 };

/** What a distinct IP is counted by: the exit where it is told, else the address; several exits may share one. */
export function exitName(entry: DrawnEntry): string {
  return entry.exitIp ?? `${entry.host}:${entry.port}`;
}

/** The members of an answer. An entry that does not say what it speaks, in a source that does not either, is left out. */
export function offersOf(answer: DrawAnswer, options: DrawSourceOptions): DrawnMember[] {
  return answer.entries.flatMap((entry) => {
    const protocol = entry.protocol ?? options.protocol;
    if (protocol === undefined) return [];
    const { host, port, exitIp, location } = entry;
    const facts = factsOf(entry);
    return [
      {
        protocol,
        host,
        port,
        endsAt: endOf(entry, answer.sentAt, options.defaultLifetimeMs),
        unproven: options.unproven,
        ...(exitIp === undefined ? {} : { exitIp }),
        ...(location === undefined ? {} : { location }),
        ...(facts === undefined ? {} : { facts }),
      },
    ];
  });
}

/** What `draw.done` tells. `received` counts also the entries that were dropped as unusable; those are `rejected`. */
export function drawDone(
  source: string,
  outcome: DrawOutcome,
  draw: {
    readonly asked: number;
    readonly answer: DrawAnswer | undefined;
    readonly poured: AddedMembers;
    readonly ms: number;
  },
): NoriaEvents['draw.done'] {
  const { asked, answer, poured, ms } = draw;
  const received = (answer?.entries.length ?? 0) + sum(Object.values(answer?.dropped ?? {}));
  const { joined, renewed } = poured;
  const message =
    outcome.code === SUCCESS || outcome.message === undefined ? {} : { message: outcome.message };
  const rejected = received - joined - renewed;
  const counts = { asked, received, joined, renewed, rejected, forbidden: forbiddenIn(answer) };
  return { source, code: outcome.code, ...counts, ms, ...message };
}

/** Proxies of an answer that noria may not use: fine ones, and paid for. */
export function forbiddenIn(answer: DrawAnswer | undefined): number {
  const { private: privateCount = 0, own = 0 } = answer?.dropped ?? {};
  return privateCount + own;
}

function endOf({ lifetimeMs }: DrawnEntry, sentAt: number, untoldMs: number | undefined): number | undefined {
  const livesMs = lifetimeMs === 'unknown' ? undefined : (lifetimeMs ?? untoldMs);
  return livesMs === undefined ? undefined : sentAt + livesMs;
}

function factsOf({
  area,
  serverId,
  lastScore,
  yesterdayScore,
  level,
  isNew,
  onlineMs,
}: DrawnEntry): DrawnMember['facts'] {
  const told = { area, serverId, lastScore, yesterdayScore, level, isNew, onlineMs };
  const facts: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(told)) if (value !== undefined) facts[name] = value;
  return Object.keys(facts).length === 0 ? undefined : facts;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
