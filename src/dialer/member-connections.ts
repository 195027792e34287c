/**
 * Connections through members after their dial: while the listener uses one, and while a plain HTTP connection waits
 * for the next request.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import type { Listed, LiveList } from '../core/live-list.ts';
import type { Lease, LeaseProvider } from '../pool/lease.ts';
import type { RawConnection } from './attempt.ts';
import type {
  AbsoluteAnswer,
  ConnectionOutcome,
  DialRequest,
  ForwardMode,
  MemberConnection,
} from './contract.ts';
import type { SiteEvidence } from './evidence.ts';
import type { ClientBudgets, HedgeBudget, OverdueAttempts } from './limits.ts';
import type { NetworkWatch, Reachability } from './reachability.ts';
import type { SourceMemory } from './source-memory.ts';
import type { WarmConnections, WarmParts } from './warm-connections.ts';

/** What the dials of one dialer and their connections share. */
export interface DialParts extends WarmParts {
  readonly bus: EventBus;
  /** Grants the leases: the pool, or the fleet where several replicas have to agree on the member of a session. */
  readonly leases: Pick<LeaseProvider, 'acquire'>;
  readonly warm: WarmConnections;
  readonly idle: IdleConnections;
  readonly network: NetworkWatch;
  readonly reachability: Reachability;
  readonly evidence: SiteEvidence;
  readonly clientBudgets: ClientBudgets;
  readonly hedgeBudget: HedgeBudget;
  readonly overdueAttempts: OverdueAttempts;
  readonly dials: LiveList<Listed & { close(): void }>;
  readonly openConnections: LiveList<LeasedConnection>;
  lastRequestId: number;
}

export class LeasedConnection implements MemberConnection, Listed {
  listIndex = -1;
  readonly lease: Lease;
  readonly socket: Socket;
  readonly early: Buffer;
  readonly forwardMode: ForwardMode;
  readonly proxyAuthorization: string | undefined;
  readonly reused: boolean;
  readonly attempts: number;
  readonly muteAfterMs?: number;
  readonly #parts: DialParts;
  readonly #request: DialRequest;
  readonly #raw: RawConnection;
  readonly #memory: SourceMemory;
  #ended = false;
  #isMemberError = false;

  constructor(
    parts: DialParts,
    request: DialRequest,
    raw: RawConnection,
    {
      lease,
      reused,
      attempts,
    }: { readonly lease: Lease; readonly reused: boolean; readonly attempts: number },
  ) {
    this.#parts = parts;
    this.#request = request;
    this.#raw = raw;
    this.#memory = parts.memoryOf(lease.source);
    this.lease = lease;
    this.socket = raw.socket;
    this.early = raw.early;
    this.forwardMode = raw.forwardMode;
    this.proxyAuthorization = raw.forwardMode === 'absolute' ? raw.login?.authorization.reveal() : undefined;
    this.reused = reused;
    this.attempts = attempts;
    if (request.use === 'forward') this.muteAfterMs = parts.reachability.muteAfterMs(request.target.text);
    parts.openConnections.add(this);
  }

  get hasWorked(): boolean {
    return this.#parts.evidence.hasAnswered(this.#request.target.host, this.lease.exit);
  }

  isMemberError(answer: AbsoluteAnswer): boolean {
    if (this.forwardMode !== 'absolute') return false;
    const { target } = this.#request;
    this.#isMemberError = this.#memory.forwardMode.answered(target.text, answer, this.#raw.connectStatus);
    return this.#isMemberError;
  }

  end(outcome: ConnectionOutcome): 'member-mute' | undefined {
    if (this.#ended) return undefined;
    this.#ended = true;
    const { pool, openConnections, reachability, clientBudgets } = this.#parts;
    const { use, target, routing } = this.#request;
    const { id, member } = this.lease;
    openConnections.delete(this);
    const isAnswered = outcome.answered === true && !this.#isMemberError;
    // Learnt at once, because a ban takes a second reset: the next requests prefer other exits.
    if (outcome.cut !== false && this.hasWorked) reachability.avoid(member, target.text);
    // The member is not at fault if it closes a reused connection, which may have been idle for too long.
    const isCut = outcome.cut === true && !this.reused;
    // If the member closed the connection without an answer, the listener may send the request again. noria counts
    // this as one more failed attempt of the client.
    if (isCut && use === 'forward') clientBudgets.charge(routing.client ?? '', 1);
    if (isAnswered) reachability.recordAnswered(member, target.text);
    if (outcome.firstByteMs !== undefined) reachability.recordFirstByte(target.text, outcome.firstByteMs);
    const mute = outcome.mute === true && reachability.recordCut(member, target.text);
    const cut = isCut && (reachability.recordCut(member, target.text) ? 'member-for-target' : 'unclear');
    this.#noteEvidence(outcome, isAnswered);
    if (mute) this.#reportMute();
    else pool.report({ lease: id, kind: 'closed', cut, answered: isAnswered });
    if (this.forwardMode === 'absolute') this.#learnFromAnswer(outcome, isAnswered);
    if (outcome.keep === true) this.#keep();
    return mute ? 'member-mute' : undefined;
  }

  #noteEvidence({ cut, response }: ConnectionOutcome, isAnswered: boolean): void {
    const { evidence } = this.#parts;
    const use = { host: this.#request.target.host, exit: this.lease.exit, source: this.lease.source };
    if (cut === 'after-tls') evidence.reset(use, true);
    else if (isAnswered) {
      if (response === undefined) evidence.answered(use);
      else evidence.responded(use, response);
    } else if (cut && !this.reused) evidence.reset(use);
  }

  /** The member relayed nothing back, while the target answered through other members. */
  #reportMute(): void {
    const { pool, reachability, bus, clock } = this.#parts;
    const { target, record } = this.#request;
    const { id, member, source } = this.lease;
    reachability.avoid(member, target.text);
    pool.report({ lease: id, kind: 'closed', cut: 'member-for-target', mute: true });
    const ms = clock.monotonic() - this.#raw.at;
    const event = { source, member, outcome: 'member-mute', phase: 'done', ms, hedge: false } as const;
    bus.emit('dial.attempted', { ...event, blame: 'member-for-target', request: record?.id });
  }

