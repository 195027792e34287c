/**
 * Converts sessions to journal records, which survive a restart, and tracks which sessions changed since the last call of
 * `takeChanges`. A use changes the record only if the record is older than a quarter of the TTL, so a busy session causes four
 * writes per TTL.
 */

import type { Clock } from '../core/clock.ts';
import { REFRESH_SHARE, Session } from './session.ts';
import type { SessionRecord, StoredSession } from './stored-state.ts';

/** `record` is undefined if the session has ended. */
type SessionEntry = readonly [name: string, record: SessionRecord | undefined];

export class SessionJournal {
  readonly #clock: Clock;
  readonly #sessions: ReadonlyMap<string, Session>;
  readonly #onChange: () => void;
  /** Names of changed and ended sessions that `takeChanges` has not returned yet. */
  readonly #changed = new Set<string>();

  constructor(clock: Clock, sessions: ReadonlyMap<string, Session>, onChange: () => void) {
    this.#clock = clock;
    this.#sessions = sessions;
    this.#onChange = onChange;
  }

  get size(): number {
    return this.#sessions.size;
  }

  *all(): Generator<SessionEntry> {
    for (const session of this.#sessions.values()) yield [session.name, this.#record(session)];
  }

  takeChanges(maxCount: number): SessionEntry[] {
    const taken: SessionEntry[] = [];
    for (const name of this.#changed) {
      if (taken.length === maxCount) break;
      this.#changed.delete(name);
      const session = this.#sessions.get(name);
      taken.push([name, session && this.#record(session)]);
    }
    return taken;
  }

  dropChanges(): void {
    this.#changed.clear();
  }

  sessionChanged({ name }: Session): void {
    this.#changed.add(name);
    this.#onChange();
  }

  /** Records that the session was used, or is still in use. */
  sessionUsed(session: Session, now: number): void {
    if (now - session.recordedAt >= session.ttlMs * REFRESH_SHARE) this.sessionChanged(session);
  }

  #record(session: Session): SessionRecord {
    const { owner, member, ttlMs, usedAt, openLeases, uses } = session;
    const now = this.#clock.monotonic();
    session.recordedAt = now;
    return { ...owner, member, ttlMs, idleMs: openLeases > 0 ? 0 : Math.max(0, now - usedAt), uses };
  }
}

/**
 * Creates the session that a journal record describes, at monotonic `now`. Returns undefined if the session has ended
 * since the record was written.
 */
export function restoredSession(name: string, stored: StoredSession, now: number): Session | undefined {
  const { user, address, member, ttlMs, uses } = stored.record;
  const idleMs = stored.record.idleMs + stored.ageMs;
  if (idleMs >= ttlMs) return undefined;
  const session = new Session(name, { user, address }, { ttlMs, usedAt: now - idleMs });
  session.member = member;
  session.uses = uses;
  return session;
}
