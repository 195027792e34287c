/** Probes over real sockets: what they prove, whom they blame, and that no member is blamed for a failing site. */
import type { Socket } from 'node:net';
import { getCACertificates, setDefaultCACertificates, TLSSocket } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import type { EventBus } from '../../src/core/events.ts';
import { Secret } from '../../src/core/secret.ts';
import type { Lease, LeaseReport, ProbeLease } from '../../src/pool/lease.ts';
import { Prober, type ProberOptions, readCheckSite } from '../../src/prober/prober.ts';
import { makeDialer } from '../dialer/make-dialer.ts';
import {
  type Behavior,
  closingBehavior,
  httpBehavior,
  LOCALHOST_TLS,
  openMember,
  readUntil,
  refusingMember,
  silentBehavior,
  socks5Behavior,
  type TestMember,
} from '../support/bad-members.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

const CHECK = { url: 'http://check.example/up?x=1#y', everyMs: 60_000, timeoutMs: 60_000, expectStatus: 204 };

/** Accepts CONNECT and then acts as the site, which answers with this status. */
function siteBehavior(status: number | 'silent' | 'closed' | 'garbage'): Behavior {
  return async (socket, record) => {
    record(await readUntil(socket, '\r\n\r\n'));
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    record(await readUntil(socket, '\r\n\r\n'));
    if (status === 'closed') socket.end();
    else if (status === 'garbage') socket.write('?');
    else if (status !== 'silent') socket.write(`HTTP/1.1 ${status} X\r\nContent-Length: 0\r\n\r\n`);
    socket.resume();
  };
}

interface ProbedMember {
  readonly id: string;
  readonly at: Pick<TestMember, 'protocol' | 'host' | 'port'>;
  readonly source?: string;
  readonly suspected?: boolean;
}

/** Leases each member that needs a probe once, and records all reports. */
class FakeProbePool {
  readonly reports: LeaseReport[] = [];
  readonly staleMs: (number | undefined)[] = [];
  readonly #waiting: ProbedMember[];
  /** The member with which suspected members are compared. */
  other: ProbedMember | undefined;
  readonly #open = new Map<number, ProbedMember>();
  mostLeased = 0;
  #lastLease = 0;

  constructor(members: readonly ProbedMember[]) {
    this.#waiting = [...members];
  }

  acquireForProbe(limit: number, staleMs?: number): readonly ProbeLease[] {
    this.staleMs.push(staleMs);
    const leases = this.#waiting.splice(0, limit).map((member) => {
      return { ...this.#lease(member), isNew: member.suspected !== true && member.source === undefined };
    });
    this.mostLeased = Math.max(this.mostLeased, this.#open.size);
    return leases;
  }

  acquireForComparison(): Lease | undefined {
    return this.other && this.#lease(this.other);
  }

  #lease(member: ProbedMember): Lease {
    const id = ++this.#lastLease;
    this.#open.set(id, member);
    const source = member.source ?? 'free';
    return { id, member: member.id, source, ...member.at, exit: member.at.host, waitedMs: 0, doubtful: true };
  }

  report(report: LeaseReport): void {
    this.reports.push(report);
    if (report.kind !== 'accepted') this.#open.delete(report.lease);
  }

  /** Lets the member need another probe. */
  again(member: ProbedMember): void {
    this.#waiting.push(member);
  }

  get open(): number {
    return this.#open.size;
  }

  blames(): string[] {
    return this.reports
      .flatMap((report) => {
        if (report.kind === 'closed') return [];
        const what = report.kind === 'accepted' ? 'accepted' : `${report.fault} ${report.blame}`;
        return [`lease ${report.lease} ${what}`];
      })
      .sort();
  }
}

