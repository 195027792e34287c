/**
 * The bus on which the parts tell what happened, and the list of everything they tell.
 *
 * Metrics, logs, the dashboard's stream and the snapshot listen; the parts that tell import none of them. Payloads
 * are plain data, without secrets. Names are in the past tense, durations in ms, moments in epoch ms.
 */
import type { FaultCode } from './faults.ts';
import type { MemberProtocol } from './protocol.ts';

export interface NoriaEvents {
  /** A member entered the pool, or was drawn again and keeps its history (`renewed`). */
  'member.joined': MemberEvent & { readonly remainingMs: number | undefined; readonly renewed: boolean };
  /** A member rests until a time, because of `fault`. */
  'member.quarantined': MemberEvent & {
    readonly forMs: number;
    readonly fault: FaultCode;
    readonly faults: number;
  };
  /** A quarantined member proved itself again. */
  'member.restored': MemberEvent;
  /** A member takes nothing new any more; its open tunnels go on. */
  'member.drained': MemberEvent & { readonly openTunnels: number };
  /** A member is gone for good. */
  'member.left': MemberEvent & { readonly reason: string; readonly uses: number; readonly fault?: FaultCode };
  /** A member may not be used for a host any more, by a client's own verdict. */
  'member.banned': MemberEvent & { readonly host: string };

  /** Clients wait, or one came after a quiet time: `sources` may be wanted now. */
  'demand.rose': { readonly sources: readonly string[] };
  /** A client got a member after waiting, or gave up (`outcome` says which). */
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
   * `code` is the service's, or `transport`. `forbidden`: of the rejected ones, proxies at addresses that are private while
   * these are not allowed, or noria's own; paid for like every other.
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
  /** A source changed its state, or the reason for it. */
  'source.moved': {
    readonly source: string;
    readonly from: string;
    readonly to: string;
    readonly reason: string;
    readonly code?: string;
    readonly advice?: string;
  };
  'source.warned': { readonly source: string; readonly message: string };

  /** One attempt through one member ended. `outcome` is `accepted`, `cancelled` or a fault's code. */
  'dial.attempted': {
    readonly source: string;
    readonly member: string;
    readonly outcome: 'accepted' | 'cancelled' | FaultCode;
    readonly phase: 'connect' | 'answer' | 'done';
    readonly blame: Blame;
    readonly ms: number;
    readonly hedge: boolean;
  };
  /** One client request found its way through a member, or none. `ms` includes the waiting for a member. */
  'dial.ended': {
    readonly outcome: 'accepted' | FaultCode;
    readonly attempts: number;
    readonly ms: number;
    readonly waitedMs: number;
    readonly source?: string;
    readonly member?: string;
    /** `host:port` of the target; for logs and recent failures, never for a metric's label. */
    readonly target: string;
    /** Life left of the member at that moment, when it is known. */
    readonly remainingMs?: number;
  };
  'hedge.ended': { readonly outcome: 'won' | 'lost' | 'failed' };
  /** Connections to many members failed at once; `down: false` when it is over. */
  'network.judged': { readonly down: boolean };

  'connection.opened': { readonly listener: string };
  /**
   * A client connection ended. `outcome` is `ok` or a fault's code. One that ended with the worker that served it is told as
   * `unknown` and `internal`, without `ms`.
   */
  'connection.closed': {
    readonly listener: string;
    readonly protocol: ClientProtocol;
    readonly outcome: 'ok' | FaultCode;
    readonly ms?: number;
  };
  /** A tunnel or a forwarded request ended. Up is from the client to the target. */
  'tunnel.closed': {
    readonly source: string;
    readonly member: string;
    readonly kind: 'tunnel' | 'forward';
    readonly bytesUp: number;
    readonly bytesDown: number;
    readonly ms: number;
  };
  /**
   * A client was refused. `detail` is for the log: it may name the target or the key that was wrong, never a secret.
   * `dialFailed`: the reason is a failed dial, which `dial.ended` has already reported with the same code.
   */
  'client.refused': {
    readonly listener: string;
    readonly protocol: ClientProtocol;
    readonly code: FaultCode;
    readonly detail: string;
    readonly dialFailed?: true;
  };
}

export type ClientProtocol = 'http' | 'connect' | 'upgrade' | 'socks5' | 'socks4' | 'unknown';

/** Who a failed attempt is laid at: see docs/health.md. */
export type Blame = 'nobody' | 'member' | 'half-member' | 'target' | 'source' | 'network';

interface MemberEvent {
  readonly source: string;
  /** The member's opaque id, as in X-Noria-Member. */
  readonly member: string;
  readonly protocol: MemberProtocol;
}

export type EventName = keyof NoriaEvents;
type Observer<Name extends EventName> = (event: NoriaEvents[Name]) => void;
type Observers = { [Name in EventName]?: Observer<Name>[] };

export class EventBus {
  readonly #observers: Observers = {};
  readonly #onObserverError: (name: EventName, error: unknown) => void;

  /** @param onObserverError - told of an observer that threw; what it observes goes on. */
  constructor(onObserverError: (name: EventName, error: unknown) => void) {
    this.#onObserverError = onObserverError;
  }

  /** Calls `observer` with every such event from now on, until the result is disposed of. */
  on<Name extends EventName>(name: Name, observer: Observer<Name>): Disposable {
    const before: Observer<Name>[] = this.#observers[name] ?? [];
    this.#set(name, [...before, observer]);
    let observes = true;
    return {
      [Symbol.dispose]: () => {
        if (!observes) return;
        observes = false;
        const now: Observer<Name>[] = this.#observers[name] ?? [];
        const at = now.indexOf(observer); // one of them, where the same observer was added twice
        this.#set(name, now.toSpliced(at, 1));
      },
    };
  }

  /** Whether anyone listens: lets a hot path leave out building an event. */
  hears(name: EventName): boolean {
    return (this.#observers[name]?.length ?? 0) > 0;
  }

  /** Tells every observer, at once, in the order of their coming. */
  emit<Name extends EventName>(name: Name, event: NoriaEvents[Name]): void {
    const observers: Observer<Name>[] | undefined = this.#observers[name];
    if (observers === undefined) return;
    for (const observer of observers) {
      try {
        observer(event);
      } catch (error) {
        this.#onObserverError(name, error);
      }
    }
  }

  #set<Name extends EventName>(name: Name, observers: Observer<Name>[]): void {
    (this.#observers as Record<Name, Observer<Name>[]>)[name] = observers;
  }
}
