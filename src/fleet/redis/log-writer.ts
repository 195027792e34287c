/**
 * Writes the facts of this replica to the log of the fleet, in the order in which the replica publishes them, and opens
 * sessions in the store.
 */
import type { SharedSession } from '../../pool/shared-member.ts';
import { shiftFact, shiftSession } from '../moments.ts';
import type { Fact } from '../shared-pool.ts';
import { BIND, PUBLISH } from './fleet-log.ts';
import type { FleetStore } from './fleet-store.ts';
import { decodeSession } from './schemas.ts';
import { faultOf } from './store-client.ts';

/** What a fact changes in a session that the store keeps. */
interface SessionChange {
  readonly name: string;
  /** The session as JSON; empty if the session has ended. */
  readonly text: string;
  readonly member: string;
  readonly leftMs: number;
}

export class LogWriter {
  readonly #store: FleetStore;
  readonly #replica: string;
  #unsent: Fact[] = [];
  #isOpening = false;
  #publishing: Promise<void> | undefined;

  constructor(store: FleetStore, replica: string) {
    this.#store = store;
    this.#replica = replica;
  }

  /** Appends the facts to the log. Without a connection, drops them. */
  publish(facts: readonly Fact[]): void {
    const isOpen = this.#store.connection.fault === undefined;
    if (facts.length === 0 || !(isOpen || this.#isOpening)) return;
    this.#unsent.push(...facts);
    if (isOpen) this.#publishing ??= this.#publishAll();
  }

  async bindSession(proposed: SharedSession): Promise<SharedSession> {
    const session = shiftSession(proposed, this.#store.toStoreTime);
    const { name, member = '' } = session;
    const facts: Fact[] = [{ kind: 'session.moved', session, reason: 'new' }];
    const { values } = await this.#store.run(BIND, {
      keys: [this.#store.keys.session(name)],
      args: [
        ...[this.#replica, JSON.stringify(facts), name, JSON.stringify(session)],
        ...[member, Math.max(1, this.#leftMs(session))],
      ],
    });
    const [text = '', uses = '', used = ''] = values.map(String);
    const found = decodeSession(text);
    if (found === undefined) return proposed;
    const [usedAt = 0, ttlMs = found.ttlMs] = used === '' ? [] : used.split(' ').map(Number);
    const latest = { usedAt: Math.max(found.usedAt, usedAt), uses: found.uses + Number(uses), ttlMs };
    return shiftSession({ ...found, ...latest }, this.#store.toLocalTime);
  }

  /**
   * Keeps the facts that are published from now on, and sends them when the connection is open. Call it when the state
   * has been loaded.
   */
  keepUntilConnected(): void {
    this.#isOpening = true;
  }

  connected(): void {
    this.#isOpening = false;
    if (this.#unsent.length > 0) this.#publishing ??= this.#publishAll();
  }

  lost(): void {
    this.#isOpening = false;
    this.#unsent = [];
  }

  /** Resolves when the log contains all published facts, or when the connection is lost. */
  async flushed(): Promise<void> {
    await this.#publishing;
  }

  /**
   * Publishes one batch of facts after the other, to keep their order. Waits for each batch: if the store lacks the
   * script, noria sends the script and the batch again, and the next batch could otherwise arrive first.
   */
  async #publishAll(): Promise<void> {
    while (this.#unsent.length > 0) {
      const facts = this.#unsent;
      this.#unsent = [];
      try {
        await this.#publish(facts);
      } catch (error) {
        // handled: facts are lost, so this replica loads the state again
        this.#store.connection.reset(faultOf(error));
        this.#unsent = [];
      }
    }
    this.#publishing = undefined;
  }

  async #publish(facts: readonly Fact[]): Promise<void> {
    const shifted = facts.map((fact) => shiftFact(fact, this.#store.toStoreTime));
    const changes = shifted.flatMap((fact) => this.#sessionChange(fact));
    await this.#store.run(PUBLISH, {
      keys: changes.map(({ name }) => this.#store.keys.session(name)),
      args: [
        ...[this.#replica, JSON.stringify(shifted)],
        ...changes.flatMap(({ name, text, member, leftMs }) => [name, text, member, leftMs]),
      ],
    });
  }

  /** Returns what a fact changes in the sessions that the store keeps. The fact's moments are by the store's clock. */
  #sessionChange(fact: Fact): SessionChange[] {
    if (fact.kind === 'session.ended') return [{ name: fact.name, text: '', member: '', leftMs: 0 }];
    if (fact.kind !== 'session.moved') return [];
    const { name, member = '' } = fact.session;
    const leftMs = this.#leftMs(fact.session);
    return [{ name, text: leftMs > 0 ? JSON.stringify(fact.session) : '', member, leftMs }];
  }

  #leftMs({ usedAt, ttlMs }: SharedSession): number {
    return Math.ceil(usedAt + ttlMs - (this.#store.clock.atLeast() ?? 0));
  }
}
