/**
 * Decides whether noria can be expected to serve a new client and, if not, why. /readyz, `noria status`, the dashboard,
 * systemd's status, the metric noria_ready and the log all show the result. To add a reason, add a check to
 * `decideReadiness` that returns problems.
 */
import type { Readiness, ReadinessProblem } from '../admin/schemas.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { formatCount, roughDuration } from '../core/words.ts';
import type { DataPlane } from '../plane/local-plane.ts';
import type { Pool } from '../pool/pool.ts';
import type { Refiller } from '../refill/refiller.ts';
import type { SourceStatus } from '../refill/status.ts';
import type { Fleet } from './fleet.ts';

export interface ReadinessFacts {
  readonly now: number;
  readonly drainEndsAt: number | undefined;
  readonly listenerCount: number;
  readonly workers: { readonly wanted: number; readonly running: number };
  readonly failedRequests: number;
  readonly clientWaitMs: number;
  readonly drawTimeoutMs: number;
  readonly sources: readonly SourceStatus[];
  /** The sites that clients requested lately, and that have banned every exit. */
  readonly bannedSites: readonly string[];
  /** Absent while the store is connected, and without a fleet. */
  readonly storeLost?: { readonly reason: string; readonly ms: number };
}

type Verdict = Pick<Readiness, 'state' | 'reason'>;

/** One failed request may be the fault of a few bad members. */
const FAILED_REQUESTS_IN_A_ROW = 2;
/** A restart or a failover of the store usually takes less time. */
const STORE_GRACE_MS = 3_000;

/** `since`: the moment at which the state began. */
export function decideReadiness(
  facts: ReadinessFacts,
  before?: Pick<Readiness, 'state'> & { readonly since: number },
): Readiness & { readonly since: number } {
  const fatal = fatalProblems(facts);
  const isShuttingDown = facts.drainEndsAt !== undefined;
  const problems = isShuttingDown
    ? fatal
    : [...fatal, ...facts.sources.flatMap((source) => problemOf(source, facts)), ...limitingProblems(facts)];
  const { state, reason } = fatal[0] === undefined ? verdictOn(facts, problems) : stopped(fatal);
  const since = before?.state === state ? before.since : facts.now;
  const attempts = problems.flatMap(({ nextAttemptSeconds }) => nextAttemptSeconds ?? []);
  return {
    state,
    ready: state !== 'not-serving',
    reason,
    advice: state === 'not-serving' ? (problems.find(({ advice }) => advice !== null)?.advice ?? null) : null,
    sinceSeconds: Math.floor((facts.now - since) / SECOND_MS),
    nextAttemptSeconds: attempts.length === 0 ? null : Math.min(...attempts),
    problems,
    since,
  };
}

/** Such a problem stays the same while its reason changes. */
const GROWING_REASONS: ReadonlySet<ReadinessProblem['kind']> = new Set(['requests-failing', 'draw-late']);

export function isSameReadiness(one: Readiness, other: Readiness): boolean {
  const problemKey = ({ kind, source, reason }: ReadinessProblem) =>
    GROWING_REASONS.has(kind) ? [kind, source] : [kind, source, reason];
  const key = ({ state, problems }: Readiness) => JSON.stringify([state, problems.map(problemKey)]);
  return key(one) === key(other);
}

function fatalProblems({ drainEndsAt, listenerCount, workers }: ReadinessFacts): ReadinessProblem[] {
  if (drainEndsAt !== undefined) {
    const end = new Date(drainEndsAt).toISOString();
    const reason = `noria is shutting down: it refuses new clients, and waits for open tunnels until ${end}`;
    return [problem('shutting-down', reason)];
  }
  if (listenerCount === 0) {
    return [
      problem('no-listener', 'no listener is open', {
        advice: 'Add a listener to the configuration, and run noria reload.',
      }),
    ];
  }
  if (workers.running === 0) {
    const advice = 'If workers keep exiting, read the reason in the log.';
    return [problem('workers-down', 'all workers are down; restarting', { advice, nextMs: 0 })];
  }
  return [];
}