function makeProber(members: readonly ProbedMember[], settings: Partial<ProberOptions> = {}) {
  const { clock = systemClock } = settings;
  const { dialer, bus } = makeDialer([], {
    clock,
    sources: new Map([
      [
        'city',
        {
          auth: 'instance',
          instance: 'city-instance',
          password: new Secret('12345678'),
          neverInstance: false,
          forwardMode: 'direct',
          handshake: 'auto',
        },
      ],
    ]),
  });
  const pool = new FakeProbePool(members);
  const prober = new Prober({
    clock,
    random: () => 0.5,
    bus,
    pool,
    dialer,
    check: undefined,
    unprovenSources: new Set(['free']),
    ...settings,
  });
  onTestFinished(async () => {
    await prober.close();
    expect([pool.open, dialer.openCount], 'leases and attempts after close').toEqual([0, 0]);
  });
  return { pool, prober, bus, dialer };
}

function joined(bus: EventBus, source: string): void {
  const facts = { member: 'm', protocol: 'http', remainingMs: 1_000, renewed: false } as const;
  bus.emit('member.joined', { source, ...facts });
}

test('prober: without a check, admits unproven members that answer in their protocol and blames dead ones', async () => {
  const silent = await openMember('http', silentBehavior);
  const { pool } = makeProber([
    { id: 'm1', at: await openMember('http', httpBehavior()) },
    { id: 'm2', at: await openMember('http', httpBehavior('HTTP/1.1 502 Bad\r\n\r\n')) },
    { id: 'm3', at: await openMember('http', httpBehavior('HTTP/1.1 405 No\r\n\r\n')) },
    { id: 'm4', at: await openMember('socks5', socks5Behavior({ reply: 4 })) },
    { id: 'm5', at: await refusingMember() },
    { id: 'm6', at: await openMember('http', httpBehavior('HTTP/1.1 407 Who\r\n\r\n')) },
    { id: 'm7', at: await openMember('http', httpBehavior('SSH-2.0\r\n\r\n')) },
    { id: 'm8', at: silent },
  ]);
  await until('seven have a result', () => pool.blames().length === 7);
  expect(pool.blames()).toEqual([
    'lease 1 accepted',
    'lease 2 accepted',
    'lease 3 accepted',
    'lease 4 accepted',
    'lease 5 member-unreachable member',
    'lease 6 member-auth member',
    'lease 7 member-protocol member',
  ]);
  expect(silent.received).toEqual([]);
  expect(pool.reports.filter(({ kind }) => kind === 'closed')).toHaveLength(4);
  expect(pool.reports.every((report) => report.kind !== 'accepted' || report.latencyMs === undefined)).toBe(
    true,
  );
});

test('prober: without a check, a probe uses a target that does not exist', async () => {
  const at = await openMember('http', httpBehavior());
  const { pool } = makeProber([{ id: 'm1', at }]);
  await until('it is admitted', () => pool.reports.length === 2);
  expect(at.received.toString()).toBe(
    'CONNECT probe.invalid:443 HTTP/1.1\r\nHost: probe.invalid:443\r\n\r\n',
  );
});

test('prober: without a check, a successful probe does not end a quarantine', async () => {
  const member = { id: 'm1', at: await openMember('http', httpBehavior()) };
  const paid = { ...member, id: 'm2', source: 'city' };
  const { pool, bus } = makeProber([member]);
  await until('it is admitted', () => pool.reports.length === 2);
  pool.again({ ...member, suspected: true });
  pool.again({ ...paid, suspected: true });
  joined(bus, 'free');
  await until('the leases are released', () => pool.reports.length === 4);
  expect(pool.blames().slice(1)).toEqual(['lease 2 client-gone nobody', 'lease 3 client-gone nobody']);
});

const closesFor = (target: RegExp, otherwise: Behavior): Behavior => {
  return async (socket, record) => {
    const head = await readUntil(socket, '\r\n\r\n');
    if (target.test(head.toString('latin1'))) {
      socket.end();
      return;
    }
    socket.unshift(head);
    await otherwise(socket, record);
  };
};
const closesAfter = (answer: string): Behavior => {
  return async (socket) => {
    await readUntil(socket, '\r\n\r\n');
    socket.end(answer);
  };
};
const NOWHERE = /probe\.invalid/;
const OWN_ADDRESS = /^CONNECT 127\.0\.0\.1:/;
const BAD_GATEWAY = httpBehavior('HTTP/1.1 502 Bad Gateway\r\n\r\n');

