/**
 * Connections through members after their dial: while the listener uses one, and while a plain HTTP connection waits
 * for the next request.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import type { Listed, LiveList } from '../core/live-list.ts';
import { exitOf, type Lease, type LeaseProvider } from '../pool/lease.ts';
import type { RawConnection } from './attempt.ts';
import type {
  AbsoluteAnswer,
  ConnectionOutcome,
  DialRequest,
  ForwardMode,
  MemberConnection,
} from './contract.ts';
import type { PreparedLogin } from './credentials.ts';
import type { SiteEvidence } from './evidence.ts';
import type { ClientBudgets } from './limits.ts';
import type { Reachability } from './reachability.ts';
import type { SourceMemory } from './source-memory.ts';

export interface ConnectionParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: LeaseProvider;
  readonly idle: IdleConnections;
  readonly reachability: Reachability;
  readonly evidence: SiteEvidence;
  readonly clientBudgets: ClientBudgets;
  /** All open connections. The dialer needs them to close the connections of leases that must end early. */
  readonly openConnections: LiveList<LeasedConnection>;
}

/** A connection through a member that the listener uses. It ends its lease exactly once. */
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
  readonly #parts: ConnectionParts;
  readonly #request: DialRequest;
  readonly #raw: RawConnection;
  readonly #memory: SourceMemory;
  #ended = false;
  /** Whether the last response was an error of the member itself. */
  #isMemberError = false;

  constructor(
    parts: ConnectionParts,
    request: DialRequest,
    facts: {
      readonly raw: RawConnection;
      readonly lease: Lease;
      readonly memory: SourceMemory;
      readonly reused: boolean;
      readonly attempts: number;
    },
  ) {
    const { raw, lease } = facts;
    this.#parts = parts;
    this.#request = request;
    this.#raw = raw;
    this.#memory = facts.memory;
    this.lease = lease;
    this.socket = raw.socket;
    this.early = raw.early;
    this.forwardMode = raw.forwardMode;
    this.proxyAuthorization = raw.forwardMode === 'absolute' ? raw.login?.authorization.reveal() : undefined;
    this.reused = facts.reused;
    this.attempts = facts.attempts;
    if (request.use === 'forward') this.muteAfterMs = parts.reachability.muteAfterMs(request.target.text);
    parts.openConnections.add(this);
  }

  get hasWorked(): boolean {
    return this.#parts.evidence.hasAnswered(this.#request.target.host, exitOf(this.lease));
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
    const use = { host: this.#request.target.host, exit: exitOf(this.lease), source: this.lease.source };
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
    if (!bus.hasSubscribers('dial.attempted')) return;
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

  /** Keeps the connection for another plain HTTP request. */
  #keep(): void {
    const { socket, forwardMode } = this;
    const { use, target, owner = '' } = this.#request;
    if (use === 'tunnel') {
      socket.destroy();
      return;
    }
    const { member, remainingMs = Number.POSITIVE_INFINITY } = this.lease;
    const { login, at } = this.#raw;
    this.#parts.idle.keep({
      ...{ socket, member, target: target.text, forwardMode, owner, login },
      endsAt: at + remainingMs,
    });
  }
}

export interface IdleConnection {
  readonly socket: Socket;
  readonly member: string;
  /** `host:port` of the target. With the forward mode `absolute`, the connection can serve any target. */
  readonly target: string;
  readonly forwardMode: ForwardMode;
  /**
   * Only requests of this owner may use the connection, because some targets authenticate a connection and not each
   * request.
   */
  readonly owner: string;
  /**
   * The credentials with which the connection was opened. Requests in absolute form on this connection carry the same
   * credentials.
   */
  readonly login: PreparedLogin | undefined;
  /** When the member's lifetime ends, in ms of the monotonic clock; `Infinity` if unknown. */
  readonly endsAt: number;
}

/** What a request requires of a connection. */
type IdleUse = Pick<IdleConnection, 'member' | 'target' | 'forwardMode' | 'owner'>;

interface Entry {
  readonly connection: IdleConnection;
  readonly deadline: Deadline;
  readonly drop: () => void;
}

