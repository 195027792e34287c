/**
 * The facts that a replica had published, but had not yet received back when it loaded the shared state again. The
 * state may lack them. Decides for each of them whether the fact or the state applies.
 */
import type { Fact, MemberRecord, SharedState } from './shared-pool.ts';

export class UnpublishedFacts {
  readonly #bySubject: ReadonlyMap<string, Fact>;

  /** @param bySubject - the last fact about each subject; see facts-in-flight.ts. */
  constructor(bySubject: ReadonlyMap<string, Fact>) {
    this.#bySubject = bySubject;
  }

  /** Whether the operator gave this replica a command for the source that the log may lack. */
  hasCommandFor(source: string): boolean {
    return this.#bySubject.has(`source ${source}`);
  }

  /**
   * Whether the session in the state is outdated, because this replica ended it, or moved it for the operator or its
   * client.
   */
  replacesSession(name: string): boolean {
    const fact = this.#bySubject.get(`session ${name}`);
    return fact?.kind === 'session.ended' || (fact?.kind === 'session.moved' && fact.reason === 'rotated');
  }

  /**
   * Whether this replica's last fact about the member overrides the quarantine in the loaded state. A quarantine does
   * if it ends later. A restore does only if the loaded quarantine is over.
   */
  replacesQuarantine({ member, quarantine }: MemberRecord, now: number): boolean {
    const fact = this.#bySubject.get(`member ${member.id}`);
    const untilAt = quarantine?.untilAt ?? Number.NEGATIVE_INFINITY;
    if (fact?.kind === 'member.restored') return untilAt <= now;
    return fact?.kind === 'member.quarantined' && fact.quarantine.untilAt > Math.max(untilAt, now);
  }

  /**
   * Returns the facts to publish again.
   * @param hasSession - returns whether this replica has the session now.
   */
  missingIn(state: SharedState, hasSession: (name: string) => boolean, now: number): Fact[] {
    const records = new Map(state.members.map((record) => [record.member.id, record]));
    const sessions = new Set(state.sessions.map(({ name }) => name));
    return [...this.#bySubject.values()].filter((fact) => {
      switch (fact.kind) {
        case 'member.left':
        case 'member.banned':
          return true;
        case 'member.quarantined':
        case 'member.restored': {
          const record = records.get(fact.member);
          return record !== undefined && this.replacesQuarantine(record, now);
        }
        case 'session.ended':
          return sessions.has(fact.name) && !hasSession(fact.name);
        default:
          return false; // `Replica` and `SharedSources` publish these again
      }
    });
  }
}
