/** The running daemon as the admin server shows and steers it: snapshots of the parts, put together; verbs passed on. */

import type { AdminBackend } from '../admin/backend.ts';
import type { SourceJson, Status } from '../admin/schemas.ts';
import type { Clock } from '../core/clock.ts';
import { formatHostPort, hostPort } from '../core/host-port.ts';
import type { Log } from '../core/log.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import type { Pool } from '../pool/pool.ts';
import type { SourceCounts } from '../pool/views.ts';
import type { Refiller } from '../refill/refiller.ts';
import type { SourceStatus } from '../refill/status.ts';
import type { SourceFaults } from './source-faults.ts';

export interface Viewed {
  readonly version: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly pool: Pool;
  readonly refiller: () => Refiller;
  readonly plane: Pick<DataPlane, 'listeners' | 'workers' | 'closeConnections'>;
  readonly draining: () => boolean;
  /** Sources that their own members refuse. */
  readonly faults: Pick<SourceFaults, 'of' | 'tryAgain'>;
}

const MS_PER_SECOND = 1_000;
/** States out of which a source draws again by itself. */
const DRAWS_AGAIN: ReadonlySet<string> = new Set(['idle', 'ready', 'drawing', 'waiting', 'backoff']);

export function viewDaemon(viewed: Viewed): AdminBackend {
  const { pool, refiller, clock, log } = viewed;
  const startedAt = clock.monotonic();
  return {
    status: () => statusOf(viewed, startedAt),
    members: () => pool.members(),
    memberCounts: () => pool.counts(),
    sessions: () => pool.sessions(),
    evictMember: (member) => pool.evict(member),
    refillSource: (source) => refiller().refill(source),
    pauseSource: (source) => refiller().pause(source),
    resumeSource(source) {
      viewed.faults.tryAgain(source);
      return refiller().resume(source);
    },
    rotateSession(session, closeTunnels) {
      const leases = closeTunnels ? pool.leasesOf({ session }) : [];
      if (pool.rotateSession(session) === undefined) return false;
      viewed.plane.closeConnections(leases);
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
    proxyAddress: () => proxyAddress(viewed),
  };
}

/** Only to have a host made canonical that stands without a port. */
const ANY_PORT = 1;

function statusOf(viewed: Viewed, startedAt: number): Status {
  const { pool, refiller, clock, version } = viewed;
  const counts = pool.counts();
  const statuses = refiller().sources();
  const sum = (of: (count: SourceCounts) => number) => counts.reduce((total, count) => total + of(count), 0);
  const ready = sum((count) => (count.blocked === null ? count.ready : 0));
  return {
    version,
    uptimeSeconds: Math.round((clock.monotonic() - startedAt) / MS_PER_SECOND),
    ...readiness(viewed, ready, statuses, counts),
    workers: viewed.plane.workers,
    listeners: viewed.plane.listeners.map(({ name, protocols, addresses, connections }) => ({
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
        viewed.faults.of(status.name)?.advice,
      ),
    ),
  };
}

/** Does it work, in one sentence: the reason when not, what is missing when it does only partly. */
function readiness(
  { draining, plane }: Viewed,
  usable: number,
  sources: readonly SourceStatus[],
  counts: readonly SourceCounts[],
): { ready: boolean; reason: string } {
  if (draining())
    return { ready: false, reason: 'shutting down: open tunnels finish, new clients are refused' };
  if (plane.listeners.length === 0) return { ready: false, reason: 'not ready: nothing listens' };
  if (plane.workers.running === 0) {
    return {
      ready: false,
      reason: 'not ready: no worker process lives, so nobody is served until another one has started',
    };
  }
  const troubles = sources
    .map((source) =>
      troubleOf(
        source,
        counts.find((count) => count.source === source.name),
      ),
    )
    .filter((trouble) => trouble !== undefined);
  const but = troubles.length === 0 ? '' : `; ${troubles.join('; ')}`;
  if (usable > 0)
    return {
      ready: true,
      reason: `ready: ${usable} ${usable === 1 ? 'member is' : 'members are'} usable${but}`,
    };
  const blocked = new Set(counts.filter((count) => count.blocked !== null).map(({ source }) => source));
  const drawing = sources.filter(({ name, state }) => DRAWS_AGAIN.has(state) && !blocked.has(name));
  if (drawing.length > 0) {
    const atRest = drawing.every(({ state }) => state === 'idle');
    const next = atRest
      ? 'no client has come lately, and members are drawn when one does'
      : 'the pool is empty, and members can still be drawn';
    return { ready: true, reason: `ready: ${next}${but}` };
  }
  return { ready: false, reason: `not ready: the pool is empty and no source can draw${but}` };
}

function troubleOf(
  { name, state, reason }: SourceStatus,
  counts: SourceCounts | undefined,
): string | undefined {
  if (counts !== undefined && counts.blocked !== null) return `${name} is paused: ${counts.blocked}`;
  if (state === 'backoff') return `${name} backs off: ${reason}`;
  return state === 'halted' || state === 'paused' ? `${name} is ${state}: ${reason}` : undefined;
}

/** @param faultAdvice - what to do about a source whose members refuse it. */
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
    // Set aside by its own members' refusals: that passes, when the credentials are put right.
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
    used: status.used + (counts?.used ?? 0), // those that are gone, and those alive
    unused: status.unused,
  };
}

/** The first listener that speaks HTTP, as a browser on this machine reaches it. */
function proxyAddress({ plane }: Viewed): string | undefined {
  const first = plane.listeners.find(({ protocols }) => protocols.includes('http'))?.addresses[0];
  if (first === undefined) return undefined;
  const anywhere = first.host === '0.0.0.0' || first.host === '::';
  const host = anywhere || isLoopbackAddress(first.host) ? '127.0.0.1' : first.host;
  return formatHostPort(first.host === '::1' ? '::1' : host, first.port);
}
