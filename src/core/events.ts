/** The event bus, and the list of all events. Payloads are plain data without secrets. */
import type { FaultCode } from './faults.ts';
import type { MemberProtocol } from './protocol.ts';
import type { RequestRecord } from './request-record.ts';

export interface NoriaEvents {
  /**
   * A member entered the pool. `renewed`: the service returned a member that the pool already has; the member keeps
   * its history.
   */
  'member.joined': MemberEvent & { readonly remainingMs: number | undefined; readonly renewed: boolean };
  'member.quarantined': MemberEvent & {
    readonly forMs: number;
    readonly fault: FaultCode;
    readonly faults: number;
  };
  'member.restored': MemberEvent;
  /** The pool gives a member no more requests; its open tunnels continue. */
  'member.drained': MemberEvent & { readonly openTunnels: number };
  'member.left': MemberEvent & {
    readonly reason: string;
    readonly uses: number;
    readonly fault?: FaultCode;
    /** The noria of the fleet that drew the member; absent: this one. */
    readonly drawnBy?: string;
  };
  /** A site banned an exit for `forMs`. `isNamed`: a rule of `targets` names the site. */
  'site.banned': {
    readonly site: string;
    readonly isNamed: boolean;
    readonly exit: string;
    readonly evidence: 'report' | 'status' | 'reset';
    readonly forMs: number;
  };

  /**
   * A client began to wait for a member of one of `sources`, or `sources` got their first request after a time without
   * requests.
   */
  'demand.rose': { readonly sources: readonly string[] };
  'client.waited': { readonly ms: number; readonly outcome: 'served' | 'gave-up' | 'refused' };

  'session.bound': { readonly session: string; readonly member: string };
  'session.moved': {
    readonly session: string;
    readonly from: string;
    readonly to: string;
    readonly reason: string;
  };
  'session.ended': { readonly session: string; readonly reason: string };

  'draw.started': { readonly source: string; readonly asked: number };
  /**
   * `code` is the result code of the service, `transport` if the service did not answer, or a fault code if noria could
   * not send the call. `rejected` counts the entries that noria did not add to the pool. `forbidden` counts the
   * rejected entries with a private address or with noria's own address: noria paid for these proxies, but must not
   * connect to them.
   */
  'draw.done': {
    readonly source: string;
    readonly code: string;
    readonly asked: number;
    readonly received: number;
    readonly joined: number;
    readonly renewed: number;
    readonly rejected: number;
    readonly forbidden: number;
    readonly ms: number;
    readonly message?: string;
  };
  'source.moved': {
    readonly source: string;
    readonly from: string;
    readonly to: string;
    readonly reason: string;
    readonly code?: string;
    readonly advice?: string;
  };
  'source.warned': { readonly source: string; readonly message: string };

  'readiness.changed': {
    readonly from: string;
    readonly to: string;
    readonly ready: boolean;
    readonly reason: string;
    readonly advice?: string;
    /** As `SOURCE: REASON` for a problem of a source, else as `REASON`. */
    readonly problems: readonly string[];
    readonly shuttingDown: boolean;
    /** Whether noria now has no problem, but had one before this event. */
    readonly cleared: boolean;
  };

  'fleet.store': { readonly up: boolean; readonly reason?: string; readonly code?: FaultCode };
  /**
   * This noria tried to record its next call to the service in the fleet's store. `granted`: this noria may call.
   * `behind`: this noria had not applied all changes of the fleet. `outrun`: another replica recorded a change first.
   */
  'fleet.claimed': { readonly outcome: 'granted' | 'behind' | 'outrun' };
  'fleet.answered': { readonly operation: string; readonly ms: number };
  /** noria applied a fleet change `lagMs` after a replica (this one or another one) had shared it. */
  'fleet.followed': { readonly lagMs: number };
  /**
   * noria loaded the data of the fleet. `movedSessions`: the number of sessions for which the fleet had chosen another
   * member while noria was not connected to the fleet's store.
   */
  'fleet.loaded': { readonly movedSessions: number };
  'fleet.warned': { readonly message: string };
  /** A client got a session on whose member the norias of the fleet did not agree in time. */
  'fleet.unagreed': Readonly<Record<string, never>>;

  'dial.attempted': {
    readonly source: string;
    readonly member: string;
    readonly outcome: 'accepted' | 'cancelled' | FaultCode;
    readonly phase: 'connect' | 'answer' | 'done';
    readonly blame: Blame;
    readonly ms: number;
    readonly hedge: boolean;
    /** The id of the client request; undefined while nothing reads records. The same in the next three events. */
    readonly request?: string | undefined;
  };
  /** `ms` includes `waitedMs`, the time spent waiting for a member. */
  'dial.ended': {
    readonly outcome: 'accepted' | FaultCode;
    readonly attempts: number;
    readonly ms: number;
    readonly waitedMs: number;
    readonly source?: string;
    readonly member?: string;
    /** The target as `host:port`. Do not use it as a metric label: labels need closed sets. */
    readonly target: string;
    readonly remainingMs?: number;
    readonly request?: string | undefined;
  };
  'hedge.ended': { readonly outcome: 'won' | 'lost' | 'failed' };
  'network.judged': { readonly down: boolean };

