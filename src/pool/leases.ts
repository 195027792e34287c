/**
 * What clients use. The open leases: grants them to requests and probes, and applies the reports on them to member, source and session.
 * And what each client used last, by its session and its tag: the client may ask for it and report on it through the proxy
 * (`noria.invalid`), without an id that it would have to read from a response header.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { Lease, LeaseReport, LeaseRequest, ProbeLease } from './lease.ts';
import type { Member } from './member.ts';
import type { Members } from './members.ts';
import type { Session, Sessions } from './sessions.ts';
import type { Pair, Site } from './sites.ts';

/** A client as its credentials name it: `client` as in `RoutingOptions`, and the session or the tag of one request. */
export interface ClientName {
  readonly client: string;
  readonly session: string | undefined;
  readonly tag: string | undefined;
}

export interface Verdict {
  readonly verdict: 'banned' | 'ok';
  /** In canonical form; absent if the client used one site only. */
  readonly host: string | undefined;
  readonly forMs: number | undefined;
  /** Undefined without users: the verdict then counts for everybody at once. */
  readonly user: string | undefined;
}

/** Plain, because a worker asks other processes for it. */
export interface ClientUse {
  /** When, in epoch ms: another process may compare it. */
  at: number;
  member: string;
  exit: string;
  source: string;
  location: string;
  attempts: number;
  session: string | undefined;
  tag: string | undefined;
  readonly hosts: string[];
}

const MAX_CLIENTS = 1_000;
const MAX_SESSIONS = 100_000;
const MAX_TAGS = 4_096;
/** Of one session; the oldest go first. */
const MAX_HOSTS = 32;

interface OpenLease {
  readonly id: number;
  readonly request: LeaseRequest | undefined;
  readonly member: Member;
  readonly session: Session | undefined;
  readonly site: Site | undefined;
  readonly pair: Pair | undefined;
  readonly leasedAt: number;
  accepted: boolean;
}

export type LeaseHolder = { readonly session: string } | { readonly member: string };

export class Leases {
  readonly #clock: Clock;
  readonly #members: Members;
  readonly #sessions: Sessions;
  readonly #onVerdict: (use: Pick<ClientUse, 'exit' | 'source'>, host: string, verdict: Verdict) => void;
  readonly #open = new Map<number, OpenLease>();
  #lastId = 0;
  readonly #last = new BoundedMap<string, ClientUse>(MAX_CLIENTS);
  readonly #bySession = new BoundedMap<string, ClientUse>(MAX_SESSIONS);
  readonly #byTag = new BoundedMap<string, BoundedMap<string, ClientUse>>(MAX_CLIENTS);

  constructor(
    clock: Clock,
    members: Members,
    sessions: Sessions,
    onVerdict: (use: Pick<ClientUse, 'exit' | 'source'>, host: string, verdict: Verdict) => void,
  ) {
    this.#clock = clock;
    this.#members = members;
    this.#sessions = sessions;
    this.#onVerdict = onVerdict;
  }

