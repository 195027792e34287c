/**
 * The event bus, and the list of all events.
 *
 * Pool, refill, dialer and listener emit events; metrics, log, dashboard and snapshot subscribe. Payloads are plain data
 * without secrets.
 */
import type { FaultCode } from './faults.ts';
import type { MemberProtocol } from './protocol.ts';

export interface NoriaEvents {
  /** A member entered the pool. `renewed`: the service returned a known member again, which keeps its history. */
  'member.joined': MemberEvent & { readonly remainingMs: number | undefined; readonly renewed: boolean };
  /** noria excluded a member for `forMs` because of `fault`. `faults` is the member's current fault score. */
  'member.quarantined': MemberEvent & {
    readonly forMs: number;
    readonly fault: FaultCode;
    readonly faults: number;
  };
  /** The quarantine of a member ended. */
  'member.restored': MemberEvent;
  /** A member gets no new work; its open tunnels continue. */
  'member.drained': MemberEvent & { readonly openTunnels: number };
  /** A member left the pool for good. */
  'member.left': MemberEvent & { readonly reason: string; readonly uses: number; readonly fault?: FaultCode };
  /** A client reported that a member is banned by a host. */
  'member.banned': MemberEvent & { readonly host: string };

  /** A client waits for a member of one of `sources`, or is the first client after a pause. */
  'demand.rose': { readonly sources: readonly string[] };
  /** A client stopped waiting for a member. */
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
   * `code` is the code of the service, or `transport` without an answer. `forbidden` counts the entries among
   * `rejected` that cost money but may not be used: proxies at private addresses or at noria's own.
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
  /** The state of a source changed, or the reason for its state. */
  'source.moved': {
    readonly source: string;
    readonly from: string;
    readonly to: string;
    readonly reason: string;
    readonly code?: string;
    readonly advice?: string;
  };
  'source.warned': { readonly source: string; readonly message: string };

  /** Readiness changed: whether noria can serve clients, or why not. */
  'readiness.changed': {
    readonly from: string;
    readonly to: string;
    readonly ready: boolean;
    readonly reason: string;
    readonly advice?: string;
    /** The problems, each with its source. */
    readonly problems: readonly string[];
    /** True when the last problem ended. */
    readonly cleared: boolean;
  };

  /** The connection to the fleet's store was opened or lost, or the reason for its loss changed. */
  'fleet.store': { readonly up: boolean; readonly reason?: string; readonly code?: FaultCode };
  /** This noria claimed a call to the service. `behind` and `outrun`: another noria of the fleet was faster. */
  'fleet.claimed': { readonly outcome: 'granted' | 'behind' | 'outrun' };
  /** The store answered an operation. */
  'fleet.answered': { readonly operation: string; readonly ms: number };
  /** A change of this or another noria arrived `lagMs` after it was shared. */
  'fleet.followed': { readonly lagMs: number };
  'fleet.warned': { readonly message: string };

  /** An attempt through one member ended. */
  'dial.attempted': {
    readonly source: string;
    readonly member: string;
    readonly outcome: 'accepted' | 'cancelled' | FaultCode;
    readonly phase: 'connect' | 'answer' | 'done';
    readonly blame: Blame;
    readonly ms: number;
    readonly hedge: boolean;
  };
  /** The dial for one client request ended. `ms` includes `waitedMs`, the wait for a member. */
  'dial.ended': {
    readonly outcome: 'accepted' | FaultCode;
    readonly attempts: number;
    readonly ms: number;
    readonly waitedMs: number;
    readonly source?: string;
    readonly member?: string;
    /** The target as `host:port`. Not for metric labels, which need closed sets. */
    readonly target: string;
    /** Remaining lifetime of the member, if known. */
    readonly remainingMs?: number;
  };
  'hedge.ended': { readonly outcome: 'won' | 'lost' | 'failed' };
  /** noria judged the network of this machine. `down`: connections to many members failed at once. */
  'network.judged': { readonly down: boolean };

  'connection.opened': { readonly listener: string };
  /**
   * A client connection ended. If its worker process died, `protocol` is `unknown`, `outcome` is `internal`, and `ms` is
   * absent.
   */
  'connection.closed': {
    readonly listener: string;
    readonly protocol: ClientProtocol;
    readonly outcome: 'ok' | FaultCode;
    readonly ms?: number;
  };
  /** A tunnel or a forwarded request ended. `bytesUp` counts bytes from the client to the target. */
  'tunnel.closed': {
    readonly source: string;
    readonly member: string;
    readonly kind: 'tunnel' | 'forward';
    readonly bytesUp: number;
    readonly bytesDown: number;
    readonly ms: number;
  };
  /**
   * A client was refused. `detail` is for the log. It may name the target or an invalid key, never a secret.
   * `dialFailed`: a failed dial is the reason, and `dial.ended` has already reported it with the same code.
   */
  'client.refused': {
    readonly listener: string;
    /** The client's address, or its IPv6 /64; '' if the client has left. */
    readonly client: string;
    readonly protocol: ClientProtocol;
    readonly code: FaultCode;
    readonly detail: string;
    readonly dialFailed?: true;
  };
}

export type ClientProtocol = 'http' | 'connect' | 'upgrade' | 'socks5' | 'socks4' | 'unknown';

/**
 * What noria blames for a failed attempt: see docs/health.md. `member`: no target can cause the failure.
 * `member-for-target`: another member reached the same target. `unclear`: the member or the target; attempts at other
 * targets decide.
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
  /** The opaque id, as in X-Noria-Member. */
  readonly member: string;
  readonly protocol: MemberProtocol;
}

export type EventName = keyof NoriaEvents;
type Subscriber<Name extends EventName> = (event: NoriaEvents[Name]) => void;
type Subscribers = { [Name in EventName]?: Subscriber<Name>[] };

export class EventBus {
  readonly #subscribers: Subscribers = {};
  readonly #onSubscriberError: (name: EventName, error: unknown) => void;

  /** @param onSubscriberError - called when a subscriber throws; the other subscribers still get the event. */
  constructor(onSubscriberError: (name: EventName, error: unknown) => void) {
    this.#onSubscriberError = onSubscriberError;
  }

  /** Subscribes to an event until the result is disposed of. */
  on<Name extends EventName>(name: Name, subscriber: Subscriber<Name>): Disposable {
    const before: Subscriber<Name>[] = this.#subscribers[name] ?? [];
    this.#set(name, [...before, subscriber]);
    let subscribed = true;
    return {
      [Symbol.dispose]: () => {
        if (!subscribed) return;
        subscribed = false;
        const now: Subscriber<Name>[] = this.#subscribers[name] ?? [];
        const at = now.indexOf(subscriber); // removes only one, if the same subscriber was added twice
        this.#set(name, now.toSpliced(at, 1));
      },
    };
  }

  /** Whether the event has subscribers: a hot path can skip building it. */
  hasSubscribers(name: EventName): boolean {
    return (this.#subscribers[name]?.length ?? 0) > 0;
  }

  /** Calls all subscribers synchronously, in the order of subscription. */
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