/** Problems with which noria still serves clients, but less well. They do not belong to a single source. */
function limitingProblems({
  workers,
  failedRequests,
  storeLost,
  bannedSites,
}: ReadinessFacts): ReadinessProblem[] {
  const found: ReadinessProblem[] = [];
  if (storeLost !== undefined && storeLost.ms >= STORE_GRACE_MS) {
    const advice = 'Check the store and fleet.url; noria check says what is wrong.';
    const reason = `noria draws nothing while the fleet's store is lost: ${storeLost.reason}`;
    found.push(problem('store-lost', reason, { advice, nextMs: 0 }));
  }
  if (workers.running > 0 && workers.running < workers.wanted) {
    found.push(
      problem(
        'workers-down',
        `${workers.running} of ${workers.wanted} workers run; noria restarts the others`,
      ),
    );
  }
  if (failedRequests >= FAILED_REQUESTS_IN_A_ROW) {
    const advice =
      'Check upstream.protocol and upstream.auth of the source, and whether this machine can reach its members.';
    const reason = `in the last ${failedRequests} client requests, every member that noria tried has failed`;
    found.push(problem('requests-failing', reason, { advice }));
  }
  if (bannedSites.length > 0) {
    const advice =
      'Slow down the clients, or set spacing, rate or drawsForBans of the site in targets; noria sites says when the next exit is free.';
    found.push(problem('site-banned', `every exit is banned for ${siteNames(bannedSites)}`, { advice }));
  }
  return found;
}

function problemOf(source: SourceStatus, facts: ReadinessFacts): ReadinessProblem[] {
  const { name, state, reason, advice, blocked, lastDraw, nextCallSeconds } = source;
  const meaning = source.meaning ?? '';
  const next = nextCallSeconds === null ? {} : { nextMs: nextCallSeconds * SECOND_MS };
  const of = (kind: ReadinessProblem['kind'], why: string, what: string | null) => [
    problem(kind, why, { source: name, advice: what ?? '', ...next }),
  ];
  if (blocked) return of('credentials-refused', reason, advice);
  if (state === 'halted' || state === 'paused') return of(state, reason, advice);
  if (isCausedByStore(source, facts)) return [];
  if (state === 'backoff') return of('draw-failed', reason, advice);
  if (lastDraw?.result === 'failed') return of('draw-failed', meaning, lastDraw.advice);
  if (lastDraw?.result === 'empty' && source.ready === 0) return of('draw-empty', meaning, lastDraw.advice);
  if (lastDraw?.result === 'useless') return of('members-failing', meaning, lastDraw.advice);
  if (source.ready > 0) return [];
  const stateMs = source.stateSeconds * SECOND_MS;
  if (state === 'drawing' && stateMs > facts.drawTimeoutMs) {
    return of(
      'draw-late',
      `the service has not answered for ${roughDuration(stateMs)}`,
      "Check service.baseUrl, or the source's own baseUrl, host or url, and the network of this machine.",
    );
  }
  if (state === 'waiting' && (next.nextMs ?? 0) > facts.clientWaitMs) return of('draw-late', reason, advice);
  return [];
}

/** The lost store is a problem of its own. */
function isCausedByStore({ code }: SourceStatus, { storeLost }: ReadinessFacts): boolean {
  return code === 'fleet-store-lost' || (code === 'fleet-store-unusable' && storeLost !== undefined);
}

function verdictOn({ sources, bannedSites }: ReadinessFacts, problems: readonly ReadinessProblem[]): Verdict {
  const usable = sources.reduce((sum, { ready }) => sum + ready, 0);
  const has = (source: SourceStatus) =>
    problems.some(
      (one) => one.kind === 'store-lost' || (one.source === source.name && !isPassing(one, source)),
    );
  const able = sources.filter((source) => !has(source));
  if (usable > 0) {
    const members = `${formatCount(usable, 'member')} ${usable === 1 ? 'is' : 'are'} usable`;
    const reason = bannedSites.length === 0 ? members : `${members}, but not for ${siteNames(bannedSites)}`;
    return { state: problems.length === 0 ? 'serving' : 'degraded', reason };
  }
  if (able.length === 0 && sources.length > 0) return stopped(problems);
  const isFirst = ({ state, lastDraw }: SourceStatus) =>
    lastDraw === null && (state === 'waiting' || state === 'drawing');
  if (sources.length === 0 || able.some(isFirst)) {
    return { state: 'starting', reason: 'the first draw is in progress; clients wait for its members' };
  }
  const isIdle = able.every(({ state }) => state === 'idle');
  const idle = 'no recent clients; the next client starts a draw';
  if (isIdle && problems.length === 0) return { state: 'idle', reason: idle };
  return { state: 'degraded', reason: isIdle ? idle : emptyPool(able) };
}

function siteNames(names: readonly string[]): string {
  return [...names.slice(0, 3), ...(names.length > 3 ? ['…'] : [])].join(', ');
}

/** If all members of an idle source failed, the next client starts a draw, whose members may work. */
function isPassing({ kind }: ReadinessProblem, { state }: SourceStatus): boolean {
  return kind === 'members-failing' && state === 'idle';
}

function emptyPool(able: readonly SourceStatus[]): string {
  const joining = able.reduce((sum, source) => sum + source.joining, 0);
  if (joining > 0) return `no member is usable yet; noria checks ${formatCount(joining, 'drawn member')}`;
  if (able.some(({ state }) => state === 'drawing')) return 'no member is usable; a draw is in progress';
  const nextMs = Math.min(...able.map(({ nextCallSeconds }) => (nextCallSeconds ?? 0) * SECOND_MS));
  return `no member is usable; the next draw can start in ${roughDuration(nextMs)}`;
}