  #learnFromAnswer({ proxyAuthRequired }: ConnectionOutcome, isAnswered: boolean): void {
    const { credentials } = this.#memory;
    const { member } = this.lease;
    const { login } = this.#raw;
    if (isAnswered) this.#parts.reachability.recordReached(member, this.#request.target.text);
    if (proxyAuthRequired === true) credentials.challenged(member, login);
    else if (isAnswered) credentials.accepted(member, login);
  }

  #keep(): void {
    const { use, target, owner = '' } = this.#request;
    if (use === 'tunnel') {
      this.socket.destroy();
      return;
    }
    const { member, remainingMs = Number.POSITIVE_INFINITY } = this.lease;
    const raw = this.#raw;
    this.#parts.idle.keep({ raw, member, target: target.text, owner, endsAt: raw.at + remainingMs });
  }
}

interface IdleConnection {
  /** Requests in absolute form on this connection carry the same credentials. */
  readonly raw: RawConnection;
  readonly member: string;
  /** In absolute form, the connection serves any target. */
  readonly target: string;
  /** Some targets authenticate a connection, and not each request. */
  readonly owner: string;
  /** Monotonic; `Infinity` if unknown. */
  readonly endsAt: number;
}

interface Entry {
  readonly connection: IdleConnection;
  readonly deadline: Deadline;
  readonly drop: () => void;
}

/** Shorter than the usual keep-alive timeouts of servers. */
const MAX_IDLE_MS = 5_000;
const MAX_PER_TARGET = 4;
const MAX_CONNECTIONS = 512;

/**
 * Keeps connections for a few seconds after a plain HTTP request. A request may still get one that the member has
 * just closed.
 */
export class IdleConnections {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #mayKeep: (socket: Socket) => boolean;
  /** Newest last: it is most probably still open. */
  readonly #byMember = new Map<string, Entry[]>();
  size = 0;

  /** @param mayKeep - false for a socket through another front proxy than the current one, and after the close. */
  constructor(clock: Clock, deadlines: Deadlines, mayKeep: (socket: Socket) => boolean) {
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#mayKeep = mayKeep;
  }

  /** Takes ownership. */
  keep(connection: IdleConnection): void {
    const { raw, member } = connection;
    const { socket, forwardMode } = raw;
    const others = this.#byMember.get(member);
    const leftMs = Math.min(MAX_IDLE_MS, connection.endsAt - this.#clock.monotonic());
    const serving = (others ?? []).filter((other) => isServing(other, forwardMode, connection));
    const full = this.size >= MAX_CONNECTIONS || serving.length >= MAX_PER_TARGET;
    if (full || leftMs <= 0 || !isClean(socket) || !this.#mayKeep(socket)) {
      socket.destroy();
      return;
    }
    const drop = () => {
      this.#remove(entry);
      socket.destroy();
    };
    const entry = { connection, deadline: this.#deadlines.set(leftMs, drop), drop };
    if (others === undefined) this.#byMember.set(member, [entry]);
    else others.push(entry);
    this.size += 1;
    // The socket must flow, because a paused socket emits neither 'end' nor unexpected data.
    socket.on('data', drop).on('end', drop).on('close', drop);
    socket.resume();
  }

  /**
   * The caller owns the connection. It is flowing: add a 'data' listener in the same tick.
   * @param use.forwardMode - `absolute`: a connection that the member has connected to the target serves as well.
   */
  take(
    use: Pick<IdleConnection, 'member' | 'target' | 'owner'> & { readonly forwardMode: ForwardMode },
  ): RawConnection | undefined {
    const entries = this.#byMember.get(use.member);
    if (entries === undefined) return undefined;
    let entry = entries.findLast((own) => isServing(own, 'direct', use));
    if (use.forwardMode === 'absolute') entry ??= entries.findLast((own) => isServing(own, 'absolute', use));
    if (entry === undefined) return undefined;
    this.#remove(entry);
    return entry.connection.raw;
  }

  clear(): void {
    for (const entries of [...this.#byMember.values()]) for (const { drop } of [...entries]) drop();
  }

  #remove(entry: Entry): void {
    const { raw, member } = entry.connection;
    const entries = this.#byMember.get(member) ?? [];
    entries.splice(entries.lastIndexOf(entry), 1);
    if (entries.length === 0) this.#byMember.delete(member);
    this.size -= 1;
    this.#deadlines.clear(entry.deadline);
    raw.socket.off('data', entry.drop).off('end', entry.drop).off('close', entry.drop);
  }
}

/** Whether the connection has this forward mode, and can serve a request of this owner to this target. */
function isServing(
  { connection }: Entry,
  mode: ForwardMode,
  { target, owner }: Pick<IdleConnection, 'target' | 'owner'>,
): boolean {
  if (connection.raw.forwardMode !== mode || connection.owner !== owner) return false;
  return mode === 'absolute' || connection.target === target;
}

function isClean(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    socket.readableLength === 0 &&
    socket.writableLength === 0
  );
}