/** The maximum idle time in ms. It is shorter than the usual keep-alive timeouts of servers. */
const MAX_IDLE_MS = 5_000;
const MAX_PER_TARGET = 4;
const MAX_CONNECTIONS = 512;

/**
 * Keeps connections to members for a few seconds after a plain HTTP request, so that the next request can use them.
 * Closes an idle connection when the member's life ends, and when the connection ends or receives a byte. A request may
 * still get a connection that the member has just closed.
 */
export class IdleConnections {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #mayKeep: (socket: Socket) => boolean;
  /** The connections of each member, newest last. The newest one is most probably still open. */
  readonly #byMember = new Map<string, Entry[]>();
  #size = 0;
  #closed = false;

  /** @param mayKeep - returns false for a socket that was opened through another front proxy than the current one. */
  constructor(clock: Clock, deadlines: Deadlines, mayKeep: (socket: Socket) => boolean) {
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#mayKeep = mayKeep;
  }

  get size(): number {
    return this.#size;
  }

  /**
   * Takes ownership of a connection. Closes it immediately if a limit is reached, the member's life has ended, or the
   * socket has unread or unsent bytes.
   */
  keep(connection: IdleConnection): void {
    const { socket, member, forwardMode } = connection;
    const others = this.#byMember.get(member);
    const leftMs = Math.min(MAX_IDLE_MS, connection.endsAt - this.#clock.monotonic());
    const full =
      this.#size >= MAX_CONNECTIONS || countServing(others, forwardMode, connection) >= MAX_PER_TARGET;
    if (this.#closed || full || leftMs <= 0 || !isClean(socket) || !this.#mayKeep(socket)) {
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
    this.#size += 1;
    // The socket must flow, because a paused socket emits neither 'end' nor unexpected data.
    socket.on('data', drop).on('end', drop).on('close', drop);
    socket.resume();
  }

  /**
   * Returns an idle connection that leads through `member` and can serve `target`; undefined if no such connection
   * exists. The caller owns the connection. The socket is flowing, so the caller must add a 'data' listener in the same
   * tick.
   * @param use.forwardMode - `direct`: only a connection that the member has connected to the target. `absolute`: also
   * a connection for requests in absolute form.
   */
  take(use: IdleUse): IdleConnection | undefined {
    const entries = this.#byMember.get(use.member);
    if (entries === undefined) return undefined;
    let entry = findServing(entries, 'direct', use);
    if (entry === undefined && use.forwardMode === 'absolute') entry = findServing(entries, 'absolute', use);
    if (entry === undefined) return undefined;
    this.#remove(entry);
    return entry.connection;
  }

  clear(): void {
    for (const entries of [...this.#byMember.values()]) for (const { drop } of [...entries]) drop();
  }

  /** Closes all idle connections, and each connection passed to `keep` from now on. */
  close(): void {
    this.#closed = true;
    this.clear();
  }

  #remove(entry: Entry): void {
    const { socket, member } = entry.connection;
    const entries = this.#byMember.get(member) ?? [];
    const at = entries.lastIndexOf(entry);
    if (at < 0) return;
    entries.splice(at, 1);
    if (entries.length === 0) this.#byMember.delete(member);
    this.#size -= 1;
    this.#deadlines.clear(entry.deadline);
    socket.off('data', entry.drop).off('end', entry.drop).off('close', entry.drop);
  }
}

type Serving = Pick<IdleConnection, 'target' | 'owner'>;

/** The newest connection of this forward mode that can serve a request of this owner to this target. */
function findServing(entries: readonly Entry[], mode: ForwardMode, use: Serving): Entry | undefined {
  return entries.findLast(({ connection }) => isServing(connection, mode, use));
}

function countServing(entries: readonly Entry[] = [], mode: ForwardMode, use: Serving): number {
  return entries.filter(({ connection }) => isServing(connection, mode, use)).length;
}

function isServing(connection: IdleConnection, mode: ForwardMode, { target, owner }: Serving): boolean {
  if (connection.forwardMode !== mode || connection.owner !== owner) return false;
  return mode === 'absolute' || connection.target === target;
}

/** Whether the socket is open in both directions, with nothing unread or unsent. */
function isClean(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    socket.readableLength === 0 &&
    socket.writableLength === 0
  );
}
