/**
 * What each client used last, by its session and its tag: the client may ask for it and report on it through the proxy
 * (`noria.invalid`), without an id that it would have to read from a response header.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { LeaseRequest } from './lease.ts';
import type { Member } from './member.ts';
import type { Members } from './members.ts';
import type { Session, Sessions } from './sessions.ts';

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

export class ClientUse {
  /** When, in epoch ms: another process may compare it. */
  at = 0;
  member = '';
  exit = '';
  source = '';
  location = '';
  attempts = 0;
  session: string | undefined;
  tag: string | undefined;
  readonly hosts: string[] = [];
}

const MAX_CLIENTS = 1_000;
const MAX_SESSIONS = 100_000;
/** Of one client. */
const MAX_TAGS = 4_096;
/** Of one session; the oldest go first. */
const MAX_HOSTS = 32;

export class Clients {
  readonly #clock: Clock;
  readonly #members: Members;
  readonly #sessions: Sessions;
  readonly #last = new BoundedMap<string, ClientUse>(MAX_CLIENTS);
  readonly #bySession = new BoundedMap<string, ClientUse>(MAX_SESSIONS);
  readonly #byTag = new BoundedMap<string, BoundedMap<string, ClientUse>>(MAX_CLIENTS);
  readonly #report: (use: ClientUse, host: string, verdict: Verdict) => void;

  constructor(
    clock: Clock,
    members: Members,
    sessions: Sessions,
    report: (use: ClientUse, host: string, verdict: Verdict) => void,
  ) {
    this.#clock = clock;
    this.#members = members;
    this.#sessions = sessions;
    this.#report = report;
  }

  /** Runs for each request: an ordinary one costs no allocation. */
  used(request: LeaseRequest, member: Member): void {
    const { client = '', session, tag } = request.routing;
    const last = this.#last.getOrMake(client, makeUse);
    // one client often requests one host many times in a row
    if (last.hosts.length > 1 || last.hosts[0] !== request.targetHost) last.hosts.length = 0;
    const at = this.#clock.now();
    note(last, request, member, at);
    if (session !== undefined) note(this.#bySession.getOrMake(session, makeUse), request, member, at);
    if (tag === undefined) return;
    note(this.#byTag.getOrMake(client, makeTags).getOrMake(tag, makeUse), request, member, at);
  }

  /** A tag names one request more closely than a session. Without either, this is the client's last request. */
  find({ client, session, tag }: ClientName): ClientUse | undefined {
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
    known = this.find(name),
  ): { readonly host: string } | 'unknown' | 'host-needed' {
    const use = known ?? this.#useElsewhere(name);
    if (use === undefined) return 'unknown';
    const host = verdict.host ?? (this.#sitesOf(use).length === 1 ? use.hosts[0] : undefined);
    if (host === undefined) return 'host-needed';
    this.#report(use, host, verdict);
    return { host };
  }

  describe(name: ClientName, use = this.find(name)) {
    const session = this.#sessions.find(name.session ?? use?.session ?? '');
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
  #useElsewhere({ session, tag }: ClientName): ClientUse | undefined {
    const held = tag === undefined ? this.#sessions.find(session ?? '')?.member : undefined;
    const member = this.#members.find(held);
    if (member === undefined) return undefined;
    const use = new ClientUse();
    const routing = { ...(session !== undefined && { session }), ...(tag !== undefined && { tag }) };
    note(use, { id: 0, routing, targetHost: '', avoid: [], waitMs: 0 }, member, this.#clock.now());
    return use;
  }

  #sitesOf(use: ClientUse | undefined): string[] {
    return [...new Set((use?.hosts ?? []).map((host) => this.#members.sites.of(host).name))];
  }

  #movesAt(session: Session | undefined, remainingMs: number | undefined): string | null {
    if (session === undefined || remainingMs === undefined || session.isFixed) return null;
    const inMs = Math.max(0, remainingMs - this.#members.settings.minRemainingMs);
    return new Date(this.#clock.now() + inMs).toISOString();
  }
}

const makeUse = () => new ClientUse();
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
  if (targetHost === '' || hosts[0] === targetHost || hosts.includes(targetHost)) return;
  hosts.push(targetHost);
  if (hosts.length > MAX_HOSTS) hosts.shift();
}
