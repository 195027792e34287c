/**
 * The dialer connects clients to targets through members of the pool.
 *
 * Owns every connection to a member until the listener takes it over, the idle connections, and all deadlines of dials.
 * It connects to members only, and resolves no name.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import type { Blame, EventBus } from '../core/events.ts';
import type { LoopGuard } from '../core/front-proxy.ts';
import { LiveList } from '../core/live-list.ts';
import { isSame } from '../core/secret.ts';
import type { Lease, LeaseProvider } from '../pool/lease.ts';
import { Attempt, type AttemptFailure, type RawConnection } from './attempt.ts';
import { blameFor, targetCanCause } from './blame.ts';
import type { Dialer, Dialing, DialRequest, DialResult } from './contract.ts';
import { Dial } from './dial.ts';
import { type SiteBans, SiteEvidence } from './evidence.ts';
import { frontProxyOf, frontSockets } from './front-proxy.ts';
import { ClientBudgets, type DialerSettings, HedgeBudget, OverdueAttempts } from './limits.ts';
import { type DialParts, IdleConnections } from './member-connections.ts';
import { failedSocket, memberSockets, type OpenSocket } from './member-socket.ts';
import { NetworkWatch, networkSign, Reachability } from './reachability.ts';
import type { SourceFault } from './source-memory.ts';
import { SourceMemory, type SourceSettings } from './source-memory.ts';
import { WarmConnections } from './warm-connections.ts';

export interface DialerOptions extends DialerSettings {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: LeaseProvider & SiteBans;
  readonly guard: LoopGuard;
  /** Grants the leases in place of the pool. Used where several replicas have to agree on the member of a session. */
  readonly leases?: Pick<LeaseProvider, 'acquire'> | undefined;
  /** Called when most members of a source begin to refuse its credentials, and when one accepts them again. */
  readonly onSourceFault: (fault: SourceFault) => void;
  readonly onNetwork: (down: boolean) => void;
  readonly openSocket?: OpenSocket;
}

export type SingleAttemptResult =
  /** The caller owns the socket of the connection, which is paused. */
  | { readonly kind: 'accepted'; readonly connection: RawConnection; readonly ms: number }
  /** The attempt failed. `blame` is undefined if it depends on whether another member succeeds. */
  | { readonly kind: 'failed'; readonly failure: AttemptFailure; readonly blame: Blame | undefined }
  | { readonly kind: 'cancelled' };

/** Fine enough for the shortest hedge delay, coarse enough to save CPU time. */
const TICK_MS = 10;
const UNKNOWN_SOURCE: SourceSettings = {
  auth: 'none',
  instance: '',
  neverInstance: true,
  forwardMode: 'direct',
  handshake: 'plain',
};

export class MemberDialer implements Dialer {
  readonly #options: DialerOptions;
  readonly #parts: DialParts;
  /** Each cancels one. */
  readonly #singleAttempts = new Set<() => void>();
  readonly #drawObserver: Disposable;
  #settings: DialerSettings;
  #memories = new Map<string, SourceMemory>();
  #closed = false;

