/**
 * Lanes: for each kind of wish that clients have, the members that fit it, in rotation.
 *
 * A kind is what can be said of a member once and for all: source, protocol, location. Its ladder has one lane for
 * each priority of the sources, and a lane has three berths, in the order in which they are picked from: members
 * with enough life left, members about to end, members in quarantine. A member has a seat in one lane of each
 * ladder whose kind it fits, and all its seats are in the same berth. So a pick never searches, whatever the wish;
 * what differs from request to request (hosts, members to avoid, life) is asked of the few that come first.
 */
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { Member } from './member.ts';
import type { Query } from './member-check.ts';
import type { Strategy } from './options.ts';
import { type Berth, type Berths, ENDING, LASTING, NOWHERE, RESTING, Seat } from './rotation/rotation.ts';
import { RoundRobin } from './rotation/round-robin.ts';
import type { PoolSource } from './source.ts';
import { makeRotation } from './strategies.ts';

/** What a wish says of a member once and for all. */
export interface MemberFilter {
  readonly source?: string;
  readonly protocol?: MemberProtocol;
  /** Folded. */
  readonly location?: string;
}

/** Kinds kept beyond those that someone waits for; the one not asked for longest goes. */
const MAX_LADDERS = 256;
/** A client that comes after so long without one is told to whoever draws. */
export const QUIET_MS = 1_000;

/** The members of one kind whose sources have one priority. */
export class Tier {
  readonly priority: number;
  readonly sources: readonly PoolSource[];
  readonly berths: Berths;
  /** Monotonic moment at which a client last looked here. */
  wantedAt = Number.NEGATIVE_INFINITY;

  constructor(priority: number, sources: readonly PoolSource[], strategy: Strategy, random: Random) {
    this.priority = priority;
    this.sources = sources;
    this.berths = [makeRotation(strategy, random), makeRotation(strategy, random), new RoundRobin()];
  }

  /** Members that may be picked, those in quarantine left out. */
  get servingCount(): number {
    return this.berths[LASTING].size + this.berths[ENDING].size;
  }

  get seatCount(): number {
    return this.servingCount + this.berths[RESTING].size;
  }
}

/** One kind of wish, and where to look for it: the lanes of earlier priorities first. */
export class Candidates {
  readonly kind: MemberFilter;
  readonly lanes: readonly Tier[];
  /** Exit of the last member given to a client without a session. */
  lastExit = '';
  /** Monotonic moment at which it was last asked for. */
  askedAt = 0;
  /** Clients that wait for this kind: while there are any, the ladder is kept. */
  waitingCount = 0;
  /** Those of them whom a new member could serve. */
  wantingCount = 0;

  constructor(kind: MemberFilter, lanes: readonly Tier[]) {
    this.kind = kind;
    this.lanes = lanes;
  }

  /** The next member for the query. Those in quarantine come last: better than none. */
  pick(query: Query): Member | undefined {
    for (const lane of this.lanes) {
      if (query.now - lane.wantedAt > QUIET_MS) query.brokeQuiet = true;
      lane.wantedAt = query.now;
      const member = lane.berths[LASTING].pick(query) ?? lane.berths[ENDING].pick(query);
      if (member !== undefined) return member;
    }
    for (const lane of this.lanes) {
      const member = lane.berths[RESTING].pick(query);
      if (member !== undefined) return member;
    }
    return undefined;
  }

  /** Whether a member of this kind may be picked at all. */
  get hasSeats(): boolean {
    return this.lanes.some((lane) => lane.seatCount > 0);
  }

  /** Whether the member is of this kind. */
  fits(member: Member): boolean {
    const { source, protocol, location } = this.kind;
    return (
      (source === undefined || source === member.source.name) &&
      (protocol === undefined || protocol === member.protocol) &&
      (location === undefined || member.place.folded.includes(location))
    );
  }
}

/** The ladders of all kinds that clients wished for lately. */
export class Lanes {
  readonly #random: Random;
  readonly #ladders = new Map<string, Candidates>();
  #sources: readonly PoolSource[] = [];
  #strategy: Strategy = 'round-robin';
  #plain = new Candidates({}, []);

