/** What the admin API, the command line and embedding programs see and do: status from all parts, and commands to them. */
import type { AdminBackend } from '../admin/backend.ts';
import type { SourceJson, Status } from '../admin/schemas.ts';
import type { Clock } from '../core/clock.ts';
import { formatHostPort, hostPort } from '../core/host-port.ts';
import type { Log } from '../core/log.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import { readVersion } from '../core/version.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import type { Pool } from '../pool/pool.ts';
import type { SourceCounts } from '../pool/views.ts';
import type { Refiller } from '../refill/refiller.ts';
import type { SourceStatus } from '../refill/status.ts';
import type { SourceFaults } from './source-faults.ts';

export interface ControlOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly pool: Pool;
  readonly refiller: () => Refiller;
  readonly plane: Pick<DataPlane, 'listeners' | 'workers' | 'closeConnections'>;
  readonly draining: () => boolean;
  readonly faults: Pick<SourceFaults, 'of' | 'tryAgain'>;
}

const MS_PER_SECOND = 1_000;
/** States in which a source can draw without an operator. */
const CAN_DRAW: ReadonlySet<string> = new Set(['idle', 'ready', 'drawing', 'waiting', 'backoff']);
/** `hostPort` needs a port to make a host canonical. */
const ANY_PORT = 1;

export function createControl(options: ControlOptions): AdminBackend {
  const { pool, refiller, plane, clock, log, faults } = options;
  const startedAt = clock.monotonic();
  const version = readVersion();
  return {
    status: () => ({
      version,
      uptimeSeconds: Math.round((clock.monotonic() - startedAt) / MS_PER_SECOND),
      ...statusOf(options),
    }),
    members: () => pool.members(),
    memberCounts: () => pool.counts(),
    sessions: () => pool.sessions(),
    evictMember: (member) => pool.evict(member),
    refillSource: (source) => refiller().refill(source),
    pauseSource: (source) => refiller().pause(source),
    resumeSource(source) {
      faults.tryAgain(source);
      return refiller().resume(source);
    },
    rotateSession(session, closeTunnels) {
      const leases = closeTunnels ? pool.leasesOf({ session }) : [];
      if (pool.rotateSession(session) === undefined) return false;
      plane.closeConnections(leases);
      return true;
    },
    forgetSession: (session) => pool.forgetSession(session),
    reportMember({ session, member, host, verdict }) {
      const canonical = hostPort(host, ANY_PORT)?.host ?? host;
      if (session !== undefined) return pool.ban({ of: { session }, host: canonical, verdict });
      return member !== undefined && pool.ban({ of: { member }, host: canonical, verdict });
    },
    setLogLevel: (level) => {
      log.level = level;
    },
    proxyAddress: () => proxyAddress(plane),
  };
}

function statusOf(options: ControlOptions): Omit<Status, 'version' | 'uptimeSeconds'> {
  const { pool, refiller, plane, faults } = options;
  const counts = pool.counts();
  const statuses = refiller().sources();
  const sum = (of: (count: SourceCounts) => number) => counts.reduce((total, count) => total + of(count), 0);
  const ready = sum((count) => (count.blocked === null ? count.ready : 0));
  return {
    ...readiness(options, ready, statuses, counts),
    workers: plane.workers,
    listeners: plane.listeners.map(({ name, protocols, addresses, connections }) => ({
      name,
      address: addresses.map(({ host, port }) => formatHostPort(host, port)).join(', '),
      protocols: [...protocols],
      connections,
    })),
    pool: {
      joining: sum((count) => count.joining),
      ready: sum((count) => count.ready),
      quarantined: sum((count) => count.quarantined),
      draining: sum((count) => count.draining),
      openTunnels: sum((count) => count.openTunnels),
      waitingClients: pool.waitingCount,
      sessions: pool.sessionCount,
    },
    sources: statuses.map((status) =>
      sourceView(
        status,
        counts.find(({ source }) => source === status.name),
        faults.of(status.name)?.advice,
      ),
    ),
  };
}

/** Whether noria can serve a client, with the reason if not and the sources that have trouble. */
function readiness(
  { draining, plane }: ControlOptions,
  usable: number,
  sources: readonly SourceStatus[],
  counts: readonly SourceCounts[],
): { ready: boolean; reason: string } {
  if (draining())
    return { ready: false, reason: 'shutting down: open tunnels may finish, new clients are refused' };
  if (plane.listeners.length === 0) return { ready: false, reason: 'not ready: no listener is open' };
  if (plane.workers.running === 0) {
    return { ready: false, reason: 'not ready: all workers are down; restarting' };
  }
  const troubles = sources.flatMap((source) =>
    troubleOf(
      source,
      counts.find((count) => count.source === source.name),
    ),
  );
  const suffix = troubles.map((trouble) => `; ${trouble}`).join('');
  if (usable > 0) {
    const members = usable === 1 ? 'member is' : 'members are';
    return { ready: true, reason: `ready: ${usable} ${members} usable${suffix}` };
  }
  const blocked = new Set(counts.filter((count) => count.blocked !== null).map(({ source }) => source));
  const drawing = sources.filter(({ name, state }) => CAN_DRAW.has(state) && !blocked.has(name));
  if (drawing.length > 0) {
    const isIdle = drawing.every(({ state }) => state === 'idle');
    const why = isIdle
      ? 'no recent clients; the next client starts a draw'
      : 'the pool is empty; a source can draw';
    return { ready: true, reason: `ready: ${why}${suffix}` };
  }
  return { ready: false, reason: `not ready: the pool is empty and no source can draw${suffix}` };
}

function troubleOf({ name, state, reason }: SourceStatus, counts: SourceCounts | undefined): string[] {
  if (counts !== undefined && counts.blocked !== null) return [`${name} is paused: ${counts.blocked}`];
  if (state === 'backoff') return [`${name} is backing off: ${reason}`];
  return state === 'halted' || state === 'paused' ? [`${name} is ${state}: ${reason}`] : [];
}

/** @param faultAdvice - present while members of the source refuse its credentials. */
function sourceView(
  status: SourceStatus,
  counts: SourceCounts | undefined,
  faultAdvice: string | undefined,
): SourceJson {
  const { name, product, state, reason, advice, code, message, nextCallAt, quota, budget, size } = status;
  const blocked = counts?.blocked ?? null;
  return {
    name,
    product,
    // Blocked by its own members' refusals: this ends when the credentials are corrected.
    state: blocked === null ? state : 'paused',
    reason: blocked ?? reason,
    advice: (blocked === null ? advice : faultAdvice) ?? null,
    code: code ?? null,
    message: message ?? null,
    nextCallAt: nextCallAt === undefined ? null : new Date(nextCallAt).toISOString(),
    quota,
    budget: budget ?? null,
    size,
    ready: blocked === null ? (counts?.ready ?? 0) : 0,
    drawn: status.drawn,
    used: status.used + (counts?.used ?? 0), // removed members and present ones
    unused: status.unused,
  };
}

/** The first HTTP listener, as clients on this machine reach it. */
function proxyAddress({ listeners }: ControlOptions['plane']): string | undefined {
  const first = listeners.find(({ protocols }) => protocols.includes('http'))?.addresses[0];
  if (first === undefined) return undefined;
  const isWildcard = first.host === '0.0.0.0' || first.host === '::';
  const host = isWildcard || isLoopbackAddress(first.host) ? '127.0.0.1' : first.host;
  return formatHostPort(first.host === '::1' ? '::1' : host, first.port);
}