  /** A client request or tunnel ended. Without subscribers, noria builds no records. */
  'request.ended': RequestRecord;
  /** An open tunnel relayed bytes since the last such event. */
  'request.grew': {
    readonly request: string;
    readonly user: string;
    readonly target: string;
    readonly source: string;
    readonly up: number;
    readonly down: number;
  };

  'connection.opened': { readonly listener: string };
  /**
   * A client connection ended. If the connection ended because its worker process died, `protocol` is `unknown`,
   * `outcome` is `internal`, and `ms` is absent.
   */
  'connection.closed': {
    readonly listener: string;
    readonly protocol: ClientProtocol;
    readonly outcome: 'ok' | FaultCode;
    readonly ms?: number;
  };
  /** `bytesUp` counts bytes from the client to the target. */
  'tunnel.closed': {
    readonly source: string;
    readonly member: string;
    readonly kind: 'tunnel' | 'forward';
    readonly bytesUp: number;
    readonly bytesDown: number;
    readonly ms: number;
    readonly request?: string | undefined;
  };
  /**
   * noria refused a client. `detail` is for the log: it may contain the target or an invalid key, but never a secret.
   * `dialFailed`: the dial failed, and a `dial.ended` event with the same code has already reported that.
   */
  'client.refused': {
    readonly listener: string;
    /** The client's address, or its IPv6 /64; '' if the client has already disconnected. */
    readonly client: string;
    readonly protocol: ClientProtocol;
    readonly code: FaultCode;
    readonly detail: string;
    readonly dialFailed?: true;
    readonly request?: string | undefined;
  };
}

export const NOTICE_EVENTS = ['not-ready', 'source-halted', 'budget-used', 'site-banned'] as const;

export type ClientProtocol = 'http' | 'connect' | 'upgrade' | 'socks5' | 'socks4' | 'unknown';

/**
 * The cause of a failed attempt, as noria judges it (docs/health.md). `member`: a failure that no target can cause.
 * `member-for-target`: another member reached the same target. `unclear`: either the member or the target; later
 * attempts at other targets decide.
 */
export type Blame =
  | 'nobody'
  | 'member'
  | 'member-for-target'
  | 'unclear'
  | 'target'
  | 'source'
  | 'network'
  | 'front-proxy';

interface MemberEvent {
  readonly source: string;
  /** The opaque id that clients see in the header X-Noria-Member. */
  readonly member: string;
  readonly protocol: MemberProtocol;
}

export type EventName = keyof NoriaEvents;
type Subscriber<Name extends EventName> = (event: NoriaEvents[Name]) => void;

export class EventBus {
  readonly #subscribers: { [Name in EventName]?: Subscriber<Name>[] } = {};
  readonly #onSubscriberError: (name: EventName, error: unknown) => void;

  /** @param onSubscriberError - called when a subscriber throws; the other subscribers still get the event. */
  constructor(onSubscriberError: (name: EventName, error: unknown) => void) {
    this.#onSubscriberError = onSubscriberError;
  }

  on<Name extends EventName>(name: Name, subscriber: Subscriber<Name>): Disposable {
    const before: Subscriber<Name>[] = this.#subscribers[name] ?? [];
    this.#set(name, [...before, subscriber]);
    let subscribed = true;
    return {
      [Symbol.dispose]: () => {
        if (!subscribed) return;
        subscribed = false;
        const now: Subscriber<Name>[] = this.#subscribers[name] ?? [];
        const at = now.indexOf(subscriber); // if the subscriber was added twice, its other subscription stays
        this.#set(name, now.toSpliced(at, 1));
      },
    };
  }

  /** Whether the event has subscribers. Without subscribers, a hot path does not build the event. */
  hasSubscribers(name: EventName): boolean {
    return (this.#subscribers[name]?.length ?? 0) > 0;
  }

  emit<Name extends EventName>(name: Name, event: NoriaEvents[Name]): void {
    const subscribers: Subscriber<Name>[] | undefined = this.#subscribers[name];
    if (subscribers === undefined) return;
    for (const subscriber of subscribers) {
      try {
        subscriber(event);
      } catch (error) {
        this.#onSubscriberError(name, error);
      }
    }
  }

  #set<Name extends EventName>(name: Name, subscribers: Subscriber<Name>[]): void {
    (this.#subscribers as Record<Name, Subscriber<Name>[]>)[name] = subscribers;
  }
}
