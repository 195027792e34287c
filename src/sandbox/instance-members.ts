/**
 * The members of one instance. Each draw may create members. Each member has its own exit and closes at the end of its
 * life.
 */

import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { HOUR_MS } from '../core/duration.ts';
import { type Random, randomBelow, shuffled } from '../core/random.ts';
import type { Exits } from './exits.ts';
import type { ExtractionQuery } from './extraction-query.ts';
import { type MemberTraits, RunningMember } from './member.ts';
import type { Behaviour } from './scenario.ts';
import { type IdentifiedOptions, loginOf } from './settings.ts';

export interface InstanceMembersOptions {
  readonly instance: IdentifiedOptions;
  /** The instance's number from 0. It selects the range of the members' exits. */
  readonly series: number;
  readonly exits: Exits;
  readonly clock: Clock;
  readonly random: Random;
  readonly serve: (socket: Socket, member: RunningMember) => void;
  /**
   * Returns the behaviour of the nth member (from 0) according to the scenario. Undefined: the instance's settings
   * decide.
   */
  readonly behaviourOf: (n: number) => Behaviour | undefined;
}

const DEFAULT_MEMBERS = 20;
const DEFAULT_SLOW_MS = 2000;
/** The share of reverse proxies among new members if a call accepts both kinds. */
const REVERSE_SHARE = 0.25;
const MAX_ALIVE_HOURS = 96;

export class InstanceMembers {
  readonly #options: InstanceMembersOptions;
  /** All members that are not yet closed, in the order of their creation. */
  readonly #members = new Set<RunningMember>();
  #created = 0;
  #closedBytes = 0;
  #closed = false;

  constructor(options: InstanceMembersOptions) {
    this.#options = options;
  }

  get alive(): readonly RunningMember[] {
    return [...this.#members].filter((member) => member.isAlive);
  }

  /** The maximum number of living members for each protocol. */
  get max(): number {
    return this.#options.instance.members ?? DEFAULT_MEMBERS;
  }

  get connections(): number {
    return [...this.#members].reduce((sum, member) => sum + member.connections, 0);
  }

  /** The number of bytes that all members have relayed, in both directions. Closed members count too. */
  get bytes(): number {
    return [...this.#members].reduce((sum, member) => sum + member.bytes, this.#closedBytes);
  }

  /**
   * Draws up to `count` members. First creates new members, as long as the instance has fewer than `max`. Then adds
   * existing members that match the query.
   */
  async draw(query: ExtractionQuery): Promise<readonly RunningMember[]> {
    if (this.#closed) return [];
    const { random } = this.#options;
    const repeats = this.alive.filter((member) => mayRepeat(member, query));
    const created = this.#create(query);
    await Promise.all(created.map((member) => member.open()));
    const drawn = [...created, ...shuffled(random, repeats)]
      .filter((member) => member.isAlive) // a member may have expired while other members opened
      .slice(0, query.count);
    if (query.order === 'random') return shuffled(random, drawn);
    return drawn.sort((a, b) => b.remainingMs - a.remainingMs);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#members].map((member) => member.close()));
  }

  #create(query: ExtractionQuery): RunningMember[] {
    if (query.locations.length === 0 || query.kinds.length === 0) return [];
    const protocols = new Set(query.kinds.map(({ protocol }) => protocol));
    const counted = [...this.#members].filter(
      (member) => member.countsAsProxy && protocols.has(member.traits.protocol),
    );
    const room = Math.max(0, Math.min(query.count, query.newAllowed, this.max - counted.length));
    return Array.from({ length: room }, () => this.#add(query));
  }

  #add(query: ExtractionQuery): RunningMember {
    const { instance, exits, series, clock, random, serve } = this.#options;
    const [min, max] = query.lifeMs;
    const exit = exits.next(series);
    const n = this.#created;
    this.#created += 1;
    const traits = newTraits(query, n, random);
    // All reverse proxies share one address, on different ports. So do all proxies of `short-pure`.
    const sharesAddress = instance.product === 'short-pure' || traits.reverse;
    const member = new RunningMember({
      id: `${instance.product}-${series}-${n}`,
      instance: instance.id,
      exit,
      listenHost: sharesAddress ? exits.gateway(series) : exit.listenHost,
      traits,
      lifeMs: min + random() * (max - min),
      graceMs: instance.graceMs ?? 0,
      behaviour: this.#behaviourOf(n),
      login: loginOf(instance),
      clock,
      serve,
      onClosed: (closed) => {
        this.#members.delete(closed);
        this.#closedBytes += closed.bytes;
      },
    });
    this.#members.add(member);
    return member;
  }

  #behaviourOf(n: number): Behaviour {
    const { instance, random, behaviourOf } = this.#options;
    const { dead = 0, slow = 0, slowMs = DEFAULT_SLOW_MS } = instance;
    const chosen = behaviourOf(n) ?? instance.behaviour?.(n);
    if (chosen !== undefined) return chosen;
    const drawn = random();
    if (drawn < dead) return { how: 'refuse' };
    return drawn < dead + slow ? { how: 'slow', ms: slowMs } : { how: 'good' };
  }
}

function mayRepeat({ traits, remainingMs, exit }: RunningMember, query: ExtractionQuery): boolean {
  return (
    query.mayRepeat(exit.address) &&
    query.kinds.some(({ protocol, label }) => protocol === traits.protocol && label === traits.label) &&
    query.locations.includes(traits.location) &&
    (query.reverse === 'either' || query.reverse === traits.reverse) &&
    (traits.reverse || remainingMs >= query.minRemainingMs) &&
    query.levels.includes(traits.level) &&
    query.checkedMinutes.includes(traits.checkedMinutes) &&
    query.responseSeconds.includes(traits.responseSeconds) &&
    traits.aliveHours >= query.minAliveHours
  );
}

function newTraits(query: ExtractionQuery, n: number, random: Random): MemberTraits {
  const score = () => (random() < 0.1 ? -1 : 60 + randomBelow(random, 41));
  const { protocol, label } = oneOf(query.kinds, random);
  return {
    protocol,
    label,
    location: oneOf(query.locations, random),
    reverse: query.reverse === 'either' ? random() < REVERSE_SHARE : query.reverse,
    onlineMs: random() * HOUR_MS,
    level: oneOf(query.levels, random),
    checkedMinutes: oneOf(query.checkedMinutes, random),
    responseSeconds: oneOf(query.responseSeconds, random),
    aliveHours: query.minAliveHours + random() * (MAX_ALIVE_HOURS - query.minAliveHours),
    serverId: `s${100 + n}`,
    lastScore: score(),
    yesterdayScore: score(),
  };
}

function oneOf<T>(items: readonly T[], random: Random): T {
  const item = items[randomBelow(random, items.length)];
  if (item === undefined) throw new TypeError('cannot choose from an empty list');
  return item;
}
