/**
 * Counts the facts that a replica has published and not yet received back from the log, by subject. The subject is what a fact is
 * about: of two facts with the same subject, the later one decides.
 */
import type { Fact } from './shared-pool.ts';

export class FactsInFlight {
  readonly #counts = new Map<string, number>();

  add(fact: Fact): void {
    const subject = subjectOf(fact);
    if (subject !== undefined) this.#counts.set(subject, (this.#counts.get(subject) ?? 0) + 1);
  }

  /**
   * Whether this replica has a fact with the same subject in flight. The fact in flight comes later in the log than `fact`, so
   * the fact in flight decides.
   */
  covers(fact: Fact): boolean {
    const subject = subjectOf(fact);
    return subject !== undefined && this.#counts.has(subject);
  }

  /** Call it when the replica has received its own fact from the log. */
  returned(fact: Fact): void {
    const subject = subjectOf(fact);
    if (subject === undefined) return;
    const left = (this.#counts.get(subject) ?? 0) - 1;
    if (left > 0) this.#counts.set(subject, left);
    else this.#counts.delete(subject);
  }

  subjects(): ReadonlySet<string> {
    return new Set(this.#counts.keys());
  }

  clear(): void {
    this.#counts.clear();
  }
}

/** Undefined if the order of facts of this kind does not matter. */
function subjectOf(fact: Fact): string | undefined {
  switch (fact.kind) {
    case 'member.joined':
    case 'member.left':
    case 'member.suspected':
      return undefined;
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
