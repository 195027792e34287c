/**
 * Keeps the facts in flight: facts that a replica has published and has not yet received back from the log. The subject
 * of a fact is what it is about, for example a member or a session. Of two facts with the same subject, the later one
 * decides.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Fact } from './shared-pool.ts';
import { UnpublishedFacts } from './unpublished-facts.ts';

/**
 * Maximum number of subjects. It limits the memory: while the connection to the shared pool is lost, clients cause more
 * and more facts, and none of them returns.
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

  /**
   * Whether this replica has a fact with the same subject in flight. That fact is later in the log, so it overrides
   * `fact`.
   */
  covers(fact: Fact): boolean {
    const subject = subjectOf(fact);
    return subject !== undefined && this.#bySubject.has(subject);
  }

  /** Removes a fact. Call it when the replica receives its own fact from the log. */
  returned(fact: Fact): void {
    const subject = subjectOf(fact);
    if (subject === undefined) return;
    const known = this.#bySubject.get(subject);
    if (known === undefined) return;
    if (known.count > 1) this.#bySubject.set(subject, { ...known, count: known.count - 1 });
    else this.#bySubject.delete(subject);
  }

  /** Removes all facts. Returns the last fact about each subject. */
  takeAll(): UnpublishedFacts {
    const facts = new Map([...this.#bySubject].map(([subject, { last }]) => [subject, last]));
    this.#bySubject.clear();
    return new UnpublishedFacts(facts);
  }
}

/** Returns undefined if the order of facts of this kind does not matter, such as the facts that add members. */
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
    case 'member.banned':
      return `ban ${fact.member} ${fact.host}`;
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
