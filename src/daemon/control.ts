/** The status and the commands that noria offers to the admin API, the command line and embedding programs. */

import type { AdminBackend } from '../admin/backend.ts';
import type { Clock } from '../core/clock.ts';
import { parseDuration, SECOND_MS } from '../core/duration.ts';
import { formatHostPort, hostPort } from '../core/host-port.ts';
import type { Log } from '../core/log.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import { readVersion } from '../core/version.ts';
import type { SourceCommand } from '../fleet/schemas.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { DataPlane } from '../plane/local-plane.ts';
import type { Pool } from '../pool/pool.ts';
import type { Refiller } from '../refill/refiller.ts';
import type { Fleet } from './fleet.ts';
import type { ReadinessMonitor } from './readiness.ts';
import type { SourceFaults } from './source-faults.ts';

/** Any valid port. `hostPort` requires a port, but this file uses only the host of its result. */
const ANY_PORT = 1;

export function createControl({
  reload,
  pricesOf,
  testUrl,
  clock,
  log,
  pool,
  refiller,
  plane,
  readiness,
  faults,
  fleet,
  ledger,
}: Pick<AdminBackend, 'reload' | 'pricesOf'> & {
  readonly testUrl: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly pool: Pool;
  readonly refiller: Refiller;
  readonly plane: DataPlane;
  readonly readiness: ReadinessMonitor;
  readonly faults: SourceFaults;
  readonly fleet: Fleet | undefined;
  readonly ledger: Ledger;
}): AdminBackend {
  const startedAt = clock.monotonic();
  const version = readVersion();
  const share = (source: string, command: SourceCommand['command'], isKnown: boolean) => {
    if (isKnown) fleet?.replica.commandSource(source, command);
    return isKnown;
  };
  return {
    status() {
      const counts = pool.counts();
      const sources = refiller.sources();
      const sum = (state: 'joining' | 'ready' | 'quarantined' | 'draining' | 'openTunnels') =>
        counts.reduce((total, count) => total + count[state], 0);
      return {
        version,
        uptimeSeconds: Math.round((clock.monotonic() - startedAt) / SECOND_MS),
        ...readiness.check(sources),
        testUrl,
        workers: plane.workers,
        listeners: plane.listeners.map(({ name, protocols, addresses, connections }) => ({
          name,
          address: addresses.map(({ host, port }) => formatHostPort(host, port)).join(', '),
          protocols: [...protocols],
          connections,
        })),
        pool: {
          joining: sum('joining'),
          ready: sum('ready'),
          quarantined: sum('quarantined'),
          draining: sum('draining'),
          openTunnels: sum('openTunnels'),
          waitingClients: pool.waitingCount,
          sessions: pool.parts.sessions.byName.size,
        },
        sources: [...sources],
        fleet: fleet?.status() ?? null,
      };
    },
    members: () =>
      fleet === undefined
        ? pool.members()
        : pool.members().map((member) => ({ ...member, drawnBy: fleet.shared.drawnBy(member.id) ?? null })),
    memberCounts: () => pool.counts(),
    sessions: () => pool.sessions(),
    sites: () => pool.sites.views(),
    siteSpacings: () => pool.sites.namedSpacings(),
    requests: (filter) => ledger.requests.find(filter),
    usage: (kind, day) => ledger.usage.read(kind, day),
    usageDays: () => ledger.usage.days(),
    pricesOf,
    evictMember: (member) => pool.evict(member),
    refillSource: (source) => share(source, 'refill', refiller.refill(source)),
    pauseSource: (source) => share(source, 'pause', refiller.pause(source)),
    resumeSource(source) {
      faults.tryAgain(source);
      return share(source, 'resume', refiller.resume(source));
    },
    rotateSession(session, closeTunnels) {
      if (pool.rotateSession(session) === undefined) return false;
      if (closeTunnels) plane.closeConnections({ session });
      return true;
    },
    forgetSession: (session) => pool.parts.sessions.forget(session),
    reportMember({ session, member, host, verdict, close, ...report }) {
      const canonical = hostPort(host, ANY_PORT)?.host ?? host;
      const holder = session !== undefined ? { session } : { member: member ?? '' };
      const forMs = report.for === undefined ? undefined : parseDuration(report.for);
      const isKnown = pool.ban({ holder, host: canonical, verdict, forMs });
      if (isKnown && close === true) plane.closeConnections(holder);
      return isKnown;
    },
    setLogLevel: (level) => {
      log.level = level;
    },
    reload,
    proxyAddress: () => proxyAddress(plane),
  };
}

/** The address at which clients on this machine reach the first HTTP listener. */
function proxyAddress({ listeners }: DataPlane): string | undefined {
  const first = listeners.find(({ protocols }) => protocols.includes('http'))?.addresses[0];
  if (first === undefined) return undefined;
  const isWildcard = first.host === '0.0.0.0' || first.host === '::';
  const host = isWildcard || isLoopbackAddress(first.host) ? '127.0.0.1' : first.host;
  return formatHostPort(first.host === '::1' ? '::1' : host, first.port);
}