  grant(
    member: Member,
    now: number,
    {
      request,
      session,
      site,
      waitedMs = 0,
    }: Partial<Pick<OpenLease, 'request' | 'session' | 'site'>> & { readonly waitedMs?: number } = {},
  ): Lease {
    const isProbe = request === undefined;
    this.#lastId += 1;
    const id = this.#lastId;
    member.openLeases += 1;
    member.source.openLeases += 1;
    if (!isProbe) member.pendingUses += 1;
    const isReady = member.phase.name === 'ready';
    if (!isReady || isProbe) member.trialLease = id;
    if (session !== undefined) {
      session.openLeases += 1;
      session.uses += 1;
      for (const observer of this.#sessions.observers) observer.sessionUsed(session, 1);
    }
    const pair = site && this.#members.sites.used(site, member, session === undefined, now);
    const open: OpenLease = { id, request, member, session, site, pair, leasedAt: now, accepted: false };
    this.#open.set(id, open);
    if (isProbe) this.#members.index.update(member, now);
    else this.#members.index.leased(member, now);
    for (const observer of this.#members.observers) observer.memberUsed(member, 0);
    return describeLease(open, waitedMs, isReady);
  }

  /** @param staleMs - if given, ready members without a success for this time are probed as well. */
  grantForProbes(now: number, limit: number, staleMs: number | undefined): readonly ProbeLease[] {
    const granted: ProbeLease[] = [];
    for (const member of membersToProbe(this.#members, now, staleMs)) {
      if (granted.length >= limit) break;
      const isNew = member.phase.name === 'joining';
      member.source.suspected.delete(member);
      granted.push({ ...this.grant(member, now), isNew });
    }
    return granted;
  }

  report(report: LeaseReport, now: number): void {
    const lease = this.#open.get(report.lease);
    if (lease === undefined) return;
    if (report.kind !== 'accepted') this.#end(lease, report, now);
    else if (!lease.accepted) this.#accept(lease, report, now);
  }

  of(holder: LeaseHolder): number[] {
    const ids: number[] = [];
    for (const { id, member, session } of this.#open.values()) {
      if ('session' in holder ? session?.name === holder.session : member.id === holder.member) ids.push(id);
    }
    return ids;
  }

  to({ client, session, tag }: ClientName, host: string): number[] {
    const ids: number[] = [];
    const { sites } = this.#members;
    const site = sites.of(host);
    for (const { id, request } of this.#open.values()) {
      if (request?.routing.client !== client || sites.of(request.targetHost) !== site) continue;
      if (tag === undefined ? request.routing.session === session : request.routing.tag === tag) ids.push(id);
    }
    return ids;
  }

  #accept(
    lease: OpenLease,
    { latencyMs, late }: Extract<LeaseReport, { kind: 'accepted' }>,
    now: number,
  ): void {
    const { member, request, session } = lease;
    lease.accepted = true;
    if (request !== undefined) {
      member.pendingUses -= 1;
      member.uses += 1;
      member.source.requests.add(now);
      if (late !== true) this.#noteUse(request, member);
    }
    this.#members.recordSuccess(member, latencyMs, now);
    for (const observer of this.#members.observers)
      observer.memberUsed(member, request === undefined ? 0 : 1);
    if (session !== undefined) this.#confirm(session, lease, now);
  }

  /**
   * The session moves to the member of the lease; not if this is a hedge and the session's own member has worked for it and not
   * failed: the member of the lease then becomes its `fallback`.
   */
  #confirm(session: Session, { member, leasedAt, request }: OpenLease, now: number): void {
    if (session.member === member.id) {
      session.confirmedAt = now;
      session.memberIsNew = false;
      session.memberFailed = false;
    } else if (request?.hedge === true && !session.memberIsNew && !session.memberFailed) {
      session.fallback = member.id;
    } else if (session.confirmedAt <= leasedAt) {
      // since this lease began, the session's member has not changed and has accepted no attempt
      this.#sessions.bind(session, { member: member.id, reason: 'failed-over' }, now);
    }
  }

  #end(lease: OpenLease, report: Exclude<LeaseReport, { kind: 'accepted' }>, now: number): void {
    const { id, request, member, session, site, pair, accepted } = lease;
    this.#open.delete(id);
    member.openLeases -= 1;
    member.source.openLeases -= 1;
    if (pair !== undefined) pair.openLeases -= 1;
    // a client of the site may wait for the end of this lease
    if (site !== undefined && site.rule.tunnelsPerMember > 0) this.#members.index.membersFreed = true;
    if (!accepted && request !== undefined) member.pendingUses -= 1;
    if (member.trialLease === id) member.trialLease = undefined;
    if (session !== undefined) {
      session.openLeases -= 1;
      session.usedAt = now;
      for (const observer of this.#sessions.observers) observer.sessionUsed(session, 0);
    }
    for (const observer of this.#members.observers) observer.memberUsed(member, 0);
    if (report.kind === 'failed') {
      this.#blame(lease, report.blame, report.fault, now);
      const isFault = report.blame === 'member' || report.blame === 'member-for-target';
      if (isFault && session?.member === member.id) {
        session.memberFailed = true;
        const fallback = this.#members.find(session.fallback); // a hedge has won through it
        if (fallback !== undefined)
          this.#sessions.bind(session, { member: fallback.id, reason: 'failed-over' }, now);
      }
    } else {
      if (report.answered === true) {
        const client = clientOf(request);
        this.#members.recordAnswer(member, client, now);
        for (const observer of this.#members.observers) observer.memberAnswered(member, client);
      }
      if (report.cut !== false) {
        this.#blame(lease, report.cut, report.mute === true ? 'member-mute' : 'member-cut', now);
      }
    }
    this.#members.leaseEnded(member, now);
  }

  #blame(lease: OpenLease, blame: Blame, fault: FaultCode, now: number): void {
    const { member, leasedAt, request } = lease;
    if (blame === 'member') this.#members.recordFault(member, fault, leasedAt, now);
    if (blame !== 'member-for-target' && blame !== 'unclear') return;
    if (request === undefined) {
      this.#members.recordUndecidedProbe(member, fault, leasedAt, now);
      return;
    }
    const compared = blame === 'member-for-target';
    const cut = fault === 'member-cut' || fault === 'member-mute';
    const [client, host] = [clientOf(request), request.targetHost];
    this.#members.recordSuspicion(member, { fault, leasedAt, client, host, compared, cut }, now);
  }

  /** Runs for each request: an ordinary one costs no allocation. */
  #noteUse(request: LeaseRequest, member: Member): void {
    const { client = '', session, tag } = request.routing;
    const last = this.#last.getOrMake(client, makeUse);
    // one client often requests one host many times in a row
    if (last.hosts[0] !== request.targetHost) last.hosts.length = 0;
    const at = this.#clock.now();
    note(last, request, member, at);
    if (session !== undefined) note(this.#bySession.getOrMake(session, makeUse), request, member, at);
    if (tag === undefined) return;
    note(this.#byTag.getOrMake(client, makeTags).getOrMake(tag, makeUse), request, member, at);
  }

  /** A tag names one request more closely than a session. Without either, this is the client's last request. */
  lastUse({ client, session, tag }: ClientName): ClientUse | undefined {
    if (tag !== undefined) return this.#byTag.get(client)?.get(tag);
    return session === undefined ? this.#last.get(client) : this.#bySession.get(session);
  }

  /** The latest of the uses that several processes know, with the sites of all if the name is of a session or a tag. */
  latest({ session, tag }: ClientName, uses: readonly (ClientUse | undefined)[]): ClientUse | undefined {
    const known = uses.filter((use) => use !== undefined).sort((one, other) => one.at - other.at);
    const last = known.at(-1);
    if (last === undefined || (session === undefined && tag === undefined)) return last;
    return { ...last, hosts: [...new Set(known.flatMap(({ hosts }) => hosts))].slice(-MAX_HOSTS) };
  }

  /** @param known - the use that the name means. Returns the host that the verdict is about. */
  judge(
    name: ClientName,
    verdict: Verdict,
    known = this.lastUse(name),
  ): { readonly host: string } | 'unknown' | 'host-needed' {
    const use = known ?? this.#useElsewhere(name);
    if (use === undefined) return 'unknown';
    const host = verdict.host ?? (this.#sitesOf(use).length === 1 ? use.hosts[0] : undefined);
    if (host === undefined) return 'host-needed';
    this.#onVerdict(use, host, verdict);
    return { host };
  }

  describe(name: ClientName, use = this.lastUse(name)) {
    const session = this.#sessions.byName.get(name.session ?? use?.session ?? '');
    const member = this.#members.find(
      name.tag === undefined ? (session?.member ?? use?.member) : use?.member,
    );
    const isKnown = member !== undefined && !member.endIsAssumed;
    const remainingMs = isKnown ? member.endsAt - this.#clock.monotonic() : undefined;
    return {
      session: name.session ?? use?.session ?? null,
      tag: name.tag ?? use?.tag ?? null,
      member: member?.id ?? use?.member ?? null,
      exit: member?.exit ?? use?.exit ?? null,
      location: (member?.location.text ?? use?.location) || null,
      expiresIn: remainingMs === undefined ? null : Math.max(0, Math.floor(remainingMs / SECOND_MS)),
      movesAt: session?.member === member?.id ? this.#movesAt(session, remainingMs) : null,
      attempts: use?.attempts ?? null,
      sites: this.#sitesOf(use),
    };
  }

  /** Another replica served the session, so its sites are not known here. */
  #useElsewhere({ session, tag }: ClientName) {
    const held = tag === undefined ? this.#sessions.byName.get(session ?? '')?.member : undefined;
    const member = this.#members.find(held);
    return member && { exit: member.exit, source: member.source.name, hosts: [] };
  }

  #sitesOf(use: Pick<ClientUse, 'hosts'> | undefined): string[] {
    return [...new Set((use?.hosts ?? []).map((host) => this.#members.sites.of(host).name))];
  }

  #movesAt(session: Session | undefined, remainingMs: number | undefined): string | null {
    if (remainingMs === undefined || session?.isFixed !== false) return null;
    const inMs = Math.max(0, remainingMs - this.#members.settings.minRemainingMs);
    return new Date(this.#clock.now() + inMs).toISOString();
  }
}

const makeUse = (): ClientUse => ({
  at: 0,
  member: '',
  exit: '',
  source: '',
  location: '',
  attempts: 0,
  session: undefined,
  tag: undefined,
  hosts: [],
});
const makeTags = () => new BoundedMap<string, ClientUse>(MAX_TAGS);

function note(
  use: ClientUse,
  { routing, targetHost, avoid }: LeaseRequest,
  member: Member,
  at: number,
): void {
  use.at = at;
  use.member = member.id;
  use.exit = member.exit;
  use.source = member.source.name;
  use.location = member.location.text;
  use.attempts = avoid.length + 1;
  use.session = routing.session;
  use.tag = routing.tag;
  const { hosts } = use;
  if (hosts.includes(targetHost)) return;
  hosts.push(targetHost);
  if (hosts.length > MAX_HOSTS) hosts.shift();
}

function clientOf(request: LeaseRequest | undefined): string {
  return request?.routing.client ?? '';
}

function describeLease(
  { id, member, session, leasedAt }: OpenLease,
  waitedMs: number,
  isReady: boolean,
): Lease {
  const lease: { -readonly [Key in keyof Lease]: Lease[Key] } = {
    id,
    member: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    exit: member.exit,
    waitedMs,
    doubtful: !isReady || member.lastSuccessAt === undefined,
  };
  if (member.exitIp !== undefined) lease.exitIp = member.exitIp;
  if (member.login !== undefined) lease.login = member.login;
  if (!member.endIsAssumed) lease.remainingMs = member.endsAt - leasedAt;
  if (session !== undefined) lease.session = session.name;
  return lease;
}

/**
 * The most urgent first: unproven members, suspected ones and, if a check is configured, those whose quarantine has ended and then
 * ready ones without a success for `staleMs`. Omits members that a lease already tests.
 */
function* membersToProbe(members: Members, now: number, staleMs: number | undefined): Generator<Member> {
  for (const { counts, members: ofSource } of members.sources.values()) {
    if (counts.joining === 0) continue;
    for (const member of ofSource) {
      if (member.phase.name === 'joining' && member.trialLease === undefined) yield member;
    }
  }
  for (const { suspected } of members.sources.values()) {
    for (const member of suspected) if (member.trialLease === undefined) yield member;
  }
  if (staleMs === undefined) return;
  for (const { quarantined } of members.sources.values()) {
    for (const member of quarantined) {
      if (member.phase.name !== 'quarantined' || member.trialLease !== undefined) continue;
      if (member.phase.untilAt <= now) yield member;
    }
  }
  for (const member of members.byId.values()) {
    if (member.phase.name !== 'ready' || member.trialLease !== undefined) continue;
    if ((member.lastSuccessAt ?? member.joinedAt) <= now - staleMs) yield member;
  }
}