test('prober: admits an unproven member that hangs up on a target that does not exist, but connects to its own address', async () => {
  const { pool } = makeProber([
    { id: 'm1', at: await openMember('http', closesFor(NOWHERE, httpBehavior())) },
    { id: 'm2', at: await openMember('http', closesFor(NOWHERE, BAD_GATEWAY)) },
    { id: 'm3', at: await openMember('http', closingBehavior) },
  ]);
  await until('all have a verdict', () => pool.blames().length === 3);
  expect(pool.blames()).toEqual(['lease 1 accepted', 'lease 2 accepted', 'lease 3 member-closed member']);
});

/** The behaviours of members in a probe that compares them. */
const COMPARED = {
  works: httpBehavior(),
  'relays nothing': closesAfter('HTTP/1.1 200 OK\r\n\r\n'),
  'refuses all targets': httpBehavior('HTTP/1.1 403 Forbidden\r\n\r\n'),
  'reaches no target': BAD_GATEWAY,
  'hangs up on its own address': closesFor(OWN_ADDRESS, BAD_GATEWAY),
  'hangs up': closingBehavior,
} as const;
type Compared = keyof typeof COMPARED;
const COMPARISONS: readonly (readonly [suspected: Compared, other: Compared | 'none', blame: string])[] = [
  ['works', 'works', 'client-gone nobody'],
  ['refuses all targets', 'works', 'member-refused unclear'],
  ['hangs up on its own address', 'works', 'member-refused unclear'],
  ['relays nothing', 'works', 'member-cut member'],
  ['relays nothing', 'relays nothing', 'client-gone nobody'],
  ['reaches no target', 'works', 'target-doubted member'],
  ['reaches no target', 'refuses all targets', 'client-gone nobody'],
  ['reaches no target', 'reaches no target', 'client-gone nobody'],
  ['reaches no target', 'none', 'target-doubted unclear'],
  ['hangs up', 'works', 'member-closed member'],
  ['hangs up', 'refuses all targets', 'member-closed member'],
  ['hangs up', 'reaches no target', 'member-closed member'],
  ['hangs up', 'hangs up on its own address', 'member-closed member'],
  ['hangs up', 'hangs up', 'client-gone nobody'],
  ['hangs up', 'none', 'member-closed unclear'],
];

test.each(COMPARISONS)(
  'prober: a suspected member that %s, compared with one that %s: %s',
  async (suspected, other, blame) => {
    const { pool } = makeProber([]);
    if (other !== 'none') pool.other = { id: 'm2', at: await openMember('http', COMPARED[other]) };
    pool.again({ id: 'm1', at: await openMember('http', COMPARED[suspected]), suspected: true });
    await until('it has a verdict', () => pool.blames().length > 0 && pool.open === 0);
    expect(pool.blames()[0]).toBe(`lease 1 ${blame}`);
    expect(pool.blames().slice(1)).toEqual(pool.blames().length === 1 ? [] : ['lease 2 client-gone nobody']);
  },
);

test('prober: probes members as soon as they join', async () => {
  const clock = new ManualClock();
  const { pool, bus } = makeProber([], { clock });
  clock.advance(0);
  expect(pool.staleMs.length, 'the first round').toBe(1);
  pool.again({ id: 'm1', at: await openMember('http', httpBehavior()) });
  joined(bus, 'city');
  clock.advance(0);
  expect(pool.staleMs.length, 'a member that needs no proof starts no round').toBe(1);
  joined(bus, 'free');
  clock.advance(0);
  await until('it is admitted', () => pool.reports.length === 2);
});

test('prober: asks the pool each second, without a check only for unproven and suspected members', () => {
  const clock = new ManualClock();
  const { pool, prober } = makeProber([], { unprovenSources: new Set(), clock });
  clock.advance(2_000);
  prober.configure({ check: CHECK, unprovenSources: new Set() });
  clock.advance(2_000);
  expect(pool.staleMs).toEqual([undefined, undefined, undefined, 60_000, 60_000, 60_000]);
});

