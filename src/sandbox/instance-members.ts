/**
 * The members of one instance: made when they are drawn, never more alive at a time than there are proxies, each with
 * an exit of its own, gone at the end of its life.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { type Random, randomBelow, shuffled } from '../core/random.ts';
import type { Exits } from './exits.ts';
import type { ExtractionQuery } from './extraction-query.ts';
import { type MemberTraits, RunningMember } from './member.ts';
import { type Behaviour, WELL_BEHAVED } from './member-behaviour.ts';
import { loginOf, type SettledOptions } from './settings.ts';

export interface InstanceMembersOptions {
  readonly instance: SettledOptions;
  /** The instance's number from 0: its exits form a series. */
  readonly series: number;
  readonly exits: Exits;
  readonly clock: Clock;
  readonly random: Random;
  readonly serve: (socket: Socket, member: RunningMember) => void;
  /** How the nth member (from 0) behaves by a scenario; undefined leaves it to the instance. */
  readonly behaviour: (n: number) => Behaviour | undefined;
}

const DEFAULT_MEMBERS = 20;
const DEFAULT_SLOW_MS = 2000;
const HOUR_MS = 3_600_000;
/** The share of reverse proxies where a call takes both kinds. */
const REVERSE_SHARE = 0.25;
const LONGEST_ALIVE_HOURS = 96;

export class InstanceMembers {
  readonly #options: InstanceMembersOptions;
  /** All that are not gone yet, in the order in which they were made. */
  readonly #members = new Set<RunningMember>();
  #made = 0;
  #goneBytes = 0;
  #closed = false;

  constructor(options: InstanceMembersOptions) {
    this.#options = options;
  }

  /** Those alive now, in the order in which they were made. */
  get members(): readonly RunningMember[] {
    return [...this.#members].filter((member) => member.isOpen);
  }

  /** How many may be alive at a time. */
  get most(): number {
    return this.#options.instance.members ?? DEFAULT_MEMBERS;
  }

  /** Connections open through them now. */
  get connections(): number {
    return [...this.#members].reduce((sum, member) => sum + member.connections, 0);
  }

  /** Bytes that went through them and those before them, both ways. */
  get bytes(): number {
    return [...this.#members].reduce((sum, member) => sum + member.bytes, this.#goneBytes);
  }

  /** Draws up to `count` members: new ones as far as there are any, then some that were drawn before. */
  async draw(demand: ExtractionQuery): Promise<readonly RunningMember[]> {
    if (this.#closed) return [];
    const { random } = this.#options;
    const repeats = this.members.filter((member) => mayRepeat(member, demand));
    const fresh = this.#make(demand);
    await Promise.all(fresh.map((member) => member.open()));
    const drawn = [...fresh, ...shuffled(random, repeats)]
      .filter((member) => member.isOpen) // one may have ended while others opened
      .slice(0, demand.count);
    if (demand.order === 'random') return shuffled(random, drawn);
    return drawn.sort((a, b) => b.remainingMs - a.remainingMs);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#members].map((member) => member.close()));
  }

  #make(demand: ExtractionQuery): RunningMember[] {
    const wanted = Math.min(demand.count, demand.newAllowed);
    if (demand.locations.length === 0 || demand.kinds.length === 0) return [];
    const protocols = new Set(demand.kinds.map(({ protocol }) => protocol));
    const places = [...this.#members].filter(({ holdsPlace }) => holdsPlace);
    const alike = places.filter(({ traits }) => protocols.has(traits.protocol)).length;
    const room = Math.max(0, Math.min(wanted, this.most - alike));
    return Array.from({ length: room }, () => this.#add(demand));
  }

  #add(demand: ExtractionQuery): RunningMember {
    const { instance, exits, series, clock, random, serve } = this.#options;
    const [least, most] = demand.lifeMs;
    const exit = exits.next(series);
    const n = this.#made;
    this.#made += 1;
    const traits = traitsFor(demand, n, random);
    // A reverse proxy is reached at its server's address, as every proxy of the pure edition is.
    const shared = instance.product === 'short-pure' || traits.reverse;
    const member = new RunningMember({
      id: `${instance.product}-${series}-${n}`,
      instance: instance.id,
      exit,
      listenHost: shared ? exits.gateway(series) : exit.listenHost,
      traits,
      lifeMs: least + random() * (most - least),
      graceMs: instance.graceMs ?? 0,
      behaviour: this.#behaviour(n),
      login: loginOf(instance),
      clock,
      serve,
      onGone: (gone) => {
        this.#members.delete(gone);
        this.#goneBytes += gone.bytes;
      },
    });
    this.#members.add(member);
    return member;
  }

  #behaviour(n: number): Behaviour {
    const { instance, random, behaviour } = this.#options;
    const { dead = 0, slow = 0, slowMs = DEFAULT_SLOW_MS } = instance;
    const chosen = behaviour(n) ?? instance.behaviour?.(n);
    if (chosen !== undefined) return chosen;
    const thrown = random();
    if (thrown < dead) return { how: 'refuse' };
    return thrown < dead + slow ? { how: 'slow', ms: slowMs } : WELL_BEHAVED;
  }
}

/** Whether a member that exists is one of those asked for. */
function mayRepeat({ traits, remainingMs, exit }: RunningMember, demand: ExtractionQuery): boolean {
  return (
    demand.mayRepeat(exit.address) &&
    demand.kinds.some(({ protocol, label }) => protocol === traits.protocol && label === traits.label) &&
    demand.locations.includes(traits.location) &&
    (demand.reverse === 'either' || demand.reverse === traits.reverse) &&
    (traits.reverse || remainingMs >= demand.leastRemainingMs) &&
    demand.levels.includes(traits.level) &&
    demand.checkedMinutes.includes(traits.checkedMinutes) &&
    demand.responseSeconds.includes(traits.responseSeconds) &&
    traits.aliveHours >= demand.leastAliveHours
  );
}

/** Traits of a new proxy that fits what is asked for. */
function traitsFor(demand: ExtractionQuery, n: number, random: Random): MemberTraits {
  const score = () => (random() < 0.1 ? -1 : 60 + randomBelow(random, 41));
  const { protocol, label } = oneOf(demand.kinds, random);
  return {
    protocol,
    label,
    location: oneOf(demand.locations, random),
    reverse: demand.reverse === 'either' ? random() < REVERSE_SHARE : demand.reverse,
    onlineMs: random() * HOUR_MS,
    level: oneOf(demand.levels, random),
    checkedMinutes: oneOf(demand.checkedMinutes, random),
    responseSeconds: oneOf(demand.responseSeconds, random),
    aliveHours: demand.leastAliveHours + random() * (LONGEST_ALIVE_HOURS - demand.leastAliveHours),
    serverId: `s${100 + n}`,
    lastScore: score(),
    yesterdayScore: score(),
  };
}

function oneOf<T>(items: readonly T[], random: Random): T {
  const item = items[randomBelow(random, items.length)];
  if (item === undefined) throw new TypeError('nothing to choose from');
  return item;
}