  constructor(random: Random) {
    this.#random = random;
  }

  /** The ladder of a wish that asks for nothing in particular. */
  get plain(): Candidates {
    return this.#plain;
  }

  all(): IterableIterator<Candidates> {
    return this.#ladders.values();
  }

  /** The ladder of a kind: made when it is asked for the first time, from `members`. */
  ladder(kind: MemberFilter, members: Iterable<Member>, now: number): Candidates {
    const key = kindText(kind);
    let ladder = this.#ladders.get(key);
    if (ladder === undefined) {
      this.#makeRoom();
      ladder = this.#make(kind);
      this.#ladders.set(key, ladder);
      for (const member of members) this.#enrol(member, ladder);
    }
    ladder.askedAt = now;
    return ladder;
  }

  /** Gives a member that has just joined its seats; it is in no berth yet. */
  enter(member: Member): void {
    for (const ladder of this.#ladders.values()) this.#enrol(member, ladder);
  }

  /** Takes the member out of every lane, for good. */
  leave(member: Member): void {
    this.move(member, NOWHERE);
    member.seats.length = 0;
  }

  move(member: Member, berth: Berth): void {
    if (berth === member.berth) return;
    member.berth = berth;
    for (const seat of member.seats) seat.move(berth);
  }

  /** Starts anew for other sources or another strategy: ladders got before are dead and must be asked for again. */
  rebuild(sources: readonly PoolSource[], strategy: Strategy, members: Iterable<Member>): void {
    this.#sources = sources;
    this.#strategy = strategy;
    for (const ladder of this.#ladders.values()) keepWanted(ladder);
    this.#ladders.clear();
    this.#plain = this.#make({});
    this.#ladders.set(kindText({}), this.#plain);
    for (const member of members) {
      member.seats.length = 0;
      this.#enrol(member, this.#plain);
    }
  }

  #make(kind: MemberFilter): Candidates {
    const sources = this.#sources.filter(
      (source) => kind.source === undefined || kind.source === source.name,
    );
    const priorities = [...new Set(sources.map((source) => source.options.priority))].sort((a, b) => a - b);
    const lanes = priorities.map((priority) => {
      const equals = sources.filter((source) => source.options.priority === priority);
      return new Tier(priority, equals, this.#strategy, this.#random);
    });
    return new Candidates(kind, lanes);
  }

  #enrol(member: Member, ladder: Candidates): void {
    const lane = ladder.lanes.find(({ sources }) => sources.includes(member.source));
    if (lane === undefined || !ladder.fits(member)) return;
    const seat = new Seat(member, lane.berths);
    member.seats.push(seat);
    seat.move(member.berth);
  }

  /** Lets the ladder go that was not asked for longest, when there are too many; what was wanted there is kept. */
  #makeRoom(): void {
    if (this.#ladders.size < MAX_LADDERS) return;
    let stalest: [string, Candidates] | undefined;
    for (const entry of this.#ladders) {
      const ladder = entry[1];
      if (ladder === this.#plain || ladder.waitingCount > 0) continue;
      if (stalest === undefined || ladder.askedAt < stalest[1].askedAt) stalest = entry;
    }
    if (stalest === undefined) return;
    const [key, ladder] = stalest;
    this.#ladders.delete(key);
    keepWanted(ladder);
    for (const lane of ladder.lanes) {
      for (const source of lane.sources) for (const member of source.members) dismiss(member, lane);
    }
  }
}

function kindText({ source, protocol, location }: MemberFilter): string {
  return `${source ?? ''}|${protocol ?? ''}|${location ?? ''}`;
}

/** The ladder goes: that clients wanted its first sources is noted with those. */
function keepWanted({ lanes }: Candidates): void {
  const [first] = lanes;
  if (first === undefined) return;
  for (const source of first.sources) source.wantedAt = Math.max(source.wantedAt, first.wantedAt);
}

function dismiss(member: Member, lane: Tier): void {
  const at = member.seats.findIndex((seat) => seat.berths === lane.berths);
  if (at < 0) return;
  member.seats[at]?.move(NOWHERE);
  member.seats.splice(at, 1);
}