function stopped(problems: readonly ReadinessProblem[]): Verdict {
  const [first] = problems;
  const what = first === undefined ? 'no source can draw' : describeProblem(first);
  const others = problems.length - 1;
  const more = others > 0 ? `; and ${formatCount(others, 'more problem')}` : '';
  return { state: 'not-serving', reason: `${what}${more}` };
}

function describeProblem({ source, reason }: ReadinessProblem): string {
  return `${source === null ? '' : `source ${source}: `}${reason}`;
}

function problem(
  kind: ReadinessProblem['kind'],
  reason: string,
  more: { readonly source?: string; readonly advice?: string; readonly nextMs?: number } = {},
): ReadinessProblem {
  const { source = null, advice = '', nextMs } = more;
  return {
    kind,
    source,
    reason: reason.replace(/\.$/, ''),
    advice: advice === '' ? null : advice,
    nextAttemptSeconds: nextMs === undefined ? null : Math.ceil(nextMs / SECOND_MS),
  };
}

interface ReadinessOptions {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly refiller: Pick<Refiller, 'sources'>;
  readonly pool: Pick<Pool, 'sites'>;
  readonly plane: Pick<DataPlane, 'listeners' | 'workers'>;
  readonly drainEndsAt: () => number | undefined;
  readonly config: () => Config;
  readonly fleet: Pick<Fleet, 'shared'> | undefined;
}

/** The interval of checks in ms. Events alone are not enough, because members expire without an event. */
const CHECK_EVERY_MS = 1_000;

/** Emits `readiness.changed` after a change. Owns the timer of the checks. */
export class ReadinessMonitor {
  readonly #options: ReadinessOptions;
  readonly #subscriptions: readonly Disposable[];
  #verdict: ReturnType<typeof decideReadiness>;
  #failedRequests = 0;
  #timer: Disposable | undefined;
  #isCheckQueued = false;

  constructor(options: ReadinessOptions) {
    this.#options = options;
    this.#verdict = decideReadiness(this.#facts([]));
    this.#subscriptions = [
      options.bus.on('source.moved', () => this.#checkSoon()),
      options.bus.on('fleet.store', () => this.#checkSoon()),
      options.bus.on('dial.ended', ({ outcome }) => {
        if (outcome === 'accepted') this.#failedRequests = 0;
        else if (outcome === 'members-failed') this.#failedRequests += 1;
      }),
    ];
    this.#arm();
  }

  check(sources = this.#options.refiller.sources()): Readiness {
    const before = this.#verdict;
    const verdict = decideReadiness(this.#facts(sources), before);
    this.#verdict = verdict;
    if (!isSameReadiness(before, verdict)) this.#report(before, verdict);
    const { since: _, ...readiness } = verdict;
    return readiness;
  }

  close(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
  }

  #arm(): void {
    this.#timer = this.#options.clock.after(CHECK_EVERY_MS, () => {
      this.#arm();
      this.check();
    });
  }

  /** After all subscribers have handled the current event. */
  #checkSoon(): void {
    if (this.#isCheckQueued) return;
    this.#isCheckQueued = true;
    queueMicrotask(() => {
      this.#isCheckQueued = false;
      if (this.#timer !== undefined) this.check();
    });
  }

  #report(before: Readiness, now: Readiness): void {
    this.#options.bus.emit('readiness.changed', {
      from: before.state,
      to: now.state,
      ready: now.ready,
      reason: now.reason,
      ...(now.advice === null ? {} : { advice: now.advice }),
      problems: now.problems.map(({ source, reason }) => (source === null ? reason : `${source}: ${reason}`)),
      shuttingDown: now.problems.some(({ kind }) => kind === 'shutting-down'),
      cleared: before.problems.length > 0 && now.problems.length === 0,
    });
  }

  #facts(sources: readonly SourceStatus[]): ReadinessFacts {
    const { clock, drainEndsAt, plane, pool, config, fleet } = this.#options;
    const { dial, service } = config();
    const { fault, lostMs = 0 } = fleet?.shared ?? {};
    return {
      now: clock.monotonic(),
      drainEndsAt: drainEndsAt(),
      listenerCount: plane.listeners.length,
      workers: plane.workers,
      failedRequests: this.#failedRequests,
      clientWaitMs: dial.waitForMemberMs,
      drawTimeoutMs: service.timeoutMs,
      ...(fault !== undefined && { storeLost: { reason: fault.message, ms: lostMs } }),
      sources,
      bannedSites: pool.sites.withoutExit(),
    };
  }
}