  constructor(options: DialerOptions) {
    const { clock, bus, pool, leases = pool } = options;
    this.#options = options;
    this.#settings = options;
    const deadlines = new Deadlines(clock, TICK_MS);
    const mayKeep = (socket: Socket) => !this.#closed && isSame(frontProxyOf(socket), this.#settings.via);
    const network = new NetworkWatch(clock, (down) => {
      options.onNetwork(down);
      bus.emit('network.judged', { down });
    });
    const openDirect = options.openSocket ?? memberSockets();
    const openThroughFront = frontSockets(openDirect, clock, options.guard);
    const openSocket: OpenSocket = (member, use, marks) => {
      const { via } = this.#settings;
      try {
        return via === undefined ? openDirect(member, use) : openThroughFront(via, member, use, marks);
      } catch (error) {
        return failedSocket(error);
      }
    };
    const memoryOf = this.#memoryOf;
    const warm = new WarmConnections({ clock, deadlines, openSocket, pool, memoryOf });
    warm.configure(options.warm);
    this.#parts = {
      clock,
      bus,
      pool,
      leases,
      deadlines,
      openSocket,
      warm,
      idle: new IdleConnections(clock, deadlines, mayKeep),
      network,
      openConnections: new LiveList(),
      overdueAttempts: new OverdueAttempts(),
      hedgeBudget: new HedgeBudget(),
      reachability: new Reachability(clock),
      evidence: new SiteEvidence(clock, pool),
      clientBudgets: new ClientBudgets(clock),
      memoryOf,
      dials: new LiveList(),
      lastRequestId: 0,
    };
    // An answer of the service proves that our network is up.
    this.#drawObserver = bus.on('draw.done', ({ code }) => {
      if (code !== 'transport' && code !== 'front-proxy-failed') network.answered();
    });
  }

  /** A dial counts until all its attempts have ended, even after it has a result. */
  get openCount(): number {
    const { dials, idle, warm } = this.#parts;
    return dials.size + this.#singleAttempts.size + idle.size + warm.byMember.size;
  }

  dial(request: DialRequest, onResult: (result: DialResult) => void): Dialing {
    const dial = new Dial(this.#parts, this.#settings, request, onResult);
    if (this.#closed) {
      dial.close();
    } else {
      this.#parts.dials.add(dial);
      dial.start();
    }
    return dial;
  }

  /**
   * A single attempt through a leased member. The caller reports the outcome of the lease to the pool. Never rejects.
   * @param signal - ends the attempt. An established connection stays open.
   */
  attempt(
    {
      lease,
      target,
      use,
      timeoutMs,
    }: Pick<DialRequest, 'target' | 'use'> & { readonly lease: Lease; readonly timeoutMs: number },
    signal: AbortSignal,
  ): Promise<SingleAttemptResult> {
    const { promise, resolve } = Promise.withResolvers<SingleAttemptResult>();
    const settle = (result: SingleAttemptResult) => {
      signal.removeEventListener('abort', cancel);
      this.#singleAttempts.delete(cancel);
      resolve(result);
    };
    const task = { lease, request: { target, use }, hedge: false, timeoutMs };
    const attempt = new Attempt(this.#parts, task, (_, result) =>
      settle(this.#singleResult(attempt, result)),
    );
    const cancel = () => {
      attempt.cancel();
      settle({ kind: 'cancelled' });
    };
    if (this.#closed || signal.aborted) {
      cancel();
    } else {
      signal.addEventListener('abort', cancel);
      this.#singleAttempts.add(cancel);
      attempt.start();
    }
    return promise;
  }

  /** A probe without an answer is no evidence about our own network, because most probed members are dead. */
  #singleResult(attempt: Attempt, result: RawConnection | AttemptFailure): SingleAttemptResult {
    const { network } = this.#parts;
    if (result.kind === 'accepted') {
      network.answered();
      result.socket.pause(); // paused, because the caller gets the socket in a later tick
      return { kind: 'accepted', connection: result, ms: attempt.elapsedMs };
    }
    if (networkSign(result.fault, result.detail) === 'up') network.answered();
    const { credentials } = attempt.memory;
    const blame = targetCanCause(result)
      ? undefined
      : blameFor(result, {
          sourceFaulty: credentials.faulty,
          credentialsWork: credentials.isFaultOfMember(attempt.login),
          networkDown: network.down,
        });
    return { kind: 'failed', failure: result, blame };
  }

  /** Keeps what it has learned about sources with unchanged settings. */
  configure(settings: DialerSettings): void {
    const { idle, warm } = this.#parts;
    // Idle connections were opened through the previous front proxy, so new requests must not use them.
    if (!isSame(this.#settings.via, settings.via)) idle.clear();
    this.#settings = settings;
    warm.configure(settings.warm);
    for (const [source, memory] of this.#memories) {
      if (!isSame(memory.settings, settings.sources.get(source))) this.#memories.delete(source);
    }
  }

  resetRefusals(source: string): void {
    this.#memories.get(source)?.credentials.resetRefusals();
  }

  /** Another process of noria got an answer, which proves that our network is up. */
  answeredElsewhere(): void {
    this.#parts.network.answered();
  }

  closeConnections(leases: readonly number[]): void {
    const ids = new Set(leases);
    for (const { lease, socket } of this.#parts.openConnections.all())
      if (ids.has(lease.id)) socket.destroy();
  }

  /** Ends all dials with `shutting-down`. Connections that were handed over stay open. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#drawObserver[Symbol.dispose]();
    const { dials, idle, warm } = this.#parts;
    for (const dial of dials.all()) dial.close();
    for (const cancel of [...this.#singleAttempts]) cancel();
    idle.clear();
    warm.configure('off');
  }

  readonly #memoryOf = (source: string): SourceMemory => {
    const known = this.#memories.get(source);
    if (known !== undefined) return known;
    const settings = this.#settings.sources.get(source) ?? UNKNOWN_SOURCE;
    const memory = new SourceMemory(source, settings, this.#options.clock, this.#options.onSourceFault);
    this.#memories.set(source, memory);
    return memory;
  };
}
