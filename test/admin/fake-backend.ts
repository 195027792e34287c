import type { AdminBackend } from '../../src/admin/backend.ts';
import type { MemberJson, SessionJson, Status } from '../../src/admin/schemas.ts';
import type { SourceStatus } from '../../src/refill/status.ts';

export const SOURCE: SourceStatus = {
  name: 'city',
  product: 'short-classic',
  state: 'ready',
  suspended: false,
  blocked: false,
  reason: 'all 20 members are there',
  advice: null,
  code: '10001',
  message: null,
  meaning: '10001: Success.',
  lastDraw: { result: 'succeeded', advice: '' },
  stateSeconds: 12,
  nextCallSeconds: 0,
  nextCallAt: null,
  quota: {},
  budget: null,
  size: 20,
  ready: 20,
  joining: 0,
  drawn: 25,
  used: 11,
  unused: 3,
};

export const MEMBER: MemberJson = {
  id: 'm1',
  source: 'city',
  protocol: 'http',
  host: '203.0.113.7',
  port: 8000,
  location: 'Shanghai',
  exitIp: null,
  state: 'ready',
  remainingSeconds: 90,
  openTunnels: 1,
  uses: 4,
  faults: 0,
  latencyMs: 31,
  bannedBy: [],
  facts: {},
};

export const SESSION: SessionJson = {
  id: 'abc',
  member: 'm1',
  idleSeconds: 3,
  expiresInSeconds: 597,
  uses: 2,
};

export const STATUS: Status = {
  version: '1.2.3',
  uptimeSeconds: 12,
  testUrl: 'https://example.com/',
  ready: true,
  state: 'serving',
  reason: '20 members are usable',
  advice: null,
  sinceSeconds: 10,
  nextAttemptSeconds: null,
  problems: [],
  workers: { wanted: 1, running: 1 },
  listeners: [
    {
      name: '127.0.0.1:8888',
      address: '127.0.0.1:8888',
      protocols: ['http', 'socks5', 'socks4'],
      connections: 1,
    },
  ],
  pool: {
    joining: 0,
    ready: 20,
    quarantined: 0,
    draining: 0,
    openTunnels: 1,
    waitingClients: 0,
    sessions: 1,
  },
  sources: [SOURCE],
  fleet: null,
};

/** A backend with one source, one member and one session. It records the commands called on it. */
export const SITE = {
  name: 'shop.example',
  uses: 40,
  bans: 3,
  bannedExits: 3,
  usableExits: 0,
  spacingMs: 8_000,
  nextSlotAt: null,
  draws: 2,
};

export function fakeBackend(
  status: Partial<Status> = {},
  member: Partial<MemberJson> = {},
): AdminBackend & { readonly commands: string[] } {
  const commands: string[] = [];
  const command = (name: string, known: string) => (thing: string, more?: boolean) => {
    commands.push(more === undefined ? `${name} ${thing}` : `${name} ${thing} ${more}`);
    return thing === known;
  };
  return {
    commands,
    status: () => ({ ...STATUS, ...status }),
    members: () => [{ ...MEMBER, ...member }],
    requests: () => [],
    usage: async () => [],
    usageDays: async () => [],
    pricesOf: () => ({ perMember: 0, perGb: 0 }),
    memberCounts: () => [{ source: 'city', joining: 0, ready: 1, quarantined: 0, draining: 0 }],
    sessions: () => [SESSION],
    evictMember: command('evict', 'm1'),
    refillSource: command('refill', 'city'),
    pauseSource: command('pause', 'city'),
    resumeSource: command('resume', 'city'),
    rotateSession: command('rotate', 'abc'),
    forgetSession: command('forget', 'abc'),
    sites: () => [SITE],
    siteSpacings: () => new Map(),
    reportMember: ({ session, member, host, verdict }) => {
      commands.push(`report ${session ?? member} ${host} ${verdict}`);
      return session === 'abc' || member === 'm1';
    },
    reload: async () => {
      commands.push('reload');
      return { changed: ['pool'], restart: [], warnings: [], applied: true };
    },
    setLogLevel: (level) => void commands.push(`level ${level}`),
    proxyAddress: () => '127.0.0.1:8888',
  };
}