test('prober: rounds are a second apart, with a jitter of a fifth', () => {
  const clock = new ManualClock();
  const moments: number[] = [];
  let next = 0;
  const { pool } = makeProber([], { clock, random: () => [0, 0.999, 0.5][next++ % 3] ?? 0 });
  pool.acquireForProbe = () => {
    moments.push(clock.monotonic());
    return [];
  };
  clock.advance(3_100);
  expect(moments.map(Math.round)).toEqual([0, 800, 2_000, 3_000]);
});

test('prober: with a check, blames members for a failing site once another member reaches it', async () => {
  const good = await openMember('http', siteBehavior(204));
  const outcomes: [Parameters<typeof siteBehavior>[0], string][] = [
    [403, 'target-doubted'],
    ['closed', 'member-closed'],
    ['garbage', 'member-protocol'],
  ];
  const bad = await Promise.all(
    outcomes.map(async ([status]) => ({
      id: String(status),
      at: await openMember('http', siteBehavior(status)),
    })),
  );
  const { pool, bus } = makeProber(bad, { check: CHECK });
  await until('all were asked', () => bad.every(({ at }) => at.received.length === 2));
  pool.again({ id: 'good', at: good, source: 'city' });
  joined(bus, 'free');
  await until('all have a result', () => pool.open === 0);
  expect(pool.blames()).toEqual([
    ...outcomes.map(([, fault], index) => `lease ${index + 1} ${fault} member`),
    'lease 4 accepted',
  ]);
  expect(pool.reports.find(({ kind }) => kind === 'accepted')).toMatchObject({
    latencyMs: expect.any(Number),
  });
  expect(good.received.map(String)).toEqual([
    `CONNECT check.example:80 HTTP/1.1\r\nHost: check.example:80\r\nProxy-Authorization: Basic ${btoa('city-instance:12345678')}\r\n\r\n`,
    'GET /up?x=1 HTTP/1.1\r\nHost: check.example\r\nAccept: */*\r\nConnection: close\r\n\r\n',
  ]);
});

test('prober: a site that fails through every member blames none and still admits new ones', async () => {
  const { pool } = makeProber(
    [
      { id: 'm1', at: await openMember('http', siteBehavior(500)), source: 'city' },
      { id: 'm2', at: await openMember('http', httpBehavior('HTTP/1.1 502 Bad\r\n\r\n')), source: 'city' },
      { id: 'm3', at: await openMember('http', siteBehavior('silent')), source: 'city' },
      { id: 'm4', at: await openMember('http', siteBehavior(500)) },
    ],
    { check: { ...CHECK, everyMs: 300, timeoutMs: 100 }, clock: new LoopClock() },
  );
  await until('all leases are released', () => pool.open === 0 && pool.reports.length >= 4);
  expect(pool.blames()).toEqual([
    'lease 1 client-gone nobody',
    'lease 2 client-gone nobody',
    'lease 3 client-gone nobody',
    'lease 4 accepted',
  ]);
});

test('prober: uses absolute form for members that need it', async () => {
  const at = await openMember('http', async (socket, record) => {
    const head = await readUntil(socket, '\r\n\r\n');
    record(head);
    socket.end(head.toString().startsWith('CONNECT') ? 'HTTP/1.1 405 No\r\n\r\n' : 'HTTP/1.1 204 X\r\n\r\n');
  });
  const { pool } = makeProber([{ id: 'm1', at, source: 'city' }], { check: CHECK });
  await until('it passed', () => pool.reports.length === 2);
  expect(String(at.received[1]).split('\r\n').slice(0, 2)).toEqual([
    'GET http://check.example/up?x=1 HTTP/1.1',
    'Host: check.example',
  ]);
  expect(String(at.received[1])).toContain('Proxy-Authorization: Basic ');
});

