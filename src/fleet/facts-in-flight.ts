/**
 * Keeps the facts in flight: facts that a replica has published and has not yet received back from the log. The subject
 * of a fact is what it is about, for example a member or a session. Of two facts with the same subject, the later one
 * decides.
 *
 * If the replica loads the shared state again, the state may lack these facts. This class then decides for each of them
 * whether the fact or the state applies.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import { banKey } from './records.ts';
import type { Fact, MemberRecord, SharedState } from './schemas.ts';

/**
 * Maximum number of members, sessions and other subjects with facts in flight. It limits the memory: while the connection
 * to the shared pool is lost, this replica publishes more and more facts and receives none of them back.
 */
export const MAX_SUBJECTS = 10_000;

export class FactsInFlight {
  readonly #bySubject = new BoundedMap<string, { readonly last: Fact; readonly count: number }>(MAX_SUBJECTS);

  add(fact: Fact): void {
    const subject = subjectOf(fact);
    if (subject === undefined) return;
    const { count = 0 } = this.#bySubject.get(subject) ?? {};
    this.#bySubject.set(subject, { last: fact, count: count + 1 });
  }

  /** Whether a fact with the same subject is in flight. If so, it comes later in the log and overrides `fact`. */
  covers(fact: Fact): boolean {
    const subject = subjectOf(fact);
    return subject !== undefined && this.#bySubject.has(subject);
  }

  returned(fact: Fact): void {
    const subject = subjectOf(fact);
    if (subject === undefined) return;
    const known = this.#bySubject.get(subject);
    if (known === undefined) return;
    if (known.count > 1) this.#bySubject.set(subject, { ...known, count: known.count - 1 });
    else this.#bySubject.delete(subject);
  }

  hasCommandFor(source: string): boolean {
    return this.#bySubject.has(`source ${source}`);
  }

  /**
   * Whether the session in the loaded state is outdated: this replica has ended the session, or has moved it at the request
   * of the operator or of the session's client.
   */
  replacesSession(name: string): boolean {
    const fact = this.#last(`session ${name}`);
    return fact?.kind === 'session.ended' || (fact?.kind === 'session.moved' && fact.reason === 'rotated');
  }

  /**
   * Whether the last fact in flight about the member overrides the quarantine in the loaded state. A fact that starts a
   * quarantine overrides it if the new quarantine has not ended and ends later. A fact that ends a quarantine overrides
   * it only if the loaded quarantine has ended.
   */
  replacesQuarantine({ member, quarantine }: MemberRecord, now: number): boolean {
    const fact = this.#last(`member ${member.id}`);
    const untilAt = quarantine?.untilAt ?? Number.NEGATIVE_INFINITY;
    if (fact?.kind === 'member.restored') return untilAt <= now;
    return fact?.kind === 'member.quarantined' && fact.quarantine.untilAt > Math.max(untilAt, now);
  }

  sessions(): string[] {
    return [...this.#bySubject].flatMap(([, { last }]) =>
      last.kind === 'session.ended' ? [last.name] : last.kind === 'session.moved' ? [last.session.name] : [],
    );
  }

  missingIn(state: SharedState, hasSession: (name: string) => boolean, now: number): Fact[] {
    const records = new Map(state.members.map((record) => [record.member.id, record]));
    const sessions = new Set(state.sessions.map(({ name }) => name));
    const facts = [...this.#bySubject].map(([, { last }]) => last);
    return facts.filter((fact) => {
      switch (fact.kind) {
        case 'member.left':
        case 'site.banned':
          return true;
        case 'member.quarantined':
        case 'member.restored': {
          const record = records.get(fact.member);
          return record !== undefined && this.replacesQuarantine(record, now);
        }
        case 'session.ended':
          return sessions.has(fact.name) && !hasSession(fact.name);
        default:
          return false; // `Replica` publishes these facts again if the state lacks them
      }
    });
  }

  #last(subject: string): Fact | undefined {
    return this.#bySubject.get(subject)?.last;
  }
}

/** Undefined if the order of facts of this kind does not matter, as for the facts that add members. */
function subjectOf(fact: Fact): string | undefined {
  switch (fact.kind) {
    case 'member.joined':
    case 'member.suspected':
      return undefined;
    case 'member.left':
      return `left ${fact.member}`;
    case 'member.quarantined':
    case 'member.restored':
      return `member ${fact.member}`;
    case 'site.banned':
      return `ban ${banKey(fact)}`;
    case 'session.moved':
      return `session ${fact.session.name}`;
    case 'session.ended':
      return `session ${fact.name}`;
    case 'source.commanded':
      return `source ${fact.source}`;
    case 'source.reported':
      return `report ${fact.source}`;
    case 'source.restricted':
      return `restriction ${fact.source}`;
    case 'evictions.frozen':
      return fact.kind;
  }
}