test('prober: requests an https site through a tunnel and verifies its certificate', async () => {
  const trusted = getCACertificates('default');
  onTestFinished(() => setDefaultCACertificates(trusted));
  const named: string[] = [];
  const behavior: Behavior = async (socket) => {
    await readUntil(socket, '\r\n\r\n');
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    const SNICallback = (name: string, done: (error: null) => void) => {
      named.push(name);
      done(null);
    };
    const tls = new TLSSocket(socket, { ...LOCALHOST_TLS, isServer: true, SNICallback });
    tls.on('error', () => {}); // ignored: a client that does not trust the certificate closes
    tls.once('data', () => tls.end('HTTP/1.1 204 X\r\n\r\n'));
  };
  const member = { id: 'm1', at: await openMember('http', behavior), source: 'city' };
  const { pool, bus } = makeProber([member], { check: { ...CHECK, url: 'https://localhost/', everyMs: 1 } });
  await until('it was not trusted', () => pool.reports.length === 1);
  expect(pool.blames()).toEqual(['lease 1 client-gone nobody']);
  setDefaultCACertificates([...trusted, LOCALHOST_TLS.cert.toString()]);
  pool.again(member);
  joined(bus, 'free');
  await until('it is trusted', () => pool.reports.length === 3);
  expect(pool.blames()[1]).toBe('lease 2 accepted');
  await until('its connections are closed', () => member.at.open === 0);
  expect(new Set(named)).toEqual(new Set(['localhost']));
});

test('prober: runs at most 32 probes at a time', async () => {
  const sockets: Socket[] = [];
  const at = await openMember('http', (socket) => void sockets.push(socket));
  const { pool } = makeProber(Array.from({ length: 100 }, (_, index) => ({ id: `m${index}`, at })));
  await until('the first are asked', () => sockets.length === 32);
  for (const socket of sockets.splice(0, 5)) socket.end('HTTP/1.1 200 OK\r\n\r\n');
  await until('others take their place', () => sockets.length === 32);
  expect(pool.mostLeased).toBe(32);
});

test('prober: close cancels the probes and blames nobody', async () => {
  const clock = new ManualClock(); // the clock stays still, so no timeout ends a probe
  const silent = await openMember('http', silentBehavior);
  const slowSite = await openMember('http', siteBehavior('silent'));
  const { pool, prober } = makeProber(
    [
      { id: 'm1', at: silent },
      { id: 'm2', at: slowSite },
    ],
    { check: CHECK, clock },
  );
  clock.advance(0);
  await until('both are asked', () => silent.open === 1 && slowSite.received.length === 2);
  await prober.close();
  await prober.close();
  expect(pool.blames()).toEqual(['lease 1 client-gone nobody', 'lease 2 client-gone nobody']);
  await until('the connections are closed', () => silent.open + slowSite.open === 0);
});

test('prober: probes end when the dialer closes first', async () => {
  const silent = await openMember('http', silentBehavior);
  const { pool, dialer } = makeProber([{ id: 'm1', at: silent }], { check: CHECK });
  await until('it is asked', () => silent.open === 1);
  await dialer.close();
  await until('the lease is released', () => pool.open === 0);
  expect(pool.blames()).toEqual(['lease 1 client-gone nobody']);
});

test('prober: rejects a URL that is not http or https', () => {
  expect(() => makeProber([], { check: { ...CHECK, url: 'ftp://check.example/' } })).toThrow(
    /health\.check\.url/,
  );
  const site = (url: string) => readCheckSite(url);
  expect(site('https://[2001:db8::1]/')).toMatchObject({
    target: { host: '2001:db8::1', port: 443, kind: 'ipv6' },
    tls: true,
    authority: '[2001:db8::1]',
  });
  expect(site('http://Check.Example:8080')).toMatchObject({
    authority: 'check.example:8080',
    path: '/',
    tls: false,
  });
  expect([site('check.example'), site('mailto:a@b'), site('')]).toEqual([undefined, undefined, undefined]);
});
